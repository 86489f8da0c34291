"""The estimate of a run: the answer in words, a table by phase, and parts with their formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from ..diagnostics import Code
from ..estimator.engine import counted_pool
from ..estimator.phases import LABELS
from ..units import GIB, gib, gib_number
from .memory import FORMULAS_CLASS, TABLE_CLASS, formula_item
from .runs import NOTES_CLASS
from .table import Cell, table_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..catalog.models.run import Measured
    from ..estimator.estimate import Estimate
    from ..estimator.phases import Phase
    from ..estimator.relief import Relief
    from ..memory.breakdown import Breakdown, Component

__all__ = ["TABLE_CLASS", "answer", "evidence_legend", "notes", "part_list", "phase_rows", "run_texts"]

ANSWER_CLASS = "verl-answer"
#: What stands in a column of the table by phase: the parts that PyTorch counts, by their keys.
COLUMNS: Mapping[str, frozenset[str]] = {
    "Weights": frozenset({"weights", "reference"}),
    "Gradients": frozenset({"gradients", "undivided-gradients", "head-gradient", "fused-head-gradient"}),
    "Optimizer": frozenset({"optimizer-states", "optimizer-states-experts", "step-buffer"}),
    "Activations": frozenset({"layer-inputs", "activations", "working-set", "last-norm"}),
    "Logits": frozenset({"logits", "entropy-chunk"}),
    "Gathered": frozenset(
        {
            "gathered-layer",
            "gathered-root",
            "largest-tensor",
            "state-dict",
            "summoned-layer",
            "summoned-model",
        }
    ),
}
OTHER, ENGINE, OUTSIDE = "Other", "Rollout engine", "Outside PyTorch"
_CRITIC = "critic-"
#: How the counter of a recorded run is called, and the computed figure that is to be compared with it.
_COUNTERS = {
    "torch-max-allocated": "PyTorch's peak of allocated memory, to be compared with verl's metric",
    "torch-max-reserved": "PyTorch's peak of reserved memory",
    "device": "what is in use on the GPU, to be compared with the peak",
    "not-stated": "counted in a way that is not stated",
}


def run_texts(estimate: Estimate) -> dict[str, str]:
    """What the tables of runs show of an estimate, see ``runs.COMPUTED``.

    Where the lengths of a run are not known, its peak lies between that of short sequences and that of the
    longest, and the table shows both.
    """
    peak = gib_number(estimate.peak)
    if not estimate.settings.lengths.known and estimate.low < 0.9 * estimate.peak:
        peak = f"{gib_number(estimate.low)} to {peak}"
    if any(issue.code is Code.missing_key for issue in estimate.issues):
        peak += " (settings incomplete)"
    return {"estimate.peak": peak, "estimate.phase": estimate.binding.label}


def answer(estimate: Estimate, measured: Measured | None) -> list[nodes.Node]:
    """Whether it fits, what decides that, and the figures that are not the peak.

    Args:
        estimate: of a run.
        measured: what the run reported, if anything.
    """
    verdict, reason = _verdict(estimate)
    first = nodes.paragraph("", "", nodes.strong("", verdict), classes=[ANSWER_CLASS])
    first += nodes.Text(f" {reason}")
    low, high = estimate.logged_range
    pool = ", the memory of the sleeping rollout engine included" if counted_pool(estimate.settings) else ""
    items = nodes.bullet_list(classes=[ANSWER_CLASS])
    items += _item("Binding phase", nodes.Text(f"{estimate.binding.label}. "), *_relief(estimate.relief))
    items += _item(
        "What verl's metric prints",
        nodes.literal("", "perf/max_memory_allocated_gb"),
        nodes.Text(
            f": {gib(estimate.logged)} ({_span(low, high)}). It is what PyTorch counts in the training "
            f"process{pool}, and does not decide whether a run fits."
        ),
    )
    items += _item("Host memory", nodes.Text(f"{gib(estimate.host.total)} on each node."))
    if measured is not None and measured.gib:
        items += _item("Measured", nodes.Text(f"{gib(measured.gib * GIB)}: {_COUNTERS[measured.counter]}."))
    return [first, items]


def _verdict(estimate: Estimate) -> tuple[str, str]:
    """A word, and why."""
    holds = f"At its peak, a GPU holds {gib(estimate.peak)} ({_span(estimate.low, estimate.high)})"
    offers = gib(estimate.capacity or 0)
    return {
        "fits": ("Fits.", f"{holds} of the {offers} that it offers."),
        "tight": ("Tight.", f"{holds}; the {offers} that it offers lie in this range."),
        "does not fit": ("Does not fit.", f"{holds}; it offers {offers}, less than the range begins with."),
        "unknown": ("Not known.", f"{holds}; how much memory it has is not recorded."),
    }[estimate.verdict]


def _span(low: float, high: float) -> str:
    return f"range {gib_number(low)} to {gib(high)}"


def _item(title: str, *content: nodes.Node) -> nodes.list_item:
    paragraph = nodes.paragraph("", "", nodes.strong("", title), nodes.Text(": "), *content)
    return nodes.list_item("", paragraph)


def _relief(relief: Relief | None) -> Iterator[nodes.Node]:
    if relief is None:
        yield nodes.Text("No single setting lowers the peak noticeably.")
        return
    yield nodes.literal("", relief.setting)
    left = f"leaves a peak of {gib(relief.peak)}, in the phase “{LABELS[relief.binding]}”"
    yield nodes.Text(f" relieves it most: it saves {gib(relief.saves)} and {left}.")


def phase_rows(estimate: Estimate) -> nodes.tgroup:
    """One phase a row, in the order in which they take turns; the binding one stands out."""
    sums = [(phase, _sums(phase)) for phase in estimate.phases]
    names = [*COLUMNS, OTHER, ENGINE, OUTSIDE]
    shown = [name for name in names if any(found.get(name) for _, found in sums)]
    rows = []
    for phase, found in sums:
        binding = phase.name == estimate.binding.name
        numbers = [phase.total, *(found.get(name, 0.0) for name in shown)]
        label = f"{phase.label} (binding phase)" if binding else phase.label
        cells = [Cell.of(label), *(Cell.number(gib_number(size) if size else "0") for size in numbers)]
        for cell in cells:
            cell.strong = binding
        rows.append(cells)
    return table_group(["Phase", *(f"{name} (GiB)" for name in ("Total", *shown))], rows)


def _sums(phase: Phase) -> dict[str, float]:
    """Bytes by column."""
    found: dict[str, float] = {}
    for component in phase.trainer:
        key = component.key.removeprefix(_CRITIC)
        name = next((name for name, keys in COLUMNS.items() if key in keys), OTHER)
        found[name] = found.get(name, 0.0) + component.size
    for name, parts in ((ENGINE, phase.engine), (OUTSIDE, phase.outside)):
        found[name] = sum(component.size for component in parts)
    return found


def part_list(title: str, breakdown: Breakdown) -> list[nodes.Node]:
    """Each part under a title: its formula, the numbers put in, and how well it is known."""
    items = nodes.definition_list(classes=[FORMULAS_CLASS, "simple"])
    for component in breakdown.components:
        formula = formula_item(f"{component.label} ({component.evidence})", [("", _formula(component))])
        items += formula
    items += formula_item("Total", [("", _total(breakdown))])
    return [nodes.paragraph("", title, classes=["verl-notes-title"]), items]


def evidence_legend() -> nodes.paragraph:
    """What the words behind the parts mean."""
    text = (
        "Exact: follows from counts and sizes. Measured: rests on observations. Assumed: a rule of thumb. "
        "Sizes are bytes unless GiB (2³⁰ bytes) stands behind them."
    )
    return nodes.paragraph("", text, classes=["verl-legend"])


def _formula(component: Component) -> str:
    formula = component.formula
    return f"{formula.symbols} = {formula.numbers} = {gib(component.size)}"


def _total(breakdown: Breakdown) -> str:
    numbers = (f"{item.size / GIB:,.2f}" for item in breakdown.components)
    return f"total = {' + '.join(numbers)} = {gib(breakdown.total)}"


def notes(estimate: Estimate) -> list[nodes.Node]:
    """What the estimate leaves out, and what it takes for granted."""
    found = [text.partition(": ")[::2] for text in estimate.unsupported]
    found += [(issue.key, issue.message) for issue in estimate.issues]
    return _notes("What the estimate leaves out or assumes:", found) if found else []


def _notes(title: str, found: Iterable[Sequence[str]]) -> list[nodes.Node]:
    items = nodes.bullet_list(classes=[NOTES_CLASS])
    for key, text in found:
        paragraph = nodes.paragraph("", "", nodes.literal("", key), nodes.Text(f": {text}"))
        items += nodes.list_item("", paragraph)
    return [nodes.paragraph("", title, classes=["verl-notes-title"]), items]
