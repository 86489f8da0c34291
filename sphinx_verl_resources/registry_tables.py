"""The registries as tables, which references link to, and all recorded data as downloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes

from . import __version__
from .diagnostics import Diagnostic, Location, NoAnswerError, suggest_or
from .directive import ABOUT_TABLE, VerlDirective
from .domain import GPU, LABELS, MODEL, Target
from .i18n import N_, _
from .nodes import PATH_CLASS, Cell, column_table, titled
from .references import RECORD
from .selection import phrases
from .units import GIB, MIB, gib_number, short_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .dataset import Dataset
    from .diagnostics import Code
    from .registries import Architecture, Gpu

#: Address of a model on Hugging Face.
CHECKPOINTS = "https://huggingface.co/{}"
_VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "huawei": "Huawei", "intel": "Intel"}
_KNOWN_FROM = {
    "reading": N_("driver output"),
    "derived": N_("a GPU with the same memory"),
    "nominal": N_("product specification"),
}


def entries_named(data: Dataset, kind: str, names: Sequence[str]) -> tuple[Any, ...]:
    """Return entries of a registry in its order or in that of the names; all for no names.

    Raises:
        NoAnswerError: names are unknown.
    """
    registry: Any = data.gpus if kind == GPU else data.architectures
    code: Code = "unknown_gpu" if kind == GPU else "unknown_model"
    unknown = [
        Diagnostic(
            Location(""),
            code,
            f"unknown {LABELS[kind]} {name!r}",
            suggest_or(name, registry.names, RECORD[kind]),
        )
        for name in names
        if registry.get(name) is None
    ]
    if unknown:
        raise NoAnswerError(*unknown)
    found = [registry.get(name) for name in names] or [*registry]
    return tuple({id(entry): entry for entry in found}.values())


class RegistryDirective(VerlDirective):
    """A table of the entries of a registry: those in the argument, otherwise all."""

    takes = ABOUT_TABLE
    kind: ClassVar[str]

    def show(self) -> list[nodes.Node]:
        """Return the table."""
        asked = phrases(" ".join(self.arguments))
        if self.arguments and not asked:
            raise NoAnswerError.because("name at least one, with commas between, or leave the argument out")
        entries = entries_named(self.data, self.kind, asked)
        anchors = {}
        for entry in entries:
            name = entry.lookup_names[0]
            anchors[name] = self.reserve(nodes.make_id(f"{self.kind}-{name}"), nodes.target())
            self.domain.here(self.kind).setdefault(name, Target(anchors[name], name))
        return [self.table(self.rows(entries, anchors))]

    def rows(self, entries: Sequence[Any], anchors: dict[str, str]) -> nodes.tgroup:
        """Return the table's content, with the id of each row by name."""
        raise NotImplementedError


class VerlGpus(RegistryDirective):
    """The GPUs, with their memory."""

    directive, kind = "verl-gpus", GPU

    def rows(self, entries: Sequence[Gpu], anchors: dict[str, str]) -> nodes.tgroup:
        """Return a row for each GPU."""

        def for_cuda(gpu: Gpu) -> Cell:
            return Cell.number(gib_number(gpu.cuda_total_gib * GIB) if gpu.cuda_total_gib else "")

        return column_table(entries, [
            (_("GPU"), lambda gpu: Cell([(gpu.name, None)], anchor=anchors[gpu.name])),
            (_("Vendor"), lambda gpu: _VENDORS[gpu.vendor]),
            (_("Nominal (GB)"), lambda gpu: Cell.number(short_number(gpu.memory_gb))),
            (_("Memory (GiB)"), lambda gpu: Cell.number(gib_number(gpu.memory_mib * MIB))),
            (_("For CUDA (GiB)"), for_cuda),
            (_("Source of the memory size"), lambda gpu: _(_KNOWN_FROM[gpu.kind])),
            (_("Other names"), lambda gpu: ", ".join(gpu.aliases)),
        ])  # fmt: skip


class VerlModels(RegistryDirective):
    """The models, with the values that determine their memory, and other models of the same shape."""

    directive, kind = "verl-models", MODEL

    def rows(self, entries: Sequence[Architecture], anchors: dict[str, str]) -> nodes.tgroup:
        """Return a row for each shape."""

        def checkpoint(model: Architecture) -> Cell:
            address = CHECKPOINTS.format(model.hf_id)
            return Cell([(model.hf_id, address)], anchor=anchors[model.hf_id], classes=(PATH_CLASS,))

        def billions(parameters: int | None) -> Cell:
            return Cell.number(f"{parameters / 1e9:,.2f}" if parameters else "")

        def heads(model: Architecture) -> Cell:
            both = (model.num_attention_heads, model.num_key_value_heads)
            return Cell.number("/".join(map(short_number, both)))

        return column_table(entries, [
            (_("Model"), checkpoint),
            (_("Parameters (billion)"), lambda model: billions(model.parameters)),
            (_("Active (billion)"), lambda model: billions(model.parameters_active)),
            (_("Layers"), lambda model: Cell.number(short_number(model.num_hidden_layers))),
            (_("Hidden size"), lambda model: Cell.number(short_number(model.hidden_size))),
            (_("Heads (query/key)"), heads),
            (_("Vocabulary"), lambda model: Cell.number(short_number(model.vocab_size))),
            (_("Same shape"), lambda model: Cell.path(*model.aliases, *model.aliases_unverified)),
        ])  # fmt: skip


#: Class of the name of a file to download, which becomes a link if the file is written.
DOWNLOAD_CLASS = "verl-download"


class VerlDownloads(VerlDirective):
    """A list of the files to download, which HTML builders write next to the pages."""

    directive = "verl-downloads"
    instead_of_argument = "leave it out"
    reads = ("config_keys", "accuracy")

    def show(self) -> list[nodes.Node]:
        """Return the list, and remember the files for the builder."""
        from .printed import CONTENTS, download_texts

        for name, text in download_texts(self.domain.room("export")(self.data, __version__)).items():
            self.domain.note_file(name, text)
        items = nodes.bullet_list(classes=[self.directive])
        for name, content in CONTENTS.items():
            file = nodes.inline("", "", nodes.literal("", name), classes=[DOWNLOAD_CLASS])
            items += nodes.list_item("", nodes.paragraph("", "", *titled(file, _(content))))
        return [items]
