"""The table of size classes by numbers of GPUs, with its legend and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes

from ..i18n import N_, _, plural
from ..settings.writing import flat_yaml
from ..units import crossed, gib, short_number, two_digits
from .blocks import LEGEND_CLASS, code_block, details, in_a_row, legend, listed, titled_item
from .table import Cell, table_group
from .verdicts import as_title, mark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..answer.sizes import FitCell, FitKind
    from ..catalog.names import Verdict
    from .blocks import verl_details

TABLE_CLASS = "verl-fit"
#: Mark of an estimate that is below every recorded run of its model.
UNDERCUTS = "†"
UNDERCUTS_MEANING = N_("less total GPU memory than any recorded run of this model that ran or was reported.")
#: The word of each kind of cell.
KINDS: Mapping[FitKind, str] = {
    "ran": N_("ran"),
    "reported": N_("reported"),
    "fits": N_("fits"),
    "borderline": N_("borderline"),
    "no": N_("no"),
    "unknown": N_("unknown"),
}
#: The verdict of each estimated kind.
_VERDICTS: Mapping[FitKind, Verdict] = {
    "fits": "fits",
    "borderline": "borderline",
    "no": "does-not-fit",
    "unknown": "unknown",
}
_MEANINGS: Mapping[FitKind, str] = {
    "ran": N_(
        "a recorded run of that model on at most as many GPUs, with at most as much memory each. Its "
        "contributor or verl's continuous integration ran it, or its log or metrics are published."
    ),
    "reported": N_("the estimate does not fit, but documentation or commit messages report such a run."),
    "fits": N_("estimated to fit even at the high end of the range. The figure is the GPU memory then left."),
    "borderline": N_(
        "the GPU's memory is inside the range of the estimate. The figure is the memory that may be missing, "
        "or the largest mean length of a sequence, prompt and response, that fits."
    ),
    "no": N_("even the low end of the estimate exceeds the GPU's memory. The figure is the missing memory."),
    "unknown": N_("the settings allow no estimate for that number of GPUs."),
}
FSDP = "FSDP"


def size_heading() -> str:
    """Return the heading of the column of ``size_cell``."""
    return _("Size class (model)")


def size_cell(size: str, models: Mapping[str, str]) -> Cell:
    """Return the cell of a size class with its model."""
    model = models.get(size, "").rpartition("/")[2]
    return Cell.of(_("{size} ({model})").format(size=size, model=model))


def marked(text: str, undercuts: bool) -> str:
    """Return an estimate, with a mark on the same line if it undercuts every recorded run."""
    return f"{text}\N{NO-BREAK SPACE}{UNDERCUTS}" if undercuts else text


def fit_rows(
    rows: Sequence[tuple[str, Sequence[FitCell]]],
    models: Mapping[str, str],
    link: Callable[[str, str], nodes.Element],
) -> nodes.tgroup:
    """Return a row for each size class, with a column for each number of GPUs.

    Args:
        rows: size classes and their cells.
        models: the model of each size class.
        link: a function that makes a link to the row of a run, from its id and a text.
    """
    counts = [cell.gpus for cell in rows[0][1]] if rows else []
    gpus = (
        plural("{count} GPU", "{count} GPUs", count).format(count=short_number(count)) for count in counts
    )
    headings = [size_heading(), *gpus]
    body = [[size_cell(size, models), *(_cell(cell, link) for cell in cells)] for size, cells in rows]
    return table_group(headings, body)


def _cell(cell: FitCell, link: Callable[[str, str], nodes.Element]) -> Cell:
    word, gpus = _(KINDS[cell.kind]), crossed(cell.on)
    if cell.run:
        text = _("{word} on {gpus}").format(word=word, gpus=gpus) if gpus else word
        return Cell([], links=[link(cell.run, text)])
    verdict = mark(_VERDICTS[cell.kind], word)
    if cell.spare is None or cell.kind == "unknown":
        return Cell([], links=[verdict])
    facts = [_("on {gpus}").format(gpus=gpus)] if gpus else []
    facts += [_figure(cell)]
    if cell.kind != "no":  # the layout does not help if the run does not fit
        facts += [cell.layout] if cell.layout != FSDP else []
    figure = nodes.inline("", marked(listed(facts), cell.undercuts), classes=["verl-figure"])
    return Cell([], links=[nodes.inline("", "", verdict, nodes.Text(" "), figure)])


def _figure(cell: FitCell) -> str:
    """Return the memory that is left or missing, or the lengths up to which the run fits."""
    if cell.tokens is not None:
        return _("up to {tokens} tokens").format(tokens=two_digits(cell.tokens))
    size = gib(abs(cell.spare or 0.0))
    return (_("{size} left") if cell.kind == "fits" else _("{size} short")).format(size=size)


def fit_legend(rows: Sequence[tuple[str, Sequence[FitCell]]]) -> list[nodes.Node]:
    """Return the meaning of each word in the table, and the basis of its figures."""
    used = {cell.kind for size, cells in rows for cell in cells}
    words = nodes.bullet_list(classes=[LEGEND_CLASS])
    for kind, meaning in _MEANINGS.items():
        if kind in used:
            words += titled_item(as_title(_(KINDS[kind])), _(meaning))
    if any(cell.undercuts and not cell.run for size, cells in rows for cell in cells):
        words += titled_item(UNDERCUTS, _(UNDERCUTS_MEANING))
    below = how_estimated()
    if any(cell.layout != FSDP and not cell.run for size, cells in rows for cell in cells):
        megatron = _(
            "A cell shows the layout unless it is FSDP. TP, PP, CP and EP are Megatron's parallel sizes; "
            "sizes of 1 are left out."
        )
        below = in_a_row(below, megatron)
    return [words, legend(below)]


def how_estimated() -> str:
    """Return the sentences about the basis of all estimates in a table."""
    from ..estimator.versions import CURRENT, version_text

    return _(
        "Estimates are for verl {version} with the settings below, gradient checkpointing, no padding and a "
        "dynamic batch size. They use the FSDP or Megatron layout that fits with the least offloading, then "
        "the one with the largest token budget. A replica of the rollout engine uses as many GPUs as it "
        "needs."
    ).format(version=version_text(CURRENT))


def fit_settings(settings: Mapping[str, Any]) -> verl_details:
    """Return a folded block with the settings of the estimates."""
    from ..estimator.tasks import LIMITS

    block = code_block(flat_yaml(settings), "yaml", TABLE_CLASS)
    prompt, response = (settings[key] for key in LIMITS)
    title = _("Settings of the estimates: prompts of up to {prompt} and responses of up to {response} tokens")
    return details([nodes.Text(title.format(prompt=prompt, response=response))], [block])
