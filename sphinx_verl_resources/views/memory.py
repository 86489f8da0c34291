"""The memory analysis of a model: its specification, its formulas, and the waterfall down to one GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..analysis.analysis import PER_GPU
from ..catalog.fields import NOT_RECORDED
from ..catalog.names import TOTAL
from ..i18n import N_, _, plural
from ..units import GB, gb, gb_number, gib_number, plain, share, signed
from .formulas import component_formula, formula_item, formula_items, sum_formula
from .sentences import listed
from .table import Cell, bold, table_group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from docutils import nodes

    from ..analysis.analysis import Bar, Outcome
    from ..breakdown import Breakdown

TABLE_CLASS = "verl-memory"
SUMMARY_CLASS = "verl-memory-summary"
_UNUSED = N_("no formula uses it")
#: The note below a summary of models with different numbers of GPUs.
DIFFERENT_GPUS = N_(
    "The models are shared by different numbers of GPUs, so the rows do not compare directly."
)
#: The rule for the hidden size that the document states and does not follow.
STATED_HIDDEN_SIZE = "sqrt(parameters / (12 × layers))"
#: The components inside a sentence.
_INSIDE = {
    "parameters": N_("parameters"),
    "gradients": N_("gradients"),
    "optimizer": N_("optimizer states"),
    "activations": N_("activations"),
    "kv-cache": N_("KV cache"),
    "overhead": N_("system overhead"),
}


def step_title(label: str, gpus: int | None) -> str:
    """Return a step with its number of GPUs, if it has one: ``FSDP over 8 GPUs``."""
    if gpus is None:
        return label
    return plural("{step} over {count} GPU", "{step} over {count} GPUs", gpus).format(step=label, count=gpus)


def bar_label(bar: Bar) -> str:
    """Return the name of a line of the waterfall."""
    return step_title(bar.label, bar.step.gpus) if bar.step else _(bar.label)


def specification_rows(outcome: Outcome, marks: Mapping[str, Sequence[str]]) -> nodes.tgroup:
    """Make one row per quantity of the formulas, and per quantity that is only stated."""
    shape = outcome.shape
    if shape.checkpoint:
        origin, hidden = _("of {checkpoint}").format(checkpoint=shape.checkpoint), ""
        ffn = ffn_source = "" if shape.ffn_dimension else _("no dense layer")
    else:
        origin = _("{billions} billion by the shape below").format(
            billions=f"{shape.implied_parameters / 1e9:.2f}"
        )
        hidden = _("the stated rule, {rule}, gives {size}; this is {share} of it").format(
            rule=STATED_HIDDEN_SIZE,
            size=plain(round(shape.stated_hidden_size)),
            share=share(shape.hidden_size_share),
        )
        ffn_source = _("{number} × hidden size").format(number=plain(shape.ffn_dimension / shape.hidden_size))
        ffn = ""
    facts = [
        (_("Parameters"), plain(shape.parameters), origin, ""),
        (_("Hidden size"), plain(shape.hidden_size), hidden, ""),
        (_("Layers"), plain(shape.layers), "", ""),
        (_("FFN dimension"), ffn or plain(shape.ffn_dimension), _joined(ffn_source, _(_UNUSED)), ""),
        (_("Attention heads"), _count(shape.attention_heads), _(_UNUSED), ""),
        (_("Vocabulary"), plain(shape.vocabulary_size), _(_UNUSED), "vocabulary-size"),
        (_("Sequences"), plain(outcome.batch_size), _("on every GPU"), "batch-size"),
        (_("Tokens per sequence"), plain(outcome.sequence_length), "", "sequence-length"),
        (_("GPUs"), plain(outcome.gpus), "", "gpus"),
    ]
    rows = [
        [Cell.of(label, marks.get(subject, ())), Cell.number(value), Cell.of(remark)]
        for label, value, remark, subject in facts
    ]
    return table_group([_("Quantity"), _("Value"), _("Remark")], rows)


def _count(number: int) -> str:
    return plain(number) if number else _(NOT_RECORDED)


def _joined(*texts: str) -> str:
    return _("; ").join(text for text in texts if text)


def formula_list(outcome: Outcome, marks: Mapping[str, Sequence[str]]) -> nodes.definition_list:
    """List the formulas of each component and each step."""
    items = formula_items()
    for component in outcome.start.components:
        items += formula_item(
            _(component.label), [("", component_formula(component, gb))], marks.get(component.key, ())
        )
    items += formula_item(_("Total"), [("", _sum(outcome.start))], marks.get(TOTAL, ()))
    for step in outcome.steps:
        changed = [item for item in step.after.components if item.key in step.changed]
        lines = [(_(item.label) if len(changed) > 1 else "", component_formula(item, gb)) for item in changed]
        lines.append(("", _sum(step.after)))
        title = step_title(step.label, step.gpus)
        items += formula_item(title, lines, marks.get(step.name, ()), step.text)
    return items


def _sum(breakdown: Breakdown) -> str:
    return sum_formula(breakdown, lambda size: f"{size / GB:,.3f}".rstrip("0").rstrip("."), gb)


def waterfall_rows(outcome: Outcome, marks: Mapping[str, Sequence[str]], *, with_gib: bool) -> nodes.tgroup:
    """Make the waterfall's rows, with running totals and what each step saved."""
    rows: list[list[Cell]] = []
    for bar in outcome.waterfall():
        numbers = [_change(bar.change), gb_number(bar.running)]
        numbers += [gib_number(bar.running)] if with_gib else []
        cells = [Cell.of(bar_label(bar), marks.get(bar.subject, ())), *map(Cell.number, numbers)]
        rows.append([*(bold(cells) if bar.is_sum else cells), Cell.of(_detail(bar))])
    totals = [_("Running total (GB)"), *([_("Running total (GiB)")] if with_gib else [])]
    return table_group([_("Part or step"), _("Change (GB)"), *totals, _("Share or effect")], rows)


def _change(size: float) -> str:
    return signed(gb_number(abs(size)), size) if size else ""


def _detail(bar: Bar) -> str:
    """Describe a line: its share of the total, or its effect."""
    if bar.subject == TOTAL:
        return _("everything on one GPU")
    if bar.subject == PER_GPU:
        return _("{share} saved in all").format(share=share(bar.share))
    step = bar.step
    if step is None:
        return _("{share} of the total").format(share=share(bar.share))
    if not step.saved:
        return _("changes nothing")
    first, *others = (item for item in step.before.components if item.key in step.changed)
    before, after = step.before.of(step.changed), step.after.of(step.changed)
    return _("{parts}: {before} → {after}").format(
        parts=listed([_(first.label), *(_(_INSIDE[item.key]) for item in others)]),
        before=gb_number(before),
        after=gb(after),
    )


def summary_rows(
    outcomes: Sequence[Outcome], marks: Mapping[str, Sequence[str]], *, with_gib: bool
) -> nodes.tgroup:
    """Make one row per model: its total, and the memory of a GPU after each step."""
    steps = outcomes[0].steps if outcomes else ()
    headings = [
        Cell.of(_("Model")),
        Cell.of(_("GPUs")),
        Cell.of(_("All on one GPU (GB)"), marks.get(TOTAL, ())),
        *(Cell.of(_("then {step} (GB)").format(step=step.label), marks.get(step.name, ())) for step in steps),
        Cell.of(_("Saved")),
    ]
    if with_gib:
        headings.insert(-1, Cell.of(_("Per GPU (GiB)")))
    rows = []
    for outcome in outcomes:
        sizes = [outcome.start.total, *(step.after.total for step in outcome.steps)]
        numbers = [plain(outcome.gpus), *map(gb_number, sizes)]
        numbers += [gib_number(outcome.end.total)] if with_gib else []
        saved = share(outcome.saved_share)
        rows.append([Cell.of(outcome.shape.name), *map(Cell.number, (*numbers, saved))])
    return table_group(headings, rows)
