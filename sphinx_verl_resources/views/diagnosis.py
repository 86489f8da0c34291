"""Diagnoses of runs that ran out of memory, as text for terminals."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from ..fit.command import as_arguments
from ..fit.terminal import components_text
from ..fit.words import label, phase_bars_text
from ..intake.log_facts import HOST_MEMORY, PEAK_ALLOCATED
from ..intake.remedies import size_in
from ..memory.phases import LABELS
from ..units import gib, gib_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..intake.diagnosis import Diagnosis
    from ..intake.failure import Failure
    from ..intake.remedies import Advice
    from ..memory.estimate import AnyEstimate

#: The phases of a failure; an estimate does not have the last four.
PHASES = {
    **LABELS,
    "startup": "Start",
    "checkpoint": "Checkpoint",
    "host": "Host memory",
    "unknown": "unknown",
}
_HOW = {
    "message": "The phase follows from the form of the message.",
    "traceback": "The phase follows from the traceback.",
    "task": "The phase follows from the name of Ray's task.",
    "position": "The phase follows from the position in the log.",
}
#: Phases that the estimate does not have, and for which the peak after a change is irrelevant.
_WITHOUT_FIGURES = frozenset({"startup", "checkpoint", "host"})
#: For a word in a missing fact, the argument that provides the fact.
_ARGUMENTS = {
    "model": "the model's name",
    "GPU": "--gpus, for example 8xH100",
    "configuration": "--script run.sh, or settings as key=value",
}
_COSTS = {"none": "costs no time", "little": "costs little time", "much": "costs a lot of time"}


def diagnosis_text(found: Diagnosis, *, verbose: bool = False, width: int = 100) -> str:
    """Return a diagnosis: the failure, the estimate, the changes, and the facts missing from the log.

    Args:
        found: the diagnosis.
        verbose: whether to add the message and the phases of the estimate.
        width: characters per line.
    """
    parts = [list(_happened(found)), list(_estimate(found)), *_listed(found), list(_missing(found))]
    texts = ["\n".join(_wrapped(lines, width)) for lines in parts if lines]
    return "\n\n".join([*texts, *(_details(found) if verbose else ())])


def _happened(found: Diagnosis) -> Iterator[str]:
    """Yield a line about the failure, and one with the figures of its message."""
    failure, steps = found.failure, found.log.figures
    if failure is None:
        yield "The log contains no out-of-memory message."
        if steps.steps:
            yield f"Its last figures are from step {steps.last_step}."
        yield (
            "If it did run out of memory, pass its complete output: the worker's message may be in Ray's own "
            "logs, /tmp/ray/session_latest/logs."
        )
        return
    after = _when(found, failure)
    if failure.phase == "host":
        doubt = "" if failure.is_evidence else "Probably out"
        yield f"{doubt or 'Out'} of host memory{after}."
    elif failure.phase == "unknown":
        names = [PHASES[phase] for phase in failure.phases]
        one_of = f": one of {', '.join(names)}" if len(names) > 1 else ""
        doubt = "A process died, possibly out of memory" if not failure.is_evidence else "Out of memory"
        yield f"{doubt}{after}; the log does not show the phase{one_of}."
    else:
        yield f"Out of GPU memory in the phase “{PHASES[failure.phase]}”{after}."
    yield " ".join(_figures(failure)) or "The message contains no figures."


def _when(found: Diagnosis, failure: Failure) -> str:
    """Return the last step before the failure; nothing if the log may lack earlier steps."""
    if failure.step is not None:
        return f", after step {failure.step}"
    return ", before the first step ended" if found.log.settings else ""


def _figures(failure: Failure) -> Iterator[str]:
    """Yield the figures of the message; for a starting engine, those of its cache or memory share."""
    if failure.tried is not None and failure.form == "sequence-too-long-for-cache":
        has = gib(failure.free or 0)
        yield f"The KV cache of one sequence needs {gib(failure.tried)}; the engine has {has} for it."
        return
    if failure.tried is not None:
        yield f"Requested: {gib(failure.tried)}."
    if failure.capacity is not None and failure.free is not None:
        yield f"Free: {gib_number(failure.free)} of {gib(failure.capacity)}."
    who = "the node" if failure.phase == "host" else "this process"
    unused = failure.reserved_unallocated
    idle = f" ({gib(unused)} unused)" if unused is not None else ""
    used = [f"{gib(failure.in_use)} by {who}{idle}"] if failure.in_use is not None else []
    used += [f"{gib(failure.others)} by others"] if failure.others is not None else []
    if used:
        yield f"In use: {', '.join(used)}."


def _estimate(found: Diagnosis) -> Iterator[str]:
    """Yield the estimate of the phase that failed, and the differences from the log."""
    estimate, phase = found.estimate, found.phase
    if estimate is None:
        if found.no_estimate:
            yield f"No estimate: {found.no_estimate}."
    elif found.failure and found.failure.phase == "host":
        yield f"Estimate: {gib(estimate.host.total)} of host memory per node."
    else:
        if phase and phase is not estimate.peak_phase:
            part = estimate.of_phase(phase.name)
            yield f"Estimate of this phase: {gib(phase.total)} ({_span(part)})."
        of = "Estimate of this phase, the peak" if phase else "Estimate of the peak"
        of = of if not phase or phase is estimate.peak_phase else "The peak"
        where = "" if phase is estimate.peak_phase else f" in the phase “{estimate.peak_phase.label}”"
        has = f"; the GPU has {gib(estimate.capacity)}" if estimate.capacity else ""
        yield f"{of}: {gib(estimate.peak)} ({_span(estimate)}){where}{has}: {label(estimate.verdict)}."
    yield from _last_figures(found)
    yield from found.differences


def _span(estimate: AnyEstimate) -> str:
    return f"range {gib_number(estimate.low)} to {gib(estimate.high)}"


def _last_figures(found: Diagnosis) -> Iterator[str]:
    """Yield the last logged figure, and the estimated value of the same metric."""
    on_host = found.failure is not None and found.failure.phase == "host"
    name, steps = HOST_MEMORY if on_host else PEAK_ALLOCATED, found.log.figures
    course = steps.course(name)
    if course:
        estimate = found.estimate
        beside = f", estimated {gib(estimate.torch_peak)}" if estimate and not on_host else ""
        yield f"{name} after step {steps.last_step}: {course[1]:.1f} GiB{beside}."


def _listed(found: Diagnosis) -> Iterator[list[str]]:
    if found.failure is None:
        return
    if not found.advice:
        yield ["No setting of verl is known to help."]
        return
    lines = [f"  {number}. {_change(found, each)}" for number, each in enumerate(found.advice, 1)]
    yield ["What to change, in this order:", *lines]


def _change(found: Diagnosis, each: Advice) -> str:
    settings = " ".join(as_arguments(each.remedy.overrides, found.request.version, found.data))
    return "; ".join(filter(None, (settings, effect_text(found, each))))


def effect_text(found: Diagnosis, each: Advice) -> str:
    """Return the effect of a change, the size of the failed phase after it, its cost, and its caveat."""
    text = each.remedy.text
    is_caveat = text.endswith(".")
    facts = "; ".join(filter(None, ("" if is_caveat else text, *_effect(found, each))))
    return f"{facts}. {text}" if is_caveat else facts


def _effect(found: Diagnosis, each: Advice) -> Iterator[str]:
    failure = found.failure
    if failure and found.estimate and each.after and failure.phase not in _WITHOUT_FIGURES:
        before, after = size_in(found.estimate, failure), size_in(each.after, failure)
        if abs(after - before) > 0.01 * before:
            yield f"{gib_number(before)} → {gib(after)}"
    elif failure and failure.phase == "host" and found.estimate and each.after:
        host, later = found.estimate.host.total, each.after.host.total
        if abs(later - host) > 0.01 * host:
            yield f"{gib_number(host)} → {gib(later)}"
            yield f"GPU: {label(each.after.verdict)}"
    if each.remedy.overrides:
        yield _COSTS[each.remedy.cost]


def _missing(found: Diagnosis) -> Iterator[str]:
    if found.missing:
        yield f"Not in the log: {'; '.join(found.missing)}."
        lacking = " ".join(found.missing)
        arguments = [argument for word, argument in _ARGUMENTS.items() if word in lacking]
        if found.estimate is None and found.failure and arguments:
            yield f"For an estimate, add {'; '.join(arguments)}."


def _details(found: Diagnosis) -> Iterator[str]:
    if found.failure:
        yield "\n".join(
            filter(None, (f"{found.failure.place}: {found.failure.text}", _HOW.get(found.failure.how)))
        )
    if found.estimate:
        if found.estimate.unsupported:
            yield "\n".join(f"Ignored: {text}" for text in found.estimate.unsupported)
        yield phase_bars_text(found.estimate, 100)
    if found.phase:
        yield f"{found.phase.label}:\n{components_text(found.phase)}"


def _wrapped(lines: Iterable[str], width: int) -> Iterator[str]:
    for line in lines:
        indent = "     " if line.startswith("  ") else ""
        yield from textwrap.wrap(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ) or [""]
