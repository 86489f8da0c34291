"""Read verl's console log: configuration, figures of the steps, versions, GPU and failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from ..diagnostics import Code, Diagnostic, Location, warning
from .config import PrintedConfig, config_at, overrides_at
from .facts import Figures, Line, facts_in, lines_of, metrics_in
from .failure import Failure, FailureReader, form_of, sizes_in

_ADD = "look at the line and add the values by hand"


@dataclass(frozen=True)
class Log:
    """The last run in a log.

    Attributes:
        shown: the name of the log in messages; empty without a log.
        figures: the figures of its steps.
        settings: the printed configuration by dotted key, or the overrides that Hydra prints.
        versions: the versions of packages, by name.
        gpu: the GPU as printed; empty if none is.
        failure: the failure, if it ran out of memory.
        problems: problems with parts that are unreadable or doubtful.
        model: the model that vLLM prints, a Hugging Face name or a path; empty if none.
        sleep: the bytes that vLLM's sleep ``freed`` on the GPU and ``left`` in use, as last printed.
    """

    shown: str = ""
    figures: Figures = field(default_factory=Figures)
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    gpu: str = ""
    failure: Failure | None = None
    problems: tuple[Diagnostic, ...] = ()
    model: str = ""
    sleep: Mapping[str, int] = field(default_factory=dict)


def read_log(stream: BinaryIO, shown: str) -> Log:
    r"""Read a log of any size; any bytes are accepted.

    Args:
        stream: the log.
        shown: its name in messages.

    >>> import io
    >>> text = b"(TaskRunner pid=7) step:1 - perf/max_memory_allocated_gb:71.3 - perf/time_per_step:60.5\n"
    >>> log = read_log(io.BytesIO(text), "run.log")
    >>> log.figures.last_step, log.figures.values("perf/max_memory_allocated_gb")
    (1, [71.3])
    """
    reader = _Reader(shown)
    for line in lines_of(stream):
        reader.take(line)
    return reader.result()


@dataclass
class _Run:
    """A run of the log: its configurations by worker, the overrides that Hydra prints, and what followed."""

    configs: dict[str, PrintedConfig] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)
    figures: Figures = field(default_factory=Figures)
    failures: FailureReader = field(default_factory=FailureReader)
    sleep: dict[str, int] = field(default_factory=dict)

    @property
    def has_outcome(self) -> bool:
        """True if the run made a step or failed."""
        return bool(self.figures.steps or self.failures.result())


class _Reader:
    """Reads a log line by line."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._problems: dict[str, Diagnostic] = {}
        self._runs = [_Run()]
        self._facts: dict[str, dict[str, Location]] = {}

    def take(self, line: Line) -> None:
        """Read a line."""
        place = Location(self._shown, line.number, line.column)
        run = self._runs[-1]
        config = run.configs.get(line.who)
        if (config and config.add(line)) or run.failures.take_frame(line) or self._take_metrics(line):
            return
        if config := config_at(line):
            self._next_run().configs[line.who] = config
            return
        run.overrides |= overrides_at(line)
        for name, value in facts_in(line.text):
            self._facts.setdefault(name, {}).setdefault(value, place)
        form = form_of(line.text)
        sizes = sizes_in(line.text) if form or "Sleep mode freed" in line.text else {}
        if form:
            run.failures.take_message(line, place, form, sizes=sizes, step=run.figures.last_step)
        elif {"freed", "left"} <= sizes.keys():
            run.sleep = sizes

    def result(self) -> Log:
        """Return the last run with figures or a failure; the last one if there is none."""
        run = ([each for each in self._runs if each.has_outcome] or self._runs)[-1]
        if len(self._runs) > 1:
            number = self._runs.index(run) + 1
            message = f"this log contains {len(self._runs)} runs; number {number} is used"
            self._warn(Location(self._shown), message, "give the log of one run", "several_runs")
        settings = run.overrides
        # The others are parts of the largest.
        for config in sorted(run.configs.values(), key=lambda each: each.size)[-1:]:
            values, unread = config.values()
            settings |= values
            place = Location(self._shown, config.line.number, config.line.column)
            for name in unread:
                self._warn(place, f"could not be read in the configuration printed here: {name}", _ADD)
        facts = self._agreed()
        gpu, model = facts.pop("gpu", ""), facts.pop("model", "")
        problems, failure = tuple(sorted(self._problems.values())), run.failures.result()
        return Log(self._shown, run.figures, settings, facts, gpu, failure, problems, model, run.sleep)

    def _next_run(self) -> _Run:
        """Return the run that begins: the current one before its first figures or failure."""
        if self._runs[-1].has_outcome:
            self._runs.append(_Run())
        return self._runs[-1]

    def _take_metrics(self, line: Line) -> bool:
        """Read the figures of a step; return whether the line has any, also unreadable ones."""
        metrics = metrics_in(line)
        for name in metrics.unread:
            self._warn(Location(self._shown, line.number, line.column), f"{name} could not be read", _ADD)
        if metrics.step is not None and metrics.figures:
            is_earlier = metrics.step < (self._runs[-1].figures.last_step or 0)
            run = self._next_run() if is_earlier else self._runs[-1]
            run.figures.add(metrics)
            run.failures.take_step()
        return metrics.step is not None or bool(metrics.unread)

    def _agreed(self) -> dict[str, str]:
        """Return the facts on which all lines agree; the name of a GPU may be cut off."""
        agreed = {}
        for name, places in self._facts.items():
            longest = max(places, key=len)
            is_cut = longest.startswith if name == "gpu" else longest.__eq__
            if others := [text for text in places if not is_cut(text)]:
                message = f"the log names more than one {name}: {', '.join(places)}; none is used"
                self._warn(places[others[0]], message, "give this run's, as with --gpus 8xH100")
            else:
                agreed[name] = longest
        return agreed

    def _warn(self, place: Location, message: str, remedy: str, code: Code = "unread") -> None:
        """Add a warning, for the same message only once."""
        self._problems.setdefault(message, warning(place, code, message, remedy))
