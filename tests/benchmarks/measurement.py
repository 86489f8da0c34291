"""Measure builds for a comparison; they take turns, and the fastest of each kind counts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from builds import Build


@dataclass(frozen=True)
class Measurement:
    """The cost of one build.

    Attributes:
        what: the comparison.
        peer: the way of making the tables.
        seconds: time of the fastest build. With one process it is processor time, which other programs hardly
            affect. With several processes it is wall-clock time, which they reduce.
        runs: number of rows in the project.
        pages: number of pages with these rows.
        jobs: number of processes.
        peak_mib: peak memory.
        kept_mib: size of doctrees and environment on disk.
    """

    what: str
    peer: str
    seconds: float
    runs: int = 0
    pages: int = 1
    jobs: int = 1
    peak_mib: float = 0.0
    kept_mib: float = 0.0

    def record(self) -> dict[str, str | int | float]:
        """Return plain values, rounded to the precision of the figures."""
        values = asdict(self)
        return {
            name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()
        }


def fastest(builds: Mapping[str, Callable[[], Build]], repeat: int, jobs: int = 1) -> dict[str, Build]:
    """Return the fastest build of each kind; they take turns, so that other load affects all equally."""
    best: dict[str, Build] = {}
    for _ in range(repeat):
        for name, run in builds.items():
            build = run()
            if name not in best or seconds(build, jobs) < seconds(best[name], jobs):
                best[name] = build
    return best


def seconds(build: Build, jobs: int = 1) -> float:
    """Return the seconds of a build that count; see ``Measurement``."""
    return build.clock if jobs > 1 else build.processor
