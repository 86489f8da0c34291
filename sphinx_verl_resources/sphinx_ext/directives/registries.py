"""The registries as tables, which references link to, and all recorded data as downloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes

from ... import __version__
from ...diagnostics import NoAnswerError
from ...selection import phrases
from ...views.registries import gpu_rows, model_rows
from ..domain import VerlDomain
from ..objects import GPU, MODEL, Target
from ..queries import RegistryEntries
from .base import ABOUT_TABLE, VerlDirective

if TYPE_CHECKING:
    from collections.abc import Sequence


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
        entries: Sequence[Any] = self.ask(RegistryEntries(self.kind, tuple(asked)))
        if self.problems:
            return []
        inside = self.rows(entries)
        for entry, target in zip(entries, inside.findall(nodes.target), strict=True):
            target["ids"] = [self.free_id(target["ids"][0], target)]
            name = getattr(entry, self.key)
            VerlDomain.of(self.env).note_object(self.kind, name, Target(target["ids"][0], name))
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

    def show(self) -> list[nodes.Node]:
        """Return the list, and remember the files for the builder."""
        from ...answer.queries import Exported
        from ...views.exports import download_list, download_texts

        if self.problems:
            return []
        domain = VerlDomain.of(self.env)
        for name, text in download_texts(self.ask(Exported(__version__))).items():
            domain.note_file(name, text)
        return [download_list()]
