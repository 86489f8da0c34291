"""The registries as table rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from ..i18n import N_, _
from ..units import GIB, MIB, gib_number, short_number
from .table import PATH_CLASS, Cell, column_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..registries import Architecture, Gpu

#: Address of a model on Hugging Face.
CHECKPOINTS = "https://huggingface.co/{}"
_VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "huawei": "Huawei", "intel": "Intel"}
_KNOWN_FROM = {
    "reading": N_("driver output"),
    "derived": N_("a GPU with the same memory"),
    "nominal": N_("product specification"),
}


def gpu_anchor(gpu: Gpu) -> str:
    """Return the id of the row of a GPU."""
    return nodes.make_id(f"gpu-{gpu.name}")


def model_anchor(model: Architecture) -> str:
    """Return the id of the row of a model."""
    return nodes.make_id(f"model-{model.hf_id}")


def gpu_rows(gpus: Iterable[Gpu]) -> nodes.tgroup:
    """Return a table with a row for each GPU."""
    return column_table(gpus, [
        (_("GPU"), lambda gpu: Cell([(gpu.name, None)], anchor=gpu_anchor(gpu))),
        (_("Vendor"), lambda gpu: Cell.of(_VENDORS[gpu.vendor])),
        (_("Nominal (GB)"), lambda gpu: Cell.number(short_number(gpu.memory_gb))),
        (_("Memory (GiB)"), lambda gpu: Cell.number(gib_number(gpu.memory_mib * MIB))),
        (_("For CUDA (GiB)"), lambda gpu: Cell.number(_cuda_memory(gpu))),
        (_("Source of the memory size"), lambda gpu: Cell.of(_(_KNOWN_FROM[gpu.kind]))),
        (_("Other names"), lambda gpu: Cell.of(", ".join(gpu.aliases))),
    ])  # fmt: skip


def _cuda_memory(gpu: Gpu) -> str:
    return gib_number(gpu.cuda_total_gib * GIB) if gpu.cuda_total_gib else ""


def model_rows(models: Iterable[Architecture]) -> nodes.tgroup:
    """Return a table with a row for each shape; its last column lists the models that share it."""
    return column_table(models, [
        (_("Model"), _checkpoint),
        (_("Parameters (billion)"), lambda model: Cell.number(_billions(model.parameters))),
        (_("Active (billion)"), lambda model: Cell.number(_billions(model.parameters_active))),
        (_("Layers"), lambda model: Cell.number(short_number(model.num_hidden_layers))),
        (_("Hidden size"), lambda model: Cell.number(short_number(model.hidden_size))),
        (_("Heads (query/key)"), _heads),
        (_("Vocabulary"), lambda model: Cell.number(short_number(model.vocab_size))),
        (_("Same shape"), lambda model: Cell.path(*model.aliases, *model.aliases_unverified)),
    ])  # fmt: skip


def _checkpoint(model: Architecture) -> Cell:
    address = CHECKPOINTS.format(model.hf_id)
    return Cell([(model.hf_id, address)], anchor=model_anchor(model), classes=(PATH_CLASS,))


def _heads(model: Architecture) -> Cell:
    return Cell.number(f"{short_number(model.num_attention_heads)}/{short_number(model.num_key_value_heads)}")


def _billions(parameters: int | None) -> str:
    return f"{parameters / 1e9:,.2f}" if parameters else ""
