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
#: After an estimate that is below every recorded run of its model.
UNDERCUTS = "†"
UNDERCUTS_MEANING = N_(
    "less GPU memory, all GPUs together, than any recorded run of this model that ran or was reported."
)
#: The word of each kind of cell.
KINDS: Mapping[FitKind, str] = {
    "ran": N_("ran"),
    "reported": N_("reported"),
    "fits": N_("fits"),
    "borderline": N_("borderline"),
    "no": N_("no"),
    "unknown": N_("unknown"),
}
#: The mark of each kind that is estimated.
_VERDICTS: Mapping[FitKind, Verdict] = {
    "fits": "fits",
    "borderline": "borderline",
    "no": "does-not-fit",
    "unknown": "unknown",
}
_MEANINGS: Mapping[FitKind, str] = {
    "ran": N_(
        "its contributor or verl's continuous integration ran that model, or its log or metrics are "
        "published, on GPUs with as much memory or less and as many of them or fewer."
    ),
    "reported": N_("the estimate does not fit, but documentation or commit messages report such a run."),
    "fits": N_("estimated to fit at the upper end of the range. The figure is what the GPU then has left."),
    "borderline": N_(
        "estimated: the memory of the GPU is inside the range. The figure is what it may lack, or the "
        "largest mean length of a sequence, prompt and response, that fits."
    ),
    "no": N_(
        "estimated: even the lower end of the range is more than the GPU has. The figure is what it lacks."
    ),
    "unknown": N_("the settings leave no estimate for that number of GPUs."),
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
        link: makes a link to the row of a run, from the id of the run and a text.
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
    if cell.kind != "no":  # of a run that does not fit, the layout is of no use
        facts += [cell.layout] if cell.layout != FSDP else []
    figure = nodes.inline("", marked(listed(facts), cell.undercuts), classes=["verl-figure"])
    return Cell([], links=[nodes.inline("", "", verdict, nodes.Text(" "), figure)])


def _figure(cell: FitCell) -> str:
    """Return what the GPU has left or lacks, or the lengths up to which it fits."""
    if cell.tokens is not None:
        return _("up to {tokens} tokens").format(tokens=two_digits(cell.tokens))
    size = gib(abs(cell.spare or 0.0))
    return (_("{size} left") if cell.kind == "fits" else _("{size} short")).format(size=size)


def fit_legend(rows: Sequence[tuple[str, Sequence[FitCell]]]) -> list[nodes.Node]:
    """Return the meaning of each word in the table, and how its figures were computed."""
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
            "Cells name the layout if it is not FSDP; TP, PP, CP and EP are the parallel sizes of Megatron, "
            "and sizes of 1 are left out."
        )
        below = in_a_row(below, megatron)
    return [words, legend(below)]


def how_estimated() -> str:
    """Return the sentences about what all estimates of a table have in common."""
    from ..estimator.versions import CURRENT, version_text

    return _(
        "Estimates are for verl {version} with the settings below, gradient checkpointing, no padding and a "
        "dynamic batch size. Of FSDP and Megatron they take the layout that fits with the least offloading, "
        "then with the largest token budget. The rollout engine takes as many GPUs for a replica as it needs."
    ).format(version=version_text(CURRENT))


def fit_settings(settings: Mapping[str, Any]) -> verl_details:
    """Return the settings of the computed figures, to be folded out."""
    from ..estimator.tasks import LIMITS

    block = code_block(flat_yaml(settings), "yaml", TABLE_CLASS)
    prompt, response = (settings[key] for key in LIMITS)
    title = _("Settings of the estimates: prompts of up to {prompt} and responses of up to {response} tokens")
    return details([nodes.Text(title.format(prompt=prompt, response=response))], [block])
