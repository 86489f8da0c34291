"""While pages are written nothing that was read is searched for garbage, and afterwards everything again."""

from __future__ import annotations

import gc

import pytest

#: An extension that prints how many objects are set aside, when a page is written.
SPY = """\
import gc

def setup(app):
    app.connect("html-page-context", lambda *_: print("aside", gc.get_freeze_count()))
"""


@pytest.fixture
def counts(own, data, monkeypatch, capsys):
    """A function: how many objects are set aside while a page is written, and after the build."""
    data.run("a")
    (own.path / "spy.py").write_text(SPY, "utf-8")
    monkeypatch.syspath_prepend(str(own.path))

    def of_build(page: str) -> tuple[int, int]:
        own.page(page).build(extensions=["spy"])
        return int(capsys.readouterr().out.split()[1]), gc.get_freeze_count()

    return of_build


def test_what_was_read_is_set_aside_while_pages_are_written(counts):
    during, after = counts(".. verl-runs:: 7B")
    assert during > 10_000
    assert after == 0


def test_a_project_that_shows_nothing_of_ours_is_left_alone(counts):
    assert counts("Text.") == (0, 0)
