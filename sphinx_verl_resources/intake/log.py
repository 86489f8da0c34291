"""Read verl's console log: configuration, figures of the steps, versions, GPU and failure.

A log may have any size. It is read once, block by block, and only a few kilobytes are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..diagnostics import Code, Diagnostic, Location, warning
from .failure import WORDS as FAILURE_WORDS
from .failure import Failure, FailureReader, absent_phases, narrowed
from .log_config import MAX_FOREIGN, config_at, is_command, overrides_at
from .log_config import WORDS as CONFIG_WORDS
from .log_facts import ASLEEP, GPU, MODEL, NAMES, STEP, WORDS, Figures, facts_in, read_metrics
from .log_lines import pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .log_config import PrintedConfig
    from .log_lines import Piece

#: The maximum number of problems to list; the others are counted.
_MOST_PROBLEMS = 50
#: Each word costs time, so there are few. Figures are in lines with ``step:`` or a word of FAILURE_WORDS.
_WORDS = tuple(dict.fromkeys((*CONFIG_WORDS, b"step:", *WORDS, *FAILURE_WORDS)))
_EASYR1_MODEL = "worker.actor.model.model_path"
_UNREAD_REMEDY = "look at the line and add the values by hand"


@dataclass(frozen=True)
class LogText:
    """The contents of a log about its last run with figures.

    Attributes:
        shown: the name of the log in messages.
        figures: the figures of its steps.
        settings: the printed configuration by dotted key, or the overrides of the command.
        versions: versions of packages, by name.
        gpu: the GPU as printed; empty if none is.
        failure: the out-of-memory failure, if there is one.
        problems: problems with unreadable or doubtful parts.
        is_complete: the settings are the whole configuration, including verl's defaults.
        model: the model that vLLM or EasyR1 prints, a Hugging Face name or a path; empty if none.
        asleep: bytes in use on a GPU while vLLM sleeps, as last printed.
    """

    shown: str
    figures: Figures
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    gpu: str = ""
    failure: Failure | None = None
    problems: tuple[Diagnostic, ...] = ()
    is_complete: bool = False
    model: str = ""
    asleep: int | None = None


@dataclass
class _Run:
    """A training run of the log."""

    figures: Figures = field(default_factory=Figures)
    config: PrintedConfig | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    failures: FailureReader = field(default_factory=FailureReader)
    asleep: int | None = None

    @property
    def is_under_way(self) -> bool:
        """True after the first figures or a failure; a configuration printed later begins another run."""
        return bool(self.figures.steps or self.failures.result())


def read_log(blocks: Iterable[bytes], shown: str, *, last_run: bool = False) -> LogText:
    r"""Read a log; any bytes are accepted.

    Args:
        blocks: the blocks of the log, in order.
        shown: its name in messages.
        last_run: use the last of several runs, even if it has no figures.

    >>> text = b"(TaskRunner pid=7) step:1 - perf/max_memory_allocated_gb:71.3 - perf/time_per_step:60.5\n"
    >>> found = read_log([text], "run.log")
    >>> found.figures.steps, found.figures.figure("perf/max_memory_allocated_gb")
    (1, 71.3)
    """
    reader = _Reader(shown)
    for piece in pieces_of(blocks, _WORDS, reader.collects):
        reader.take(piece)
    return reader.result(last_run=last_run)


class _Reader:
    """A line-by-line reader of a log."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._problems: list[Diagnostic] = []
        self._lost = 0
        self._read = 0
        #: Configurations being printed, each with the number of its last line, in that order.
        self._collecting: OrderedDict[str, tuple[PrintedConfig, int]] = OrderedDict()
        self._waiting: OrderedDict[str, PrintedConfig] = OrderedDict()
        self._runs: dict[str, _Run] = {}
        self._current = _Run()
        self._counted: _Run | None = None
        self._number = 0
        self._facts: dict[str, dict[str, Location]] = {}

    def collects(self) -> bool:
        """Return whether every line is needed, because a configuration is being printed."""
        return bool(self._collecting)

    def take(self, piece: Piece) -> None:
        """Read one line."""
        self._read += 1
        if self._collecting and self._continues_config(piece):
            return
        place = Location(self._shown, piece.line, piece.column)
        if self._current.failures.take_frame(piece, place):
            return
        if not self._begins_config(piece) and not self._is_metrics(piece):
            self._take_overrides(piece, place)
            self._take_facts(piece, place)

    def result(self, *, last_run: bool) -> LogText:
        """Return the contents for the last run, or for the last one with figures."""
        run = self._current if last_run else self._counted or self._current
        config = run.config
        if not run.figures.steps:
            config = next(reversed(self._waiting.values()), None)
        elif run is not self._current and (failed := self._current.failures.result()):
            message = "a run after the last figures ran out of memory; the run before it is used"
            self._warn(failed.place, "several_runs", message, "give the log of one run")
        settings = self._settings_of(config) if config else {}
        is_complete = bool(config and config.complete and settings)
        settings = settings if is_complete else {**run.overrides, **settings}
        if self._number > 1:
            message = f"this log contains {self._number} runs; the figures are from the last"
            self._warn(Location(self._shown, 1, 1), "several_runs", message, "give the log of one run")
        if self._lost:
            message = f"{self._lost} more lines could not be read"
            self._problems.append(warning(Location(self._shown, 1, 1), "unread", message, _UNREAD_REMEDY))
        versions = self._agreed()
        gpu, model = versions.pop(GPU, ""), versions.pop(MODEL, str(settings.get(_EASYR1_MODEL, "")))
        failure = run.failures.result()
        failure = failure and narrowed(failure, absent_phases(settings))
        return LogText(
            self._shown, run.figures, settings, versions, gpu, failure,
            tuple(sorted(self._problems)), is_complete, model, run.asleep,
        )  # fmt: skip

    def _continues_config(self, piece: Piece) -> bool:
        """Add a line to the configuration of its worker; return False if it is not part of it."""
        config, _ = self._collecting.get(piece.who, (None, 0))
        is_part = config is not None and config.add(piece)
        if config and is_part:
            del self._collecting[piece.who]
            if not config.ended:
                self._collecting[piece.who] = config, self._read
        while self._collecting and self._read - next(iter(self._collecting.values()))[1] > MAX_FOREIGN:
            self._collecting.popitem(last=False)
        return is_part

    def _begins_config(self, piece: Piece) -> bool:
        config = None if STEP.search(piece.text) else config_at(piece)
        if config is None:
            return False
        for known in (self._waiting, self._collecting):
            known.pop(piece.who, None)
        self._waiting[piece.who] = config
        if not config.ended:
            self._collecting[piece.who] = config, self._read
        if self._current.is_under_way:
            self._current = _Run()
        self._runs.pop(piece.who, None)
        return True

    def _take_overrides(self, piece: Piece, place: Location) -> None:
        if is_command(piece) and self._current.is_under_way:
            self._current = _Run()
        if found := overrides_at(piece, place):
            self._current.overrides = {**self._current.overrides, **found}

    def _is_metrics(self, piece: Piece) -> bool:
        line = read_metrics(piece.text, whole=piece.whole)
        if line is None:
            names = [name for name in NAMES if name in piece.text]
            for name in names:
                self._unread(piece, name)
            return bool(names)
        for name in line.unread:
            self._unread(piece, name)
        if not line.figures:
            return True
        run = self._runs.get(piece.who)
        if run is None or line.step < run.figures.last_step:
            run = _Run() if self._current.figures.steps else self._current
            waiting = piece.who if piece.who in self._waiting else next(reversed(self._waiting), None)
            run.config = self._waiting.pop(waiting) if waiting is not None else None
            self._collecting.pop(piece.who, None)
            self._runs[piece.who] = run
            self._number += 1
        run.figures.add(line)
        run.failures.take_step()
        self._current = run
        self._counted = run
        return True

    def _take_facts(self, piece: Piece, place: Location) -> None:
        for name, value in facts_in(piece.text):
            if name == ASLEEP:
                self._current.asleep = round(float(value) * 2**30)
                continue
            known = self._facts.setdefault(name, {})
            if len(known) < 10:
                known.setdefault(value, place)
        figures = self._current.figures
        self._current.failures.take_message(piece, place, figures.last_step if figures.steps else None)

    def _settings_of(self, config: PrintedConfig) -> dict[str, Any]:
        place = Location(self._shown, config.line, config.column)
        try:
            values, unread = config.values()
        except ValueError as error:
            message = f"the configuration printed here cannot be read: {error}"
            self._warn(place, "unread", message, _UNREAD_REMEDY)
            return {}
        if not config.complete:
            message = "the configuration printed here is cut off; its complete entries are used"
            self._warn(place, "unread", message, "give the whole log")
        for key in unread:
            message = f"the value of {key} in the printed configuration cannot be read"
            self._warn(place, "unread", message, _UNREAD_REMEDY)
        return values

    def _agreed(self) -> dict[str, str]:
        """Return versions and GPU if all lines agree; the name of a GPU may be cut off."""
        agreed = {}
        for name, found in self._facts.items():
            longest = max(found, key=len, default="")
            same = [text for text in found if text == longest or (name == GPU and longest.startswith(text))]
            other = next((text for text in found if text not in same), "")
            if other:
                what, how = ("GPUs", " with --gpus") if name == GPU else (f"versions of {name}", "")
                what = "models" if name == MODEL else what
                message = f"the log contains several {what}: {', '.join(found)}; none is used"
                self._warn(found[other], "unread", message, f"give this run's{how}")
            elif longest:
                agreed[name] = longest
        return agreed

    def _unread(self, piece: Piece, name: str) -> None:
        column = piece.column + max(0, piece.text.find(name))
        message = f"{name} could not be read"
        self._warn(Location(self._shown, piece.line, column), "unread", message, _UNREAD_REMEDY)

    def _warn(self, place: Location, code: Code, message: str, remedy: str) -> None:
        if len(self._problems) >= _MOST_PROBLEMS:
            self._lost += 1
        else:
            self._problems.append(warning(place, code, message, remedy))
