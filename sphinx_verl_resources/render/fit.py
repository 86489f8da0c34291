"""Which size class runs on how many GPUs: a table of words and figures, and what the words mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes

from ..units import gib, plain
from .settings import flat_yaml
from .table import Cell, table_group

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..estimator.fit import FitCell

TABLE_CLASS = "verl-fit"
#: What each kind of cell means.
MEANINGS = {
    "measured": "a tested run of that size class, task and GPU is recorded for that number of GPUs, with "
    "settings of its own.",
    "computed": "fits at the upper end of the range of the estimate. The figure is the peak of a GPU.",
    "tight": "the memory of the GPU lies in the range of the estimate: it may fit, or may not.",
    "does not fit": "the GPU has less memory than the range of the estimate begins with.",
    "unknown": "the settings leave no estimate for that number of GPUs.",
}
FSDP = "FSDP"


def fit_rows(
    rows: Sequence[tuple[str, Sequence[FitCell]]],
    models: Mapping[str, str],
    link: Callable[[str, str], nodes.Element],
) -> nodes.tgroup:
    """One size class a row, one number of GPUs a column.

    Args:
        rows: size classes and their cells.
        models: what stands for each size class.
        link: makes a link to the row of a run, from the id of the run and a text.
    """
    counts = [cell.gpus for cell in rows[0][1]] if rows else []
    gpus = (f"{plain(count)} GPU{'' if count == 1 else 's'}" for count in counts)
    headings = ["Size class (computed for)", *gpus]
    body = []
    for size, cells in rows:
        model = models.get(size, "").rpartition("/")[2]
        body.append([Cell.of(f"{size} ({model})"), *(_cell(cell, link) for cell in cells)])
    return table_group(headings, body)


def _cell(cell: FitCell, link: Callable[[str, str], nodes.Element]) -> Cell:
    classes = (f"verl-fit-{cell.kind.replace(' ', '-')}",)
    if cell.run:
        return Cell([], links=[link(cell.run, cell.kind)], classes=classes)
    if cell.peak is None:
        return Cell([(cell.kind, None)], classes=classes)
    # How a run is laid out that does not fit helps nobody.
    layout = "" if cell.layout == FSDP or cell.kind == "does not fit" else f", {cell.layout}"
    return Cell([(f"{cell.kind}: {gib(cell.peak)}{layout}", None)], classes=classes)


def fit_legend(
    rows: Sequence[tuple[str, Sequence[FitCell]]], settings: Mapping[str, Any], version: str
) -> list[nodes.Node]:
    """The meaning of each word in the table, and what its figures were computed with."""
    used = {cell.kind for _, cells in rows for cell in cells}
    words = nodes.bullet_list(classes=["verl-legend"])
    for kind, meaning in MEANINGS.items():
        if kind in used:
            paragraph = nodes.paragraph(
                "", "", nodes.strong("", kind.capitalize()), nodes.Text(f": {meaning}")
            )
            words += nodes.list_item("", paragraph)
    with_megatron = any(cell.layout.startswith("Megatron") for _, cells in rows for cell in cells)
    megatron = (
        " Where FSDP does not fit, Megatron is tried, with its own options that save memory; TP, PP, CP and "
        "EP are its parallel sizes, and sizes of 1 are left out."
        if with_megatron
        else ""
    )
    below = (
        f"Computed with FSDP and the settings below; what is not set has the default of verl {version}, and "
        "the rollout engine takes as many GPUs for a replica as it needs. Token budgets that are not set are "
        f"the smallest that hold one sequence, or larger ones where these take less.{megatron}"
    )
    code = flat_yaml(settings)
    return [
        words,
        nodes.paragraph("", below, classes=["verl-legend"]),
        nodes.literal_block(code, code, language="yaml", classes=[TABLE_CLASS]),
    ]
