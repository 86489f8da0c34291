"""Measure plain text, for which the time of Sphinx's own tables grows with the square of the rows."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from builds import build
from measurement import Measurement, fastest, seconds
from peers import LIST_TABLE, NOTHING, OURS
from projects import write_project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REPEAT = {250: 3, 500: 3, 1_000: 2, 2_000: 1}


def measure(folder: Path) -> Iterator[Measurement]:
    """Measure one page with all rows."""
    for runs, repeat in REPEAT.items():
        projects = {
            peer.name: write_project(folder / peer.name, peer, runs, runs)
            for peer in (NOTHING, LIST_TABLE, OURS)
        }
        builds = {
            name: partial(build, project, folder / "bytecode", builder="text")
            for name, project in projects.items()
        }
        for name, found in fastest(builds, repeat).items():
            yield Measurement("text", name, seconds(found), runs, peak_mib=found.peak_mib)
        for project in projects.values():
            shutil.rmtree(project)
