"""Diagnoses as text for terminals: what the log measured, what the estimate says and assumes, the steps."""

from __future__ import annotations

from collections.abc import Iterator

from ..fit.command import as_arguments
from ..fit.terminal import wrapped
from ..fit.words import COSTS, label, phase_bars_text
from ..memory.phases import LABELS
from ..units import gib, gib_number
from .diagnosis import Diagnosis
from .facts import HOST_MEMORY, PEAK_ALLOCATED
from .steps import size_in, steps_for

#: The phases of a failure; an estimate does not have the last three.
PHASES = {**LABELS, "startup": "Start", "checkpoint": "Checkpoint", "host": "Host memory"}
_ARGUMENTS = "the model's name, --gpus 8xH100, --script run.sh and settings as key=value"
_HOLDERS = {"pytorch": "PyTorch", "besides": "this process besides PyTorch", "others": "other processes"}
_NO_MESSAGE = (
    "If it did run out of memory, pass its complete output: the worker's message may be in Ray's own logs, "
    "/tmp/ray/session_latest/logs."
)
_NO_STEP = (
    "Without the settings, no step is sure to help. Add them, or see “Out of memory?” in the documentation.",
    "No setting lowers this phase, by the estimate.",
)


def diagnosis_text(found: Diagnosis, width: int = 100, *, verbose: bool = False) -> str:
    """Return a diagnosis as text.

    Args:
        found: the diagnosis.
        width: characters per line.
        verbose: whether to add the message and the phases of the estimate.
    """
    parts = [
        wrapped([_happened(found), *_measured(found)], width),
        wrapped(_estimated(found), width),
        wrapped(_steps(found), width, "   "),
        wrapped(_missing(found), width),
        *(_details(found, width) if verbose else ()),
    ]
    return "\n\n".join(filter(None, parts))


def _happened(found: Diagnosis) -> str:
    failure, figures = found.failure, found.log.figures
    if failure is None:
        last = f" Its last figures are from step {figures.last_step}." if figures.steps else ""
        return f"The log contains no out-of-memory message.{last} {_NO_MESSAGE}"
    after = f", after step {failure.step}" if failure.step is not None else ""
    after = after or (", before the first step ended" if found.log.settings else "")
    if not failure.is_evidence:
        return f"A process died{after}. The log does not say why."
    if failure.phase == "unknown":
        one_of = f": one of {', '.join(PHASES[each] for each in failure.phases)}" if failure.phases else ""
        return f"Out of memory{after}; the log does not show the phase{one_of}."
    where = "host memory" if failure.phase == "host" else f"GPU memory in the phase “{PHASES[failure.phase]}”"
    return f"Out of {where}{after}."


def _measured(found: Diagnosis) -> Iterator[str]:
    """Yield what the log measured: the sizes in the message, who held the memory, and the last metric."""
    failure, log, own = found.failure, found.log, found.estimate
    sizes = {name: gib(size) for name, size in failure.sizes.items()} if failure else {}
    on_host = failure is not None and failure.phase == "host"
    if sizes:
        texts = {"tried": "Requested: {}", "free": "free: {}", "capacity": "in all: {}"}
        yield f"{'; '.join(text.format(sizes[name]) for name, text in texts.items() if name in sizes)}."
    held = [f"{who} {gib(found.holders[name])}" for name, who in _HOLDERS.items() if name in found.holders]
    if held or "in_use" in sizes:
        yield f"In use: {', '.join(held or [('node ' if on_host else 'this process ') + sizes['in_use']])}."
    if found.is_in_pieces:
        yield f"PyTorch's unused {sizes['reserved_unallocated']} are in pieces that are too small."
    if log.sleep:
        freed, left = gib(log.sleep["freed"]), gib(log.sleep["left"])
        yield f"vLLM's sleep freed {freed}; {left} stayed in use."
    name = HOST_MEMORY if on_host else PEAK_ALLOCATED
    if values := log.figures.values.get(name):
        beside = f" (estimate: {gib(own.torch_peak)})" if own and not on_host else ""
        last = f"{values[-1]:.1f} GiB in step {log.figures.last_step}{beside}"
        yield f"{name}: {values[0]:.1f} GiB at first, {last}."


def _estimated(found: Diagnosis) -> Iterator[str]:
    """Yield the estimate of the phase that failed, or of the peak, what it assumes, and contradictions."""
    own, phase = found.estimate, found.phase
    if own is None:
        yield from [f"No estimate: {found.no_estimate}."] if found.no_estimate else []
    elif found.failure and found.failure.phase == "host":
        yield f"Estimate: {gib(own.host.total)} of host memory per node."
    else:
        part = own.of_phase(phase.name) if phase else own
        of = "this phase" if phase else f"the peak, in the phase “{own.peak_phase.label}”"
        has = f" The GPU has {gib(own.capacity)}: {label(part.verdict)}." if own.capacity else ""
        yield f"Estimate of {of}: {gib(part.peak)} (range {gib_number(part.low)} to {gib(part.high)}).{has}"
    if found.assumed:
        yield f"It assumes {'; '.join(found.assumed)}."
    yield from found.differences()


def _steps(found: Diagnosis) -> Iterator[str]:
    steps = steps_for(found)
    if steps:
        yield "What to do, in this order:"
    elif found.failure:
        yield _NO_STEP[found.estimate is not None]
    failure, before = found.failure, found.estimate
    for number, step in enumerate(steps, 1):
        settings = " ".join(as_arguments(step.overrides, found.request.version, found.data))
        effects = []
        if failure and before and step.after and failure.phase not in ("startup", "checkpoint"):
            old, new = size_in(before, failure), size_in(step.after, failure)
            effects += [f"{gib_number(old)} → {gib(new)}"] if abs(new - old) > 0.01 * old else []
            effects += [f"the GPU then {label(step.after.verdict)}"] if failure.phase == "host" else []
        effects += [COSTS[step.cost]] if step.overrides and step.cost in COSTS else []
        parts = (f"{settings}:" * bool(settings), f"{', '.join(effects)}." * bool(effects), step.sentence)
        yield f"{number}. {' '.join(filter(None, parts))}"


def _missing(found: Diagnosis) -> Iterator[str]:
    if found.missing:
        yield f"Not in the log: {'; '.join(found.missing)}."
    if found.failure and found.failure.is_evidence and not (found.estimate or found.is_easyr1):
        yield f"For an estimate, add what you know of {_ARGUMENTS}."


def _details(found: Diagnosis, width: int) -> Iterator[str]:
    if found.failure:
        yield f"{found.failure.place}: {found.failure.text}"
    if own := found.estimate:
        yield "\n".join([*(f"Ignored: {text}" for text in own.unsupported), phase_bars_text(own, width)])
