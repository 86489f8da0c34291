"""The memory analysis of a model: what it takes, its formulas, the waterfall from all of it to one GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from ..catalog.fields import NOT_RECORDED
from ..catalog.names import TOTAL
from ..memory.waterfall import PER_GPU, waterfall
from ..units import GB, gb, gb_number, gib_number, plain, share, signed
from .table import Cell, add_remarks, table_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..memory.analysis import Outcome
    from ..memory.breakdown import Breakdown, Component
    from ..memory.waterfall import Bar

TABLE_CLASS = "verl-memory"
SUMMARY_CLASS = "verl-memory-summary"
FORMULA_CLASS = "verl-formula"
FORMULAS_CLASS = "verl-formulas"
_UNUSED = "no formula uses it"
#: Said under a summary whose models are not shared alike.
DIFFERENT_GPUS = "The models are shared by different numbers of GPUs, so the rows do not compare directly."
#: The rule for the hidden size that the analysis states and does not keep to.
STATED_HIDDEN_SIZE = "sqrt(parameters / (12 × layers))"


def specification_rows(outcome: Outcome, marks: Mapping[str, Sequence[str]]) -> nodes.tgroup:
    """What the formulas take, and what is stated besides."""
    shape = outcome.shape
    if shape.checkpoint:
        origin, hidden = f"of {shape.checkpoint}", ""
        ffn = ffn_source = "" if shape.ffn_dimension else "no dense layer"
    else:
        difference = share(shape.hidden_size_share)
        origin = f"{shape.implied_parameters / 1e9:.2f} billion by the shape below"
        stated = plain(round(shape.stated_hidden_size))
        hidden = f"the stated rule, {STATED_HIDDEN_SIZE}, gives {stated}; this is {difference} of it"
        ffn_source = f"{plain(shape.ffn_dimension / shape.hidden_size)} × hidden size"
        ffn = ""
    facts = [
        ("Parameters", plain(shape.parameters), origin, ""),
        ("Hidden size", plain(shape.hidden_size), hidden, ""),
        ("Layers", plain(shape.layers), "", ""),
        ("FFN dimension", ffn or plain(shape.ffn_dimension), _joined(ffn_source, _UNUSED), ""),
        ("Attention heads", _count(shape.attention_heads), _UNUSED, ""),
        ("Vocabulary", plain(shape.vocabulary_size), _UNUSED, "vocabulary-size"),
        ("Sequences", plain(outcome.batch_size), "on every GPU", "batch-size"),
        ("Tokens per sequence", plain(outcome.sequence_length), "", "sequence-length"),
        ("GPUs", plain(outcome.gpus), "", "gpus"),
    ]
    rows = [
        [Cell.of(label, marks.get(subject, ())), Cell.number(value), Cell.of(remark)]
        for label, value, remark, subject in facts
    ]
    return table_group(["Quantity", "Value", "Remark"], rows)


def _count(number: int) -> str:
    return plain(number) if number else NOT_RECORDED


def _joined(*texts: str) -> str:
    return "; ".join(text for text in texts if text)


def formula_list(outcome: Outcome, marks: Mapping[str, Sequence[str]]) -> nodes.definition_list:
    """Each component and each step: symbols, numbers put in, result."""
    # "simple" keeps sphinx_rtd_theme from taking the terms for signatures.
    items = nodes.definition_list(classes=[FORMULAS_CLASS, "simple"])
    for component in outcome.start.components:
        items += formula_item(component.label, [("", _formula(component))], marks.get(component.key, ()))
    items += formula_item("Total", [("", _sum(outcome.start))], marks.get(TOTAL, ()))
    for step in outcome.steps:
        changed = [item for item in step.after.components if item.key in step.changed]
        lines = [(f"{item.label}: " if len(changed) > 1 else "", _formula(item)) for item in changed]
        lines.append(("", _sum(step.after)))
        items += formula_item(step.title, lines, marks.get(step.name, ()), step.text)
    return items


def formula_item(
    term: str, formulas: Iterable[tuple[str, str]], marks: Sequence[str] = (), text: str = ""
) -> nodes.definition_list_item:
    """A term, a sentence about it, and its formulas, each with what stands before it."""
    title = nodes.term("", term)
    add_remarks(title, marks)
    definition = nodes.definition()
    if text:
        definition += nodes.paragraph("", " ".join(text.split()))
    for name, formula in formulas:
        definition += nodes.paragraph("", name, nodes.inline("", formula, classes=[FORMULA_CLASS]))
    return nodes.definition_list_item("", title, definition)


def _formula(component: Component) -> str:
    formula = component.formula
    return f"{formula.symbols} = {formula.numbers} = {gb(component.size)}"


def _sum(breakdown: Breakdown) -> str:
    """The sum of all components; the numbers keep enough digits to be added."""
    numbers = (f"{item.size / GB:,.3f}".rstrip("0").rstrip(".") for item in breakdown.components)
    return f"total = {' + '.join(numbers)} = {gb(breakdown.total)}"


def waterfall_rows(outcome: Outcome, marks: Mapping[str, Sequence[str]], *, with_gib: bool) -> nodes.tgroup:
    """The waterfall as a table, with running totals and what each step saved."""
    rows: list[list[Cell]] = []
    for bar in waterfall(outcome):
        numbers = [_change(bar.change), gb_number(bar.running)]
        numbers += [gib_number(bar.running)] if with_gib else []
        cells = [Cell.of(bar.label, marks.get(bar.subject, ())), *map(Cell.number, numbers)]
        for cell in cells:
            cell.strong = bar.is_sum
        rows.append([*cells, Cell.of(_detail(bar))])
    headings = ["Part or step", "Change (GB)", "Running total (GB)", "Running total (GiB)", "Share or effect"]
    return table_group([name for name in headings if with_gib or "GiB" not in name], rows)


def _change(size: float) -> str:
    return signed(gb_number(abs(size)), size) if size else ""


def _detail(bar: Bar) -> str:
    """What a line is, or does."""
    if bar.subject == TOTAL:
        return "everything on one GPU"
    if bar.subject == PER_GPU:
        return f"{share(bar.share)} saved in all"
    step = bar.step
    if step is None:
        return f"{share(bar.share)} of the total"
    if not step.saved:
        return "changes nothing"
    names = [item.label for item in step.before.components if item.key in step.changed]
    before, after = step.before.of(step.changed), step.after.of(step.changed)
    listed = names[0] + "".join(f", {name[0].lower()}{name[1:]}" for name in names[1:])
    return f"{listed}: {gb_number(before)} → {gb(after)}"


def summary_rows(
    outcomes: Sequence[Outcome], marks: Mapping[str, Sequence[str]], *, with_gib: bool
) -> nodes.tgroup:
    """One model a row: its total, and what a GPU holds after each step."""
    steps = outcomes[0].steps if outcomes else ()
    headings = [
        Cell.of("Model"),
        Cell.of("GPUs"),
        Cell.of("All on one GPU (GB)", marks.get(TOTAL, ())),
        *(Cell.of(f"then {step.label} (GB)", marks.get(step.name, ())) for step in steps),
        Cell.of("Saved"),
    ]
    if with_gib:
        headings.insert(-1, Cell.of("Per GPU (GiB)"))
    rows = []
    for outcome in outcomes:
        sizes = [outcome.start.total, *(step.after.total for step in outcome.steps)]
        numbers = [plain(outcome.gpus), *map(gb_number, sizes)]
        numbers += [gib_number(outcome.end.total)] if with_gib else []
        saved = share(outcome.saved_share)
        rows.append([Cell.of(outcome.shape.name), *map(Cell.number, (*numbers, saved))])
    return table_group(headings, rows)
