"""The table of size classes by numbers of GPUs, with its legend and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes

from ..i18n import N_, _, plural
from ..settings.writing import flat_yaml
from ..units import gib, short_number, two_digits
from .blocks import LEGEND_CLASS, code_block, details, in_a_row, legend, titled_item
from .table import Cell, table_group
from .verdicts import LABELS, as_title

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..estimator.grid import FitCell, FitKind
    from .blocks import verl_details

TABLE_CLASS = "verl-fit"
#: The label of each kind of cell.
KINDS: Mapping[str, str] = {"measured": N_("measured"), "computed": N_("computed"), **LABELS}
_MEANINGS: Mapping[FitKind, str] = {
    "measured": N_(
        "a tested run of that size class, task and GPU is recorded for that number of GPUs, with "
        "settings of its own."
    ),
    "computed": N_("fits at the upper end of the range of the estimate. The figure is the peak of a GPU."),
    "borderline": N_("the memory of the GPU is inside the range of the estimate."),
    "depends-on-lengths": N_(
        "fits with short sequences, not with sequences at their limits. The figure is the largest mean "
        "length of a sequence that fits, prompt and response."
    ),
    "does-not-fit": N_("even the lower end of the range of the estimate is more than the memory of the GPU."),
    "unknown": N_("the settings leave no estimate for that number of GPUs."),
}
FSDP = "FSDP"


def fit_rows(
    rows: Sequence[tuple[str, Sequence[FitCell]]],
    models: Mapping[str, str],
    link: Callable[[str, str], nodes.Element],
) -> nodes.tgroup:
    """Return a row for each size class, with a column for each number of GPUs.

    Args:
        rows: size classes and their cells.
        models: the model of each size class.
        link: makes a link to the row of a run, from the id of the run and a text.
    """
    counts = [cell.gpus for cell in rows[0][1]] if rows else []
    gpus = (
        plural("{count} GPU", "{count} GPUs", count).format(count=short_number(count)) for count in counts
    )
    headings = [_("Size class (computed for)"), *gpus]
    body = []
    for size, cells in rows:
        model = models.get(size, "").rpartition("/")[2]
        label = _("{size} ({model})").format(size=size, model=model)
        body.append([Cell.of(label), *(_cell(cell, link) for cell in cells)])
    return table_group(headings, body)


def _cell(cell: FitCell, link: Callable[[str, str], nodes.Element]) -> Cell:
    classes = (f"verl-fit-{cell.kind}",)
    kind = _(KINDS[cell.kind])
    if cell.run:
        return Cell([], links=[link(cell.run, kind)], classes=classes)
    if cell.peak is None:
        return Cell([(kind, None)], classes=classes)
    figure = gib(cell.peak)
    if cell.tokens is not None:
        figure = _("up to {tokens} tokens").format(tokens=two_digits(cell.tokens))
    # Of a run that does not fit, the layout is of no use.
    bare = cell.layout == FSDP or cell.kind == "does-not-fit"
    text = _("{kind}: {peak}") if bare else _("{kind}: {peak}, {layout}")
    return Cell([(text.format(kind=kind, peak=figure, layout=cell.layout), None)], classes=classes)


def fit_legend(rows: Sequence[tuple[str, Sequence[FitCell]]], version: str) -> list[nodes.Node]:
    """Return the meaning of each word in the table, and how its figures were computed."""
    used = {cell.kind for size, cells in rows for cell in cells}
    words = nodes.bullet_list(classes=[LEGEND_CLASS])
    for kind, meaning in _MEANINGS.items():
        if kind in used:
            words += titled_item(as_title(_(KINDS[kind])), _(meaning))
    with_megatron = any(cell.layout.startswith("Megatron") for size, cells in rows for cell in cells)
    below = _(
        "Computed with FSDP and the settings below; what is not set has the default of verl {version}, and "
        "the rollout engine takes as many GPUs for a replica as it needs. Token budgets that are not set are "
        "the smallest that hold one sequence, or larger ones where these take less."
    ).format(version=version)
    if with_megatron:
        megatron = _(
            "Where FSDP does not fit, Megatron is tried, with its own options that save memory; TP, PP, CP "
            "and EP are its parallel sizes, and sizes of 1 are left out."
        )
        below = in_a_row(below, megatron)
    return [words, legend(below)]


def fit_settings(settings: Mapping[str, Any]) -> verl_details:
    """Return the settings of the computed figures, to be folded out."""
    block = code_block(flat_yaml(settings), "yaml", TABLE_CLASS)
    return details([nodes.Text(_("The settings of the computed figures"))], [block])
