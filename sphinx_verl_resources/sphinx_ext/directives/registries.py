"""The registries as tables, which references link to, and all recorded data as downloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes

from ... import __version__
from ...diagnostics import Code, Diagnostic, Location, NoAnswerError, suggest_or
from ...selection import FILTERS, phrases
from ...views.registries import gpu_rows, model_rows
from ..objects import GPU, LABELS, MODEL, Target
from .base import ABOUT_TABLE, VerlDirective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...dataset import Dataset
    from ...registries import Registry


def entries_named(data: Dataset, kind: str, names: Sequence[str]) -> tuple[Any, ...]:
    """Return entries of a registry in its order or in that of the names; all for no names.

    Raises:
        NoAnswerError: names are unknown.
    """
    registry: Registry[Any] = data.gpus if kind == GPU else data.architectures
    code = Code.unknown_gpu if kind == GPU else Code.unknown_model
    unknown = [
        Diagnostic(
            Location(""),
            code,
            f"unknown {LABELS[kind]} {name!r}",
            suggest_or(name, registry.names, FILTERS[kind].remedy),
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
    #: One of ``objects.KINDS``.
    kind: ClassVar[str]
    #: The field with the recorded name of an entry.
    key: ClassVar[str]
    rows: ClassVar[staticmethod[[Any], nodes.tgroup]]

    def show(self) -> list[nodes.Node]:
        """Return the table."""
        asked = phrases(" ".join(self.arguments)) if self.arguments else []
        if self.arguments and not asked:
            raise NoAnswerError.because("name at least one, with commas between, or leave the argument out")
        entries = entries_named(self.data, self.kind, asked)
        if self.problems:
            return []
        inside = self.rows(entries)
        for entry, target in zip(entries, inside.findall(nodes.target), strict=True):
            target["ids"] = [self.free_id(target["ids"][0], target)]
            name = getattr(entry, self.key)
            self.domain.note_object(self.kind, name, Target(target["ids"][0], name))
        return [self.table(inside)]


class VerlGpus(RegistryDirective):
    """The GPUs, with their memory."""

    directive = "verl-gpus"
    kind, key, rows = GPU, "name", staticmethod(gpu_rows)


class VerlModels(RegistryDirective):
    """The models, with the values that determine their memory."""

    directive = "verl-models"
    kind, key, rows = MODEL, "hf_id", staticmethod(model_rows)


class VerlDownloads(VerlDirective):
    """A list of the files to download, which HTML builders write next to the pages."""

    directive = "verl-downloads"
    instead_of_argument = "leave it out"

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts of the data that estimates depend on."""
        return ("config_keys", "accuracy")

    def show(self) -> list[nodes.Node]:
        """Return the list, and remember the files for the builder."""
        from ...answer.export import export_of
        from ...views.exports import download_list, download_texts

        if self.problems:
            return []
        for name, text in download_texts(export_of(self.data, __version__)).items():
            self.domain.note_file(name, text)
        return [download_list()]
