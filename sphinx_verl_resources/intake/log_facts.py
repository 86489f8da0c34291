"""Read the facts in a log: the figures of a step, versions, the GPU, and the printed configuration.

verl prints a line of figures after each step: ``step:1 - perf/…:71.3 - …``. A version or a GPU
counts only where the words cannot mean anything else.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..catalog.fields import HOST_MEMORY, PEAK_ALLOCATED, PEAK_RESERVED, every_field
from ..settings.result import leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .log_lines import Piece

#: The fields of a run that the figures of a log give.
_MEASURED = tuple(field for field in every_field().values() if field.logged)
#: The figures that are read.
NAMES = tuple(name for field in _MEASURED for name in field.logged)
#: The largest of these counts, with the counter that gave it; of the others the mean over all steps.
PEAKS = {PEAK_ALLOCATED: "torch-max-allocated", PEAK_RESERVED: "torch-max-reserved", HOST_MEMORY: ""}

STEP = re.compile(r"(?:^|(?<=\s))step:(?P<step>\d{1,12})(?= - )")
_ABSURD = 1e15
_ROLE = re.compile(r"(?:actor|critic)/(?=perf/)")
_NUMBER = re.compile(r"(?:np\.\w+\(|tensor\()?([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?:,[^()]*\)|\))?\Z")

_RELEASE = r"v?(?P<version>\d{1,4}\.\d{1,4}(?:\.\w{1,12}){0,4})(?:\+[\w.]{1,40})?(?![\w.]*[\w-])"
#: Where a name can begin.
_START = r"(?:^|(?<=[\s|,]))"
#: What a line can tell besides figures, each with words of which such a line has one. The groups of a pattern
#: are a package and its version, or a GPU as drivers print it or vLLM names files after it.
_PATTERNS = (
    ((b" version",), re.compile(rf"\b(?P<package>vLLM) API server version {_RELEASE}")),
    ((b"LLM engine (",), re.compile(rf"\bInitializing an? (?:V\d )?(?P<package>LLM) engine \({_RELEASE}\)")),
    (
        (b"torch==", b"verl==", b"vllm==", b"sglang=="),
        re.compile(rf"{_START}(?P<package>(?i:torch|verl|vllm|sglang))==+{_RELEASE}(?=\s|\Z)"),
    ),
    (
        (b" version",),
        re.compile(
            rf"{_START}(?P<package>(?i:torch|pytorch|verl|vllm|sglang)) (?i:version) ?[:=]? ?{_RELEASE}"
        ),
    ),
    ((b"torch ",), re.compile(rf"{_START}(?P<package>torch) {_RELEASE}")),
    (
        (b"NVIDIA", b"Instinct", b"Tesla"),
        re.compile(
            r"\b(?:NVIDIA|AMD Instinct|Tesla|AMD)[ _]"
            r"(?P<gpu>[A-Z]+[ _]?(?:PRO )?\d{1,4}\w*(?:[ _-][\w-]+){0,5})"
        ),
    ),
)
_PACKAGES = {"llm": "vllm", "pytorch": "torch"}
#: What ``facts_in`` calls a GPU.
GPU = "GPU"
#: Words around a version that is required and may not be installed.
_ASKED = re.compile(
    r"requir|expect|recommend|install|upgrad|need|support|since|deprecat|minimum", re.IGNORECASE
)
#: What stands before a GPU that is in the machine.
_NEAR = re.compile(
    r"\|\s+\d+\s+$|device_name=$|(?:GPU|device|card)(?: \d+| name)?\W{1,4}$|^\W*$", re.IGNORECASE
)
#: Every line with a version or a GPU has one of these.
WORDS = tuple(dict.fromkeys(word for words, _ in _PATTERNS for word in words))


class MetricLine(NamedTuple):
    """The step of a line, its figures by name, and the names of figures that could not be read."""

    step: int
    figures: dict[str, float]
    unread: tuple[str, ...]


def read_metrics(text: str, *, whole: bool = True) -> MetricLine | None:
    """Return the figures of a line; None if it is no line of a step.

    Args:
        text: the line, without the worker that Ray puts before it.
        whole: nothing of it was cut off; if something was, its last figure does not count.

    >>> read_metrics("step:3 - actor/perf/max_memory_allocated_gb:np.float64(71.3) - perf/mfu/actor:oops")
    MetricLine(step=3, figures={'perf/max_memory_allocated_gb': 71.3}, unread=('perf/mfu/actor',))
    """
    begin = STEP.search(text)
    if not begin:
        return None
    items = text[begin.end() :].split(" - ")
    figures: dict[str, float] = {}
    bad: list[str] = []
    for item in items if whole else items[:-1]:
        key, _, value = item.strip().partition(":")
        name = _ROLE.sub("", key)
        if name in NAMES:
            number = _number(value)
            if number is None:
                bad.append(name)
            else:
                figures[name] = max(number, figures.get(name, number)) if name in PEAKS else number
    lost = [name for name in NAMES if name in text and name not in figures and name not in bad]
    return MetricLine(int(begin["step"]), figures, (*bad, *lost))


def _number(text: str) -> float | None:
    """Return a figure that is neither negative nor absurdly large."""
    match = _NUMBER.match(text.strip())
    number = float(match[1]) if match else math.nan
    return number if 0 <= number < _ABSURD else None


@dataclass
class Figures:
    """The figures of one run.

    Attributes:
        steps: lines with a figure.
        last_step: the number that the last of them has.
    """

    steps: int = 0
    last_step: int = -1
    _sums: dict[str, tuple[float, int]] = field(default_factory=dict)
    _course: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, line: MetricLine) -> None:
        """Add the figures of one line."""
        self.steps += bool(line.figures) and line.step != self.last_step
        self.last_step = line.step
        for name, value in line.figures.items():
            total, number = self._sums.get(name, (0.0, 0))
            self._sums[name] = (max(value, total), 1) if name in PEAKS else (total + value, number + 1)
            self._course[name] = (self._course.get(name, (value,))[0], value)

    def course(self, name: str) -> tuple[float, float] | None:
        """Return the first and the last value under a name; None without one."""
        return self._course.get(name)

    def figure(self, name: str) -> float | None:
        """Return the largest or mean value under a name; None without one above zero."""
        total, number = self._sums.get(name, (0.0, 0))
        return total / number if total else None


def measured_fields(figures: Figures) -> dict[str, Any]:
    """Return the figures as the field ``measured`` of a run; empty if there is none."""
    fields: dict[str, Any] = {}
    for described in _MEASURED:
        for figure in described.logged:
            value = round(figures.figure(figure) or 0, described.digits)
            if 0 < value <= described.most:
                fields[described.name.removeprefix("measured.")] = value if described.digits else int(value)
                if counter := PEAKS.get(figure):
                    fields["counter"] = counter
                break
    return fields


def facts_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield what a line tells besides figures: packages with versions, the GPU.

    >>> list(facts_in("INFO 06-12 core.py: Initializing a V1 LLM engine (v0.8.3) with config: …"))
    [('vllm', '0.8.3')]
    >>> list(facts_in("this needs torch 2.6.0 or later"))
    []
    >>> list(facts_in("|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |"))
    [('GPU', 'H100 80GB HBM3')]
    """
    for _, pattern in _PATTERNS:
        for match in pattern.finditer(text):
            groups = match.groupdict()
            if "gpu" in groups:
                if _NEAR.search(text[max(0, match.start() - 60) : match.start()]):
                    yield GPU, groups["gpu"].replace("_", " ").removesuffix(".json").strip()
            elif not _ASKED.search(text):
                package = groups["package"].lower()
                yield _PACKAGES.get(package, package), groups["version"]


#: Limits of one configuration; verl's has 600 lines and 8 levels.
MAX_LINES, MAX_LENGTH, MAX_DEPTH = 20_000, 1 << 20, 40
#: A configuration ends with so many lines of others in a row.
MAX_FOREIGN = 5_000

#: Python's texts, of a limited length, and the signs between them.
_TOKEN = re.compile(r"'(?:[^'\\]|\\.){0,4000}'|\"(?:[^\"\\]|\\.){0,4000}\"|[{}\[\](),]")
#: Texts, and everything else that begins with a letter or an angle bracket.
_ATOM = re.compile(
    r"(?P<text>'(?:[^'\\]|\\.){0,4000}'|\"(?:[^\"\\]|\\.){0,4000}\")|"
    r"(?P<number>np\.\w+\((?P<inner>[-+\d.eE]+)\))|"
    r"(?P<word>(?<![\w.])[A-Za-z_<][^,{}\[\]():'\"\n]*(?:\([^()\n]*\)|[^,{}\[\]()\n]*>)?)"
)
_PAIRS = {"}": "{", "]": "[", ")": "("}
#: The beginning of lines behind the first: indented, then something that Python prints.
_CONTINUES = re.compile(r"\s+(?:['\"{}\[\](<]|-?[\d.]|None\b|True\b|False\b|nan\b|inf\b|np\.)|['\"}\]]")
#: Stands for a value that is no Python literal.
_UNREAD = "\0unread\0"


class PrintedConfig:
    """A configuration of one worker, read line by line.

    Attributes:
        who: the worker that prints it.
        line: of its beginning.
        column: of its beginning.
        ended: whether it is complete or breaks off.
    """

    def __init__(self, who: str, line: int, column: int) -> None:
        self.who, self.line, self.column = who, line, column
        self.ended = False
        self._lines: list[str] = []
        self._length = 0
        self._open: list[str] = []
        self._cut, self._cut_depth = 0, 0
        self._foreign = 0

    @property
    def complete(self) -> bool:
        """Tell whether every bracket is closed."""
        return bool(self._lines) and not self._open

    def add(self, piece: Piece) -> bool:
        """Add a line; return false if it belongs to something else."""
        if piece.who != self.who or (self._lines and not _CONTINUES.match(piece.text)):
            self._foreign += 1
            self.ended = self.ended or self._foreign > MAX_FOREIGN
            return False
        self._foreign = 0
        end = len(piece.text)
        for token in _TOKEN.finditer(piece.text):
            if not self._follow(token, self._length):
                end, self.ended = token.end(), True
                break
        self._lines.append(piece.text[:end])
        self._length += end + 1
        self.ended = self.ended or not piece.whole or self._is_too_much()
        return True

    def values(self) -> tuple[dict[str, Any], list[str]]:
        """Return the settings under dotted keys, and the keys of values that could not be read.

        Of a configuration that breaks off, complete entries count; a list that is not closed does not.

        Raises:
            ValueError: it is no dict of Python.
        """
        text = "\n".join(self._lines)
        if not self.complete:
            text = text[: self._cut] + "}" * self._cut_depth
        config = _literal(text)
        if not isinstance(config, dict):
            raise ValueError("it is no dict of Python")
        values = dict(leaves(config))
        unread = [key for key, value in values.items() if _holds(value, _UNREAD)]
        return {key: value for key, value in values.items() if key not in unread}, unread

    def _follow(self, token: re.Match[str], before: int) -> bool:
        """Note a sign; return false if nothing is open behind it, or if it closes the wrong bracket."""
        sign = token[0]
        if sign in "{[(":
            self._open.append(sign)
        elif sign in _PAIRS:
            if not self._open or self._open.pop() != _PAIRS[sign]:
                self._open = ["?"]  # never closed, so that only entries before it count
                return False
            self._remember(before + token.end())
        elif sign == ",":
            self._remember(before + token.start())
        return bool(self._open)

    def _remember(self, at: int) -> None:
        """Note the place behind a complete entry, where only dicts are open."""
        if all(sign == "{" for sign in self._open):
            self._cut, self._cut_depth = at, len(self._open)

    def _is_too_much(self) -> bool:
        return len(self._lines) >= MAX_LINES or self._length > MAX_LENGTH or len(self._open) > MAX_DEPTH


def _literal(text: str) -> Any:
    try:
        return _evaluated(text)
    except ValueError:
        return _evaluated(_ATOM.sub(_as_literal, text))


def _evaluated(text: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in texts
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError("it is no dict of Python") from None


def _as_literal(match: re.Match[str]) -> str:
    if match["text"] or (match["word"] or "").strip() in {"True", "False", "None"}:
        return match[0]
    return match["inner"] or repr(_UNREAD)


def _holds(value: Any, mark: str) -> bool:
    return value == mark or (isinstance(value, tuple) and any(_holds(item, mark) for item in value))
