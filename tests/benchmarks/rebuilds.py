"""Measure rebuilds without a change, with a new time stamp of a file, and with a changed row."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from builds import build
from content import AFTER, BEFORE, Row
from measurement import Measurement, fastest, seconds
from peers import PEERS
from projects import write_project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from builds import Build
    from peers import Peer

RUNS, PER_PAGE, REPEAT = 1_000, 50, 3


def measure(folder: Path) -> Iterator[Measurement]:
    """Measure 1,000 rows on pages of 50, and touch or change one file before each build."""
    projects = {peer.name: write_project(folder / peer.name, peer, RUNS, PER_PAGE) for peer in PEERS}
    sources = {peer.name: _source(projects[peer.name], peer) for peer in PEERS}
    bytecode = folder / "bytecode"
    for project in projects.values():
        build(project, bytecode)
    for what, prepare in {"no change": _leave, "touched": _touch, "changed": _change}.items():
        builds = {
            name: partial(_again, prepare, sources[name], project, bytecode)
            for name, project in projects.items()
        }
        for name, found in fastest(builds, REPEAT).items():
            yield Measurement(what, name, seconds(found), RUNS, RUNS // PER_PAGE, peak_mib=found.peak_mib)
    for project in projects.values():
        shutil.rmtree(project)


def _source(project: Path, peer: Peer) -> Path:
    """Return the file that contains the first row."""
    row = Row(0, "page-0")
    return project / peer.source.format(page=row.page, row=row.name)


def _again(prepare: Callable[[Path], None], source: Path, project: Path, bytecode: Path) -> Build:
    prepare(source)
    return build(project, bytecode, fresh=False)


def _leave(source: Path) -> None:
    """Change nothing."""


def _touch(source: Path) -> None:
    """Update the time stamp of the file, as a fresh checkout does."""
    source.touch()


def _change(source: Path) -> None:
    """Change a text back and forth, so that every build has a change."""
    text = source.read_text("utf-8")
    old, new = (BEFORE, AFTER) if BEFORE in text else (AFTER, BEFORE)
    source.write_text(text.replace(old, new) if old in text else f"{text}\n.. {old}\n", "utf-8")
