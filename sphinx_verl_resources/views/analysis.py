"""The memory analysis of a model: tables, formulas, chart, and the claims of the requirement lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..analysis.analysis import PER_GPU
from ..analysis_records import TOTAL
from ..i18n import N_, _, plural
from ..units import GB, gb, gb_number, gib_number, share, short_number, signed
from .blocks import component_formula, formula_item, formula_items, legend, listed, sum_formula
from .charts import SUM, TAKEN, Line, Piece, bar_key, draw_legend
from .drawing import BAR, FONT, GAP, LINE, PAINTS, WIDTH, Drawing, bar, clip, headings, path, thick
from .table import Cell, bold, column_table, table_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from docutils import nodes

    from ..analysis.analysis import Bar, Outcome
    from ..analysis.requirements import Derivation, JudgedClaim
    from ..breakdown import Breakdown
    from .remarks import Marks

_UNUSED = N_("not used by any formula")
#: The note below a summary of models with different numbers of GPUs.
DIFFERENT_GPUS = N_("The models use different numbers of GPUs, so the rows are not directly comparable.")
#: The rule for the hidden size that the document states but does not follow.
STATED_HIDDEN_SIZE = "sqrt(parameters / (12 × layers))"
#: The names of components inside a sentence.
_INSIDE = {
    "parameters": N_("parameters"),
    "gradients": N_("gradients"),
    "optimizer": N_("optimizer states"),
    "activations": N_("activations"),
    "kv-cache": N_("KV cache"),
    "overhead": N_("system overhead"),
}
#: The ways to derive a number of GPUs.
DERIVATIONS = {
    "chain": N_("the chain"),
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
#: The judgements with the figure that decides them.
_REASONS = {
    "holds": N_("{verdict}: {gpus} would need {size} each"),
    "too few": N_("{verdict}: they need {size} each"),
    "more than needed": N_("{verdict}: {gpus} would need {size} each"),
    "never fits": N_("{verdict}: {size} stay on each GPU"),
}


def memory_caption(outcome: Outcome) -> str:
    """Return the caption of a table: the numbers of tokens and, if a step uses several, of GPUs."""
    batch, length = outcome.batch_size, outcome.sequence_length
    caption = plural(
        "{model}: memory for {batch} sequence of {length} tokens",
        "{model}: memory for {batch} sequences of {length} tokens",
        batch,
    ).format(model=outcome.shape.name, batch=batch, length=length)
    if all(step.gpus is None for step in outcome.steps):
        return caption
    gpus = plural("{caption} on {count} GPU", "{caption} on {count} GPUs", outcome.gpus)
    return gpus.format(caption=caption, count=outcome.gpus)


def step_title(label: str, gpus: int | None) -> str:
    """Return a step with its number of GPUs, if it has one: ``FSDP over 8 GPUs``."""
    if gpus is None:
        return label
    return plural("{step} over {count} GPU", "{step} over {count} GPUs", gpus).format(step=label, count=gpus)


def bar_label(bar: Bar) -> str:
    """Return the name of a line of the waterfall."""
    return step_title(bar.label, bar.step.gpus) if bar.step else _(bar.label)


def specification_rows(outcome: Outcome, marks: Marks) -> nodes.tgroup:
    """Make one row per quantity, including those that no formula uses."""
    shape = outcome.shape
    if shape.checkpoint:
        origin, hidden = _("of {checkpoint}").format(checkpoint=shape.checkpoint), ""
        ffn = ffn_source = "" if shape.ffn_dimension else _("no dense layer")
    else:
        origin = _("{billions} billion from the shape below").format(
            billions=f"{shape.implied_parameters / 1e9:.2f}"
        )
        hidden = _("the stated rule, {rule}, gives {size}; this is {share} of it").format(
            rule=STATED_HIDDEN_SIZE,
            size=short_number(round(shape.stated_hidden_size)),
            share=share(shape.hidden_size_share),
        )
        ffn_source = _("{number} × hidden size").format(
            number=short_number(shape.ffn_dimension / shape.hidden_size)
        )
        ffn = ""
    facts = [
        (_("Parameters"), short_number(shape.parameters), origin, ""),
        (_("Hidden size"), short_number(shape.hidden_size), hidden, ""),
        (_("Layers"), short_number(shape.layers), "", ""),
        (_("FFN dimension"), ffn or short_number(shape.ffn_dimension), _joined(ffn_source, _(_UNUSED)), ""),
        (_("Attention heads"), _count(shape.attention_heads), _(_UNUSED), ""),
        (_("Vocabulary"), short_number(shape.vocabulary_size), _(_UNUSED), "vocabulary-size"),
        (_("Sequences"), short_number(outcome.batch_size), _("on every GPU"), "batch-size"),
        (_("Tokens per sequence"), short_number(outcome.sequence_length), "", "sequence-length"),
        (_("GPUs"), short_number(outcome.gpus), "", "gpus"),
    ]
    rows = [
        [Cell.of(label, marks(subject)), Cell.number(value), Cell.of(remark)]
        for label, value, remark, subject in facts
    ]
    return table_group([_("Quantity"), _("Value"), _("Remark")], rows)


def _count(number: int) -> str:
    return short_number(number) if number else _("not recorded")


def _joined(*texts: str) -> str:
    return _("; ").join(text for text in texts if text)


def formula_list(outcome: Outcome, marks: Marks) -> nodes.definition_list:
    """Return the list of formulas of each component and each step."""
    items = formula_items()
    for component in outcome.start.components:
        items += formula_item(
            _(component.label), [("", component_formula(component, gb))], marks(component.key)
        )
    items += formula_item(_("Total"), [("", _sum(outcome.start))], marks(TOTAL))
    for step in outcome.steps:
        changed = [item for item in step.after.components if item.key in step.changed]
        lines = [(_(item.label) if len(changed) > 1 else "", component_formula(item, gb)) for item in changed]
        lines.append(("", _sum(step.after)))
        title = step_title(step.label, step.gpus)
        items += formula_item(title, lines, marks(step.name), step.text)
    return items


def _sum(breakdown: Breakdown) -> str:
    return sum_formula(breakdown, lambda size: f"{size / GB:,.3f}".rstrip("0").rstrip("."), gb)


def waterfall_rows(outcome: Outcome, marks: Marks, *, with_gib: bool) -> nodes.tgroup:
    """Make the waterfall's rows, with running totals and the saving of each step."""
    rows: list[list[Cell]] = []
    for line in outcome.waterfall():
        numbers = [_change(line.change), gb_number(line.running)]
        numbers += [gib_number(line.running)] if with_gib else []
        cells = [Cell.of(bar_label(line), marks(line.subject)), *map(Cell.number, numbers)]
        rows.append([*(bold(cells) if line.is_sum else cells), Cell.of(_detail(line))])
    totals = [_("Running total (GB)"), *([_("Running total (GiB)")] if with_gib else [])]
    return table_group([_("Part or step"), _("Change (GB)"), *totals, _("Share or effect")], rows)


def _change(size: float) -> str:
    return signed(size, gb_number) if size else ""


def _detail(bar: Bar) -> str:
    """Return the description of a line: its share of the total, or its effect."""
    if bar.subject == TOTAL:
        return _("everything on one GPU")
    if bar.subject == PER_GPU:
        return _("{share} saved in total").format(share=share(bar.share))
    step = bar.step
    if step is None:
        return _("{share} of the total").format(share=share(bar.share))
    if not step.saved:
        return _("no change")
    first, *others = (item for item in step.before.components if item.key in step.changed)
    before, after = step.before.of(step.changed), step.after.of(step.changed)
    return _("{parts}: {before} → {after}").format(
        parts=listed([_(first.label), *(_(_INSIDE[item.key]) for item in others)]),
        before=gb_number(before),
        after=gb(after),
    )


def summary_rows(outcomes: Sequence[Outcome], marks: Marks, *, with_gib: bool) -> nodes.tgroup:
    """Make one row per model: its total, and the memory of a GPU after each step."""
    steps = outcomes[0].steps if outcomes else ()
    headings = [
        Cell.of(_("Model")),
        Cell.of(_("GPUs")),
        Cell.of(_("All on one GPU (GB)"), marks(TOTAL)),
        *(Cell.of(_("then {step} (GB)").format(step=step.label), marks(step.name)) for step in steps),
        Cell.of(_("Saved")),
    ]
    if with_gib:
        headings.insert(-1, Cell.of(_("Per GPU (GiB)")))
    rows = []
    for outcome in outcomes:
        sizes = [outcome.start.total, *(step.after.total for step in outcome.steps)]
        numbers = [short_number(outcome.gpus), *map(gb_number, sizes)]
        numbers += [gib_number(outcome.end.total)] if with_gib else []
        saved = share(outcome.saved_share)
        rows.append([Cell.of(outcome.shape.name), *map(Cell.number, (*numbers, saved))])
    return table_group(headings, rows)


def requirement_rows(claims: Iterable[JudgedClaim], marks: Sequence[str]) -> nodes.tgroup:
    """Make one row per claim and GPU; ``marks`` are added to the heading of the computed figures."""
    return column_table(claims, [
        (_("List"), lambda item: Cell.of(_(_LEVELS[item.claim.level]))),
        (_("Printed claim"), lambda item: Cell.of(item.claim.text)),
        (_("GPU"), lambda item: Cell.of(_claimed_gpu(item))),
        (_("Limit (GB)"), lambda item: Cell.number(gb_number(item.limit))),
        (Cell.of(_("Per GPU (GB)"), marks), lambda item: Cell.number(gb_number(item.per_gpu))),
        (_("GPUs by the chain"), lambda item: _gpu_count(item, "chain")),
        (_("GPUs by the pool"), lambda item: _gpu_count(item, "pooled")),
        (_("Verdict"), _judged),
        (_("Same number from"), _derived),
    ])  # fmt: skip


def _gpu_count(item: JudgedClaim, derivation: Derivation) -> Cell:
    number = item.counts[derivation]
    return Cell.number(_("none") if number is None else short_number(number))


def _claimed_gpu(item: JudgedClaim) -> str:
    gpu = item.gpu
    for unknown in item.claim.unknown:
        gpu = _("{gpu}; there is no {unknown}").format(gpu=gpu, unknown=unknown)
    return gpu


def _judged(item: JudgedClaim) -> Cell:
    return Cell([(_judgement(item), None)], strong=item.judgement in {"too few", "never fits"})


def _derived(item: JudgedClaim) -> Cell:
    return Cell.of(listed([_(DERIVATIONS[name]) for name in item.follows]) or _("none of these"))


def requirement_legend(share: float) -> nodes.paragraph:
    """Return the legend of the ways to count GPUs."""
    text = _(
        "The limit is {share} % of the GPU's memory. By the chain, a GPU after all steps must stay below the "
        "limit. By the pool, the total before any step is divided by the limit, as if every part could be "
        "shared. Both columns show the smallest power of two; the verdict uses the chain. The last column "
        "lists the ways that give the claimed number."
    ).format(share=short_number(share * 100))
    return legend(text)


def _judgement(item: JudgedClaim) -> str:
    """Return the judgement, with the figure that decides it."""
    judgement = _(_JUDGEMENTS[item.judgement])
    if item.deciding is None:
        return judgement
    gpus, size = item.deciding
    return _(_REASONS[item.judgement]).format(verdict=judgement, gpus=gpus, size=gb(size))


#: In a waterfall, the units for labels and for values, and the height of a line.
_LABELS, _VALUES, _STEP = 178, 74, BAR + 7


def waterfall_chart(shown: Sequence[Bar], title: str) -> Drawing:
    """Draw the analysis of a model, with the numbers of its table: label, bar and value on each line."""
    lines = [_chart_line(one) for one in shown]
    sizes = _("; ").join(_("{part} {size}").format(part=line.label, size=line.value) for line in lines)
    scale = (WIDTH - _LABELS - _VALUES) / (max((line.end for line in lines), default=0) or 1)
    shapes: dict[str, list[str]] = {}  # one element per paint saves bytes
    words = []
    for number, line in enumerate(lines):
        y = number * _STEP
        words.append((y + FONT, [clip(line.label, _LABELS - GAP)], line.value, line.bold))
        for start, end, paint in line.pieces:
            shape = bar(_LABELS + start * scale, _LABELS + end * scale, y + 1)
            shapes.setdefault(paint, []).append(shape)
    painted = (path(d, paint) for paint, d in shapes.items())
    parts, bottom = (*painted, headings(words)), len(lines) * _STEP
    if TAKEN not in shapes:
        return Drawing(title, sizes, bottom, parts)
    _places, legend, height = draw_legend(bottom + LINE / 2, [bar_key(_("Saved"), TAKEN)])
    return Drawing(title, sizes, height, (*parts, legend))


def _chart_line(shown: Bar) -> Line:
    before = 0.0 if shown.is_sum else shown.running - shown.change
    start, end = sorted((before, shown.running))
    paint = thick(PAINTS[shown.category].colour) if shown.category else SUM if shown.is_sum else TAKEN
    return Line(bar_label(shown), gb(shown.shown), (Piece(start, end, paint),), shown.is_sum)
