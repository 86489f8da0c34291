"""Work that is done once or not at all, for any number of pages and processes."""

from __future__ import annotations

import os

import pytest

from sphinx_verl_resources.dataset import Dataset
from sphinx_verl_resources.run_tables import WriteHtmlRows


@pytest.fixture
def pages(own, data):
    """A project with eight pages, each of which shows one of eight runs."""
    for number in range(8):
        data.run(f"run-{number}", task=f"task-{number}")
        own.page(f".. verl-runs:: 7B\n   :task: task-{number}\n", f"page-{number}.rst")
    return own.page(".. toctree::\n   :glob:\n\n   page-*\n")


def test_processes_share_the_data_that_the_first_has_loaded(pages, tmp_path, monkeypatch):
    loaded = tmp_path / "loaded"

    def noting(*args):
        with loaded.open("a") as stream:
            stream.write(f"{os.getpid()} ")
        return original(*args)

    original = Dataset._read_run
    monkeypatch.setattr(Dataset, "_read_run", noting)
    assert pages.build(parallel=4).warnings == []
    assert set(loaded.read_text().split()) == {str(os.getpid())}


def test_pages_that_show_nothing_of_ours_are_not_walked_through(own, data, monkeypatch):
    data.run("a")
    own.page(".. toctree::\n\n   other\n   rows\n").page("Text.", "other.rst").page(
        ".. verl-runs:: 7B", "rows.rst"
    )
    walked = []
    original = WriteHtmlRows.run
    monkeypatch.setattr(WriteHtmlRows, "run", lambda self: walked.append(self.env.docname) or original(self))
    assert own.build().rows("size-7b", "rows.html")
    # The index may be joined with the pages that it lists.
    assert set(walked) == {"index", "rows"}
