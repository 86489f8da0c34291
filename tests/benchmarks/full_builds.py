"""Measure whole builds by number of rows, pages and processes."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from builds import build, kept_mib
from measurement import Measurement, fastest, seconds
from peers import PEERS
from projects import write_project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS_PER_PAGE = 50
#: Number of builds per figure, by number of rows.
REPEAT = {100: 7, 1_000: 3, 10_000: 1}


def measure(folder: Path, *, quick: bool) -> Iterator[Measurement]:
    """Measure all rows on one page, on pages of 50, and on pages of 50 with two processes."""
    for runs, repeat in REPEAT.items():
        if quick and runs > 1_000:
            continue
        pages = -(-runs // ROWS_PER_PAGE)
        yield from _compare(folder, runs, 1, 1, repeat)
        yield from _compare(folder, runs, pages, 1, repeat)
        # Sphinx reads up to five pages in one process, even if more are allowed.
        if pages > 5:
            yield from _compare(folder, runs, pages, 2, repeat)


def _compare(folder: Path, runs: int, pages: int, jobs: int, repeat: int) -> Iterator[Measurement]:
    projects = {
        peer.name: write_project(folder / f"peer-{index}", peer, runs, -(-runs // pages))
        for index, peer in enumerate(PEERS)
    }
    builds = {
        name: partial(build, project, folder / "bytecode", "-j", str(jobs))
        for name, project in projects.items()
    }
    for name, found in fastest(builds, repeat, jobs).items():
        kept = kept_mib(projects[name])
        taken = seconds(found, jobs)
        yield Measurement("full", name, taken, runs, pages, jobs, found.peak_mib, kept)
    for project in projects.values():
        shutil.rmtree(project)
