"""Find the failure of a run that ran out of memory in its log: phase, figures and place.

A failing run prints many messages. The first one is used; later ones only add missing facts.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .failure_forms import TASK_ERROR, figures_of, form_of, is_raised, shortened
from .frames import Told, frame_of, is_driver_task, told_by

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ..diagnostics import Location
    from .failure_forms import Form
    from .frames import Frame
    from .log_lines import Piece

UNKNOWN = "unknown"
_CRITIC = ("critic-values", "critic-forward", "critic-backward", "critic-optimizer-step")
#: Every line with a frame, a task or a message contains one of these.
WORDS = (
    b'", line ', b"ray::", b"Traceback (", b"emory", b"OOMKilled", b"ALLOC_FAILED", b"SIGKILL",
)  # fmt: skip
#: Maximum number of lines between a frame and its message, since other workers print in between.
_NEAR = 300
#: Number of lines within which workers of one kind print the same traceback.
_TOGETHER = 3000
_OLD_WORKERS = re.compile(r"\bverl/.*\b(?:fsdp|megatron)_workers\.py|\b(?:dp|megatron)_(?:actor|critic)\.py")
_MAX_FRAMES, _MAX_STREAMS, _MAX_KINDS = 200, 512, 32
#: Maximum number of incomplete tracebacks that are compared with those of other workers.
_MAX_GAPS = 200
_NESTED = re.compile(r"\((?P<who>[^()]{0,60}\bpid=\d{1,10}[^()]{0,60})\) ")
#: Forms that a library prints before Python raises the error.
_PRINTED_BEFORE = ("cumem", "memory-saver", "nccl")
_BEGINS = re.compile(r"Traceback \(most recent call last\)|Unhandled error \(suppress with")


@dataclass(frozen=True)
class Failure:
    """The end of a run that ran out of memory. Sizes are bytes; None if the log does not give them.

    Attributes:
        phase: a phase of the estimate, ``startup``, ``checkpoint``, ``host``, or ``unknown``.
        how: source of the phase: ``message``, ``traceback``, ``task`` of Ray, or ``position`` in the log.
        form: form of the message; see ``failure_forms.FORMS``.
        place: place of the message.
        text: the message, shortened.
        phases: possible phases if the phase is unknown; empty if the log gives no indication.
        tried: size of the failed allocation.
        in_use: memory used by this process, or host memory used on the node.
        others: memory used by other processes on the GPU.
        allocated: memory allocated by PyTorch. It includes unmapped memory of a sleeping engine, so it may
            exceed the GPU's memory.
        reserved_unallocated: PyTorch's unused reserve.
        free: free memory of the GPU, or of the node for host memory.
        capacity: capacity of the GPU, or of the node for host memory.
        step: the last step with figures before the failure.
        frame: the function that decides the phase, or the deepest one known.
        of_megatron: the traceback contains functions of Megatron.
        of_old_workers: it contains functions of workers that verl removed after v0.7.1 (commit 044bbba27).
    """

    phase: str
    how: str
    form: str
    place: Location
    text: str
    phases: tuple[str, ...] = ()
    tried: int | None = None
    in_use: int | None = None
    others: int | None = None
    allocated: int | None = None
    reserved_unallocated: int | None = None
    free: int | None = None
    capacity: int | None = None
    step: int | None = None
    frame: str = ""
    of_megatron: bool = False
    of_old_workers: bool = False

    @property
    def is_evidence(self) -> bool:
        """True if the message says that memory ran out; a worker may also die for other reasons."""
        return self.form not in {"worker-died", "killed"}


@dataclass
class _Stream:
    """The current traceback of a worker."""

    frames: list[Frame] = field(default_factory=list)
    whole: bool = False
    #: The line that announces a message which has not been printed yet.
    promised: tuple[Location, str] | None = None

    def begin(self) -> None:
        """Start another traceback at its first line."""
        self.frames.clear()
        self.whole, self.promised = True, None

    def add(self, frame: Frame) -> None:
        """Add the next deeper frame; if there are very many, drop frames in the middle."""
        if len(self.frames) >= _MAX_FRAMES:
            del self.frames[_MAX_FRAMES // 2]
        self.frames.append(frame)


class FailureReader:
    """A line-by-line reader of one run's failure messages."""

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        self._together: dict[str, deque[Frame]] = {}
        self._gaps = 0
        self._first: Failure | None = None
        self._first_stream = ""
        self._survived: Failure | None = None
        self._doubtful: Failure | None = None

    def take_frame(self, piece: Piece, place: Location) -> bool:
        """Read one line; return whether it is a frame of a traceback."""
        text = piece.text
        if _BEGINS.search(text):
            self._stream(_worker(piece)).begin()
        frame = frame_of(text, piece.line)
        if frame:
            self._add(_worker(piece), frame, text, place)
        return bool(frame)

    def take_message(self, piece: Piece, place: Location, step: int | None) -> None:
        """Read one line that may contain a message.

        Args:
            piece: the line.
            place: the place of the line.
            step: the last step with figures.
        """
        if form := form_of(piece.text):
            self._message(_worker(piece), form, piece, place, step)

    def result(self) -> Failure | None:
        """Return the failure; None if the run did not report that it ran out of memory."""
        return self._first or self._promised() or self._survived or self._doubtful

    def take_step(self) -> None:
        """Note that the run continues, so that a later failure is the one that ends it."""
        self._survived, self._first = self._first or self._survived, None

    def _stream(self, who: str) -> _Stream:
        if who not in self._streams and len(self._streams) >= _MAX_STREAMS:
            del self._streams[next(iter(self._streams))]
        return self._streams.setdefault(who, _Stream())

    def _add(self, who: str, frame: Frame, text: str, place: Location) -> None:
        stream = self._stream(who)
        if is_driver_task(text):
            stream.begin()
        if TASK_ERROR in text:
            stream.promised = (place, text)
        stream.add(frame)
        kind = who.partition(" ")[0] if who else ""
        if kind and (kind in self._together or len(self._together) < _MAX_KINDS):
            self._together.setdefault(kind, deque(maxlen=5 * _MAX_FRAMES)).append(frame)

    def _message(self, who: str, form: Form, piece: Piece, place: Location, step: int | None) -> None:
        stream = self._stream(who)
        raised = is_raised(piece.text) or (form.name == "nccl" and "WARN" not in piece.text)
        told = self._told(who, stream, piece.line) if raised else Told((), "")
        phase, how, name = form.phase or told.phase, "message" if form.phase else "", form.name
        if phase != UNKNOWN and not form.phase:
            how = "task" if told.by_task else "traceback"
        elif name == "cumem" and step is not None:
            phase, how, name = "weight-sync", "position", "wake-up"  # the engine was loaded long ago
        failure = Failure(
            phase, how, name, place, shortened(piece.text), () if phase != UNKNOWN else told.phases,
            step=step, frame=told.frame, **figures_of(piece.text),
            of_megatron=any("/megatron/" in frame.file for frame in stream.frames),
            of_old_workers=any(_OLD_WORKERS.search(frame.file) for frame in stream.frames),
        )  # fmt: skip
        self._note(failure, who, is_raised=raised)
        if raised:
            self._streams.pop(who, None)

    def _note(self, failure: Failure, who: str, *, is_raised: bool) -> None:
        """Keep the first failure and add facts from later messages about it."""
        first = self._first
        if not failure.is_evidence:
            self._doubtful = self._doubtful or replace(failure, phases=("host",))
        elif first is None:
            self._first, self._first_stream = failure, who
        elif first.phase == failure.phase == "host":
            self._first = _completed(first, failure)
        elif first.form in {"cuda", "cuda-bare"} and who == self._first_stream and _wraps(failure, first):
            self._first = _completed(replace(failure, place=first.place), first)
        elif is_raised and _is_same(first, failure):
            self._first = _completed(first, failure)

    def _told(self, who: str, stream: _Stream, line: int) -> Told:
        """Return the phases of a worker's traceback; fill its gaps from other workers of its kind."""
        own = stream.frames if stream.frames and line - stream.frames[-1].line <= _NEAR else []
        told = told_by(own, whole=stream.whole)
        if told.phase not in {UNKNOWN, "old-log-prob"} or not who:
            return told
        self._gaps += 1
        if self._gaps > _MAX_GAPS:
            return told
        # Ray prints the same line of several workers only once, so each traceback may lack lines.
        together = self._together.get(who.partition(" ")[0], ())
        union = told_by([frame for frame in together if line - frame.line <= _TOGETHER], whole=stream.whole)
        if told.phase == UNKNOWN and union.phase in (told.phases or (union.phase,)):
            return union
        return union if union.phase == "ref-log-prob" else told

    def _promised(self) -> Failure | None:
        """Return the failure of a log that ends within a traceback, before its message."""
        found = None
        for stream in self._streams.values():
            if stream.promised:
                place, text = stream.promised
                # The driver fails in the same way if Ray kills a worker for lack of host memory.
                driver = is_driver_task(text)
                told = Told((), "") if driver else told_by(stream.frames, whole=stream.whole, ended=False)
                how = "" if told.phase == UNKNOWN else "task" if told.by_task else "traceback"
                phases = told.phases if told.phase == UNKNOWN else ()
                found = Failure(told.phase, how, "task", place, shortened(text), phases, frame=told.frame)
                if not driver:
                    break
        return found


def _worker(piece: Piece) -> str:
    """Return the worker that prints a line, and the engine's process that it prints for."""
    nested = _NESTED.match(piece.text)
    return f"{piece.who} {nested['who']}" if nested else piece.who


def _completed(first: Failure, later: Failure) -> Failure:
    """Return the first failure with the figures and the phase of a later message about the same one."""
    names = ("tried", "in_use", "others", "allocated", "reserved_unallocated", "free", "capacity")
    missing = {name: getattr(later, name) for name in names if getattr(first, name) is None}
    first = replace(first, **missing)
    if first.form in _PRINTED_BEFORE:
        first = replace(first, form=later.form)
    if later.phase != UNKNOWN and first.phase in {UNKNOWN, "old-log-prob"}:
        return replace(first, phase=later.phase, how=later.how, phases=(), frame=later.frame)
    if first.phase == UNKNOWN and later.phases and not first.phases:
        return replace(first, phases=later.phases, frame=later.frame)
    return first


def _wraps(later: Failure, first: Failure) -> bool:
    """Return whether an engine's own message follows PyTorch's."""
    return later.form in {"warm-up", "sglang-graph"} and first.phase in {UNKNOWN, later.phase}


def _is_same(first: Failure, later: Failure) -> bool:
    """Return whether a later message is about the same failure; the driver repeats its worker's message."""
    if first.phase == "old-log-prob":
        # The driver's traceback shows which model's log-probs they are.
        possible = later.phase == "ref-log-prob"
    else:
        possible = first.phase == UNKNOWN and (later.phase in first.phases or not first.phases)
    if first.form in _PRINTED_BEFORE:
        return possible and later.is_evidence and later.phase != "host"
    return possible and first.form == later.form and first.tried == later.tried


def narrowed(failure: Failure, absent: Collection[str]) -> Failure:
    """Return a failure without phases that the run does not have."""
    left = tuple(phase for phase in failure.phases if phase not in absent)
    if len(left) == 1 and failure.phase == UNKNOWN and failure.is_evidence:
        return replace(failure, phase=left[0], how="traceback", phases=())
    return replace(failure, phases=left)


def absent_phases(settings: Mapping[str, Any]) -> Collection[str]:
    """Return the phases that a run with these settings does not have.

    >>> sorted(absent_phases({"algorithm.adv_estimator": "grpo"}))[:2]
    ['critic-backward', 'critic-forward']
    """
    # verl/trainer/ppo/utils.py:96 and :75 at 1dda039b9
    critic = settings.get("critic.enable")
    if critic is None:
        critic = settings.get("algorithm.adv_estimator", "gae") == "gae"
    keys = ("algorithm.use_kl_in_reward", "actor_rollout_ref.actor.use_kl_loss")
    reference = any(settings.get(key, True) for key in keys)
    return {*(() if critic else _CRITIC), *(() if reference else ("ref-log-prob",))}
