"""Pages are never stale: after any change, and after a killed build, the output is that of a fresh build."""

from __future__ import annotations

import os
import shutil
import sys

import pytest
from sphinx.testing.util import SphinxTestApp

OURS = {"analysis", "references", "registries", "runs"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The folder of the project, built once, and of its copy after the build."""
    return tmp_path_factory.mktemp("rebuilds")


@pytest.fixture
def pages(kept, everything, data):
    """The project after a first build; Sphinx would not continue a build at another path."""
    if not (kept / "first").exists():
        shutil.copytree(data.path.parent, kept / "now")
        everything.path = kept / "now/docs"
        (everything.path / "estimates.rst").unlink()
        edit(everything.path / "index.rst", "   estimates\n", "")
        everything.build(language="de", locale_dirs=["locale"])
        shutil.copytree(kept / "now", kept / "first")
    shutil.rmtree(kept / "now")
    shutil.copytree(kept / "first", kept / "now")
    everything.path, data.path = kept / "now/docs", kept / "now/data"
    everything.conf.update(language="de", locale_dirs=["locale"])
    return everything


@pytest.fixture
def assert_fresh(written):
    """A function that fails if the output of a build differs from that of a fresh build of the same files."""

    def check(build, project) -> None:
        result = written(build.out)
        shutil.rmtree(build.out)
        fresh = written(project.build(build.app.builder.name, fresh=True).out)
        assert [name for name, content in fresh.items() if result.get(name) != content] == []

    return check


def edit(path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


#: What changes: the project, and the data in it.
CHANGES = {
    "run edited": lambda _, data: edit(data / "runs/a7.yaml", "max_batch: 16", "max_batch: 17"),
    "run added": lambda _, data: edit(
        shutil.copy(data / "runs/b7.yaml", data / "runs/e14.yaml"), "id: b7\nsize: 7B", "id: e14\nsize: 14B"
    ),
    "run renamed": lambda _, data: edit((data / "runs/c3.yaml").rename(data / "runs/d3.yaml"), "id: c3", "id: d3"),
    "run deleted": lambda _, data: (data / "runs/b7.yaml").unlink(),
    "run broken": lambda _, data: edit(data / "runs/b7.yaml", "tag: MIN", "tag: X"),
    "GPU edited": lambda _, data: edit(data / "gpus.yaml", "40960", "40000"),
    "GPUs deleted": lambda _, data: (data / "gpus.yaml").unlink(),
    "architecture edited": lambda _, data: edit(data / "architectures.yaml", "vocab_size: 151936", "vocab_size: 151000"),
    "analysis edited": lambda _, data: edit(data / "analysis.yaml", "layers: 32", "layers: 33"),
    "directory gone": lambda _, data: shutil.move(data, data.with_name("away")),
    "template": lambda project, _: project.conf.update(verl_resources_script_url="https://x.org/{ref}/{path}"),
}  # fmt: skip


#: What differs little from another change or moment, or takes seconds.
SLOW = {
    "run added", "run renamed", "run deleted", "GPU edited", "GPUs deleted", "architecture edited", "analysis edited",
    "directory gone", "reads", "has read some", "writes", "written",
}  # fmt: skip


def parameters(names):
    """Return the names as parameters of a test, some of them slow."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in names]


@pytest.mark.parametrize("change", parameters(CHANGES))
def test_a_change(pages, data, assert_fresh, change):
    CHANGES[change](pages, data.path)
    build = pages.build()
    assert build.read == OURS
    assert_fresh(build, pages)


def test_changes_in_several_processes(pages, data, assert_fresh):
    CHANGES["run edited"](pages, data.path)
    for number in range(6):  # Sphinx reads and writes fewer pages in one process
        pages.page("Text.", f"more-{number}.rst")
    build = pages.build(parallel=2)
    assert build.read >= OURS
    assert_fresh(build, pages)


def test_changes_of_pages(pages, data, assert_fresh):
    """A label appears, a page goes with the objects on it, and what is no longer there is no longer read."""
    edit(pages.path / "plain.rst", "own-label", "verl-add-a-run")
    build = pages.build()
    assert (build.read, build.warnings) == ({"plain"}, [])
    assert "plain.html#verl-add-a-run" in build.text("runs.html")
    assert_fresh(build, pages)
    (pages.path / "analysis.rst").unlink()
    edit(pages.path / "index.rst", "   analysis\n", "")
    edit(pages.path / "plain.rst", "More.", "Most.")  # Sphinx forgets its link to the page before
    pages.page(".. verl-runs:: 3B 7B", "alone.rst")
    edit(pages.path / "runs.rst", ".. verl-runs::\n   :details:", "")
    pages.build()
    CHANGES["run edited"](pages, data.path)
    build = pages.build()
    assert build.read == {*OURS, "alone"} - {"analysis"}
    assert "alone.html#size-7b" in build.text("references.html")
    assert_fresh(build, pages)


def test_no_change(pages, data):
    """New time stamps cause no work; messages are repeated."""
    CHANGES["run broken"](pages, data.path)
    assert [line for line in pages.build().warnings if "tag: unknown value" in line]
    for path in data.path.rglob("*.yaml"):
        os.utime(path)
    build = pages.build()
    assert build.read == set()
    assert [line for line in build.warnings if "tag: unknown value" in line]


def test_edited_with_the_old_time_and_size(pages, data, assert_fresh):
    path = data.path / "runs/a7.yaml"
    before = path.stat()
    edit(path, "max_batch: 16", "max_batch: 99")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert_fresh(pages.build(), pages)


def test_another_version(pages, monkeypatch):
    for name, module in sys.modules.items():
        if name.startswith("sphinx_verl_resources") and hasattr(module, "__version__"):
            monkeypatch.setattr(module, "__version__", "99")
    assert pages.build().read == OURS


def test_another_builder_writes_what_the_first_has_read(pages, data):
    pages.build("text")
    CHANGES["run edited"](pages, data.path)
    assert pages.build().read == OURS
    build = pages.build("text")
    assert build.read == set()
    assert "| 17 " in build.text("runs.txt")
    before = (build.out / "runs.txt").stat().st_mtime_ns
    assert (pages.build("text").out / "runs.txt").stat().st_mtime_ns == before, "and once is enough"


class KilledError(BaseException):
    """A build that ends early."""


#: An event of a build, and how many of it are one too many.
MOMENTS = {
    "reads": ("source-read", 1), "has read some": ("source-read", 4), "has read": ("env-updated", 1),
    "writes": ("html-page-context", 1), "has written some": ("html-page-context", 4), "written": ("html-page-context", 8),
}  # fmt: skip


@pytest.mark.parametrize("name", parameters(MOMENTS))
def test_a_build_that_was_killed(pages, data, assert_fresh, name):
    """The first build after it reads and writes whatever the killed one did not."""
    CHANGES["run edited"](pages, data.path)
    event, moment = MOMENTS[name]
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
