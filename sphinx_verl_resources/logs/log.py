"""Read verl's console log: configuration, figures of the steps, versions, GPU and failure.

verl prints the whole configuration as a Python dict. Hydra prints the overrides of a run that fails.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from ..diagnostics import Code, Diagnostic, Location, warning
from ..memory.request import dotted_leaves
from ..scripts.overrides import read_overrides
from .facts import Figures, Line, facts_in, lines_of, metrics_in
from .failure import Failure, FailureReader, form_of, sizes_in

_ADD = "look at the line and add the values by hand"

#: The beginning of a configuration, at any of its sections.
_DICT = re.compile(r"\{'(?:actor_rollout_ref|algorithm|critic|data|trainer|ray_init)': ")
_HYDRA = "Error executing job with overrides: "

#: A text of one line, up to its end if it is not closed: it always matches, so that nothing is read twice.
_TEXT = r"'(?:[^'\\\n]|\\.?)*'?|\"(?:[^\"\\\n]|\\.?)*\"?"
_TOKEN = re.compile(rf"{_TEXT}|[{{}}\[\]()]")
#: The beginning of each line but the first: blanks, then a value or a bracket.
_CONTINUES = re.compile(r"\s+(?:['\"{}\[\](<]|-?[\d.]|None\b|True\b|False\b|nan\b|inf\b|np\.)|['\"}\]]")
#: Texts and other words of Python, numbers of NumPy, and what is neither: ``inf``, ``<Enum.x: 1>``.
_ATOM = re.compile(
    rf"(?P<text>{_TEXT}|\b(?:True|False|None)\b)|np\.\w+\((?P<number>[-+\d.eE]+)\)|"
    r"<[^,{}\[\]()\n]*|(?<![\w.])[A-Za-z_][^,{}\[\]():'\"\n<]*(?:\([^()\n]*\))?"
)
#: Stands for a value that cannot be read.
_UNREAD = "<not read>"


@dataclass(frozen=True)
class Log:
    """The last run in a log.

    Attributes:
        label: the name of the log in messages; empty without a log.
        figures: the figures of its steps.
        settings: the printed configuration by dotted key, or the overrides that Hydra prints.
        versions: the versions of packages, by name.
        gpu: the GPU as printed; empty if none is.
        failure: the failure, if it ran out of memory.
        problems: problems with parts that are unreadable or doubtful.
        model: the model that vLLM prints, a Hugging Face name or a path; empty if none.
        sleep: the bytes that vLLM's sleep ``freed`` on the GPU and ``left`` in use, as last printed.
    """

    label: str = ""
    figures: Figures = field(default_factory=Figures)
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    gpu: str = ""
    failure: Failure | None = None
    problems: tuple[Diagnostic, ...] = ()
    model: str = ""
    sleep: Mapping[str, int] = field(default_factory=dict)


def read_log(stream: BinaryIO, label: str) -> Log:
    r"""Read a log of any size; any bytes are accepted.

    Args:
        stream: the log.
        label: its name in messages.

    >>> import io
    >>> text = b"(TaskRunner pid=7) step:1 - perf/max_memory_allocated_gb:71.3 - perf/time_per_step:60.5\n"
    >>> log = read_log(io.BytesIO(text), "run.log")
    >>> log.figures.last_step, log.figures.values("perf/max_memory_allocated_gb")
    (1, [71.3])
    """
    reader = _Reader(label)
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

    def __init__(self, label: str) -> None:
        self._label = label
        self._problems: dict[str, Diagnostic] = {}
        self._runs = [_Run()]
        self._facts: dict[str, dict[str, Location]] = {}

    def take(self, line: Line) -> None:
        """Read a line."""
        place = Location(self._label, line.number, line.column)
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
            self._warn(Location(self._label), message, "give the log of one run", "several_runs")
        settings = run.overrides
        # The others are parts of the largest.
        for config in sorted(run.configs.values(), key=lambda each: each.size)[-1:]:
            values, unread = config.values()
            settings |= values
            place = Location(self._label, config.line.number, config.line.column)
            for name in unread:
                self._warn(place, f"could not be read in the configuration printed here: {name}", _ADD)
        facts = self._agreed()
        gpu, model = facts.pop("gpu", ""), facts.pop("model", "")
        problems, failure = tuple(sorted(self._problems.values())), run.failures.result()
        return Log(self._label, run.figures, settings, facts, gpu, failure, problems, model, run.sleep)

    def _next_run(self) -> _Run:
        """Return the run that begins: the current one before its first figures or failure."""
        if self._runs[-1].has_outcome:
            self._runs.append(_Run())
        return self._runs[-1]

    def _take_metrics(self, line: Line) -> bool:
        """Read the figures of a step; return whether the line has any, also unreadable ones."""
        metrics = metrics_in(line)
        for name in metrics.unread:
            self._warn(Location(self._label, line.number, line.column), f"{name} could not be read", _ADD)
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


# -- configuration


def config_at(line: Line) -> PrintedConfig | None:
    """Return the configuration that begins in a line; None if there is none."""
    if not (begin := _DICT.search(line.text)):
        return None
    start = begin.start()
    return PrintedConfig(line._replace(text=line.text[start:], column=line.column + start))


def overrides_at(line: Line) -> Mapping[str, Any]:
    """Return the overrides in Hydra's message about a failed run; empty for other lines.

    >>> overrides_at(Line("Error executing job with overrides: ['trainer.nnodes=2', '+data.shuffle=False']"))
    {'trainer.nnodes': 2, 'data.shuffle': False}
    """
    words = _evaluated(line.text.partition(_HYDRA)[2]) if _HYDRA in line.text else None
    return read_overrides(map(str, words), Location("")).values if words else {}


class PrintedConfig:
    """A configuration of one worker, line by line.

    Attributes:
        line: its first line, from its beginning.
        is_complete: whether every bracket is closed.
        size: the number of its characters.
    """

    def __init__(self, line: Line) -> None:
        self.line, self.is_complete = line, False
        self._texts: list[str] = []
        self._depth = self.size = 0
        self.add(line)

    def add(self, line: Line) -> bool:
        """Add a line of the same worker; return False if it is not part of the configuration."""
        if self.is_complete or (self._texts and not _CONTINUES.match(line.text)):
            return False
        end = len(line.text)
        for token in _TOKEN.finditer(line.text):
            self._depth += (token[0] in "{[(") - (token[0] in "}])")
            if not self._depth:
                self.is_complete, end = True, token.end()
                break
        self._texts.append(line.text[:end])
        self.size += end
        return True

    def values(self) -> tuple[dict[str, Any], list[str]]:
        """Return the settings by dotted key, and what cannot be read: keys, or all of it."""
        text = "\n".join(self._texts)
        plain = _ATOM.sub(lambda match: match["text"] or match["number"] or repr(_UNREAD), text)
        leaves = dotted_leaves(_evaluated(text) or _evaluated(plain) or {})
        values = {key: tuple(value) if isinstance(value, list) else value for key, value in leaves}
        readable = {key: value for key, value in values.items() if _UNREAD not in repr(value)}
        return readable, [key for key in values if key not in readable] if values else ["all of it"]


def _evaluated(text: str) -> Any:
    """Return the value of a Python literal; None if it is none."""
    with warnings.catch_warnings(), suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        warnings.simplefilter("ignore")  # about escapes in texts
        return ast.literal_eval(text)
    return None
