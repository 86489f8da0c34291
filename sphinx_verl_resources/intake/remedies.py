"""Choose what to change after a run ran out of memory, by the form of its message and by phase.

Some settings work both ways. ``gpu_memory_utilization`` goes up if the engine has no room for its KV cache,
and down if the run fails later. Offloading frees GPU memory and fills host memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING

from ..fit.levers import ROUNDS, options_for
from ..memory.estimate import Estimate, attempt
from ..memory.request import ACTOR, REFERENCE
from .moves import (
    Remedy,
    Situation,
    checkpoint_layers,
    chunk_entropy,
    eager,
    expand_segments,
    fewer_agents,
    fewer_batched_tokens,
    fewer_loaders,
    fewer_sequences,
    fuse_logits,
    is_shared,
    keeps_on_gpu,
    less_swap,
    lower_share,
    more_rollout_gpus,
    newer_vllm,
    offload_critic,
    offload_critic_parameters,
    offload_optimizer,
    offload_parameters,
    offload_reference,
    raise_share,
    release_engine,
    remove_padding,
    save_less,
    shorter_model_length,
    smaller_batch,
    smaller_bucket,
    smaller_critic,
    smaller_old,
    smaller_reference,
    smaller_update,
    step_on_host,
    stop_others,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..memory.registries import EstimatorContext
    from ..memory.request import Request
    from .failure import Failure
    from .moves import Move

_HOST = (
    newer_vllm,
    keeps_on_gpu(ACTOR, "optimizer"),
    keeps_on_gpu(ACTOR, "param"),
    keeps_on_gpu(REFERENCE, "param"),
    keeps_on_gpu("critic", "optimizer"),
    less_swap,
    fewer_agents,
    fewer_loaders,
    smaller_batch,
)
STATES = (offload_optimizer, offload_parameters, offload_reference)
#: Moves that the form of a message calls for, in any phase.
_BY_FORM: Mapping[str, tuple[Move, ...]] = {
    "no-room-for-cache": (raise_share, more_rollout_gpus, fewer_batched_tokens, eager),
    "sequence-too-long-for-cache": (shorter_model_length, raise_share, more_rollout_gpus),
    "sglang-pool": (raise_share, more_rollout_gpus),
    "warm-up": (fewer_sequences, lower_share),
    "not-enough-free-at-start": (lower_share, stop_others, *STATES),
    "sglang-graph": (lower_share, eager, fewer_sequences),
    "wake-up": (lower_share, *STATES, more_rollout_gpus),
    "cumem": (lower_share, *STATES),
    "memory-saver": (lower_share, *STATES),
    "nccl": (lower_share,),
}
#: Moves for the functions of engines that fail at the start.
_BY_FRAME: tuple[tuple[str, tuple[Move, ...]], ...] = (
    (r"capture|cuda_?graph", (eager, lower_share)),
    (r"profile_run|determine_available_memory", (fewer_batched_tokens, fewer_sequences)),
    (r"load_model|make_layers|initialize_model", (more_rollout_gpus, *STATES)),
)
_CRITIC = (smaller_critic, offload_critic, offload_critic_parameters)
_BY_PHASE: Mapping[str, tuple[Move, ...]] = {
    "startup": (lower_share, *STATES, more_rollout_gpus),
    "loading": STATES,
    "rollout": (lower_share, fewer_sequences, fewer_batched_tokens),
    "old-log-prob": (smaller_old, chunk_entropy, fuse_logits),
    "ref-log-prob": (smaller_reference, fuse_logits, offload_reference),
    "critic-values": _CRITIC,
    "critic-forward": _CRITIC,
    "critic-backward": _CRITIC,
    "critic-optimizer-step": (offload_critic, offload_critic_parameters),
    "update-forward": (smaller_update, fuse_logits, chunk_entropy),
    "update-backward": (smaller_update, checkpoint_layers, remove_padding, fuse_logits, offload_optimizer),
    "optimizer-step": (step_on_host, offload_optimizer, offload_parameters, offload_reference),
    "weight-sync": (lower_share, *STATES, smaller_bucket),
    "checkpoint": (save_less, *STATES),
    "host": _HOST,
    "unknown": (lower_share, smaller_update, offload_optimizer, offload_parameters),
}
#: Phases of training, during which an engine on the same GPUs sleeps.
_TRAINING = frozenset(_BY_PHASE) - {
    "startup",
    "loading",
    "rollout",
    "weight-sync",
    "checkpoint",
    "host",
    "unknown",
}
#: Share of a phase that a change must save to suffice, if the amount needed is unknown.
_NOTICEABLE = 0.1
#: Maximum number of proposed changes.
_MOST = 6


@dataclass(frozen=True)
class Advice:
    """A change and its effect.

    Attributes:
        remedy: the change.
        after: the estimate with the change; None if there is none.
    """

    remedy: Remedy
    after: Estimate | None = None


def advice(of: Situation, request: Request | None, registries: EstimatorContext) -> tuple[Advice, ...]:
    """Return the changes to try, in order.

    Changes that the message calls for come first. If there is an estimate, it orders the changes that lower a
    phase of training: first those that suffice, by cost in time, then the others by how much they save.
    """
    firm, rest = (_proposed(moves, of, registries) for moves in (_called_for(of), _of_phase(of)))
    found = [Advice(remedy, _after(remedy, request, registries)) for remedy in firm]
    if of.estimate and request and _is_estimated(of.failure, of.estimate):
        choices = _choices(of.estimate, rest)
        found += _ranked(choices, of.failure, of.estimate, request, registries)
    else:
        found += [Advice(remedy, _after(remedy, request, registries)) for remedy in rest]
    if of.failure.phase == "host":  # changes after which the run no longer fits on the GPU come last
        found.sort(key=lambda each: each.after is not None and each.after.verdict == "does-not-fit")
    return tuple(_without_repeats(found))[:_MOST]


def _is_estimated(failure: Failure, found: Estimate) -> bool:
    """Return whether the estimate orders the changes: in phases of training and in an unknown phase."""
    phases = set(possible(failure))
    return phases == {"unknown"} or phases <= _TRAINING & {phase.name for phase in found.phases}


def _choices(found: Estimate, rest: Iterable[Remedy]) -> list[tuple[Remedy, ...]]:
    """Return the settings that may save memory, each with its values, mildest first."""
    # The move ``step_on_host`` is the only one that replaces FSDP by FSDP2.
    options = [option for option in options_for(found) if f"{ACTOR}.strategy" not in option.steps[0]]
    choices = [tuple(Remedy(step, lever.sentence, lever.cost) for step in steps) for lever, steps in options]
    known = {key for option in options for step in option.steps for key in step}
    return choices + [(remedy,) for remedy in rest if known.isdisjoint(remedy.overrides)]


def _proposed(moves: Iterable[Move], of: Situation, registries: EstimatorContext) -> list[Remedy]:
    """Return the changes of the moves, with the key names of the run's version of verl."""
    found = []
    for remedy in filter(None, (move(of) for move in moves)):
        named = {registries.name_in(key, of.version): value for key, value in remedy.overrides.items()}
        overrides = {key: value for key, value in named.items() if key is not None}
        if len(overrides) == len(remedy.overrides):
            found.append(replace(remedy, overrides=overrides))
    return found


def _called_for(of: Situation) -> Iterator[Move]:
    """Yield the moves for the form of the message, its figures and the function that failed."""
    failure = of.failure
    yield from _BY_FORM.get(failure.form, ())
    if possible(failure) == ("host",):
        return
    yield expand_segments
    if _TRAINING.issuperset(possible(failure)) and of.shares_gpus:
        yield release_engine
        if is_shared(failure):
            yield from (lower_share, stop_others)
    if failure.phase == "startup":
        yield from (move for words, moves in _BY_FRAME if re.search(words, failure.frame) for move in moves)
    if "entropy" in failure.frame:
        yield chunk_entropy


def _of_phase(of: Situation) -> Iterator[Move]:
    """Yield the moves for the phase that failed, or for every possible one."""
    failure = of.failure
    if failure.phase != "startup" or failure.form not in _BY_FORM:  # otherwise the form's moves are complete
        yield from (move for phase in possible(failure) for move in _BY_PHASE[phase])


def possible(failure: Failure) -> tuple[str, ...]:
    """Return the phase that failed, or the possible phases if it is unknown."""
    return failure.phases if failure.phase == "unknown" and failure.phases else (failure.phase,)


def _ranked(
    choices: Iterable[tuple[Remedy, ...]],
    failure: Failure,
    before: Estimate,
    request: Request,
    registries: EstimatorContext,
) -> Iterator[Advice]:
    """Yield changes that lower the phase: sufficient ones by cost and size, then the most effective."""
    size = size_in(before, failure)
    over = size - (before.capacity or size)
    needed = max((failure.tried or 0) - (failure.free or 0), over, _NOTICEABLE * size)
    ranked: list[tuple[tuple[float, ...], Advice]] = []
    for remedies in choices:
        for remedy in remedies:
            after = _after(remedy, request, registries)
            saves = size - size_in(after, failure) if after else 0.0
            if saves >= needed:
                ranked.append(((0, _dearness(remedy), len(remedy.overrides), -saves), Advice(remedy, after)))
                break
            if remedy is remedies[-1] and saves > 0.01 * size:
                ranked.append(((1, 0, 0, -saves), Advice(remedy, after)))
    return (each for _, each in sorted(ranked, key=itemgetter(0)))


def _dearness(remedy: Remedy) -> int:
    """Return the rank of a cost; changes that may affect results rank after those that cost little time."""
    return 2 if remedy.text == ROUNDS else {"none": 0, "little": 1, "much": 3}[remedy.cost]


def size_in(found: Estimate, failure: Failure) -> float:
    """Return the bytes of the largest phase that may have failed; the peak if the estimate has none."""
    sizes = [phase.total for phase in found.phases if phase.name in possible(failure)]
    return max(sizes, default=found.peak)


def _after(remedy: Remedy, request: Request | None, registries: EstimatorContext) -> Estimate | None:
    """Return the estimate with a change; None if there is none."""
    if request is None or not remedy.overrides:
        return None
    after = attempt(request.having(remedy.overrides), registries)
    return after if isinstance(after, Estimate) else None


def _without_repeats(found: Iterable[Advice]) -> Iterator[Advice]:
    """Yield each change once, with only the first value of a setting."""
    seen: list[frozenset[str]] = []
    for each in found:
        keys = frozenset(each.remedy.overrides) or frozenset({each.remedy.text})
        if keys not in seen:
            seen.append(keys)
            yield each
