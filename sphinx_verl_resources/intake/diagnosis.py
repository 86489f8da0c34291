"""Diagnose a run that ran out of memory: what happened, what the estimate says, and what to change."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError
from ..fit.answer import answer_settings
from ..memory.allocations import size_of
from ..memory.phases import LABELS
from ..memory.registries import capacity_of
from ..memory.request import ACTOR, MODEL, Request
from ..memory.versions import CURRENT, version_of, version_text
from ..units import GIB, gib
from .failure import narrowed
from .log_facts import HOST_MEMORY, PEAK_ALLOCATED
from .moves import Situation, is_fragmented, is_shared
from .recorded_names import model_of, recorded_gpu
from .remedies import Advice, advice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..fit.answer import Answer
    from ..memory.estimate import Estimate
    from ..memory.phases import Phase
    from ..memory.registries import EstimatorContext
    from ..memory.versions import Version
    from .failure import Failure
    from .log import LogText

_PATH = f"{MODEL}.path"
_STRATEGIES = (f"{ACTOR}.strategy", "model_engine")
_COUNTS = ("trainer.nnodes", "trainer.n_gpus_per_node")
#: The last release with the old workers.
_LAST_OLD: Version = (0, 7, 1)
#: Largest relative difference between two readings of one GPU's memory.
_SAME_GPU = 0.02
#: A figure has grown if its value at the last step is at least this many times the first.
_GROWN = 1.1
_UNKNOWN = "Something uses memory that the settings do not explain."


@dataclass(frozen=True)
class Given:
    """Facts that the user adds to the log.

    Attributes:
        model: Hugging Face name of the model.
        model_note: how the model's name was taken, see ``registries.Model``.
        gpus: number and type of the GPUs; None to read it from the log.
        script: settings of a launch script, which the log's settings override.
        overrides: settings that override all others.
        unread: keys whose values in the script are unknown.
        open_model: the model's path in the script, if it contains an unknown variable.
        incomplete: parts of the script that may contain further settings.
        version: the version of verl.
        backend: the training backend, if the script's configuration name gives it.
    """

    model: str | None = None
    gpus: tuple[int | None, str | None] = (None, None)
    script: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    open_model: str | None = None
    incomplete: tuple[str, ...] = ()
    version: Version | None = None
    backend: str | None = None
    model_note: str = ""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """A diagnosis.

    Attributes:
        failure: the out-of-memory failure; None if the log has none.
        log: the contents of the log.
        request: the run as a request to the estimator.
        data: the data.
        missing: facts that neither the log nor the user gives.
        answer: the answer for exactly these settings; None without one.
        no_estimate: the reason why there is no answer, or empty.
    """

    failure: Failure | None
    log: LogText
    request: Request
    data: EstimatorContext
    missing: tuple[str, ...]
    answer: Answer | None
    no_estimate: str = ""

    @property
    def estimate(self) -> Estimate | None:
        """The estimate of the run, if there is one."""
        return self.answer.best.estimate if self.answer else None

    @property
    def phase(self) -> Phase | None:
        """The phase that failed, in the estimate; None if the estimate has no such phase."""
        found = self.estimate.phases if self.estimate and self.failure else ()
        return next((phase for phase in found if self.failure and phase.name == self.failure.phase), None)

    @cached_property
    def advice(self) -> tuple[Advice, ...]:
        """The changes to try, in order."""
        if self.failure is None:
            return ()
        registries = self.data
        config = registries.in_todays_names(self.request.config)
        defaults = registries.defaults(self.request.version)
        version = self.request.version
        situation = Situation(self.failure, config, defaults, self.log.versions, version, self.estimate)
        return advice(situation, self.request if self.estimate else None, registries)

    @cached_property
    def differences(self) -> tuple[str, ...]:
        """Contradictions between the log and the estimate or within the log, and what they suggest."""
        if self.failure is None:
            return ()
        beside = (*_of_gpu(self.failure, self.request, self.data), *_beside_estimate(self))
        return (*beside, *_of_message(self.failure), *_of_steps(self))


def diagnose(log: LogText, given: Given, data: EstimatorContext) -> Diagnosis:
    """Diagnose a run from its log and the user's facts."""
    failure = log.failure
    request, missing = _request(log, given, data)
    if failure is None:
        missing.insert(0, "an out-of-memory failure")
    elif failure.phase == "unknown":
        missing.insert(0, "the phase that failed")
    answer, reason = _estimated(request, data) if request.config and request.model else (None, "")
    if failure and answer:
        failure = narrowed(failure, LABELS.keys() - {phase.name for phase in answer.best.estimate.phases})
    return Diagnosis(failure, log, request, data, tuple(missing), answer, reason)


def _request(log: LogText, given: Given, registries: EstimatorContext) -> tuple[Request, list[str]]:
    """Return the run as a request to the estimator, and the facts that neither log nor user gives."""
    own = {**given.script, **log.settings, **given.overrides}
    config = own if any(key.startswith("actor_rollout_ref.") for key in own) else dict(given.overrides)
    missing = [] if config else ["the configuration"]
    texts = (given.model, config.get(_PATH), log.model)
    named = model_of(registries.architectures, *texts, left_open=given.open_model)
    model = given.model or named.model or ""
    note = given.model_note or (named.found.note if named.found else "")
    if not model or note:
        missing.append(f"the model's shape: {note}" if note else "the model")
    count, name = given.gpus
    if count is None and not any(key in config for key in _COUNTS):
        missing.append("the number of GPUs")
    name = name or recorded_gpu(log.gpu, registries.gpus)
    memory = None if name else _nominal(log.failure, registries)
    if name is None:
        missing.append(f"the GPU's type (it has {memory:g} GB)" if memory else "the GPU's type")
    version = given.version or version_of(log.versions.get("verl", ""))
    usual = _LAST_OLD if log.failure and log.failure.of_old_workers else CURRENT
    if version is None:
        missing.append(f"the version of verl (assumed: {version_text(usual)})")
    backend = given.backend
    if log.failure and log.failure.of_megatron and not any(config.get(key) for key in _STRATEGIES):
        backend = backend or "megatron"
    unread, version = given.unread - own.keys(), version or usual
    request = Request(model, config, count, name, memory, version, backend=backend, unread=unread)
    return replace(request, incomplete=given.incomplete, model_note=note), missing


def _nominal(failure: Failure | None, registries: EstimatorContext) -> float | None:
    """Return the nominal GB of recorded GPUs with the message's capacity; None unless they all agree."""
    if failure is None or not failure.capacity or failure.phase == "host":
        return None
    stated = failure.capacity
    alike = {gpu.memory_gb for gpu in registries.gpus if abs(capacity_of(gpu) / stated - 1) < _SAME_GPU}
    return alike.pop() if len(alike) == 1 else None


def _estimated(request: Request, data: EstimatorContext) -> tuple[Answer | None, str]:
    try:
        answer = answer_settings(request, data)
    except NoAnswerError as error:
        return None, str(error)
    undecided = answer.best.estimate.undecided
    return (None, f"not read: {'; '.join(undecided)}") if undecided else (answer, "")


# -- contradictions between log and estimate


def _of_gpu(failure: Failure, request: Request, registries: EstimatorContext) -> Iterator[str]:
    """Yield a difference if the given GPU is not the one in the message."""
    gpu = registries.gpus.get(request.gpu) if request.gpu else None
    if gpu and failure.capacity and failure.phase != "host":
        named = capacity_of(gpu)
        if abs(named / failure.capacity - 1) > _SAME_GPU:
            yield (
                f"The GPU in the message has {gib(failure.capacity)}; {request.gpu} has {gib(named)}. "
                "Check the GPU given."
            )


def _beside_estimate(of: Diagnosis) -> Iterator[str]:
    failure, phase, found = of.failure, of.phase, of.estimate
    if failure is None or found is None:
        return
    if phase is None:
        if failure.phase in LABELS:
            yield "These settings have no such phase, so they are not the settings of the failed run."
        return
    if found.capacity is None:  # the engine's memory is a share of an unknown capacity
        return
    part = found.of_phase(phase.name)
    low, high = part.low, part.high
    wanted = failure_size(failure)
    if wanted and wanted > high:
        yield (f"The run needed {gib(wanted)}; the high end of the estimate is {gib(high)}. {_UNKNOWN}")
    elif wanted and wanted < low:
        yield (
            f"The run needed only {gib(wanted)}; the low end of the estimate is {gib(low)}. It failed before "
            "the peak of the phase, or ran with other settings."
        )
    elif not wanted and high < found.capacity:
        yield f"The estimate says that this phase fits ({gib(high)} at most). {_UNKNOWN}"
    if is_shared(failure):
        yield (
            f"Other processes use {gib(failure.others or 0)}; the estimate expects the rollout engine to use "
            f"{gib(size_of(phase.engine))} in this phase. The engine is not asleep, or a process of an "
            "earlier run is still running."
        )


def failure_size(failure: Failure) -> float | None:
    """Return the bytes in use plus those requested; None if the message does not give them."""
    if failure.capacity is None or failure.free is None:
        return None
    return failure.capacity - failure.free + (failure.tried or 0)


def _of_message(failure: Failure) -> Iterator[str]:
    reserve, allocated = failure.reserved_unallocated, failure.allocated
    if is_fragmented(failure):
        yield (
            f"PyTorch has {gib(reserve or 0)} in reserve but cannot allocate {gib(failure.tried or 0)} from "
            "it: its memory is fragmented."
        )
    if allocated and failure.in_use and allocated > failure.in_use:
        yield (
            f"PyTorch counts {gib(allocated)} as allocated, more than the {gib(failure.in_use)} in use: it "
            "includes the pool of a sleeping vLLM engine, which is not on the GPU."
        )


def _of_steps(of: Diagnosis) -> Iterator[str]:
    """Yield how much PyTorch's peak grew over the steps, or host memory if that ran out."""
    on_host = of.failure is not None and of.failure.phase == "host"
    name = HOST_MEMORY if on_host else PEAK_ALLOCATED
    first, last = of.log.figures.course(name) or (0.0, 0.0)
    if first and last > _GROWN * first:
        why = "a leak, or longer sequences" if on_host else "longer sequences, or a leak"
        yield f"{name} grew from {first:.1f} to {last:.1f} over {of.log.figures.steps} steps: {why}."
    if on_host and of.estimate:
        held = last * GIB or (of.failure.in_use if of.failure else 0) or 0
        explained = of.estimate.host.total
        if held > 2 * explained:
            yield f"The node used {gib(held)} of host memory; the estimate explains {gib(explained)}."
