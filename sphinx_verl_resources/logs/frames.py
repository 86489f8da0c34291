"""The phase of a traceback, from the files and functions in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ..strict_yaml import read_yaml

#: Everything that is known about failures, see the file's own comments.
TABLES: dict[str, Any] = read_yaml(Path(__file__).with_name("failures.yaml").read_bytes()).data

_FUNCTIONS = [(re.compile(rf"(?:{row['pattern']})\Z"), row["meaning"]) for row in TABLES["functions"]]
_ROLES: dict[str, tuple[str, ...]] = TABLES["roles"]
#: The parts of a role's work, and which phase of an update they belong to.
_PARTS = {"forward": 0, "backward": 1, "optimizer": 2, "load": 2, "inference": -1}
_UPDATES = ("actor", "critic")
_FORWARDS = ("old-log-prob", "ref-log-prob", "update-forward", "critic-values", "critic-forward")

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line \d+, in (?P<function>[\w.<>]+)')
_TASK = re.compile(r"\bray::(?P<class>\w+)(?:\.(?P<method>\w+))?\(\)")
#: The line of source below a frame that calls the backward pass, which shortened tracebacks end with.
_BACKWARD = re.compile(r"\s+\w*loss\.backward\(")
#: The classes and functions of the training loop, which have no model.
_DRIVER = re.compile(r"\w*(?:Runner|main_task|Trainer)(?:V\d)?\Z")
TASK = "ray::"


class Frame(NamedTuple):
    """A function of a traceback, or the Ray task that begins a part of it.

    ``file`` is ``ray::`` for a task; ``line`` is the line of the log.
    """

    file: str
    function: str
    line: int


class Phases(NamedTuple):
    """The phases in which a traceback may end.

    Attributes:
        names: the possible phases.
        how: what tells the phase, ``traceback`` or ``task`` of Ray; empty if it is unknown.
    """

    names: tuple[str, ...] = ()
    how: str = ""

    @property
    def name(self) -> str:
        """The phase; ``unknown`` if several are possible."""
        return self.names[0] if len(self.names) == 1 else "unknown"


def frame_of(text: str, line: int) -> Frame | None:
    """Return the frame in a line of a log; None if there is none.

    >>> frame_of('  File "/verl/workers/actor/dp_actor.py", line 275, in update_policy', 9).function
    'update_policy'
    >>> frame_of("RayTaskError(X): ray::WorkerDict.actor_rollout_update_actor() (pid=1)", 9).function
    'update_actor'
    """
    if '", line ' in text and (match := _FRAME.search(text)):
        return Frame(match["file"].replace("\\", "/"), match["function"].rpartition(".")[2], line)
    if TASK in text and (match := _TASK.search(text)):
        words = (match["method"] or match["class"]).split("_")
        ends = ["_".join(words[start:]) for start in range(len(words))]
        return Frame(TASK, next((end for end in ends if _meaning(TASK, end)), ends[0]), line)
    return Frame("", "backward", line) if _BACKWARD.match(text) else None


def is_driver_task(text: str) -> bool:
    """Return whether a line contains the Ray task that runs the training loop."""
    match = _TASK.search(text)
    return bool(match and _DRIVER.match(match["class"]))


def phases_of(frames: Sequence[Frame], *, is_whole: bool) -> Phases:
    """Return the phases in which a traceback may end, by its deepest recognized function.

    Args:
        frames: its frames, outermost first.
        is_whole: whether its beginning is there. Without it, functions that several phases share decide
            nothing: for example, those of the actor also compute the reference's log-probs.

    >>> update = [Frame("dp_actor.py", "update_policy", 1), Frame("torch/_tensor.py", "backward", 2)]
    >>> phases_of(update, is_whole=False).name
    'update-backward'
    >>> phases_of(update[1:], is_whole=False).names
    ('update-backward', 'critic-backward')
    """
    role = part = role_file = part_file = ""
    for frame in frames:
        meaning = _meaning(frame.file, frame.function)
        if meaning in _PARTS and (part != "backward" or meaning == "optimizer"):
            part, part_file = meaning, frame.file
        elif meaning and meaning not in (*_PARTS, *TABLES["keeps"].get(role, ())):
            role, role_file, part, part_file = meaning, frame.file, "", ""
    if not role and part == "optimizer":
        match = re.search(r"(?:dp|megatron)_(actor|critic)\.py", " ".join(frame.file for frame in frames))
        role = match[1] if match else ""
    names = _names(role, part, role_file, is_whole)
    how = "task" if {role_file, part_file} <= {TASK, ""} else "traceback"
    return Phases(names, how if len(names) == 1 else "")


@lru_cache(maxsize=10_000)  # all workers have the same functions
def _meaning(file: str, function: str) -> str:
    """Return the role or the part that a function means; empty if none."""
    text = f"{file}:{function}"
    return next((meaning for pattern, meaning in _FUNCTIONS if pattern.search(text)), "")


def _names(role: str, part: str, file: str, is_whole: bool) -> tuple[str, ...]:
    if role == "log-prob":
        return ("old-log-prob",) if is_whole else ("old-log-prob", "ref-log-prob")
    if role == "generate":
        if part == "load":
            return ("weight-sync",)
        is_rollout = part == "inference" or "agent_loop" in file
        return ("rollout",) if is_rollout else ("rollout", "weight-sync")
    if part == "inference" and not role:
        return ("rollout",) if is_whole else ("rollout", "startup")
    if part == "forward" and not role:
        return _FORWARDS
    if part in ("backward", "optimizer") and not role:
        return tuple(_ROLES[update][_PARTS[part]] for update in _UPDATES)
    phases = _ROLES.get(role, ())
    return (phases[index],) if role in _UPDATES and (index := _PARTS.get(part, -1)) >= 0 else phases
