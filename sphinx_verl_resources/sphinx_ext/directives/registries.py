"""``.. verl-gpus::`` and ``.. verl-models::``: what the registries record, where references lead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes

from ...catalog.selection import REGISTRIES, phrases
from ...diagnostics import Code, suggest_or
from ...views import registries as render
from ..domain import VerlDomain
from ..objects import GPU, LABELS, MODEL, Target, canonical, names
from ..queries import ObjectName, RegistryEntries
from . import options
from .base import ABOUT_TABLE, VerlDirective, free_id
from .options import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ...catalog.models.architecture import Architecture
    from ...catalog.models.registries import Gpu


class RegistryDirective(VerlDirective):
    """A table of the entries of a registry: of those that the argument names, or of all."""

    option_spec: ClassVar[options.AnyOption] = options.AnyOption.of(*ABOUT_TABLE)
    #: One of ``objects.KINDS``.
    kind: ClassVar[str]
    unknown: ClassVar[Code]
    table_class: ClassVar[str]

    def show(self, given: Mapping[str, str], problems: options.Problems) -> list[nodes.Node]:
        """The table."""
        domain = VerlDomain.of(self.env)
        asked = phrases(" ".join(self.arguments)) if self.arguments else []
        if self.arguments and not asked:
            raise OptionError("name at least one, with commas between, or leave the argument out")
        for name in asked:
            with problems.noted():
                self._look_at(domain, name)
        if problems:
            return []
        entries: Sequence[Any] = domain.ask(RegistryEntries(self.kind, tuple(asked)))
        inside = self.rows(entries)
        targets = inside.findall(nodes.target)
        for entry, target in zip(entries, targets, strict=True):
            target["ids"] = [free_id(target["ids"][0], target, self.state.document)]
            name = self.name_of(entry)
            domain.note_object(self.kind, name, Target(target["ids"][0], name))
        return [self.table(self.table_class, inside, "", with_options=True)]

    def _look_at(self, domain: VerlDomain, name: str) -> None:
        """Make sure that an entry is called so.

        Raises:
            OptionError: none is.
        """
        recorded = canonical(domain.catalog, self.kind, name)
        domain.ask(ObjectName(self.kind, name, recorded or name))
        if recorded is None:
            hint = suggest_or(name, names(domain.catalog, self.kind), REGISTRIES[self.kind])
            raise OptionError(f"there is no {LABELS[self.kind]} {name!r}; {hint}", self.unknown)

    def rows(self, entries: Sequence[Any]) -> nodes.tgroup:
        """The inside of the table."""
        raise NotImplementedError

    def name_of(self, entry: Any) -> str:
        """The name under which an entry is recorded."""
        raise NotImplementedError


class VerlGpus(RegistryDirective):
    """The GPUs, with their memory."""

    kind, unknown, table_class = GPU, Code.unknown_gpu, render.GPUS_CLASS

    def rows(self, entries: Iterable[Gpu]) -> nodes.tgroup:
        """One GPU a row."""
        return render.gpu_rows(entries)

    def name_of(self, entry: Gpu) -> str:
        """The name that pages show."""
        return entry.name


class VerlModels(RegistryDirective):
    """The models, with what their memory follows from."""

    kind, unknown, table_class = MODEL, Code.unknown_model, render.MODELS_CLASS

    def rows(self, entries: Iterable[Architecture]) -> nodes.tgroup:
        """One shape a row."""
        return render.model_rows(entries)

    def name_of(self, entry: Architecture) -> str:
        """The checkpoint whose configuration it is."""
        return entry.hf_id
