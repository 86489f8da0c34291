"""The registries as tables: GPUs, and the shapes of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from ..i18n import N_, _
from ..units import GIB, MIB, gib_number, plain
from .table import PATH_CLASS, Cell, table_group

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..catalog.models.architecture import Architecture
    from ..catalog.models.registries import Gpu

GPUS_CLASS = "verl-gpus"
MODELS_CLASS = "verl-models"
#: Where checkpoints are published.
CHECKPOINTS = "https://huggingface.co/{}"
_VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "huawei": "Huawei", "intel": "Intel"}
_KNOWN_FROM = {
    "reading": N_("its driver's output"),
    "derived": N_("a card with the same memory"),
    "nominal": N_("the product's figure"),
}


def gpu_anchor(gpu: Gpu) -> str:
    """Return the id of the row of a GPU."""
    return nodes.make_id(f"gpu-{gpu.name}")


def model_anchor(model: Architecture) -> str:
    """Return the id of the row of a model."""
    return nodes.make_id(f"model-{model.hf_id}")


def gpu_rows(gpus: Iterable[Gpu]) -> nodes.tgroup:
    """Return a table with a row for each GPU."""
    rows = []
    for gpu in gpus:
        cuda = gib_number(gpu.cuda_total_gib * GIB) if gpu.cuda_total_gib else ""
        rows.append([
            Cell([(gpu.name, None)], anchor=gpu_anchor(gpu)),
            Cell.of(_VENDORS[gpu.vendor]),
            Cell.number(plain(gpu.memory_gb)),
            Cell.number(gib_number(gpu.memory_mib * MIB)),
            Cell.number(cuda),
            Cell.of(_(_KNOWN_FROM[gpu.kind])),
            Cell.of(", ".join(gpu.aliases)),
        ])  # fmt: skip
    headings = [
        _("GPU"),
        _("Vendor"),
        _("Sold with (GB)"),
        _("Memory (GiB)"),
        _("For CUDA (GiB)"),
        _("Memory known from"),
        _("Also called"),
    ]
    return table_group(headings, rows)


def model_rows(models: Iterable[Architecture]) -> nodes.tgroup:
    """Return a table with a row for each shape; its last column lists the checkpoints that share it."""
    rows = []
    for model in models:
        heads = f"{plain(model.num_attention_heads)}/{plain(model.num_key_value_heads)}"
        same = [*model.aliases, *model.aliases_unverified]
        rows.append([
            Cell([(model.hf_id, CHECKPOINTS.format(model.hf_id))], anchor=model_anchor(model),
                 classes=(PATH_CLASS,)),
            Cell.number(_billions(model.parameters)),
            Cell.number(_billions(model.parameters_active) if model.parameters_active else ""),
            Cell.number(plain(model.num_hidden_layers)),
            Cell.number(plain(model.hidden_size)),
            Cell.number(heads),
            Cell.number(plain(model.vocab_size)),
            Cell([(name, None) for name in same], classes=(PATH_CLASS,)),
        ])  # fmt: skip
    headings = [
        _("Model"),
        _("Parameters (billion)"),
        _("Active (billion)"),
        _("Layers"),
        _("Hidden size"),
        _("Heads (query/key)"),
        _("Vocabulary"),
        _("Same shape"),
    ]
    return table_group(headings, rows)


def _billions(parameters: int) -> str:
    return f"{parameters / 1e9:,.2f}"
