"""Tables and aims from recorded figures, for the page and for ``make benchmark``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

NOTHING, LIST_TABLE, BARE, OURS = "no table", "list-table", "bare post-transform", "verl-runs"
#: The limits of the aims.
OF_LIST_TABLE, OF_BARE, OF_DOCUMENTATION = 0.33, 1.15, 3.0


@dataclass(frozen=True)
class Table:
    """A table of figures."""

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True)
class Target:
    """An aim with its result."""

    aim: str
    found: str
    met: bool

    @property
    def cells(self) -> tuple[str, str, str]:
        """The row of a table."""
        return self.aim, self.found, "met" if self.met else "missed"


@dataclass(frozen=True)
class Report:
    """The figures of one run of ``make benchmark``.

    Attributes:
        about: machine, versions and date, by name.
        measurements: see ``tests/benchmarks/measurement.py``.
    """

    about: dict[str, str]
    measurements: list[dict[str, Any]]

    TARGET_HEADINGS = ("Aim", "Found", "")

    @classmethod
    def read(cls, path: Path) -> Report:
        """Read the file that ``make benchmark`` writes."""
        content = json.loads(path.read_text("utf-8"))
        return cls(content["machine"], content["measurements"])

    @property
    def machine(self) -> str:
        """A sentence about the machine and the versions."""
        about = dict(self.about)
        day, processor, cores, system = (about.pop(name) for name in ("date", "processor", "cores", "system"))
        versions = ", ".join(f"{name} {number}" for name, number in about.items())
        return f"Measured on {day} with {processor}, {cores} cores, {system}, {versions}."

    def tables(self) -> Iterator[Table]:
        """Yield all figures, with this extension's last."""
        for title, options in (
            ("Whole build, all runs on one page", {"pages": 1}),
            ("Whole build, pages of 50 runs", {"jobs": 1, "several": True}),
            ("Whole build, pages of 50 runs, two processes", {"jobs": 2}),
        ):
            found = list(self._found("full", **options))
            yield self._by_runs(f"{title}: seconds", found, "seconds", "{:.2f}")
        single = list(self._found("full", pages=1))
        yield self._by_runs(
            "Peak memory of the build, all runs on one page: MiB", single, "peak_mib", "{:.0f}"
        )
        yield self._by_runs(
            "Doctrees and environment on disk, all runs on one page: MiB", single, "kept_mib", "{:.2f}"
        )
        yield self._rebuilds()
        text = list(self._found("text"))
        yield self._by_runs("Plain text, all runs on one page: seconds", text, "seconds", "{:.2f}")

    def targets(self) -> list[Target]:
        """Return all aims with their results."""
        return [
            *self._ahead(),
            self._share_of_list_table(),
            *self._beside_bare(),
            self._text_grows_linearly(),
            self._documentation(),
        ]

    def added_per_cent(self) -> float:
        """Return the time that four pages with this extension's tables add to a build, in per cent."""
        seconds = {item["peer"]: item["seconds"] for item in self._found("documentation")}
        return 100 * (seconds[OURS] / seconds[NOTHING] - 1)

    def _found(self, what: str, *, several: bool = False, **values: Any) -> Iterator[dict[str, Any]]:
        for item in self.measurements:
            fits = all(item[name] == value for name, value in values.items())
            if item["what"] == what and fits and not (several and item["pages"] == 1):
                yield item

    def _by_runs(self, title: str, found: Sequence[dict[str, Any]], value: str, form: str) -> Table:
        """Return a table with a row for each number of runs and a column for each peer."""
        peers = _distinct(item["peer"] for item in found)
        rows = []
        for runs in _distinct(item["runs"] for item in found):
            cells = {item["peer"]: form.format(item[value]) for item in found if item["runs"] == runs}
            rows.append((f"{runs:,}", *(cells[peer] for peer in peers)))
        return Table(title, ("Runs", *peers), rows)

    def _rebuilds(self) -> Table:
        kinds = {"no change": "nothing has changed", "touched": "a file touched", "changed": "a row changed"}
        rows = []
        for what, shown in kinds.items():
            found = {item["peer"]: f"{item['seconds']:.2f}" for item in self._found(what)}
            rows.append((shown, *found.values()))
        first = next(self._found("changed"))
        title = f"Next build of {first['runs']:,} runs on {first['pages']} pages: seconds"
        return Table(title, ("Since the last build", *found), rows)

    def _ahead(self) -> Iterator[Target]:
        """Yield, by pages and processes, whether this extension is faster than every peer."""
        for shown, options in (
            ("all runs on one page", {"pages": 1}),
            ("pages of 50 runs", {"jobs": 1, "several": True}),
            ("the same in two processes", {"jobs": 2}),
        ):
            found = list(self._found("full", **options))
            lost, sizes = [], _distinct(item["runs"] for item in found)
            for runs in sizes:
                seconds = {item["peer"]: item["seconds"] for item in found if item["runs"] == runs}
                own = seconds[OURS]
                lost += [
                    f"{peer} at {runs:,} runs ({own / taken:.2f} times its time)"
                    for peer, taken in seconds.items()
                    if peer not in (NOTHING, BARE, OURS) and taken <= own
                ]
            listed = " and ".join(f"{runs:,}" for runs in sizes)
            verdict = f"slower than {', '.join(lost)}" if lost else f"ahead at {listed} runs"
            yield Target(f"ahead of every peer, {shown}", verdict, not lost)

    def _share_of_list_table(self) -> Target:
        share = self._ratio(LIST_TABLE, runs=1_000, pages=1)
        aim = f"at most {OF_LIST_TABLE} of list-table's time at 1,000 runs on one page"
        bare = self._ratio(LIST_TABLE, of=BARE, runs=1_000, pages=1)
        return Target(aim, f"{share:.2f} (the bare post-transform: {bare:.2f})", share <= OF_LIST_TABLE)

    def _beside_bare(self) -> Iterator[Target]:
        for runs in _distinct(item["runs"] for item in self._found("full", pages=1)):
            share = self._ratio(BARE, runs=runs, pages=1)
            aim = f"within {OF_BARE} of a bare post-transform at {runs:,} runs on one page"
            yield Target(aim, f"{share:.2f}", share <= OF_BARE)

    def _ratio(self, peer: str, *, of: str = OURS, **values: Any) -> float:
        seconds = {item["peer"]: item["seconds"] for item in self._found("full", **values)}
        return float(seconds[of] / seconds[peer])

    def _text_grows_linearly(self) -> Target:
        """Check that twice the rows add about twice the time to a build without tables."""
        found = list(self._found("text"))
        sizes = _distinct(item["runs"] for item in found)
        growth = {}
        for peer in (LIST_TABLE, OURS):
            own = [
                next(item["seconds"] for item in found if (item["peer"], item["runs"]) == (peer, runs))
                - next(item["seconds"] for item in found if (item["peer"], item["runs"]) == (NOTHING, runs))
                for runs in sizes[-2:]
            ]
            growth[peer] = own[1] / own[0]
        factor = sizes[-1] / sizes[-2]
        aim = f"plain text of {factor:g} times as many runs takes at most {1.25 * factor:g} times as long"
        shown = f"{growth[OURS]:.1f} times (list-table: {growth[LIST_TABLE]:.1f})"
        return Target(aim, shown, growth[OURS] <= 1.25 * factor)

    def _documentation(self) -> Target:
        pages = next(self._found("documentation"))["pages"]
        aim = f"four of {pages} pages use the extension: at most {OF_DOCUMENTATION:g} % more time"
        added = self.added_per_cent()
        return Target(aim, f"{added:.1f} %", added <= OF_DOCUMENTATION)


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))
