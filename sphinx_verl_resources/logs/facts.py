"""The lines of a log, and the facts in them: the figures of a step, versions, GPU and model.

A log of any size is read line by line, without colours and without the worker's name. verl prints a line of
figures after each step: ``step:1 - perf/…:71.3 - …``. A version or a GPU counts only where the words around
it leave no doubt.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, NamedTuple

from ..speed import steps

#: Characters to keep of a line; verl's lines of figures have a tenth of them.
MAX_LINE = 1 << 16
#: Terminal control sequences: colours, and titles.
_CONTROLS = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9])")
#: The worker that Ray prints before a line, perhaps after a time or a name. In messages, the same brackets
#: follow a task, as in ``ray::main_task() (pid=7)``.
_WORKER = re.compile(r"(?:^|(?<=\s))(?<!\(\) )(?<!task )(?<!lease )\((?P<who>[^()]*\bpid=\d+[^()]*)\) ?")
#: The first columns, in which the worker's name begins.
_FRONT = 160

#: The figures of memory, in GiB despite their names. PyTorch's are the largest since the run started.
PEAK_ALLOCATED, PEAK_RESERVED = "perf/max_memory_allocated_gb", "perf/max_memory_reserved_gb"
HOST_MEMORY = "perf/cpu_memory_used_gb"
#: Figures of memory, with what they count; the maximum of all steps is recorded.
_PEAKS = {PEAK_ALLOCATED: "torch-max-allocated", PEAK_RESERVED: "torch-max-reserved", HOST_MEMORY: ""}
#: For each field of memory in ``measured`` of run files, the figures that fill it, the best first.
_MEASURED = {"gib": (PEAK_ALLOCATED, PEAK_RESERVED), "host_ram_gib": (HOST_MEMORY,)}
NAMES = (*_PEAKS, *steps.NAMES)

_STEP = re.compile(r"(?:^|(?<=\s))step:(\d{1,15})(?= - )")
_ROLE = re.compile(r"(?:actor|critic)/(?=perf/)")
_NUMBER = re.compile(r"(?:np\.\w+\(|tensor\()?(\d+\.?\d*(?:[eE][-+]?\d+)?)(?:,[^()]*\)|\))?\Z")
#: The end of the numbers that count: far above any real one.
_MOST = 1e15

_RELEASE = r"v?(?P<version>\d+\.\d+(?:\.\w+){0,4})(?:\+[\w.]+)?(?![\w.]*[\w-])"
_START = r"(?:^|(?<=[\s|,]))"
#: The name of a GPU follows a number in a table of nvidia-smi, a word for a GPU, or nothing.
_GPU = (
    r"(?:\|\s+\d+\s+|device_name=|(?i:GPU|device|card)(?: \d+| name)?\W{1,4}|^\W*)"
    r"(?:NVIDIA|AMD Instinct|Tesla|AMD)[ _](?P<gpu>[A-Z]+[ _]?(?:PRO )?\d{1,4}\w*(?:[ _-][\w-]+){0,5})"
)
#: Words of lines with a fact, and the patterns of facts.
_WORDS = re.compile(r" version|LLM engine \(|==|NVIDIA|AMD |Tesla")
_FACTS = tuple(map(re.compile, (
    rf"\b(?P<package>vLLM) API server version {_RELEASE}",
    rf"\bInitializing an? (?:V\d )?v?(?P<package>LLM) engine \({_RELEASE}\)",
    rf"{_START}(?P<package>(?i:torch|verl|vllm|sglang))==+{_RELEASE}(?=\s|\Z)",
    rf"{_START}(?P<package>(?i:torch|pytorch|verl|vllm|sglang)) version ?[:=]? ?{_RELEASE}",
    r"LLM engine \(.{0,300}?\bmodel='(?P<model>[^']{1,300})'",
    _GPU,
)))  # fmt: skip
_PACKAGES = {"llm": "vllm", "pytorch": "torch"}
#: Words of lines about a version that something asks for.
_ASKED = re.compile(r"(?i)requir|expect|recommend|install|upgrad|need|support|since|deprecat|minimum")


class Line(NamedTuple):
    """A line of a log, or its part between two carriage returns, which progress bars print.

    Attributes:
        text: the text.
        who: the worker, as in ``TaskRunner pid=7``; empty for the program that started the run.
        number: the number of the line, from 1.
        column: the column in the file's line, from 1.
        is_whole: whether its end is there.
    """

    text: str
    who: str = ""
    number: int = 1
    column: int = 1
    is_whole: bool = True


def lines_of(stream: BinaryIO) -> Iterator[Line]:
    r"""Yield the lines of a log that are not empty; any bytes are accepted.

    Zero bytes, with which the beginning of a truncated log is filled, are left out.

    >>> log = io.BytesIO(b"\x1b[36m(TaskRunner pid=7)\x1b[0m step:1 - a:2\n")
    >>> [(line.text, line.who) for line in lines_of(log)]
    [('step:1 - a:2', 'TaskRunner pid=7')]
    """
    reader = io.TextIOWrapper(stream, "utf-8", "replace", newline="")
    text, number, column, end = "", 1, 1, 1
    for part in iter(partial(reader.readline, MAX_LINE), ""):
        text, end = (text + part.replace("\0", ""))[:MAX_LINE], end + len(part)
        if part.endswith(("\n", "\r")):
            yield from _line(text, number, column)
            number, end = (number + 1, 1) if part.endswith("\n") else (number, end)
            text, column = "", end
    yield from _line(text, number, column)
    reader.detach()  # the stream is the caller's


def _line(text: str, number: int, column: int) -> Iterator[Line]:
    plain = _CONTROLS.sub("", text).lstrip("\ufeff\ufffd")  # a byte order mark
    worker = _WORKER.search(plain, 0, _FRONT) if "pid=" in plain else None
    who, message = (worker["who"], plain[worker.end() :]) if worker else ("", plain)
    message = message.partition(" [repeated ")[0].rstrip()
    if message:
        yield Line(message, who, number, column, text.endswith(("\n", "\r")))


class Metrics(NamedTuple):
    """The figures of one step, by name, and the names of those that cannot be read.

    ``step`` is None in other lines, whose figures cannot be read either.
    """

    step: int | None
    figures: dict[str, float]
    unread: tuple[str, ...]


def number_in(text: str) -> float:
    """Return a number of a log; NumPy and PyTorch print some with their type.

    Raises:
        ValueError: it is no number, or absurdly large.

    >>> number_in("np.float64(71.3)")
    71.3
    """
    match = _NUMBER.match(text.strip())
    if match and (number := float(match[1])) < _MOST:
        return number
    raise ValueError(text)


def metrics_in(line: Line) -> Metrics:
    """Return the figures of a line.

    >>> metrics_in(Line("step:3 - actor/perf/max_memory_allocated_gb:np.float64(71.3) - perf/mfu/actor:oops"))
    Metrics(step=3, figures={'perf/max_memory_allocated_gb': 71.3}, unread=('perf/mfu/actor',))
    """
    begin = _STEP.search(line.text) if "step:" in line.text else None
    items = line.text[begin.end() :].split(" - ") if begin else []
    figures: dict[str, float] = {}
    for item in items if line.is_whole else items[:-1]:  # the end of a number may be cut off
        key, _, value = item.strip().partition(":")
        name = _ROLE.sub("", key)
        with suppress(ValueError):
            figure = number_in(value if name in NAMES else "")
            figures[name] = max(figure, figures.get(name, 0)) if name in _PEAKS else figure
    unread = (name for name in NAMES if name in line.text and name not in figures)
    return Metrics(int(number_in(begin[1])) if begin else None, figures, tuple(unread))


@dataclass
class Figures:
    """The figures of one run.

    Attributes:
        last_step: the number of the last step; None without any.
        steps: the figures of each line about a step, by name, with the number of the step.
    """

    last_step: int | None = None
    steps: list[dict[str, float]] = field(default_factory=list)

    def add(self, metrics: Metrics) -> None:
        """Add the figures of one line."""
        self.last_step = metrics.step
        self.steps.append({steps.STEP: metrics.step or 0, **metrics.figures})

    def values(self, name: str) -> list[float]:
        """Return the values of a figure in the steps that have it."""
        return [step[name] for step in self.steps if name in step]


def memory_fields(figures: Figures) -> dict[str, Any]:
    """Return the peaks of memory as fields of ``measured``."""
    fields: dict[str, Any] = {}
    for field_name, names in _MEASURED.items():
        peaks = {name: round(max(figures.values(name), default=0), 1) for name in names}
        name = next((name for name in names if peaks[name]), "")
        fields |= {field_name: peaks[name]} if name else {}
        fields |= {"counter": _PEAKS[name]} if _PEAKS.get(name) else {}
    return fields


def facts_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield other facts in a line: ``gpu``, ``model`` and versions.

    >>> list(facts_in("INFO 06-12 core.py: Initializing a V1 LLM engine (v0.8.3) with config: …"))
    [('vllm', '0.8.3')]
    >>> list(facts_in("this needs torch 2.6.0 or later"))
    []
    >>> list(facts_in("|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |"))
    [('gpu', 'H100 80GB HBM3')]
    """
    for pattern in _FACTS if _WORDS.search(text) else ():
        for match in pattern.finditer(text):
            groups = match.groupdict()
            if "gpu" in groups:
                yield "gpu", groups["gpu"].replace("_", " ").removesuffix(".json").strip()
            elif "model" in groups:
                yield "model", groups["model"]
            elif not _ASKED.search(text):
                package = groups["package"].lower()
                yield _PACKAGES.get(package, package), groups["version"]
