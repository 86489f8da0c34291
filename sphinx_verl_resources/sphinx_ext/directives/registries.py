"""The registries as tables, where references lead, and everything recorded as files to download."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes

from ... import __version__
from ...catalog.selection import REGISTRIES, phrases
from ...diagnostics import Code, NoAnswerError, suggest_or
from ...views import registries as render
from ..domain import VerlDomain
from ..objects import GPU, LABELS, MODEL, Target, canonical, names
from ..queries import ObjectName, RegistryEntries
from .base import ABOUT_TABLE, VerlDirective
from .computed import AnalysisDirective

if TYPE_CHECKING:
    from collections.abc import Sequence


class RegistryDirective(VerlDirective):
    """A table of the entries of a registry: of those that the argument names, or of all."""

    takes = ABOUT_TABLE
    #: One of ``objects.KINDS``.
    kind: ClassVar[str]
    unknown: ClassVar[Code]
    #: The field with the name under which an entry is recorded.
    key: ClassVar[str]
    table_class: ClassVar[str]
    rows: ClassVar[staticmethod[[Any], nodes.tgroup]]

    def show(self) -> list[nodes.Node]:
        """Return the table."""
        domain = VerlDomain.of(self.env)
        asked = phrases(" ".join(self.arguments)) if self.arguments else []
        if self.arguments and not asked:
            raise NoAnswerError.because("name at least one, with commas between, or leave the argument out")
        for name in asked:
            with self.noted():
                self._look_at(domain, name)
        if self.problems:
            return []
        entries: Sequence[Any] = self.ask(RegistryEntries(self.kind, tuple(asked)))
        inside = self.rows(entries)
        for entry, target in zip(entries, inside.findall(nodes.target), strict=True):
            target["ids"] = [self.free_id(target["ids"][0], target)]
            name = getattr(entry, self.key)
            domain.note_object(self.kind, name, Target(target["ids"][0], name))
        return [self.table(self.table_class, inside, "", with_options=True)]

    def _look_at(self, domain: VerlDomain, name: str) -> None:
        """Depend on an entry that is called so.

        Raises:
            NoAnswerError: there is none.
        """
        recorded = canonical(domain.catalog, self.kind, name)
        self.ask(ObjectName(self.kind, name, recorded or name))
        if recorded is None:
            hint = suggest_or(name, names(domain.catalog, self.kind), REGISTRIES[self.kind])
            message = f"there is no {LABELS[self.kind]} {name!r}"
            raise NoAnswerError.because(message, hint, code=self.unknown)


class VerlGpus(RegistryDirective):
    """The GPUs, with their memory."""

    directive = "verl-gpus"
    kind, unknown, key = GPU, Code.unknown_gpu, "name"
    table_class, rows = render.GPUS_CLASS, staticmethod(render.gpu_rows)


class VerlModels(RegistryDirective):
    """The models, with what their memory follows from."""

    directive = "verl-models"
    kind, unknown, key = MODEL, Code.unknown_model, "hf_id"
    table_class, rows = render.MODELS_CLASS, staticmethod(render.model_rows)


class VerlDownloads(AnalysisDirective):
    """A list of the files, which builders of HTML write next to the pages."""

    directive = "verl-downloads"

    def show(self) -> list[nodes.Node]:
        """Return the list; the files are kept for those who write them."""
        from ...estimator.questions import Exported
        from ...views.exports import download_list, download_texts

        self.refuse_argument("leave it out")
        if self.problems:
            return []
        domain = VerlDomain.of(self.env)
        for name, text in download_texts(self.ask(Exported(__version__))).items():
            domain.note_file(name, text)
        return [download_list()]
