"""Builds in several processes write the same bytes as one process, for any order of sets."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

BUILDERS = ("html", "latex", "gettext")
#: Builds with several builders in sequence, which share the pages read; gettext shares with none.
BUILD = """
import sys
from sphinx.cmd.build import main
source, out, jobs, *builders = sys.argv[1:]
for name in builders:
    doctrees = f"{out}/doctrees-{name == 'gettext'}"
    failed = main(["-q", "-W", "-n", "-j", jobs, "-b", name, "-d", doctrees, source, f"{out}/{name}"])
    if failed:
        sys.exit(failed)
"""


@pytest.fixture
def build_apart(every_use, tmp_path, written):
    """A function that returns the output of builds in a fresh process with a number of jobs."""
    every_use.build()  # writes conf.py

    def build(jobs: int) -> dict[str, bytes]:
        out = tmp_path / f"jobs-{jobs}"
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1", "PYTHONHASHSEED": str(jobs), "TZ": "UTC"}
        command = [sys.executable, "-c", BUILD, str(every_use.path), str(out), str(jobs), *BUILDERS]
        subprocess.run(command, check=True, env=environment)
        return {
            f"{name}/{path}": content for name in BUILDERS for path, content in written(out / name).items()
        }

    return build


def different(one, other):
    return [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]


def test_any_number_of_processes_writes_the_same(build_apart, data):
    full = build_apart(1)
    assert {
        "html/objects.inv",
        "html/searchindex.js",
        "html/genindex.html",
        "gettext/runs.pot",
    } <= full.keys()
    assert b"POT-Creation-Date: 1970-01-01 00:00+0000" in full["gettext/runs.pot"]
    assert b"max_batch" not in full["html/runs-7b.html"]
    assert different(build_apart(4), full) == []
    path = data.path / "runs/a7.yaml"
    path.write_text(path.read_text().replace("max_batch: 16", "max_batch: 4321").replace("A remark", "Words"))
    changed = build_apart(1)
    assert b">4321<" in changed["html/runs-7b.html"]
    assert b"4321" in changed["latex/projectnamenotset.tex"]
    assert different(build_apart(4), changed) == []


def test_builds_in_parallel_know_which_pages_are_ours(every_use, data):
    ours = every_use.build(parallel=4, fresh=True).read - {"index", "plain"}
    assert len(ours) > 25
    path = data.path / "runs/c3.yaml"
    path.write_text(path.read_text().replace("tag: MIN", "tag: RECOMMENDED"))
    assert every_use.build(parallel=4).read == ours
    (every_use.path / "runs-3b.rst").write_text("runs-3b\n=======\n")
    assert every_use.build(parallel=4).read == {"runs-3b"}
    path.write_text(path.read_text().replace("tag: RECOMMENDED", "tag: MIN"))
    assert every_use.build(parallel=4).read == ours - {"runs-3b"}
