"""The failure of a run that ran out of memory: its phase, its figures and its place in the log.

A run that fails prints many messages. The first one counts; later ones only add what it lacks.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..diagnostics import Location
from .facts import Line
from .frames import TABLES, Frame, Phases, frame_of, is_driver_task, phases_of

UNKNOWN = "unknown"

_FORMS = [(re.compile(row["pattern"]), row["form"], row.get("phase", "")) for row in TABLES["messages"]]
#: A part of every message, to leave out most lines.
_ANY = re.compile(r"emory|OOMKilled|ALLOC_FAILED|worker died|SYSTEM_ERROR|SIGKILL|larger than the max")
#: Messages after which a library tries again.
_HARMLESS = re.compile(r"may not be an issue|\(may retry\)")

#: Ray's GB are GiB.
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "GB": 2**30, "TiB": 2**40}
#: A size of at most 15 digits; a longer number is none.
_SIZE = r"(?<!\d)(\d{1,15}(?:\.\d+)?)(?!\d)(?: ?(bytes|[KMGT]iB|GB))?"
_SIZES = [(row["name"], re.compile(row["pattern"].replace("#", _SIZE))) for row in TABLES["sizes"]]
_OTHER = re.compile(rf"[Pp]rocess \d+ has {_SIZE} memory in use")

#: What the files and functions of a traceback say about the run, by name.
_TRAITS = {
    # What a rollout engine does when it starts.
    "capture": r":\w*(?:capture|cuda_?graph)",
    "profile": r":(?:profile_run|determine_available_memory)\b",
    "weights": r":(?:load_model|make_layers|initialize_model)\b",
    "megatron": r"/megatron/",
    # Workers that verl removed after v0.7.1 (commit 044bbba27).
    "old-workers": r"\bverl/.*(?:fsdp|megatron)_workers\.py|\b(?:dp|megatron)_(?:actor|critic)\.py",
    "easyr1": r"\bverl/trainer/main\.py",
}
_BEGINS = ("Traceback (most recent call last)", "Unhandled error (suppress with")
#: The last line of a traceback.
_RAISED = re.compile(r"\b[\w.]*(?:Error|Exception)\b: ")
#: The process of an engine for which a worker prints.
_NESTED = re.compile(r"\(([^()]*\bpid=\d+[^()]*)\) ")
#: The most lines between a frame and its message, since other workers print in between; and between the
#: tracebacks of workers of one kind.
_NEAR, _TOGETHER = 300, 3000
#: Forms that a library prints before Python raises the error, and those that may have other causes.
_PRINTED_BEFORE, _DOUBTFUL = ("cumem", "memory-saver", "nccl"), ("worker-died", "killed")
#: Forms of an engine's own message, which follows PyTorch's.
_WRAPPERS = ("warm-up", "sglang-graph")


@dataclass(frozen=True)
class Failure:
    """The end of a run that ran out of memory. Sizes are bytes.

    Attributes:
        phase: a phase of the estimate, ``startup``, ``checkpoint``, ``host``, or ``unknown``.
        how: what tells the phase: ``message``, ``traceback``, ``task`` of Ray, or ``position`` in the log.
        form: the form of the message, see ``failures.yaml``.
        place: the place of the message.
        text: the message.
        phases: the possible phases if the phase is unknown; empty without any sign.
        sizes: the sizes in the message, by name: ``tried``, the allocation that failed; ``in_use``, the
            memory of this process, or of the node; ``others``, that of other processes on the GPU;
            ``allocated``, what PyTorch allocated, which includes the unmapped pool of a sleeping engine of
            this process, so it may exceed the GPU's memory; ``reserved_unallocated``, PyTorch's reserve;
            ``free`` and ``capacity``, those of the GPU, or of the node.
        step: the last step with figures before the failure.
        traits: what the traceback says about the run: names in ``_TRAITS``.
    """

    phase: str
    how: str
    form: str
    place: Location
    text: str
    phases: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    step: int | None = None
    traits: frozenset[str] = frozenset()

    @property
    def is_evidence(self) -> bool:
        """True if the message says that memory ran out; a process may also die for other reasons."""
        return self.form not in _DOUBTFUL

    @property
    def possible(self) -> tuple[str, ...]:
        """The phase, or the possible ones."""
        return self.phases or (self.phase,)


@dataclass
class _Traceback:
    """A traceback that a worker prints."""

    frames: deque[Frame] = field(default_factory=lambda: deque(maxlen=200))
    is_whole: bool = False


class FailureReader:
    """Reads the tracebacks and messages of one run, line by line."""

    def __init__(self) -> None:
        self._tracebacks: dict[str, _Traceback] = {}
        #: The last frames of all workers of a kind.
        self._kinds: dict[str, deque[Frame]] = {}
        self._first: Failure | None = None
        self._first_worker = ""
        #: The last failure that the run survived; otherwise the first that may not be one.
        self._fallback: Failure | None = None

    def take_frame(self, line: Line) -> bool:
        """Read a line; return whether it is a frame of a traceback."""
        begins, frame = any(words in line.text for words in _BEGINS), frame_of(line.text, line.number)
        if begins or (frame and is_driver_task(line.text)):
            self._tracebacks[_worker(line)] = _Traceback(is_whole=True)
        if frame:
            own = self._tracebacks.setdefault(_worker(line), _Traceback())
            own.frames.append(frame)
            self._kinds.setdefault(line.who.partition(" ")[0], deque(maxlen=1000)).append(frame)
        return frame is not None

    def take_message(self, line: Line, place: Location, form: tuple[str, str], **facts: Any) -> None:
        """Read a message of a form; ``facts`` are its ``sizes`` and the last ``step`` with figures."""
        worker, (name, phase) = _worker(line), form
        is_end = bool(_RAISED.search(line.text)) or (name == "nccl" and "WARN" not in line.text)
        own = self._tracebacks.get(worker, _Traceback())
        phases = self._phases(line, own) if is_end else Phases()
        if phase:
            phases = Phases((phase,), "message")
        elif name == "cumem" and facts["step"] is not None and phases.name == UNKNOWN:  # the engine is loaded
            phases, name = Phases(("weight-sync",), "position"), "wake-up"
        frames = "\n".join(f"{frame.file}:{frame.function}" for frame in own.frames)
        traits = frozenset(trait for trait, pattern in _TRAITS.items() if re.search(pattern, frames))
        names, text = phases.names if phases.name == UNKNOWN else (), line.text.strip()[:300]
        failure = Failure(phases.name, phases.how, name, place, text, names, **facts, traits=traits)
        first = self._first
        if not failure.is_evidence:
            self._fallback = self._fallback or failure
        elif first is None:
            self._first, self._first_worker = failure, worker
        elif name in _WRAPPERS and worker == self._first_worker and first.phase in (UNKNOWN, failure.phase):
            self._first = _completed(replace(failure, place=first.place), first)
        elif first.phase == failure.phase == "host" or (is_end and _is_same(first, failure)):
            self._first = _completed(first, failure)
        if is_end:
            self._tracebacks.pop(worker, None)

    def take_step(self) -> None:
        """Note that the run goes on, so that what was read did not end it."""
        self._fallback, self._first = self._first or self._fallback, None

    def result(self) -> Failure | None:
        """Return the failure that ended the run, or the last one that did not."""
        return self._first or self._fallback

    def _phases(self, line: Line, own: _Traceback) -> Phases:
        """Return the phases of a worker's traceback, completed from those of others of its kind.

        Ray prints a line that several workers print only once, so that each traceback may lack lines.
        """
        is_near = own.frames and line.number - own.frames[-1].line <= _NEAR
        phases = phases_of(own.frames if is_near else (), is_whole=own.is_whole)
        if phases.name not in (UNKNOWN, "old-log-prob") or not line.who:
            return phases
        kind = self._kinds.get(line.who.partition(" ")[0], ())
        frames = [frame for frame in kind if line.number - frame.line <= _TOGETHER]
        union = phases_of(frames, is_whole=own.is_whole)
        is_better = phases.name == UNKNOWN and union.name in (phases.names or (union.name,))
        return union if is_better or union.name == "ref-log-prob" else phases


def _worker(line: Line) -> str:
    """Return the worker that prints a line, with the engine's process for which it does."""
    nested = _NESTED.match(line.text)
    return f"{line.who} {nested[1]}" if nested else line.who


def _completed(first: Failure, later: Failure) -> Failure:
    """Return the first failure with the sizes and the phase of a later message about it."""
    form = later.form if first.form in _PRINTED_BEFORE else first.form
    first = replace(first, sizes={**later.sizes, **first.sizes}, form=form)
    is_better = later.phase != UNKNOWN and first.phase in (UNKNOWN, "old-log-prob")
    if is_better or (later.phases and first.possible == (UNKNOWN,)):
        return replace(first, phase=later.phase, how=later.how, phases=later.phases)
    return first


def _is_same(first: Failure, later: Failure) -> bool:
    """Return whether a later message is about the same failure; the driver repeats its worker's."""
    if first.phase == "old-log-prob":  # the driver's traceback tells whose log-probs they are
        is_possible = later.phase == "ref-log-prob"
    else:
        is_possible = first.phase == UNKNOWN and (later.phase in first.phases or not first.phases)
    if first.form in _PRINTED_BEFORE:
        return is_possible and later.phase != "host"
    return is_possible and (first.form, first.sizes.get("tried")) == (later.form, later.sizes.get("tried"))


def narrowed(failure: Failure, settings: Mapping[str, Any]) -> Failure:
    """Return a failure without the phases that a run with these settings does not have."""
    # verl/trainer/ppo/utils.py:96 and :75 at 1dda039b9
    critic = settings.get("critic.enable")
    has_critic = settings.get("algorithm.adv_estimator", "gae") == "gae" if critic is None else critic
    keys = ("algorithm.use_kl_in_reward", "actor_rollout_ref.actor.use_kl_loss")
    has_reference = any(settings.get(key, True) for key in keys)
    absent = {"critic": not has_critic, "ref": not has_reference}
    rest = tuple(name for name in failure.phases if not absent.get(name.partition("-")[0]))
    if len(rest) == 1 and failure.phase == UNKNOWN and failure.is_evidence:
        return replace(failure, phase=rest[0], how="traceback", phases=())
    return replace(failure, phases=rest)


# -- messages


def form_of(text: str) -> tuple[str, str] | None:
    """Return the form of a line's message, and its phase; empty if only a traceback tells it.

    >>> form_of("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has")
    ('cuda', '')
    >>> form_of("Lower gpu_memory_utilization to avoid running out of memory")
    """
    if not _ANY.search(text) or _HARMLESS.search(text):
        return None
    return next(((name, phase) for pattern, name, phase in _FORMS if pattern.search(text)), None)


def sizes_in(text: str) -> dict[str, int]:
    """Return the sizes in a message in bytes, by their names in ``Failure``.

    >>> sizes_in("Tried to allocate 2.00 GiB. A total capacity of 79.00 GiB of which 1.50 GiB is free")
    {'tried': 2147483648, 'capacity': 84825604096, 'free': 1610612736}
    """
    sizes = {name: _bytes(match) for name, pattern in _SIZES if (match := pattern.search(text))}
    if "reserved" in sizes:
        sizes["reserved_unallocated"] = max(0, sizes.pop("reserved") - sizes.get("allocated", 0))
    if "in_use" in sizes and "capacity" in sizes:  # of a node
        sizes.setdefault("free", max(0, sizes["capacity"] - sizes["in_use"]))
    others = [_bytes(match) for match in _OTHER.finditer(text)]
    if others and "in_use" not in sizes:
        # If PyTorch cannot tell its own process, it is the one that uses at least what PyTorch holds.
        held = sizes.get("allocated", 0) + sizes.get("reserved_unallocated", 0)
        own = others if len(others) == 1 else [size for size in others if size >= held > 0]
        if len(own) != 1:
            return sizes
        sizes["in_use"] = own[0]
        others.remove(own[0])
    return {**sizes, "others": sum(others)} if others else sizes


def _bytes(match: re.Match[str]) -> int:
    number, unit, *_ = (*filter(None, match.groups()), "GiB")
    return round(float(number) * _UNITS[unit])
