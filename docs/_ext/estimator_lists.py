"""Tables about the estimator, generated from the objects that it computes with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from sphinx_verl_resources.diagnostics import counted
from sphinx_verl_resources.fit.question import TASKS
from sphinx_verl_resources.fit.search import ALWAYS
from sphinx_verl_resources.memory import allocations
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.settings import MODELLED
from sphinx_verl_resources.memory.shape import DENSE, EXPERTS, FOUR_NORMS, LORA, LORA_ON_ATTENTION, SYMBOLS
from sphinx_verl_resources.nodes import NOTES_CLASS, Cell, empty_table, table_group
from sphinx_verl_resources.units import GIB, MIB, share, short_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sphinx.application import Sphinx


class EstimatorTable(SphinxDirective):
    """A table without options."""

    headings: Sequence[str]

    def run(self) -> list[nodes.Node]:
        table = empty_table("verl-docs-estimator")
        table += table_group(self.headings, [[*map(Cell.of, row)] for row in self.rows()])
        self.set_source_info(table)
        return [table]

    def rows(self) -> Iterable[Sequence[str]]:
        raise NotImplementedError


class Constants(EstimatorTable):
    """``.. docs-constants::``: every number that does not follow from a shape."""

    headings = ("Number", "Value", "Unit", "Evidence", "Source")

    def rows(self) -> Iterable[Sequence[str]]:
        numbers = [item for item in vars(allocations).values() if isinstance(item, allocations.Constant)]
        for item in numbers:
            size = item.unit.startswith("bytes") and item.value >= MIB
            yield (
                item.name[0].upper() + item.name[1:],
                _number(item.value, size),
                item.unit.replace("bytes", "GiB", 1) if size else item.unit,
                item.evidence,
                item.source,
            )


def _number(value: float, size: bool) -> str:
    return short_number(round(value / GIB, 3) if size else float(value))


class Errors(SphinxDirective):
    """``.. docs-errors::``: the errors by kind of run, and how they were measured."""

    def run(self) -> list[nodes.Node]:
        items = nodes.bullet_list()
        for kind in EstimatorContext().accuracy:
            cases, setups = counted(kind.cases, "case"), counted(kind.setups, "set-up")
            text = (
                f": {kind.compared}. {cases} ({setups}, {counted(kind.sources, 'source')}): "
                f"{share(kind.mean_error)} off on average and {share(kind.worst_error)} at most; "
                f"{kind.needed_more} needed more than computed. The range allows for {share(kind.error)}, "
                f"that of the counter for {share(kind.counter_error)}; {share(kind.inside)} are inside "
                "ranges from other sources."
            )
            name = nodes.strong("", kind.name)
            items += nodes.list_item("", nodes.paragraph("", "", name, nodes.Text(text)))
        return [items]


class Widths(EstimatorTable):
    """``.. docs-widths::``: the bytes per token of a layer."""

    headings = ("Layer", "Live in the backward pass", "Kept without recomputation", "Without gradients")

    def rows(self) -> Iterable[Sequence[str]]:
        for label, widths in {"Dense": DENSE, "With experts": EXPERTS}.items():
            working, (saved,), forward = widths
            yield label, f"max({', '.join(working)})", saved, f"max({', '.join(forward)})"
        added = {
            "Four norms add": FOUR_NORMS,
            "Adapters in fp32 add": LORA[False],
            "Adapters in fp32 on attention add": LORA_ON_ATTENTION[False],
            "Adapters in fp32 add, with experts": LORA[True],
            "Adapters in fp32 on attention add, with experts": LORA_ON_ATTENTION[True],
        }
        for label, widths in added.items():
            yield label, f"({', '.join(widths.working)})", *widths.saved, ""


class Symbols(EstimatorTable):
    """``.. docs-symbols::``: the meaning of the letters in the widths."""

    headings = ("Letter", "Meaning")

    def rows(self) -> Iterable[Sequence[str]]:
        return SYMBOLS.items()


class Tasks(EstimatorTable):
    """``.. docs-tasks::``: the settings of a plan."""

    headings = ("For", "Settings")

    def rows(self) -> Iterable[Sequence[str]]:
        yield "Every task", _settings(ALWAYS)
        for name, settings in TASKS.items():
            yield name, _settings(settings)


def _settings(settings: Any) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())


class Unmodelled(SphinxDirective):
    """``.. docs-unmodelled::``: keys that change memory although no formula reads them."""

    def run(self) -> list[nodes.Node]:
        registries = EstimatorContext()
        items = [
            nodes.list_item(
                "", nodes.paragraph("", "", nodes.literal("", key.name), nodes.Text(f": {key.effect}"))
            )
            for key in registries.config_keys
            if (key.phases or key.host_memory)
            and key.name not in MODELLED
            and key.status in {"active", "deprecated"}
        ]
        return [nodes.bullet_list("", *items, classes=[NOTES_CLASS])]  # its long words break


def setup(app: Sphinx) -> dict[str, Any]:
    for name, directive in {
        "constants": Constants,
        "errors": Errors,
        "widths": Widths,
        "symbols": Symbols,
        "tasks": Tasks,
        "unmodelled": Unmodelled,
    }.items():
        app.add_directive(f"docs-{name}", directive)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
