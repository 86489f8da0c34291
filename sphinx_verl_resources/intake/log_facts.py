"""Read facts from a log: the figures of a step, versions and the GPU.

verl prints a line of figures after each step: ``step:1 - perf/…:71.3 - …``. A version or a GPU
is used only if the words are unambiguous.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..records import Measured

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Memory metrics that verl prints after each step, in GiB despite their names.
PEAK_ALLOCATED, PEAK_RESERVED = "perf/max_memory_allocated_gb", "perf/max_memory_reserved_gb"
HOST_MEMORY = "perf/cpu_memory_used_gb"
#: For the fields of ``measured`` that a log's figures fill: the figures, best first, and the decimals.
_MEASURED = {
    "gib": ((PEAK_ALLOCATED, PEAK_RESERVED), 1),
    "host_ram_gib": ((HOST_MEMORY,), 1),
    "step_seconds": (("perf/time_per_step", "timing_s/step"), 1),
    "mfu": (("perf/mfu/actor",), 3),
    "response_tokens": (("response_length/mean",), 0),
}
#: Names of the figures that are read.
NAMES = tuple(name for names, _ in _MEASURED.values() for name in names)
#: Figures whose maximum is used, with their counter; the others are averaged over all steps.
PEAKS = {PEAK_ALLOCATED: "torch-max-allocated", PEAK_RESERVED: "torch-max-reserved", HOST_MEMORY: ""}

#: Figures of the lengths of sequences, which no field of a run records.
LENGTHS = ("response_length/max", "prompt_length/mean", "prompt_length/max")

STEP = re.compile(r"(?:^|(?<=\s))step:(?P<step>\d{1,12})(?= - )")
_ABSURD = 1e15
_ROLE = re.compile(r"(?:actor|critic)/(?=perf/)")
_NUMBER = re.compile(r"(?:np\.\w+\(|tensor\()?([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?:,[^()]*\)|\))?\Z")

_RELEASE = r"v?(?P<version>\d{1,4}\.\d{1,4}(?:\.\w{1,12}){0,4})(?:\+[\w.]{1,40})?(?![\w.]*[\w-])"
#: Possible beginning of a name.
_START = r"(?:^|(?<=[\s|,]))"
#: Patterns of facts other than figures. A line with such a fact contains one of the words before the pattern.
#: The groups are a package and its version, a fact from vLLM, or a GPU as drivers and vLLM's files name it.
_PATTERNS = (
    ((" version",), re.compile(rf"\b(?P<package>vLLM) API server version {_RELEASE}")),
    (("LLM engine (",), re.compile(rf"\bInitializing an? (?:V\d )?(?P<package>LLM) engine \({_RELEASE}\)")),
    (
        ("torch", "verl==", "vllm==", "sglang=="),
        re.compile(rf"{_START}(?P<package>(?i:torch|verl|vllm|sglang))==+{_RELEASE}(?=\s|\Z)"),
    ),
    (
        (" version",),
        re.compile(
            rf"{_START}(?P<package>(?i:torch|pytorch|verl|vllm|sglang)) (?i:version) ?[:=]? ?{_RELEASE}"
        ),
    ),
    (("LLM engine (",), re.compile(r"LLM engine \(.{0,300}?\bmodel='(?P<model>[^']{1,300})'")),
    (
        ("emory",),
        re.compile(r"Sleep mode freed .{1,40}, (?P<asleep>\d{1,6}\.\d+) GiB memory is still in use"),
    ),
    (("torch",), re.compile(rf"{_START}(?P<package>torch) {_RELEASE}")),
    (
        ("NVIDIA", "Instinct", "Tesla"),
        re.compile(
            r"\b(?:NVIDIA|AMD Instinct|Tesla|AMD)[ _]"
            r"(?P<gpu>[A-Z]+[ _]?(?:PRO )?\d{1,4}\w*(?:[ _-][\w-]+){0,5})"
        ),
    ),
)
_PACKAGES = {"llm": "vllm", "pytorch": "torch"}
#: Names in ``facts_in`` of a GPU, a model, and the GiB in use while vLLM sleeps.
GPU, MODEL, ASLEEP = "GPU", "model", "asleep"
#: Words near a version that is required rather than installed.
_ASKED = re.compile(
    r"requir|expect|recommend|install|upgrad|need|support|since|deprecat|minimum", re.IGNORECASE
)
#: The text before the name of an installed GPU.
_NEAR = re.compile(
    r"\|\s+\d+\s+$|device_name=$|(?:GPU|device|card)(?: \d+| name)?\W{1,4}$|^\W*$", re.IGNORECASE
)
#: Every line with a version or a GPU contains one of these.
WORDS = tuple(dict.fromkeys(word.encode() for words, _ in _PATTERNS for word in words))


class MetricLine(NamedTuple):
    """The step of a line, its figures by name, and the names of unreadable figures."""

    step: int
    figures: dict[str, float]
    unread: tuple[str, ...]


def read_metrics(text: str, *, whole: bool = True) -> MetricLine | None:
    """Return the figures of a line; None if it is not the line of a step.

    Args:
        text: the line, without Ray's name of the worker.
        whole: the line was not cut off; otherwise its last figure is ignored.

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
        if name in NAMES or name in LENGTHS:
            number = _number(value)
            if number is None:
                bad += [name] if name in NAMES else []
            else:
                figures[name] = max(number, figures.get(name, number)) if name in PEAKS else number
    lost = [name for name in NAMES if name in text and name not in figures and name not in bad]
    return MetricLine(int(begin["step"]), figures, (*bad, *lost))


def _number(text: str) -> float | None:
    """Return a figure; None if it is negative, absurdly large or not a number."""
    match = _NUMBER.match(text.strip())
    number = float(match[1]) if match else math.nan
    return number if 0 <= number < _ABSURD else None


@dataclass
class Figures:
    """The figures of one run.

    Attributes:
        steps: number of steps with a figure.
        last_step: number of the last step.
    """

    steps: int = 0
    last_step: int = -1
    _sums: dict[str, tuple[float, int]] = field(default_factory=dict)
    _course: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, line: MetricLine) -> None:
        """Add the figures of one line."""
        self.steps += bool(line.figures.keys() - LENGTHS) and line.step != self.last_step
        self.last_step = line.step
        for name, value in line.figures.items():
            total, number = self._sums.get(name, (0.0, 0))
            self._sums[name] = (max(value, total), 1) if name in PEAKS else (total + value, number + 1)
            self._course[name] = (self._course.get(name, (value,))[0], value)

    def course(self, name: str) -> tuple[float, float] | None:
        """Return the first and the last value of a figure; None if there is none."""
        return self._course.get(name)

    def figure(self, name: str) -> float | None:
        """Return the maximum or mean of a figure; None if there is none above zero."""
        total, number = self._sums.get(name, (0.0, 0))
        return total / number if total else None


def _most(name: str) -> float:
    """Return the largest value that run files allow for a measured figure."""
    limits = (getattr(limit, "le", None) for limit in Measured.model_fields[name].metadata)
    return float(next(limit for limit in limits if limit is not None))


def measured_fields(figures: Figures) -> dict[str, Any]:
    """Return the figures as the field ``measured`` of a run; empty if there are none."""
    fields: dict[str, Any] = {}
    for name, (logged, digits) in _MEASURED.items():
        for figure in logged:
            value = round(figures.figure(figure) or 0, digits)
            if 0 < value <= _most(name):
                fields[name] = value if digits else int(value)
                if counter := PEAKS.get(figure):
                    fields["counter"] = counter
                break
    return fields


def facts_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the facts of a line other than figures: packages with versions, the GPU.

    >>> list(facts_in("INFO 06-12 core.py: Initializing a V1 LLM engine (v0.8.3) with config: …"))
    [('vllm', '0.8.3')]
    >>> list(facts_in("this needs torch 2.6.0 or later"))
    []
    >>> list(facts_in("|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |"))
    [('GPU', 'H100 80GB HBM3')]
    """
    for words, pattern in _PATTERNS:
        if not any(word in text for word in words):
            continue
        for match in pattern.finditer(text):
            groups = match.groupdict()
            if "model" in groups or "asleep" in groups:
                yield next(iter(groups.items()))
            elif "gpu" in groups:
                if _NEAR.search(text[max(0, match.start() - 60) : match.start()]):
                    yield GPU, groups["gpu"].replace("_", " ").removesuffix(".json").strip()
            elif not _is_asked_for(text):
                package = groups["package"].lower()
                yield _PACKAGES.get(package, package), groups["version"]


@lru_cache(maxsize=1)  # a line may contain many versions
def _is_asked_for(text: str) -> bool:
    """Return whether a line is about versions that are required."""
    return bool(_ASKED.search(text))
