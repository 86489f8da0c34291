"""A second build reads only the changed pages.

``every_use/test_changes.py`` asks the domain about every kind of change of the data; the tests here need real builds.
"""

from __future__ import annotations

import os
import shutil

import pytest


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The folder of the project, built once, and of its copy after the build."""
    return tmp_path_factory.mktemp("rebuilds")


@pytest.fixture
def pages(kept, own, data):
    """One page for each kind of query, one without a query, and a first build."""
    own.path, data.path = kept / "now/docs", kept / "now/data"
    if (kept / "first").exists():
        shutil.rmtree(kept / "now")
        shutil.copytree(kept / "first", kept / "now")
        return own
    own.path.mkdir(parents=True)
    data.run("a7")
    data.run("b7", gpus={"count": 8, "type": "H20"}, script={"ref": "abc", "path": "x.sh"})
    data.run("c3", size="3B", evidence=[{"kind": "commit", "ref": "abc"}])
    own.page("Text.")
    own.page(".. verl-runs::", "all.rst")
    own.page(".. verl-runs:: 7B", "seven.rst")
    own.page(".. verl-runs:: 3B", "three.rst")
    own.page(".. verl-runs:: 7B\n   :gpu: H20\n", "h20.rst")
    own.page(".. verl-runs:: 405B", "empty.rst")
    own.page("There are :verl:data:`runs` runs.", "count.rst")
    assert own.build().read == {"index", "all", "seven", "three", "h20", "empty", "count"}
    shutil.copytree(kept / "now", kept / "first")
    return own


RUNS = {"all", "seven", "three", "h20", "empty"}


def test_edited_with_the_old_time_and_size(pages, data):
    path = data.run("a7", max_batch=11)
    pages.build()
    before = path.stat()
    data.run("a7", max_batch=22)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert pages.build().read == {"all", "seven"}


def test_a_broken_run_that_stays_broken_changes_no_page(pages, data):
    data.write("runs/b7.yaml", "id: b7\nsize: 7B\n")
    pages.build()
    data.write("runs/b7.yaml", "id: b7\nsize: 7B\ntag: MIN\n")
    assert pages.build().read == set()
    data.write("runs/b7.yaml", "id: b7\nsize: 3B\n")
    assert pages.build().read == RUNS - {"empty"}
    data.write("runs/b7.yaml", "id: b7\nsize: 14B\n")
    assert pages.build().read == {"all", "three"}
    data.write("runs/b7.yaml", "id: b7\nsize: 32B\n")
    assert pages.build().read == {"all"}


def test_a_value_that_is_not_known_any_more(pages, data):
    data.run("a7", label="My model", settings={"data.x": 1})
    pages.page(".. verl-runs:: 3B\n   :model: My model\n", "model.rst")
    pages.page(".. verl-runs:: 3B\n   :columns: id settings.data.x\n", "setting.rst")
    pages.build()
    data.run("a7", label="My model", settings={"data.x": 1}, max_batch=2)
    assert pages.build().read == {"all", "seven"}
    data.run("a7")
    build = pages.build()
    assert build.read == {"all", "seven", "model", "setting"}
    assert [line.split(": ", 1)[1] for line in build.warnings] == [
        "ERROR: verl-runs: :model: unknown value 'My model'; add it to architectures.yaml [verl.directive]",
        "WARNING: verl-runs: no run records the setting 'data.x'; check its spelling [verl.directive]",
    ]


def test_another_builder_writes_what_the_first_has_read(pages, data):
    pages.build("text")
    data.run("a7", max_batch=99)
    assert pages.build().read == {"all", "seven"}
    build = pages.build("text")
    assert build.read == set()
    assert "99" in build.text("seven.txt")
    before = (build.out / "seven.txt").stat().st_mtime_ns
    assert (pages.build("text").out / "seven.txt").stat().st_mtime_ns == before, "and once is enough"


@pytest.mark.slow
def test_files_that_change_while_a_parallel_build_runs(pages, data):
    from sphinx.testing.util import SphinxTestApp

    app = SphinxTestApp(srcdir=pages.path, freshenv=True, parallel=4)
    app.connect("env-updated", lambda app, env: data.run("d7") and None, priority=1)
    try:
        app.build()
    finally:
        app.cleanup()
    build = pages.build()
    assert build.read == {"all", "seven", "count"}
    assert build.soup("seven.html").find(id="run-d7")


def test_a_page_that_is_deleted_is_forgotten(pages, data):
    (pages.path / "seven.rst").unlink()
    pages.build()
    data.run("a7", max_batch=5)
    assert pages.build().read == {"all"}


def test_problems_of_data_that_no_page_shows_are_reported_too(pages, data):
    data.run("d14", size="14B", tag="X")
    (pages.path / "all.rst").unlink()
    (pages.path / "count.rst").unlink()
    build = pages.build()
    assert build.read == set()
    assert len(build.warnings) == 1
    assert len(pages.build().warnings) == 1, "and again, until it is fixed"
    data.run("d14", size="14B")
    assert pages.build().warnings == []


def test_a_page_that_asks_for_more_brings_more_problems(pages, data):
    data.write("analysis.yaml", "steps: 3\n")
    pages.page(".. verl-accuracy::\n", "accuracy.rst")
    assert pages.build().warnings == []
    pages.page(".. verl-memory:: 8B\n", "memory.rst")
    (warning,) = pages.build().warnings
    assert "analysis.yaml:1:8: ERROR" in warning


def test_loaded_once_however_many_directives(own, data, monkeypatch):
    from sphinx_verl_resources.dataset import Dataset

    calls = []
    real = Dataset._read_run
    monkeypatch.setattr(Dataset, "_read_run", lambda *args: calls.append(1) or real(*args))
    data.run("a")
    own.page(".. verl-runs:: 7B\n\n" * 5 + ":verl:data:`runs`").page(".. verl-runs:: 3B", "b.rst").build()
    assert calls == [1]


def test_a_build_without_changes_does_not_load_the_data(pages, monkeypatch):
    from sphinx_verl_resources.dataset import Dataset

    monkeypatch.setattr(Dataset, "runs", property(lambda self: pytest.fail("loaded")))
    assert pages.build().read == set()
