"""What was printed, beside what is computed: figures with causes, and requirement lists with verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from ..units import gb, gb_number, plain
from .runs import NOTES_CLASS
from .table import Cell, table_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..catalog.models.analysis import Cause
    from ..memory.printed import Comparison
    from ..memory.requirements import Verdict

PRINTED_CLASS = "verl-published"
REQUIREMENTS_CLASS = "verl-requirements"
#: How a reading of the requirement lists is called.
READINGS = {
    "chain": "the chain",
    "printed chain": "the printed chain",
    "pooled": "the pool",
    "doubled": "twice the minimum",
}


def printed_rows(comparisons: Iterable[Comparison], anchors: Mapping[str, str]) -> nodes.tgroup:
    """One figure a row.

    Args:
        comparisons: the figures.
        anchors: where the page explains each cause, by its code.
    """
    rows = []
    for item in comparisons:
        figure = f"{item.label}, {_behind(item.step)}" if item.step else item.label
        unit = " (GB)" if item.is_size else ""
        causes = [(code, anchors[code]) for code in item.causes if code in anchors]
        carried = [(code, anchors[code]) for code in item.carried if code in anchors]
        between = [("; carried in", "")] if causes and carried else []
        rows.append([
            Cell.of(figure + unit),
            Cell.number(gb_number(item.computed) if item.is_size else plain(round(item.computed))),
            Cell.number(plain(item.as_printed)),
            Cell.number("" if item.agrees else item.difference),
            Cell([(_word(item), None)], [*causes, *between, *carried]),
        ])  # fmt: skip
    return table_group(["Figure", "By the formula", "Printed", "Difference", "Cause"], rows)


def _behind(step: str) -> str:
    return f"after {step[0].lower() if step[1:2].islower() else step[0]}{step[1:]}"


def _word(item: Comparison) -> str:
    if item.agrees:
        return "agrees"
    if not item.is_explained:
        return "not recorded"
    return "see" if item.causes else "carried in"


def cause_list(causes: Iterable[Cause], targets: Mapping[str, nodes.target]) -> nodes.definition_list:
    """What each code means, behind its target, where links land."""
    items = nodes.definition_list(classes=[NOTES_CLASS, "simple"])
    for cause in causes:
        term = nodes.term("", "", targets[cause.name], nodes.Text(cause.name))
        text = nodes.paragraph("", " ".join(cause.text.split()))
        items += nodes.definition_list_item("", term, nodes.definition("", text))
    return items


def requirement_rows(verdicts: Iterable[Verdict], marks: Sequence[str]) -> nodes.tgroup:
    """One claim about one card a row; ``marks`` stand where the figures do."""
    rows = []
    for item in verdicts:
        unknown = "".join(f"; there is no {card}" for card in item.unknown)
        rows.append([
            Cell.of(item.level),
            Cell.of(item.claim),
            Cell.of(f"{item.gpu}{unknown}"),
            Cell.number(gb_number(item.limit)),
            Cell.number(gb_number(item.per_gpu)),
            Cell.number("none" if item.smallest is None else plain(item.smallest)),
            Cell.number(plain(item.pooled)),
            Cell([(_verdict(item), None)], strong=item.judgement in {"too few", "never fits"}),
            Cell.of(", ".join(READINGS[reading] for reading in item.follows) or "none of these"),
        ])  # fmt: skip
    headings: list[str | Cell] = [
        "List", "Printed claim", "Card", "Limit (GB)", Cell.of("Per GPU (GB)", marks), "GPUs by the chain",
        "GPUs by the pool", "Verdict", "Same number by",
    ]  # fmt: skip
    return table_group(headings, rows)


def requirement_legend(share: float) -> nodes.paragraph:
    """What the two ways of counting GPUs are."""
    limit = f"{plain(share * 100)} %"
    return nodes.paragraph(
        "",
        f"The limit is {limit} of the memory that the card has. By the chain, a GPU with all steps taken "
        "must stay below it; by the pool, the total without any step is divided by it, as if every part "
        "could be shared. Either way the smallest power of two is shown, and the verdict is that of the "
        "chain. The last column names the ways that lead to the number claimed; the printed chain is the "
        "chain with the figures that were printed, and with the size that a card is sold by.",
        classes=["verl-legend"],
    )


def _verdict(item: Verdict) -> str:
    """The judgement and the figure that decides it."""
    if item.smallest is None:
        return f"{item.judgement}: {gb(item.undivided)} stay on each GPU"
    if item.judgement == "too few":
        return f"{item.judgement}: they need {gb(item.per_gpu)} each"
    if item.judgement == "more than needed":
        return f"{item.judgement}: {item.smallest} would need {gb(item.per_gpu_at_smallest or 0)} each"
    if item.per_gpu_below is None:
        return item.judgement
    return f"{item.judgement}: {item.smallest // 2} would need {gb(item.per_gpu_below)} each"
