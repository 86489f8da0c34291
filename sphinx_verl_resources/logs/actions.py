"""What to do after a run ran out of memory: known bugs, instructions, and levers that lower what is large.

Some settings work both ways. ``gpu_memory_utilization`` goes up if the engine has no room for its KV cache,
and down if something fails later. Offloading frees the GPU and fills the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from ..fit import levers
from ..fit.levers import Cost, Lever, Option, Overrides, options_for
from ..memory.estimate import Estimate, attempt
from ..memory.recorded import ENGINE_SHARE
from ..memory.request import ACTOR, ROLLOUT, ROOT
from ..memory.versions import version_of, version_text
from ..strict_yaml import read_yaml
from .diagnosis import Diagnosis
from .failure import UNKNOWN, Failure

#: The most actions, and the most if nothing tells the phase.
_MOST, _MOST_UNKNOWN = 4, 2
#: The least share of a phase that an action must save, and the share that suffices if nothing tells the need.
_LEAST, _ENOUGH = 0.05, 0.1
_BUGS: tuple[dict[str, Any], ...] = read_yaml(Path(__file__).with_name("bugs.yaml").read_bytes()).data

_STATES = (levers.OFFLOAD_OPTIMIZER, levers.OFFLOAD_PARAMETERS)
_LOWER = (levers.LOWER_SHARE, *_STATES, levers.WIDER_ENGINE)
_ROOM = (levers.RAISE_SHARE, levers.WIDER_ENGINE, levers.FEWER_TOKENS, levers.EAGER)
#: The levers that the form of a message calls for, what a starting engine does, or a phase.
_CALLED: Mapping[str, tuple[Lever, ...]] = {
    "no-room-for-cache": _ROOM,
    "sglang-pool": _ROOM,
    "sequence-too-long-for-cache": (levers.SHORTER_ENGINE, *_ROOM),
    "warm-up": (levers.FEWER_SEQUENCES, levers.LOWER_SHARE),
    "sglang-graph": (levers.LOWER_SHARE, levers.EAGER, levers.FEWER_SEQUENCES),
    "nccl": (levers.LOWER_SHARE,),
    "capture": (levers.EAGER, levers.LOWER_SHARE),
    "profile": (levers.FEWER_TOKENS, levers.FEWER_SEQUENCES),
    "weights": (levers.WIDER_ENGINE, *_STATES),
    "startup": _LOWER,
    "weight-sync": _LOWER,
    "checkpoint": _STATES,
    "host": tuple(lever for lever in levers.LEVERS if lever.phases == levers.HOST),
}
#: The messages and phases after which the engine's share of the GPU goes up or down, whatever it is.
_SHARE = {form: "Raise" for form, called in _CALLED.items() if levers.RAISE_SHARE in called}
_SHARE |= dict.fromkeys(("warm-up", "sglang-graph", "nccl", "not-enough-free-at-start", "rollout"), "Lower")
_SHARE["weight-sync"] = "Lower"

_LOOK = (
    "See what ended the process, since this message does not show that memory ran out: dmesg -T | grep -i "
    "'killed process' on its node, and the worker's own log in /tmp/ray/session_latest/logs."
)
_NO_SLEEP = (
    "vLLM's sleep freed nothing. If PYTORCH_CUDA_ALLOC_CONF has expandable_segments:True, unset it (vLLM "
    "issue 11743); otherwise try another release of vLLM. Smaller micro-batches do not help."
)
_WHO = (
    "See with nvidia-smi during training who holds the memory that PyTorch does not: an engine that does not "
    "sleep, or a process of an earlier run. Smaller micro-batches do not help."
)
_PROCESSES = "Find the process that holds most host memory, in Ray's table of processes in the log or in top."
_OLD_RUN = "Stop processes of earlier runs; nvidia-smi lists them."


class Action(NamedTuple):
    """A suggested change after a failure: settings, or an instruction.

    Attributes:
        sentence: what it does; the instruction itself if it sets nothing.
        overrides: the settings by verl's dotted keys, under the names of the run's release.
        cost: its cost in time.
        after: the estimate with it; None without one.
    """

    sentence: str
    overrides: Mapping[str, Any] = {}
    cost: Cost = "none"
    after: Estimate | None = None


def actions_for(of: Diagnosis) -> tuple[Action, ...]:
    """Return at most four actions, the one to try first comes first.

    None sets a value whose present one is unknown, and none is without effect on what is large.
    """
    failure, own = of.failure, of.estimate
    if failure is None or not failure.is_evidence:
        return (Action(_LOOK),) if failure else ()
    actions = [*_bugs(of, failure), *_instructions(of, failure)]
    if own is None:
        actions += _directions(of, failure)
    elif called := _called(of, failure):
        actions += _in_order(called, of, own, failure)
    else:
        actions += _ranked(of, own, failure)[: _MOST_UNKNOWN if failure.possible == (UNKNOWN,) else _MOST]
    return tuple(actions[:_MOST])


def size_in(own: Estimate, failure: Failure) -> float:
    """Return the bytes of the largest phase that may have failed, or of the peak; or of host memory."""
    if failure.phase == "host":
        return own.host.total
    return max((phase.total for phase in own.phases if phase.name in failure.possible), default=own.peak)


def _bugs(of: Diagnosis, failure: Failure) -> Iterator[Action]:
    """Yield the upgrades that repair a known bug of the releases that the log or the user names."""
    releases = {"vllm": version_of(of.log.versions.get("vllm"))}
    releases |= {} if of.is_release_assumed else {"verl": of.request.version}
    config, own = of.request.config, of.estimate
    backend = own.settings.actor.backend if own else config.get(f"{ACTOR}.strategy")
    has = (backend, str(backend)[:4], config.get(f"{ROLLOUT}.name"), None)
    for bug in _BUGS:
        since, until, release = bug["since"], bug["until"], releases.get(bug["package"])
        is_in = release and since <= release < until and bug.get("needs") in has
        if is_in and not {*failure.possible}.isdisjoint(bug["phases"]):
            upgrade = f"upgrade to {bug['package']} {version_text(until)} or newer"
            yield Action(f"{bug['sentence']}: {upgrade} ({bug['source']}).")


def _instructions(of: Diagnosis, failure: Failure) -> Iterator[Action]:
    """Yield what no setting of verl does."""
    sleep = of.log.sleep
    if of.is_awake:
        yield Action(_NO_SLEEP if sleep and sleep["freed"] < 0.01 * sleep["left"] else _WHO)
    elif failure.phase == "host":
        yield Action(_PROCESSES)
    elif failure.form == "not-enough-free-at-start":
        yield Action(_OLD_RUN)


def _directions(of: Diagnosis, failure: Failure) -> Iterator[Action]:
    """Yield which way the engine's share of the GPU goes, although its value is unknown."""
    ways = {_SHARE.get(failure.form) or _SHARE.get(phase, "") for phase in failure.possible}
    way = "Lower" if of.is_awake else ways.pop() if len(ways) == 1 else ""
    key = "worker.rollout.gpu_memory_utilization" if of.is_easyr1 else ENGINE_SHARE
    if way:
        yield Action(f"{way} {key}; the log does not give its value.")


def _called(of: Diagnosis, failure: Failure) -> tuple[Lever, ...]:
    """Return the levers that the message calls for, in order; empty if the estimate orders them."""
    if of.is_awake:
        return (levers.SLEEP, levers.LOWER_SHARE)
    signs = (failure.form, *(sorted(failure.traits) if failure.phase == "startup" else ()), failure.phase)
    return next((_CALLED[sign] for sign in signs if sign in _CALLED), ())


def _options(of: Diagnosis, own: Estimate, failure: Failure) -> Iterator[Option]:
    """Yield the levers that the device has, with only the settings of the model that may have failed."""
    is_critic, roots = failure.phase.startswith("critic-"), (f"{ROOT}.", "critic.")
    sections = roots if failure.phase == "host" else roots[is_critic]
    for lever, steps in options_for(own):
        parts = [{key: step[key] for key in step if key.startswith(sections)} for step in steps]
        if any(parts) and not (lever.cuda_only and failure.form == "npu"):
            yield Option(lever, tuple(filter(None, parts)))


def _in_order(called: tuple[Lever, ...], of: Diagnosis, own: Estimate, failure: Failure) -> Iterator[Action]:
    """Yield levers that a message calls for, without those that the estimate knows to change nothing."""
    options = [option for option in _options(of, own, failure) if option.lever in called]
    for option in sorted(options, key=lambda option: called.index(option.lever)):
        overrides = _enough(option, own, failure)
        after = _after(overrides, of, own)
        if after is None or not option.lever.phases or _sizes(after) != _sizes(own):
            yield Action(option.lever.sentence, overrides, option.lever.cost, after)


def _sizes(own: Estimate) -> list[float]:
    return [own.host.total, *(phase.total for phase in own.phases)]


def _enough(option: Option, own: Estimate, failure: Failure) -> Overrides:
    """Return the weakest step that suffices by the sizes of the message; the weakest of all without them."""
    sizes, share = failure.sizes, own.settings.rollout.utilization
    if failure.phase == "startup" and {"tried", "free"} <= sizes.keys():
        capacity = sizes.get("capacity") or own.capacity or 1.0
        least, most = share + (sizes["tried"] - sizes["free"]) / capacity, sizes["free"] / capacity
        for step in option.steps:
            is_raised = option.lever is levers.RAISE_SHARE and step[ENGINE_SHARE] >= least
            if is_raised or (option.lever is levers.LOWER_SHARE and step[ENGINE_SHARE] <= most):
                return step
    return option.steps[0]


def _ranked(of: Diagnosis, own: Estimate, failure: Failure) -> list[Action]:
    """Return the levers that suffice for the phase, cheapest first; without one, those that save most."""
    size = size_in(own, failure)
    lacks = failure.sizes.get("tried", 0) - failure.sizes.get("free", 0)
    needed = max(lacks, size - (own.capacity or size), _ENOUGH * size)
    ranked: list[tuple[tuple[float, ...], Action]] = []
    phases = {own.peak_phase.name} if failure.possible == (UNKNOWN,) else {*failure.possible}
    phases &= {phase.name for phase in own.phases}
    for lever, steps in _options(of, own, failure):
        for overrides in steps if lever.phases & phases else ():
            after = _after(overrides, of, own)
            saves = size - size_in(after, failure) if after else 0.0
            if saves >= needed or (overrides is steps[-1] and saves >= _LEAST * size):
                order = (0, 0, 0) if saves >= needed else (1, lever.rank > 2, -saves)
                ranked.append((order, Action(lever.sentence, overrides, lever.cost, after)))
                break
    best = sorted(ranked, key=itemgetter(0))
    return [action for order, action in best if order[0] == best[0][0][0]]


def _after(overrides: Overrides, of: Diagnosis, own: Estimate) -> Estimate | None:
    """Return the estimate with an action, for sequences of the same length; None without one."""
    after = attempt(own.request.having(overrides), of.data)
    if not isinstance(after, Estimate):
        return None
    return after.with_mean(of.bound) if of.bound else after
