"""Estimates, plans and backtests as text, for terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from ..estimator.accuracy import summaries
from ..estimator.backtest import GROUPS, verdict_counts
from ..estimator.estimate import Estimate
from ..estimator.planner import layout_of
from ..estimator.recorded import credible
from ..settings.writing import overrides
from ..units import MINUS, gib, gib_number, percent, share, short_number
from .verdicts import label, of_mean, reason, short, title

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..catalog.models.registries import Accuracy
    from ..estimator.backtest import Boundary, Score
    from ..estimator.peak import AnyEstimate
    from ..estimator.phases import Phase
    from ..estimator.planner import Plan

_ESTIMATES = "Case | Verdict | Peak GiB> | Range> | GPU GiB> | Metric GiB> | Phase | What helps most, GiB"
_PHASES = "Phase | GiB> | Largest part, GiB"
_COMPONENTS = "Component | GiB> | Formula, in bytes | Evidence"
_SCORES = "Case | Computed GiB> | Observed GiB> | Error> | Range> | Inside | Outcome | Verdict | Note"
_VERDICTS = "Verdict | Ran> | Out of memory>"
_GROUPS = "Group | Cases> | Mean error> | Other sources> | Median> | Worst> | Inside> | Half the range>"


def plain_table(headings: str, rows: Iterable[Sequence[str]]) -> str:
    """Return the text of a table.

    Args:
        headings: of the columns, with bars between; a ``>`` after the heading aligns the column right.
        rows: their cells, as they are shown.
    """
    columns = headings.split(" | ")
    body = list(rows)
    # Without rows tabulate knows of no columns to align.
    sides = ["right" if name.endswith(">") else "left" for name in columns] if body else None
    names = [name.rstrip(">") for name in columns]
    table = tabulate(body, names, tablefmt="simple", disable_numparse=True, colalign=sides)
    return "\n".join(line.rstrip() for line in table.splitlines())


def estimates_text(named: Sequence[tuple[str, AnyEstimate | None]]) -> str:
    """Return a row for each case, and all details of a single case.

    Args:
        named: ids and estimates, None where there is none.
    """
    table = plain_table(_ESTIMATES, (_row(name, estimate) for name, estimate in named))
    if len(named) == 1:
        return "\n".join([table, *(_details(named[0][1]) if named[0][1] else ())])
    ignored = sum(bool(estimate and estimate.unsupported) for _, estimate in named)
    if not ignored:
        return table
    have = "1 case has settings" if ignored == 1 else f"{ignored} cases have settings"
    return f"{table}\n\n{have} that the estimate ignores; --format json names them."


def _row(name: str, estimate: AnyEstimate | None) -> tuple[str, ...]:
    if estimate is None:
        return (name, "no estimate", *("",) * 6)
    verdict, shown = short(estimate.verdict, estimate.fits_up_to_tokens), credible(estimate)
    if shown is None:
        return (name, verdict, *("",) * 6)
    return (
        name,
        verdict,
        gib_number(shown.peak),
        f"{gib_number(shown.low)} to {gib_number(shown.high)}",
        "" if shown.capacity is None else gib_number(shown.capacity),
        gib_number(shown.torch_peak),
        shown.peak_phase.label,
        suggestion_text(shown),
    )


def suggestion_text(estimate: AnyEstimate) -> str:
    """Return the setting that saves most and the GiB it saves; empty if none does."""
    suggestion = estimate.suggestion
    if suggestion is None:
        return ""
    first, *more = suggestion.setting.split()
    dots = " …" if more else ""
    return f"{first}{dots} ({MINUS}{gib_number(suggestion.saves)})"


def _details(estimate: AnyEstimate) -> Iterator[str]:
    """Yield the reason of the verdict, the phases, the parts of the peak, host memory, ignored settings."""
    yield f"\n{title(estimate.verdict)}. {reason(estimate)}"
    if shown := credible(estimate):
        if isinstance(shown, Estimate) and shown is not estimate:
            yield of_mean(shown, estimate.fits_up_to_tokens)
        yield f"\n{phases_text(shown)}"
        yield f"\n{shown.peak_phase.label}:"
        yield components_text(shown.peak_phase)
        if shown.host:
            yield f"\nHost memory of a node: {gib(shown.host.total)}"
    for text in estimate.unsupported:
        yield f"Ignored: {text}"


def phases_text(estimate: AnyEstimate) -> str:
    """Return a row for each phase."""
    rows = []
    for phase in estimate.phases:
        largest = max(phase.breakdown.components, key=lambda component: component.size)
        mark = " (the peak)" if phase is estimate.peak_phase else ""
        part = f"{largest.label}, {gib_number(largest.size)}"
        rows.append((f"{phase.label}{mark}", gib_number(phase.total), part))
    return plain_table(_PHASES, rows)


def components_text(phase: Phase) -> str:
    """Return a row for each component of a phase, with its formula and evidence."""
    rows = [
        (part.label, gib_number(part.size), part.formula.numbers, part.evidence)
        for part in phase.breakdown.components
    ]
    return plain_table(_COMPONENTS, rows)


def plan_text(plan: Plan, model: str, task: str, settings: Mapping[str, Any]) -> str:
    """Return a plan as text.

    Args:
        plan: the plan.
        model: Hugging Face name.
        task: the algorithm.
        settings: those of the computed figures, by dotted key.
    """
    found = plan.estimate
    host = f"Each node needs {gib(found.host.total)} of host memory."
    sentences = [_fits(plan, model, task), reason(found), host, *_micro_batch(plan), *_relief(plan)]
    parts = [
        "\n".join(sentences),
        phases_text(found),
        "Computed with:\n" + "\n".join(f"  {line}" for line in overrides(settings)),
    ]
    ignored = "\n".join(f"Ignored: {text}" for text in found.unsupported)
    return "\n\n".join([*parts, *([ignored] if ignored else [])])


def _fits(plan: Plan, model: str, task: str) -> str:
    count = plan.estimate.settings.gpus
    gpus = f"{short_number(count)} GPU{'' if count == 1 else 's'}"
    if plan.gpus:
        layout = layout_of(plan.estimate)
        also = f" With FSDP it takes {short_number(plan.with_fsdp)}." if plan.with_fsdp else ""
        return f"{model} with {task} fits on {gpus} with {layout}.{also}"
    verdict = plan.estimate.verdict
    if verdict == "does-not-fit":
        return f"{model} with {task} does not fit on {gpus}."
    return f"{model} with {task} on {gpus}: {label(verdict)}."


def _micro_batch(plan: Plan) -> Iterator[str]:
    if plan.micro_batch is None:
        return
    what = "token budget" if plan.unit == "tokens" else "micro-batch"
    yield f"The largest {what} of a GPU that fits there is {short_number(plan.micro_batch)} {plan.unit}."


def _relief(plan: Plan) -> Iterator[str]:
    suggestion = plan.estimate.suggestion
    if plan.gpus is None and suggestion is None:
        yield "No other value of a single setting lowers the peak noticeably."
    elif suggestion is not None:
        first = "Change first" if plan.gpus is None else "What would lower the peak most"
        yield f"{first}: {suggestion.setting}, which saves {gib(suggestion.saves)}."


def backtest_text(scores: Sequence[Score], limits: Sequence[Boundary]) -> str:
    """Return the cases, the errors of each group, verdicts against outcomes, and the largest batches."""
    parts = [plain_table(_SCORES, map(_score_row, scores))]
    found = summaries(scores)
    if found:
        parts.append(plain_table(_GROUPS, map(_summary, found)))
    counts = verdict_counts(scores)
    if any(map(any, counts.values())):
        rows = ((label(verdict), str(found.ran), str(found.oom)) for verdict, found in counts.items())
        parts.append(plain_table(_VERDICTS, rows))
    lines = [
        f"Largest batch of {limit.name}: {limit.recorded} ran, {limit.computed} computed "
        f"({percent(limit.deviation)}){', contested' if limit.case.contested else ''}."
        for limit in limits
    ]
    lines += [f"No estimate of {item.case.id}: {item.error}." for item in scores if item.error]
    return "\n\n".join([*parts, *(["\n".join(lines)] if lines else [])])


def _score_row(item: Score) -> tuple[str, ...]:
    compared = item.computed is not None and item.low is not None and item.high is not None
    return (
        item.case.id,
        gib_number(item.computed) if item.computed is not None else "",
        gib_number(item.observed) if item.observed is not None else "",
        percent(item.deviation) if item.deviation is not None else "",
        f"{gib_number(item.low or 0)} to {gib_number(item.high or 0)}" if compared else "",
        {True: "yes", False: "no", None: ""}[item.inside],
        item.case.outcome or "",
        "no estimate" if item.error else label(item.verdict),
        _note(item),
    )


def _note(item: Score) -> str:
    """Return why a case does not count, or that its verdict is wrong."""
    if item.case.contested:
        return "contested"
    if item.case.not_scored:
        return "not scored"
    return "wrong verdict" if item.agrees is False else ""


def _summary(found: Accuracy) -> tuple[str, ...]:
    return (
        GROUPS[found.name],
        str(found.cases),
        share(found.mean_error),
        share(found.out_of_fold),
        share(found.median_error),
        share(found.worst_error),
        share(found.inside),
        f"±{share(found.half_width)}",
    )
