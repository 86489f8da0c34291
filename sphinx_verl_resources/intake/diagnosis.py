"""Diagnoses: what happened to a run that ran out of memory, what the estimate says, and what to change."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..answer.answer import answer_settings
from ..catalog.fields import HOST_MEMORY, PEAK_ALLOCATED
from ..diagnostics import NoAnswerError
from ..estimator.allocations import size_of
from ..estimator.phases import LABELS
from ..estimator.registries import capacity_of
from ..estimator.request import ACTOR, MODEL, Request, changed
from ..estimator.versions import CURRENT, version_of, version_text
from ..units import GIB, gib
from .failure import narrowed
from .moves import Situation, is_fragmented, is_shared
from .recorded_names import model_of, recorded_gpu
from .remedies import Advice, advice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..answer.answer import Answer
    from ..estimator.context import EstimatorContext
    from ..estimator.estimate import Estimate
    from ..estimator.phases import Phase
    from ..estimator.registries import Registries
    from ..estimator.versions import Version
    from .failure import Failure
    from .log import LogText

_PATH = f"{MODEL}.path"
_STRATEGIES = (f"{ACTOR}.strategy", "model_engine")
_COUNTS = ("trainer.nnodes", "trainer.n_gpus_per_node")
#: The last release with the old workers.
_LAST_OLD: Version = (0, 7, 1)
#: Two readings of the memory of one kind of GPU differ by less than this share.
_SAME_GPU = 0.02
#: From here on a figure has grown from the first step to the last.
_GROWN = 1.1
_UNKNOWN = "Something holds memory that the settings do not explain."


@dataclass(frozen=True)
class Given:
    """Facts that the user adds to the log.

    Attributes:
        model: Hugging Face name of the checkpoint.
        gpus: their number and name, None for what the log is to tell.
        script: settings of a launch script; those of the log override them.
        overrides: settings that override all others.
        unread: keys whose values the script leaves open.
        open_model: the model's path as the script has it, where only a running shell knows all of it.
        incomplete: what else of the script may set more than is read.
        version: of verl.
        backend: of training, where the script tells it by the configuration that it names.
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


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """A diagnosis.

    Attributes:
        failure: how the run ended; None where the log has no failure for lack of memory.
        log: what the log says.
        request: the run as a question to the estimator.
        data: the records.
        missing: what neither the log nor the user says.
        answer: the estimate with just these settings; None without one.
        no_estimate: why there is none; empty where there is one.
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
        """The estimate of the run; None without one."""
        return self.answer.best.estimate if self.answer else None

    @property
    def phase(self) -> Phase | None:
        """The estimate of the phase that failed; None where the estimate has no such phase."""
        found = self.estimate.phases if self.estimate and self.failure else ()
        return next((phase for phase in found if self.failure and phase.name == self.failure.phase), None)

    @cached_property
    def advice(self) -> tuple[Advice, ...]:
        """The changes, first what should be tried first."""
        if self.failure is None:
            return ()
        registries = self.data.registries
        config = registries.in_todays_names(self.request.config)
        defaults = registries.defaults(self.request.version)
        version = self.request.version
        situation = Situation(self.failure, config, defaults, self.log.versions, version, self.estimate)
        return advice(situation, self.request if self.estimate else None, registries)

    @cached_property
    def differences(self) -> tuple[str, ...]:
        """The places where the log disagrees with the estimate or with itself, and what that suggests."""
        if self.failure is None:
            return ()
        beside = (*_of_gpu(self.failure, self.request, self.data.registries), *_beside_estimate(self))
        return (*beside, *_of_message(self.failure), *_of_steps(self))


def diagnose(log: LogText, given: Given, data: EstimatorContext) -> Diagnosis:
    """Diagnose a run from its log and from what the user says."""
    failure = log.failure
    request, missing = _request(log, given, data.registries)
    if failure is None:
        missing.insert(0, "a failure for lack of memory")
    elif failure.phase == "unknown":
        missing.insert(0, "the phase that failed")
    answer, reason = _estimated(request, data) if request.config and request.model else (None, "")
    if failure and answer:
        failure = narrowed(failure, LABELS.keys() - {phase.name for phase in answer.best.estimate.phases})
    return Diagnosis(failure, log, request, data, tuple(missing), answer, reason)


def _request(log: LogText, given: Given, registries: Registries) -> tuple[Request, list[str]]:
    """Return the run as a question to the estimator, and what neither the log nor the user says."""
    own = {**given.script, **log.settings, **given.overrides}
    config = own if any(key.startswith("actor_rollout_ref.") for key in own) else dict(given.overrides)
    missing = [] if config else ["the configuration"]
    texts = (given.model, config.get(_PATH), log.model)
    named = model_of(registries.architectures, *texts, left_open=given.open_model)
    model = given.model or named.model or ""
    if not model:
        several = ", ".join(named.models[:5])
        missing.append(f"which of {several} the model is" if several else "the model")
    count, name = given.gpus
    if count is None and not any(key in config for key in _COUNTS):
        missing.append("the number of GPUs")
    name = name or recorded_gpu(log.gpu, registries.gpus)
    memory = None if name else _nominal(log.failure, registries)
    if name is None:
        missing.append(f"the GPU's name (it has {memory:g} GB)" if memory else "the GPU")
    version = given.version or version_of(log.versions.get("verl", ""))
    usual = _LAST_OLD if log.failure and log.failure.of_old_workers else CURRENT
    if version is None:
        missing.append(f"the version of verl ({version_text(usual)} is assumed)")
    backend = given.backend
    if log.failure and log.failure.of_megatron and not any(config.get(key) for key in _STRATEGIES):
        backend = backend or "megatron"
    unread, version = given.unread - own.keys(), version or usual
    request = Request(model, config, count, name, memory, version, backend=backend, unread=unread)
    return changed(request, incomplete=given.incomplete), missing


def _nominal(failure: Failure | None, registries: Registries) -> float | None:
    """Return the GB that GPUs are sold with whose memory the message states; None if they differ."""
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


# -- where they disagree


def _of_gpu(failure: Failure, request: Request, registries: Registries) -> Iterator[str]:
    """Yield that the GPU of the message is not the one that is named."""
    gpu = registries.gpus.get(request.gpu) if request.gpu else None
    if gpu and failure.capacity and failure.phase != "host":
        named = capacity_of(gpu)
        if abs(named / failure.capacity - 1) > _SAME_GPU:
            yield (
                f"The GPU of the message has {gib(failure.capacity)}; {request.gpu} has {gib(named)}. "
                "Name the GPU that the run had."
            )


def _beside_estimate(of: Diagnosis) -> Iterator[str]:
    failure, phase, found = of.failure, of.phase, of.estimate
    if failure is None or found is None:
        return
    if phase is None:
        if failure.phase in LABELS:
            yield "These settings have no such phase: they are not those of the run that failed."
        return
    low, high = phase.ends(found.widening)
    wanted = failure_size(failure)
    if wanted and wanted > high:
        yield (f"The run wanted {gib(wanted)} at this moment; the estimate ends at {gib(high)}. {_UNKNOWN}")
    elif wanted and wanted < low:
        yield (
            f"The run wanted only {gib(wanted)} at this moment; the estimate begins at {gib(low)}. It failed "
            "before the peak of the phase, or ran with other settings."
        )
    elif not wanted and found.capacity and high < found.capacity:
        yield f"By the estimate this phase fits: {gib(high)} at most. {_UNKNOWN}"
    if is_shared(failure):
        yield (
            f"Other processes hold {gib(failure.others or 0)}; in this phase the estimate expects "
            f"{gib(size_of(phase.engine))} of the rollout engine. The engine is not asleep, or a process of "
            "an earlier run is still there."
        )


def failure_size(failure: Failure) -> float | None:
    """Return the bytes that were in use, and those asked for; None where the message does not tell."""
    if failure.capacity is None or failure.free is None:
        return None
    return failure.capacity - failure.free + (failure.tried or 0)


def _of_message(failure: Failure) -> Iterator[str]:
    reserve, allocated = failure.reserved_unallocated, failure.allocated
    if is_fragmented(failure):
        yield (
            f"PyTorch holds {gib(reserve or 0)} that it cannot use for this allocation of "
            f"{gib(failure.tried or 0)}: its memory is fragmented."
        )
    if allocated and failure.in_use and allocated > failure.in_use:
        yield (
            f"PyTorch counts {gib(allocated)} as allocated, more than the {gib(failure.in_use)} in use: it "
            "counts the pool of a sleeping vLLM engine, which is not on the GPU."
        )


def _of_steps(of: Diagnosis) -> Iterator[str]:
    """Yield what has grown over the steps: PyTorch's peak, or host memory where that ran out."""
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
            yield f"The node held {gib(held)} of host memory; the estimate explains {gib(explained)}."
