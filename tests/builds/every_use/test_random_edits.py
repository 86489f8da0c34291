"""Random edits in sequence: only the pages that show an edit are read again, and written as by a fresh build.

Two processes with different hash seeds take turns, with one job and with two. Set `EDITS=200 SEED=1` before the command
to try more and other edits.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from data_changes import CHANGES, REMARKS, apply

EDITS = int(os.environ.get("EDITS", "18"))
SEED = int(os.environ.get("SEED", "0"))
#: Maximum number of simultaneous changes of the data.
MOST = 3
#: Number of edits per fresh build.
EVERY = 3
SERVER = Path(__file__).with_name("build_server.py")

#: Pages with links to files in verl's repository.
SCRIPTS = {"runs", "runs-7b", "runs-details", "what-if", *REMARKS}
#: Edits besides those of the data: by name, the file, a text in it, its replacement, and the pages to read.
OTHERS = {
    "a page that uses nothing": ("docs/plain.rst", "More.", "Other.", {"plain"}),
    "a title that a list names": ("docs/plain.rst", "Below\n-----", "Lower\n-----", {"plain"}),
    "a page that uses something": (
        "docs/runs-7b.rst",
        ".. verl-runs:: 7B",
        ".. verl-runs:: 7B 3B",
        {"runs-7b"},
    ),
    "a page that shows nothing any more": ("docs/gpus.rst", ".. verl-gpus::", "Text.", {"gpus"}),
    "where scripts are": ("docs/conf.py", "script_url = 'https://a.", "script_url = 'https://b.", SCRIPTS),
    "where rows are edited": (
        "docs/conf.py",
        "edit_url = 'https://a.",
        "edit_url = 'https://b.",
        {"runs-details"},
    ),
    "a title of the documentation": ("docs/conf.py", "html_title = 'a'", "html_title = 'b'", set()),
    "a new page": (
        "docs/new.rst",
        "",
        ":orphan:\n\nNew\n===\n\n.. verl-runs:: 7B\n\n.. _own-label-2:\n",
        {"new"},
    ),
}
CONF = """
verl_resources_script_url = 'https://a.example.org/{ref}/{path}'
verl_resources_edit_url = 'https://a.example.org/{path}'
html_title = 'a'
"""


class Edits:
    """The files of a project, some of which are currently changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.active: dict[str, dict[str, bytes | None]] = {}

    def files_of(self, name: str) -> list[str]:
        """Return the files of a change."""
        if name in OTHERS:
            return [OTHERS[name][0]]
        sources = [
            change[0] for change in CHANGES[name][0].values() if isinstance(change, tuple) and len(change) > 2
        ]
        return [*CHANGES[name][0], *sources]

    def possible(self) -> list[str]:
        """Return the changes that can be made or undone now."""
        if len(self.active) >= MOST:
            return sorted(self.active)
        busy = {file for name in self.active for file in self.files_of(name)}
        return [
            name
            for name in (*CHANGES, *OTHERS)
            if name in self.active or not busy.intersection(self.files_of(name))
        ]

    def toggle(self, name: str) -> None:
        """Make a change, or undo it."""
        if name in self.active:
            for file, content in self.active.pop(name).items():
                path = self.folder / file
                if content is None:
                    path.unlink()
                else:
                    path.write_bytes(content)
            return
        self.active[name] = {
            file: path.read_bytes() if (path := self.folder / file).exists() else None
            for file in self.files_of(name)
        }
        if name in CHANGES:
            apply(CHANGES[name][0], self.folder)
            return
        file, old, new, _users = OTHERS[name]
        path = self.folder / file
        text = path.read_text("utf-8") if path.exists() else ""
        assert old in text
        path.write_text(text.replace(old, new, 1) if old else new, "utf-8")


def users(name: str) -> set[str]:
    """Return the pages that show a change."""
    return OTHERS[name][3] if name in OTHERS else CHANGES[name][1]


@pytest.fixture
def build(every_use, data, tmp_path):
    """A function that returns the pages that the next build reads; two processes with different hash seeds take turns."""
    every_use.build()  # writes conf.py
    docs = data.path.parent / "docs"
    with (docs / "conf.py").open("a", encoding="utf-8") as stream:
        stream.write(CONF)
    first, second = (
        subprocess.Popen(
            [sys.executable, str(SERVER)],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in (0, 1)
    )

    def ask(number: int, out: str = "kept", *, fresh: bool = False) -> set[str]:
        server, jobs = (first, second)[number % 2], 1 + number // 2 % 2
        asked = {"source": str(docs), "out": str(tmp_path / out), "jobs": jobs, "fresh": fresh}
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        return set(json.loads(server.stdout.readline()))

    with first, second:
        assert len(ask(0)) > 40
        yield ask


@pytest.mark.slow
def test_another_hash_seed_is_no_change(build, data):
    for number, name in ((1, "comment in a run"), (2, "run edited"), (3, "accuracy of what one page shows")):
        apply(CHANGES[name][0], data.path.parent)
        assert build(number) == CHANGES[name][1], name


@pytest.mark.slow
def test_random_edits(build, data, written, tmp_path):
    edits, chosen = Edits(data.path.parent), random.Random(SEED)
    history: list[str] = []
    different, superfluous, compared = [], [], 0
    for number in range(1, EDITS + 1):
        before = set().union(*map(users, edits.active))
        name = chosen.choice(edits.possible())
        edits.toggle(name)
        history.append(name)
        shown = users(name)
        # Several changes of the same file may move each other's lines.
        around = before | set().union(*map(users, edits.active))
        if extra := build(number) - (shown | around if around - shown else shown):
            superfluous.append((number, name, sorted(edits.active), sorted(extra)))
        if not (edits.folder / "docs/new.rst").exists():  # Sphinx leaves the output of deleted pages
            (tmp_path / "kept/new.html").unlink(missing_ok=True)
            (tmp_path / "kept/_sources/new.rst.txt").unlink(missing_ok=True)
        if number % EVERY == 0:
            shutil.rmtree(tmp_path / "fresh", ignore_errors=True)
            build(number + 1, "fresh", fresh=True)
            kept, fresh = written(tmp_path / "kept"), written(tmp_path / "fresh")
            wrong = sorted(file for file in kept.keys() | fresh.keys() if kept.get(file) != fresh.get(file))
            compared += 1
            if wrong:
                different.append((number, name, sorted(edits.active), wrong))
    counts = f"{EDITS} edits, {compared} compared, {len(different)} differ, {len(superfluous)} read too much"
    sys.stdout.write(f"seed {SEED}: {counts}\n")
    assert (different, superfluous) == ([], []), f"seed {SEED}: {history}"
