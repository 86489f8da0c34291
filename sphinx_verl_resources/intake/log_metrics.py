"""The figures in the lines of a log that verl prints after each step: ``step:1 - perf/…:71.3 - …``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

PEAK_ALLOCATED = "perf/max_memory_allocated_gb"
PEAK_RESERVED = "perf/max_memory_reserved_gb"
HOST = "perf/cpu_memory_used_gb"
MFU = "perf/mfu/actor"
THROUGHPUT = "perf/throughput"
RESPONSE = "response_length/mean"
#: Two names of the same figure, the better one first.
STEP_TIME = ("perf/time_per_step", "timing_s/step")

#: Of these the largest counts; of the others the mean over all steps. The ``_gb`` are GiB all the same.
PEAKS = (PEAK_ALLOCATED, PEAK_RESERVED, HOST)
NAMES = (*PEAKS, MFU, THROUGHPUT, RESPONSE, *STEP_TIME)

STEP = re.compile(r"(?:^|(?<=\s))step:(?P<step>\d{1,12})(?= - )")
_ABSURD = 1e15
_ROLE = re.compile(r"(?:actor|critic)/(?=perf/)")
_NUMBER = re.compile(r"(?:np\.\w+\(|tensor\()?([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?:,[^()]*\)|\))?\Z")


@dataclass(frozen=True)
class MetricLine:
    """What one line says: the step, the figures by the names above, and the names that could not be read."""

    step: int
    figures: dict[str, float]
    unread: tuple[str, ...]


def read_metrics(text: str, *, whole: bool = True) -> MetricLine | None:
    """Read a line of metrics; None for any other.

    Args:
        text: the line, without what Ray puts before it.
        whole: nothing of it was cut off; otherwise its last figure does not count.

    >>> read_metrics("step:3 - actor/perf/max_memory_allocated_gb:np.float64(71.3) - perf/throughput:oops")
    MetricLine(step=3, figures={'perf/max_memory_allocated_gb': 71.3}, unread=('perf/throughput',))
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


def names_in(text: str) -> tuple[str, ...]:
    """The names of figures that stand in any text."""
    return tuple(name for name in NAMES if name in text)


def _number(text: str) -> float | None:
    """A figure that can be one: not negative, and of no absurd size."""
    found = _NUMBER.match(text.strip())
    number = float(found[1]) if found else math.nan
    return number if 0 <= number < _ABSURD else None


@dataclass
class Figures:
    """What the lines of one run come to.

    Attributes:
        steps: lines with a figure.
        last_step: the number that the last of them has.
        peaks: the largest value of each of ``PEAKS``.
    """

    steps: int = 0
    last_step: int = -1
    peaks: dict[str, float] = field(default_factory=dict)
    _sums: dict[str, tuple[float, int]] = field(default_factory=dict)

    def add(self, line: MetricLine) -> None:
        """Take the figures of one line."""
        self.steps += bool(line.figures) and line.step != self.last_step
        self.last_step = line.step
        for name, value in line.figures.items():
            if name in PEAKS:
                self.peaks[name] = max(value, self.peaks.get(name, 0.0))
            else:
                total, number = self._sums.get(name, (0.0, 0))
                self._sums[name] = total + value, number + 1

    def figure(self, *names: str) -> float | None:
        """The largest or mean value under the first of the names that has one."""
        for name in names:
            if self.peaks.get(name):
                return self.peaks[name]
            total, number = self._sums.get(name, (0.0, 0))
            if total:
                return total / number
        return None
