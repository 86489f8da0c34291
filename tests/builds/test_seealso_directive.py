"""``.. verl-seealso::``: the pages and labels of a list that exist."""

from __future__ import annotations

import pytest

LIST = """\
.. verl-seealso::

   there
   The words <Words>
   plain
   genindex
   not-there

.. verl-seealso::

   not-there
"""
THERE = "Text.\n\n.. _words:\n\nWords of *mine*\n---------------\n\n.. _plain:\n\nText.\n"


def links(build, name: str = "index.html"):
    return [(link.get_text(), link["href"]) for link in build.soup(name).select(".seealso a")]


def test_what_the_documentation_lacks_is_left_out_without_a_warning(project):
    build = project.page(LIST).page(THERE, "there.rst").build(nitpicky=True)
    assert build.warnings == []
    assert links(build) == [
        ("there", "there.html"),
        ("The words", "there.html#words"),
        ("there", "there.html#plain"),
        ("Index", "genindex.html"),
    ]
    assert len(build.soup().select(".seealso")) == 1
    assert "not-there" not in build.text("index.html")


def test_the_list_follows_the_pages(project):
    project.page(".. verl-seealso::\n\n   there\n   words").page("Text.", "there.rst")
    assert links(project.build()) == [("there", "there.html")]
    project.page(THERE, "there.rst")
    build = project.build()
    assert build.read == {"there"}
    assert links(build) == [("there", "there.html"), ("Words of mine", "there.html#words")]
    (project.path / "there.rst").unlink()
    assert project.build().soup().select(".seealso") == []


def test_a_page_is_named_from_the_page_that_lists_it(project):
    (project.path / "in").mkdir()
    project.page(".. toctree::\n\n   in/a\n   in/b\n   b\n").page("Text.", "in/b.rst").page("Text.", "b.rst")
    project.page(".. verl-seealso::\n\n   b\n   Top </b>\n", "in/a.rst")
    assert links(project.build(), "in/a.html") == [("b", "b.html"), ("Top", "../b.html")]
    joined = links(project.build("singlehtml"))
    assert joined == [("b", "#document-in/b"), ("Top", "#document-b")]


@pytest.mark.parametrize("builder", ["text", "latex", "man", "gettext", "epub"])
def test_every_format_has_it(project, builder):
    project.page(LIST).page(THERE, "there.rst")
    assert project.build(builder, version="1", copyright="me").warnings == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (".. verl-seealso::\n", "the list is empty; write pages and labels below it, one per line"),
        (".. verl-seealso:: there\n", "the directive takes no argument; list pages and labels below it"),
        (
            ".. verl-seealso::\n\n   X <https://x.org/>\n",
            "https://x.org/ is an address; write pages and labels",
        ),
    ],
)
def test_what_is_no_list_of_pages_is_an_error(project, problems, text, said):
    assert problems(project.page(text).build())[4].startswith(f"ERROR: verl-seealso: {said}")
