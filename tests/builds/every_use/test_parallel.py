"""Builds in several processes write the same bytes as one process, for any order of sets."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sphinx_verl_resources.sphinx_ext.domain import VerlDomain
from sphinx_verl_resources.sphinx_ext.queries import Runs

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


@pytest.fixture
def domain(every_use):
    """The domain after a build without changes."""
    return VerlDomain.of(every_use.build().app.env)


def test_a_document_is_forgotten_and_no_other(domain):
    before = {kept: dict(domain.data[kept]) for kept in ("uses", "objects")}
    domain.clear_doc("runs-7b")
    for kept, documents in before.items():
        assert documents.pop("runs-7b")
        assert domain.data[kept] == documents
    domain.clear_doc("plain")  # nothing of it is kept


def test_what_another_process_has_read_is_taken_over_and_no_more(domain):
    uses = dict.fromkeys(domain.uses["runs-7b"], "other")
    other = {
        "uses": {"runs-7b": uses, "runs-3b": {}, "new": uses},
        "objects": {"runs-7b": {"run": {}}, "runs-3b": {"run": {}}},
        "files": {"runs-7b": {"a": b"a"}, "runs-3b": {"b": b"b"}},
    }
    kept = domain.uses["runs-3b"]
    domain.merge_domaindata(["runs-7b", "new", "plain"], other)
    assert domain.uses["runs-7b"] == domain.uses["new"] == uses
    assert any(isinstance(use, Runs) for use in uses)
    assert domain.shown["runs-7b"] == {"run": {}}
    assert domain.data["files"]["runs-7b"] == {"a": b"a"}
    assert "runs-3b" not in domain.data["files"]
    assert domain.uses["runs-3b"] is kept, "a document that the other process has not read"
    assert "plain" not in domain.uses
    assert {"new", "plain"}.isdisjoint(domain.shown)


def test_builds_in_parallel_know_who_uses_what(every_use, data):
    assert len(every_use.build(parallel=4, fresh=True).read) > 25
    path = data.path / "runs/c3.yaml"
    path.write_text(path.read_text().replace("tag: MIN", "tag: RECOMMENDED"))
    assert every_use.build(parallel=4).read == {"downloads", "runs", "runs-details", "runs-3b"}
    (every_use.path / "runs-3b.rst").write_text("runs-3b\n=======\n")
    assert every_use.build(parallel=4).read == {"runs-3b"}
    path.write_text(path.read_text().replace("tag: RECOMMENDED", "tag: MIN"))
    assert every_use.build(parallel=4).read == {"downloads", "runs", "runs-details"}
