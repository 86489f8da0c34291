"""Why a run ran out of memory: what its log measured, what the estimate says, and what to change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from ..diagnostics import NoAnswerError
from ..fit.question import assumptions_in
from ..memory.allocations import size_of
from ..memory.estimate import Estimate, attempt, largest_that_fits
from ..memory.keys import release_for
from ..memory.phases import ENGINE_STATES, LABELS, Phase
from ..memory.registries import EstimatorContext, capacity_of
from ..memory.request import Request
from ..memory.settings import TRAINER_GPUS
from ..memory.versions import CURRENT, Version, version_of, version_text
from ..units import gib
from .failure import UNKNOWN, Failure, narrowed
from .log import Log

#: The last release with the old workers.
_LAST_OLD: Version = (0, 7, 1)
#: The largest relative difference between two readings of one GPU's memory.
_SAME_GPU = 0.02
#: The largest share of a GPU that a sleeping engine keeps: context, CUDA graphs, communicators.
_SLEEPING = 0.1
#: PyTorch's memory is in pieces if its unused reserve exceeds this share of the GPU.
_PIECES = 0.05
#: The phases in which an engine on the same GPUs sleeps.
TRAINING = LABELS.keys() - ENGINE_STATES.keys()


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """A failure that a log reports, with the estimate of the run that failed.

    Attributes:
        failure: the failure; None if the log has none.
        log: the log.
        request: the run as a request to the estimator.
        data: the data.
        missing: what neither the log nor the user says.
        estimate: the estimate with exactly these settings; None without one.
        no_estimate: why there is none, if the settings are known.
        is_release_assumed: whether neither the log nor the user names the release of verl.
        bound: the mean length of sequences in tokens that the phases before the failure allow, at most; None
            if they allow every length.
    """

    failure: Failure | None
    log: Log
    request: Request
    data: EstimatorContext
    missing: tuple[str, ...]
    estimate: Estimate | None = None
    no_estimate: str = ""
    is_release_assumed: bool = False
    bound: int | None = None

    @property
    def is_easyr1(self) -> bool:
        """True if EasyR1 ran, a fork of verl with other settings."""
        traits = self.failure.traits if self.failure else ()
        return "easyr1" in traits or any(key.startswith("worker.") for key in self.log.settings)

    @property
    def phase(self) -> Phase | None:
        """The phase that failed, in the estimate; None if it has none."""
        phases = self.estimate.phases if self.estimate and self.failure else ()
        return next((phase for phase in phases if self.failure and phase.name == self.failure.phase), None)

    @cached_property
    def holders(self) -> dict[str, int]:
        """The bytes on the GPU by who holds them, as the message counts them; empty if it does not say.

        ``pytorch`` and ``besides`` are in the process that failed, ``others`` are other processes. PyTorch
        may count the pool of a sleeping engine, which is not on the GPU: then nobody knows who holds what.
        """
        sizes = self.failure.sizes if self.failure and self.failure.phase != "host" else {}
        holders = {"others": sizes["others"]} if "others" in sizes else {}
        if "allocated" in sizes and "in_use" in sizes:
            pytorch = sizes["allocated"] + sizes.get("reserved_unallocated", 0)
            if pytorch <= sizes["in_use"]:
                holders |= {"pytorch": pytorch, "besides": sizes["in_use"] - pytorch}
        return holders

    @cached_property
    def is_awake(self) -> bool:
        """True if more than a sleeping engine is on the GPU during training, besides PyTorch."""
        capacity = self.failure.sizes.get("capacity") if self.failure else None
        most = max((size for name, size in self.holders.items() if name != "pytorch"), default=0)
        is_training = self.failure is not None and TRAINING.issuperset(self.failure.possible)
        shares = not (self.estimate and self.estimate.settings.rollout.separate)
        return bool(capacity and is_training and shares and most > _SLEEPING * capacity)

    @cached_property
    def is_in_pieces(self) -> bool:
        """True if PyTorch's unused reserve would hold the failed allocation, were it in one piece."""
        sizes = self.failure.sizes if self.failure else {}
        least = max(sizes.get("tried", 0), _PIECES * sizes.get("capacity", 0))
        return "tried" in sizes and sizes.get("reserved_unallocated", 0) > least

    def differences(self) -> Iterator[str]:
        """Yield contradictions between the log, the user and the estimate."""
        own, phase, request, failure = self.estimate, self.phase, self.request, self.failure
        sizes = failure.sizes if failure and failure.phase != "host" else {}
        gpu, stated = self.data.gpus.get(request.gpu or ""), sizes.get("capacity")
        if gpu and stated and abs(capacity_of(gpu) / stated - 1) > _SAME_GPU:
            has = f"{request.gpu} has {gib(capacity_of(gpu))}"
            yield f"The GPU in the message has {gib(stated)}; {has}. Check the GPU given."
        if own and failure and failure.phase in LABELS and phase is None:
            yield "These settings have no such phase, so they are not the settings of the failed run."
        if own is None or phase is None or own.capacity is None or not stated or "free" not in sizes:
            return
        part, goal = own.of_phase(phase.name), stated - sizes["free"] + sizes.get("tried", 0)
        if self.is_awake:
            yield f"It expects a sleeping engine of {gib(size_of(phase.engine))}: there is something else."
        elif goal > part.high:
            yield f"The run needed {gib(goal)}; the settings explain at most {gib(part.high)}."
        elif goal < part.low:
            yield f"The run needed only {gib(goal)}, so it failed before the peak or had other settings."

    @cached_property
    def assumed(self) -> tuple[str, ...]:
        """The assumptions of the estimate."""
        if not self.estimate:
            return ()
        lengths, texts = self.estimate.settings.lengths, assumptions_in(self.request, self.data)
        if self.bound:
            return *texts, f"sequences of {self.bound:,} tokens on average, since the phases before it passed"
        length = f"sequences of up to {int(lengths.limit):,} tokens in every micro-batch"
        return texts if lengths.known else (*texts, length)


def diagnose(log: Log, request: Request, data: EstimatorContext, version: Version | None = None) -> Diagnosis:
    """Diagnose a run.

    Args:
        log: the log.
        request: model, GPUs and settings, from the user and the log. Its version counts for nothing.
        data: the data.
        version: the release of verl, if the user gives it.
    """
    failure = log.failure and narrowed(log.failure, {**log.settings, **request.config})
    memory = None if request.gpu else _nominal(failure, data)
    version = version or version_of(log.versions.get("verl"))
    release, why = (version, "") if version else _release(log, request, data)
    assumed = f" (assumed: {version_text(release)}{why})" if request.config else ""
    facts = {
        "an out-of-memory failure": failure is None,
        "the phase that failed": failure is not None and failure.phase == UNKNOWN,
        "the configuration": not request.config,
        "the model": not request.model,
        f"the model's shape: {request.model_note}": bool(request.model_note),
        "the number of GPUs": not request.gpus and request.config.keys().isdisjoint(TRAINER_GPUS),
        f"the GPU's type{f' (it has {memory:g} GB)' if memory else ''}": not request.gpu,
        f"the version of verl{assumed}": not version,
    }
    is_megatron = failure is not None and "megatron" in failure.traits  # counts where no setting says it
    backend = request.backend or ("megatron" if is_megatron else None)
    request = replace(request, version=release, memory_gb=memory, backend=backend)
    missing = tuple(text for text, is_missing in facts.items() if is_missing)
    diagnosis = Diagnosis(failure, log, request, data, missing, is_release_assumed=not version)
    if diagnosis.is_easyr1:
        return replace(diagnosis, no_estimate="EasyR1's settings are not modelled")
    if not (request.config and request.model):
        return diagnosis
    own = attempt(request, data)
    if isinstance(own, NoAnswerError):
        return replace(diagnosis, no_estimate=str(own))
    if own.undecided:
        return replace(diagnosis, no_estimate=f"not read: {'; '.join(own.undecided)}")
    bound = _bound(own, failure) if failure else None
    return replace(diagnosis, estimate=own.with_mean(bound) if bound else own, bound=bound)


def _release(log: Log, request: Request, data: EstimatorContext) -> tuple[Version, str]:
    """Return the newest release that the log allows, and what bounds it."""
    bounds = [(CURRENT, ""), (release_for(request.config, data)[0], " by its keys")]
    if log.failure and "old-workers" in log.failure.traits:
        bounds.append((_LAST_OLD, " by its workers"))
    if vllm := log.versions.get("vllm"):
        bounds.append((version_of(f"vllm {vllm}") or CURRENT, f" by vLLM {vllm}"))
    return min(bounds)


def _nominal(failure: Failure | None, data: EstimatorContext) -> float | None:
    """Return the nominal GB of recorded GPUs with the message's capacity; None unless they all agree."""
    stated = failure.sizes.get("capacity") if failure and failure.phase != "host" else None
    gpus = data.gpus if stated else ()
    alike = {gpu.memory_gb for gpu in gpus if stated and abs(capacity_of(gpu) / stated - 1) < _SAME_GPU}
    return alike.pop() if len(alike) == 1 else None


def _bound(own: Estimate, failure: Failure) -> int | None:
    """Return the longest mean length with which the phases before the failure fit, which they did."""
    names = [phase.name for phase in own.phases]
    passed = names[: names.index(failure.phase)] if failure.phase in TRAINING & {*names} else []
    capacity, longest = own.capacity, int(own.settings.lengths.longest)

    def fits(mean: int) -> bool:
        return own.with_mean(mean).of_phase(*passed).low <= (capacity or 0)

    if not (passed and capacity) or own.settings.lengths.known or fits(longest) or not fits(1):
        return None
    return largest_that_fits(1, longest, fits)
