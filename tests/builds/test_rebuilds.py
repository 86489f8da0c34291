"""Pages are never stale: after any change, and after a killed build, the output is that of a fresh build."""

from __future__ import annotations

import os
import shutil

import pytest
from sphinx.testing.util import SphinxTestApp

from sphinx_verl_resources.dataset import Dataset

PAGES = {
    "all": ".. verl-runs::\n   :details:\n",
    "seven": ".. verl-runs:: 7B\n   :columns: id model estimate.peak settings.data.train_batch_size\n",
    "empty": ".. verl-runs:: 405B",
    "count": "There are :verl:data:`runs` runs; see :verl:run:`a7`, :verl:gpu:`OWN` and :verl:size:`7B`.",
    "gpus": ".. verl-gpus:: OWN",
    "memory": ".. verl-memory:: 8B\n\n.. verl-config:: 8B\n",
    "estimate": ".. verl-memory::\n   :run: a7\n",
    "downloads": ".. verl-downloads::",
}
OURS = set(PAGES)
GPU = "gpus:\n  - {name: OWN, vendor: nvidia, memory_gb: 80, memory_mib: 81559, kind: nominal}\n"
SETTINGS = {"data.train_batch_size": 64, "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The folder of the project, built once, and of its copy after the build."""
    return tmp_path_factory.mktemp("rebuilds")


@pytest.fixture
def pages(kept, own, data):
    """A page for each use of the extension, one without any, and a first build."""
    own.path, data.path = kept / "now/docs", kept / "now/data"
    if (kept / "first").exists():
        shutil.rmtree(kept / "now")
        shutil.copytree(kept / "first", kept / "now")
        return own
    own.path.mkdir(parents=True)
    data.write("gpus.yaml", GPU)
    data.run("a7", gpus={"count": 8, "type": "OWN"}, settings=SETTINGS)
    data.run("b7", script={"ref": "abc", "path": "x.sh"})
    data.run("c3", size="3B", evidence=[{"kind": "commit", "ref": "abc"}])
    own.page("Text.\n\n.. _own-label:\n\nBelow\n-----\n\nMore.\n")
    for name, text in PAGES.items():
        own.page(text, f"{name}.rst")
    assert own.build().read == {"index", *OURS}
    shutil.copytree(kept / "now", kept / "first")
    return own


def written(folder) -> dict[str, bytes]:
    """The files of an output, without those that differ by nature."""
    found = {
        path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()
    }
    skipped = (".buildinfo", "objects.inv", "searchindex.js")
    return {name: path.read_bytes() for name, path in found.items() if not name.endswith(skipped)}


def assert_fresh(build, project) -> None:
    """Fail if the output of a build differs from that of a fresh build of the same files."""
    found = written(build.out)
    shutil.rmtree(build.out)
    fresh = written(project.build(build.app.builder.name, fresh=True).out)
    assert found.keys() == fresh.keys()
    assert [name for name, content in fresh.items() if found[name] != content] == []


def edit(data):
    data.run("a7", gpus={"count": 8, "type": "OWN"}, settings=SETTINGS, max_batch=11)


def rename(data):
    (data.path / "runs/c3.yaml").unlink()
    data.run("d3", size="3B")


def broken(data):
    data.write("runs/b7.yaml", "id: b7\nsize: 7B\n")


CHANGES = {
    "run edited": edit,
    "run added": lambda data: data.run("e14", size="14B"),
    "run renamed": rename,
    "run deleted": lambda data: (data.path / "runs/b7.yaml").unlink(),
    "run broken": broken,
    "GPU edited": lambda data: data.write("gpus.yaml", GPU.replace("81559", "40000")),
    "GPU deleted": lambda data: (data.path / "gpus.yaml").unlink(),
    "analysis": lambda data: data.write("analysis.yaml", "assumptions: {batch_size: 64}\n"),
    "directory gone": lambda data: shutil.move(data.path, data.path.with_name("away")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_data(pages, data, change):
    CHANGES[change](data)
    build = pages.build(parallel=2)
    assert build.read == OURS
    assert_fresh(build, pages)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("script_url", "https://example.org/{ref}/{path}"),
        ("edit_url", "https://example.org/edit/{path}"),
        ("add_run", "own-label"),
        ("data", []),
    ],
)
def test_a_change_of_conf_py(pages, name, value):
    build = pages.build(**{f"verl_resources_{name}": value})
    assert build.read == OURS
    assert_fresh(build, pages)


def test_another_version(pages, monkeypatch):
    monkeypatch.setattr("sphinx_verl_resources.domain.__version__", "99")
    assert pages.build().read == OURS


def test_no_change(pages, data, monkeypatch):
    """Neither time stamps nor the data that nobody asks for cause work; messages are repeated."""
    data.run("f14", size="14B", tag="X")
    (message,) = [line for line in pages.build().warnings if "tag: unknown value" in line]
    for path in data.path.rglob("*.yaml"):
        os.utime(path)
    monkeypatch.setattr(Dataset, "runs", property(lambda self: pytest.fail("loaded")))
    build = pages.build()
    assert (build.read, build.warnings) == (set(), [message])


def test_edited_with_the_old_time_and_size(pages, data):
    path = data.run("b7", max_batch=11)
    pages.build()
    before = path.stat()
    data.run("b7", max_batch=22)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert_fresh(pages.build(), pages)


def test_another_builder_writes_what_the_first_has_read(pages, data):
    pages.build("text")
    data.run("b7", max_batch=99)
    assert pages.build().read == OURS
    build = pages.build("text")
    assert build.read == set()
    assert "99" in build.text("all.txt")
    before = (build.out / "all.txt").stat().st_mtime_ns
    assert (pages.build("text").out / "all.txt").stat().st_mtime_ns == before, "and once is enough"


class KilledError(BaseException):
    """A build that ends early."""


@pytest.mark.parametrize(
    ("event", "moment"),
    [("source-read", 1), ("source-read", 6), ("env-updated", 1)]
    + [("html-page-context", moment) for moment in (1, 4, 8)],
)
def test_a_build_that_was_killed(pages, data, event, moment):
    """The first build after it reads and writes whatever the killed one did not."""
    edit(data)
    app = SphinxTestApp(srcdir=pages.path)
    calls: list[object] = []

    def kill(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) == moment:
            raise KilledError

    app.connect(event, kill, priority=900)
    try:
        with pytest.raises(KilledError):
            app.build()
    finally:
        app.cleanup()
    assert_fresh(pages.build(), pages)


def test_a_run_that_moves_to_another_page(pages):
    """Pages that link to it are written again, though they are not read again."""
    pages.page("Nothing.", "all.rst")
    build = pages.build()
    assert build.read == {"all"}
    assert "seven.html#run-a7" in build.text("count.html")
    assert_fresh(build, pages)


def test_a_label_that_appears_is_linked_from_pages_that_are_not_read(pages):
    assert "later" in "".join(pages.build(verl_resources_add_run="later").warnings)
    index = pages.path / "index.rst"
    index.write_text(index.read_text().replace("own-label", "later"))
    build = pages.build()
    assert (build.read, build.warnings) == ({"index"}, [])
    assert "index.html#later" in build.text("empty.html")
    assert_fresh(build, pages)


def test_a_page_that_is_deleted_is_forgotten(pages, data):
    (pages.path / "seven.rst").unlink()
    pages.build()
    edit(data)
    assert pages.build().read == OURS - {"seven"}


def test_loaded_once_however_many_directives(own, data, monkeypatch):
    calls = []
    real = Dataset._read_run
    monkeypatch.setattr(Dataset, "_read_run", lambda *args: calls.append(1) or real(*args))
    data.run("a")
    own.page(".. verl-runs:: 7B\n\n" * 5 + ":verl:data:`runs`").page(".. verl-runs:: 3B", "b.rst").build()
    assert calls == [1]
