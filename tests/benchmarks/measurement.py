"""One figure of a comparison with what it is about; builds take turns, and the fastest of each counts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from builds import Build


@dataclass(frozen=True)
class Measurement:
    """What one build took.

    Attributes:
        what: which comparison.
        peer: which way of making the tables.
        seconds: of the fastest build. Those of the processor where one process builds, for others on the
            machine hardly change them; by the clock where several do, for it is what they save.
        runs: rows in the project.
        pages: over which they are spread.
        jobs: processes.
        peak_mib: the most memory held at a time.
        kept_mib: doctrees and environment on disk.
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
        """Plain values, rounded to what the figures are worth."""
        values = asdict(self)
        return {
            name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()
        }


def fastest(builds: Mapping[str, Callable[[], Build]], repeat: int, jobs: int = 1) -> dict[str, Build]:
    """The fastest build of each; they take turns, so that whatever slows the machine hits all alike."""
    best: dict[str, Build] = {}
    for _ in range(repeat):
        for name, run in builds.items():
            build = run()
            if name not in best or seconds(build, jobs) < seconds(best[name], jobs):
                best[name] = build
    return best


def seconds(build: Build, jobs: int = 1) -> float:
    """What counts of a build, see ``Measurement``."""
    return build.clock if jobs > 1 else build.processor
