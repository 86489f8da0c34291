"""Tables about the estimator, generated from the objects that it computes with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from sphinx_verl_resources.answer.candidates import ALWAYS
from sphinx_verl_resources.estimator import constants
from sphinx_verl_resources.estimator.context import EstimatorContext
from sphinx_verl_resources.estimator.resolve import modelled_keys
from sphinx_verl_resources.estimator.shape import (
    DENSE,
    EXPERTS,
    EXPERTS_QK_NORM,
    FOUR_NORMS,
    QK_NORM,
    SYMBOLS,
)
from sphinx_verl_resources.estimator.tasks import TASKS
from sphinx_verl_resources.estimator.versions import CURRENT
from sphinx_verl_resources.nodes import Cell, empty_table, table_group
from sphinx_verl_resources.units import GIB, MIB, short_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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

    headings = ("Number", "Value", "From", "To", "Unit", "Evidence", "Source")

    def rows(self) -> Iterable[Sequence[str]]:
        numbers = [item for item in vars(constants).values() if isinstance(item, constants.Constant)]
        for item in numbers:
            size = item.unit.startswith("bytes") and item.value >= MIB
            yield (
                item.name[0].upper() + item.name[1:],
                *(_number(value, size) for value in (item.value, item.low, item.high)),
                item.unit.replace("bytes", "GiB", 1) if size else item.unit,
                item.evidence,
                item.source,
            )


def _number(value: float, size: bool) -> str:
    return short_number(round(value / GIB, 3) if size else float(value))


class Widths(EstimatorTable):
    """``.. docs-widths::``: the bytes per token of a layer."""

    headings = ("Layer", "Live in the backward pass", "Kept without recomputation", "Without gradients")

    def rows(self) -> Iterable[Sequence[str]]:
        kinds = {
            "Dense": (DENSE, ""),
            "Dense, adapters in fp32 on every matrix": (DENSE, "lora_"),
            "Dense, adapters in fp32 on attention": (DENSE, "lora_attention_"),
            "With norms on query and key": (QK_NORM, ""),
            "With four norms": (FOUR_NORMS, ""),
            "With experts": (EXPERTS, ""),
            "With experts, and norms on query and key": (EXPERTS_QK_NORM, ""),
        }
        for label, (widths, prefix) in kinds.items():
            yield (
                label,
                _largest(widths[f"{prefix}working"]),
                _largest(widths[f"{prefix}saved"]),
                _largest(widths["forward"]),
            )


def _largest(moments: Mapping[str, str]) -> str:
    """Return the formula of a width, such as ``max(18h + 12f, 34h)``."""
    formulas = list(moments.values())
    return formulas[0] if len(formulas) == 1 else f"max({', '.join(formulas)})"


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
        registries = EstimatorContext().registries
        read = modelled_keys(CURRENT, registries)
        items = [
            nodes.list_item(
                "", nodes.paragraph("", "", nodes.literal("", key.name), nodes.Text(f": {key.effect}"))
            )
            for key in registries.config_keys
            if (key.phases or key.host_memory)
            and key.name not in read
            and key.status in {"active", "deprecated"}
        ]
        return [nodes.bullet_list("", *items)]


def setup(app: Sphinx) -> dict[str, Any]:
    for name, directive in {
        "constants": Constants,
        "widths": Widths,
        "symbols": Symbols,
        "tasks": Tasks,
        "unmodelled": Unmodelled,
    }.items():
        app.add_directive(f"docs-{name}", directive)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
