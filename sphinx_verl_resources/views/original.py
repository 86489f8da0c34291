"""The original document compared with computed figures: its figures with causes, its requirement lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from ..i18n import N_, _
from ..units import gb, gb_number, plain
from .memory import step_title
from .sentences import NOTES_CLASS, legend, listed, recorded
from .table import Cell, table_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..analysis.original import Comparison
    from ..analysis.requirements import JudgedClaim
    from ..catalog.models.analysis import Cause

ORIGINAL_CLASS = "verl-published"
REQUIREMENTS_CLASS = "verl-requirements"
#: The derivations of a number of GPUs.
DERIVATIONS = {
    "chain": N_("the chain"),
    "original chain": N_("the printed chain"),
    "pooled": N_("the pool"),
    "doubled": N_("twice the minimum"),
}
#: The names of the requirement lists.
_LEVELS = {"minimum": N_("minimum"), "recommended": N_("recommended"), "optimal": N_("optimal")}
_JUDGEMENTS = {
    "holds": N_("holds"),
    "too few": N_("too few"),
    "more than needed": N_("more than needed"),
    "never fits": N_("never fits"),
}


def original_rows(comparisons: Iterable[Comparison], anchors: Mapping[str, str]) -> nodes.tgroup:
    """Make one row per figure.

    Args:
        comparisons: the figures.
        anchors: the id of each cause's explanation on the page, by code.
    """
    rows = []
    for item in comparisons:
        causes = [(code, anchors[code]) for code in item.causes if code in anchors]
        carried = [(code, anchors[code]) for code in item.carried if code in anchors]
        between = [(_("; carried in"), "")] if causes and carried else []
        rows.append([
            Cell.of(_figure(item)),
            Cell.number(gb_number(item.computed) if item.is_size else plain(round(item.computed))),
            Cell.number(plain(item.original)),
            Cell.number("" if item.agrees else item.difference),
            Cell([(_word(item), None)], [*causes, *between, *carried]),
        ])  # fmt: skip
    return table_group([_("Figure"), _("By the formula"), _("Printed"), _("Difference"), _("Cause")], rows)


def _figure(item: Comparison) -> str:
    """Name the figure, the step before it, and its unit."""
    name = _(item.label)
    if item.step:
        # Inside a sentence: a word in capitals keeps them.
        first = item.step[0].lower() if item.step[1:2].islower() else item.step[0]
        step = step_title(first + item.step[1:], item.gpus)
        name = _("{figure}, after {step}").format(figure=name, step=step)
    return _("{quantity} (GB)").format(quantity=name) if item.is_size else name


def _word(item: Comparison) -> str:
    if item.agrees:
        return _("agrees")
    if not item.is_explained:
        return _("not recorded")
    return _("see") if item.causes else _("carried in")


def cause_list(causes: Iterable[Cause], targets: Mapping[str, nodes.target]) -> nodes.definition_list:
    """Explain each code, with the target of the links to it."""
    items = nodes.definition_list(classes=[NOTES_CLASS, "simple"])
    for cause in causes:
        term = nodes.term("", "", targets[cause.name], nodes.Text(cause.name), translatable=0)
        items += nodes.definition_list_item("", term, nodes.definition("", recorded(cause.text)))
    return items


def requirement_rows(claims: Iterable[JudgedClaim], marks: Sequence[str]) -> nodes.tgroup:
    """Make one row per claim and GPU; ``marks`` go to the heading of the computed figures."""
    rows = []
    for item in claims:
        gpu = item.gpu
        for unknown in item.unknown:
            gpu = _("{card}; there is no {unknown}").format(card=gpu, unknown=unknown)
        rows.append([
            Cell.of(_(_LEVELS[item.level])),
            Cell.of(item.claim),
            Cell.of(gpu),
            Cell.number(gb_number(item.limit)),
            Cell.number(gb_number(item.per_gpu)),
            Cell.number(_("none") if item.smallest is None else plain(item.smallest)),
            Cell.number(plain(item.pooled)),
            Cell([(_judgement(item), None)], strong=item.judgement in {"too few", "never fits"}),
            Cell.of(listed([_(DERIVATIONS[name]) for name in item.follows]) or _("none of these")),
        ])  # fmt: skip
    headings: list[str | Cell] = [
        _("List"), _("Printed claim"), _("Card"), _("Limit (GB)"), Cell.of(_("Per GPU (GB)"), marks),
        _("GPUs by the chain"), _("GPUs by the pool"), _("Verdict"), _("Same number by"),
    ]  # fmt: skip
    return table_group(headings, rows)


def requirement_legend(share: float) -> nodes.paragraph:
    """Explain the ways of counting GPUs."""
    text = _(
        "The limit is {share} % of the memory that the card has. By the chain, a GPU with all steps taken "
        "must stay below it; by the pool, the total without any step is divided by it, as if every part "
        "could be shared. Either way the smallest power of two is shown, and the verdict is that of the "
        "chain. The last column names the ways that lead to the number claimed; the printed chain is the "
        "chain with the figures that were printed, and with the size that a card is sold by."
    ).format(share=plain(share * 100))
    return legend(text)


def _judgement(item: JudgedClaim) -> str:
    """Return the judgement, with the figure that decides it."""
    judgement = _(_JUDGEMENTS[item.judgement])
    if item.smallest is None:
        return _("{verdict}: {size} stay on each GPU").format(verdict=judgement, size=gb(item.undivided))
    if item.judgement == "too few":
        return _("{verdict}: they need {size} each").format(verdict=judgement, size=gb(item.per_gpu))
    below = item.per_gpu_at_smallest if item.judgement == "more than needed" else item.per_gpu_below
    if below is None:
        return judgement
    return _("{verdict}: {gpus} would need {size} each").format(
        verdict=judgement,
        gpus=item.smallest if item.judgement == "more than needed" else item.smallest // 2,
        size=gb(below),
    )
