"""An estimate in words, as a table, and as parts with formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from ..charts import formula, formula_list
from ..diagnostics import NoAnswerError
from ..i18n import N_, _
from ..memory.engine import vllm_pool_in_torch_peak
from ..memory.recorded import credible, estimate_run, figures
from ..nodes import NOTES_CLASS, Cell, bold, fill, notes_title, recorded, table_group
from ..units import GIB, Category, gib, gib_number
from .answer import legend, titled_item, trust_text
from .changes import changes_item
from .verdicts import in_a_row, mark, of_mean, reason, span, start_texts, stop, title

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..answer.answer import Answer
    from ..memory.estimate import Estimate
    from ..memory.registries import EstimatorContext
    from ..records import Measured, Run
    from ..units import Breakdown

ANSWER_CLASS = "verl-answer"
MEMORY_CLASS = "verl-memory"
#: For each counter, a measured figure with what it counts.
_COUNTERS = {
    "torch-max-allocated": N_("{size}: PyTorch's peak of allocated memory; compare it with verl's metric."),
    "torch-max-reserved": N_("{size}: PyTorch's peak of reserved memory."),
    "device": N_("{size}: memory in use on the GPU; compare it with the peak."),
    "not-stated": N_("{size}: the source does not state how it was counted."),
}
_EVIDENCE = {"exact": N_("exact"), "measured": N_("measured"), "assumed": N_("assumed")}
_METRIC = N_(
    "{key}: {size} ({range}). PyTorch counts this in the training process; it does not decide whether a run "
    "fits."
)
_METRIC_WITH_POOL = N_(
    "{key}: {size} ({range}). PyTorch counts this in the training process, including the memory of the "
    "sleeping rollout engine; it does not decide whether a run fits."
)


def run_texts(run: Run, data: EstimatorContext) -> dict[str, str]:
    """Return the computed columns of a recorded run; empty if its settings allow no estimate.

    If the lengths are unknown, the peak is a range from short sequences to sequences at their limits.
    """
    try:
        estimate = estimate_run(run, data)
    except NoAnswerError:
        return {}
    if (known := figures(estimate)) is None:
        return {}
    (low, most, _high), shown = known, credible(estimate)
    peak = gib_number(most)
    if not estimate.settings.lengths.known and low < 0.9 * most:
        peak = _("{low} to {high}").format(low=gib_number(low), high=peak)
    return {"estimate.peak": peak, "estimate.phase": _(shown.peak_phase.label) if shown else ""}


def answer(
    found: Answer, measured: Measured | None = None, runs: Iterable[nodes.list_item] = ()
) -> list[nodes.Node]:
    """Return the verdict with its reason, changes that make it fit, its accuracy, and further figures.

    Args:
        found: the answer about settings as they are.
        measured: the figure that the run reported, if any.
        runs: items with related recorded runs.
    """
    estimate = found.best.estimate
    text = in_a_row("{verdict}", "{reason}")
    shown = credible(estimate)
    if shown is not None and shown is not estimate:
        text = in_a_row(text, of_mean(shown, estimate.fits_up_to_tokens))
    first = nodes.paragraph("", "", classes=[ANSWER_CLASS])
    why = in_a_row(reason(estimate), *start_texts(found.best))
    badge = nodes.strong("", "", mark(found.verdict, title(found.verdict)))
    first += fill(text, verdict=[badge, stop()], reason=why)
    items = nodes.bullet_list(classes=[ANSWER_CLASS])
    if found.asked.model_note:
        items += titled_item(_("Model"), [nodes.Text(found.asked.model_note)])
    items += [*runs, *changes_item(found)]
    if not estimate.undecided:
        items += titled_item(_("How sure"), trust_text(found.trust))
    if shown is not None:
        items += _figures(shown)
    if measured is not None and measured.gib:
        text = _(_COUNTERS[measured.counter]).format(size=gib(measured.gib * GIB))
        items += titled_item(_("Measured"), [nodes.Text(text)])
    return [first, items] if items.children else [first]


def _figures(estimate: Estimate) -> list[nodes.list_item]:
    """Return the peak phase, verl's metric, and host memory."""
    metric = _METRIC_WITH_POOL if vllm_pool_in_torch_peak(estimate.settings) else _METRIC
    printed = fill(
        _(metric),
        key=nodes.literal("", "perf/max_memory_allocated_gb"),
        size=gib(estimate.torch_peak),
        range=span(*estimate.torch_peak_range),
    )
    host = _("{size} on each node.").format(size=gib(estimate.host.total))
    return [
        titled_item(_("Peak phase"), [nodes.Text(_(estimate.peak_phase.label))]),
        titled_item(_("Value of verl's metric"), printed),
        titled_item(_("Host memory"), [nodes.Text(host)]),
    ]


def phase_rows(estimate: Estimate) -> nodes.tgroup:
    """Make one row for each phase, in order; the peak phase is bold."""
    sums = [(phase, phase.sizes) for phase in estimate.phases]
    shown = [category for category in Category if any(sizes[category] for phase, sizes in sums)]
    rows = []
    for phase, sizes in sums:
        peak_phase = phase.name == estimate.peak_phase.name
        numbers = [phase.total, *(sizes[category] for category in shown)]
        label = _(phase.label)
        label = _("{phase} (peak phase)").format(phase=label) if peak_phase else label
        cells = [Cell.of(label), *(Cell.number(gib_number(size) if size else "0") for size in numbers)]
        rows.append(bold(cells) if peak_phase else cells)
    quantities = (_("Total"), *(_(category.heading) for category in shown))
    return table_group(
        [_("Phase"), *(_("{quantity} (GiB)").format(quantity=name) for name in quantities)], rows
    )


def peak_parts(estimate: Estimate) -> list[nodes.Node]:
    """List the parts of the peak phase."""
    phase = estimate.peak_phase
    return _parts(_("Parts of the peak phase, {phase}:").format(phase=_(phase.label)), phase.breakdown)


def host_parts(estimate: Estimate) -> list[nodes.Node]:
    """List the parts of the memory of a host."""
    return _parts(_("Parts of a node's host memory:"), estimate.host)


def _parts(title: str, breakdown: Breakdown) -> list[nodes.Node]:
    """List parts under a title, each with its formula, its numbers and its evidence."""
    found = []
    for component in breakdown.components:
        evidence = _(_EVIDENCE[component.evidence])
        term = _("{part} ({evidence})").format(part=_(component.label), evidence=evidence)
        found.append((term, component.equation(gib)))
    found.append((_("Total"), breakdown.equation(lambda size: f"{size / GIB:,.2f}", gib)))
    items = formula_list((nodes.term("", term), [formula(text)]) for term, text in found)
    return [notes_title(title), items]


def evidence_legend() -> nodes.paragraph:
    """Return the legend of the evidence words."""
    text = _(
        "Exact: computed from counts and sizes. Measured: based on observations. Assumed: a rule of thumb. "
        "Sizes are in bytes unless marked GiB (2³⁰ bytes)."
    )
    return legend(text)


def notes(estimate: Estimate) -> list[nodes.Node]:
    """List the settings that the estimate leaves out, and its assumptions."""
    found = [text.partition(": ")[::2] for text in estimate.unsupported]
    found += [(problem.place.key, problem.message) for problem in estimate.warnings]
    items = nodes.bullet_list(classes=[NOTES_CLASS])
    for key, text in found:
        items += nodes.list_item("", recorded("", nodes.literal("", key), nodes.Text(f": {text}")))
    return [notes_title(_("What the estimate leaves out or assumes:")), items] if found else []
