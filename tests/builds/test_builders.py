"""Builders beyond HTML, MyST, and verl's own settings."""

from __future__ import annotations

import re

import pytest


@pytest.fixture
def rich(own, data):
    """A page with all features of a table."""
    data.run(
        "a",
        script={"ref": "abc", "path": "examples/x_y_z.sh"},
        notes=[{"code": "n", "about": "task", "text": "A remark."}],
        settings={"data.x": 1},
    )
    data.run("b", kind="stated", gpus={"count": 128, "type": None})
    data.write("runs/c.yaml", "id: c\nsize: 7B\n")
    own.page(".. verl-runs::\n\n.. verl-runs:: 7B\n   :caption: All\n   :columns: id settings notes\n")
    own.conf.update(version="1", copyright="x", suppress_warnings=["verl.missing_key"])
    return own


@pytest.mark.parametrize(
    ("builder", "name"),
    [
        ("html", "index.html"), ("singlehtml", "index.html"), ("epub", "index.xhtml"), ("text", "index.txt"),
        ("latex", "projectnamenotset.tex"), ("man", "projectnamenotset.1"),
    ],
)  # fmt: skip
def test_every_builder_shows_the_table(rich, builder, name):
    build = rich.build(builder, fresh=True)
    assert build.warnings == []
    output = build.text(name).replace("\\sphinxhyphen{}", "-").replace("\\-", "-").replace("\\_", "_")
    for word in ("Qwen2.5", "128*GPU", "A remark", "x_y_z", "claimed", "c.yaml", "405B yet"):
        assert word in output, word
    assert "verl_runs" not in output


def test_gettext_sees_titles_and_no_data(rich):
    build = rich.build("gettext", fresh=True)
    assert build.warnings == []
    messages = re.findall(r'^msgid "(.+)"$', build.text("index.pot"), re.MULTILINE)
    assert "All" in messages
    assert not [message for message in messages if re.search(r"Qwen|2\*H100|7B", message)]


def test_latex_can_reach_rows_and_break_tables(rich):
    tex = rich.build("latex", fresh=True).text("projectnamenotset.tex")
    assert r"\label{\detokenize{index:run-a}}" in tex
    assert r"\label{\detokenize{index:note-a-1}}" in tex
    assert r"\begin{longtable}" in tex
    for target in re.findall(r"\\hyperref\[\\detokenize\{([^}]*)\}\]", tex):
        assert rf"\label{{\detokenize{{{target}}}}}" in tex, target


def test_singlehtml_gives_rows_and_notes_an_id_once(own, data):
    data.run("a", notes=[{"code": "n", "text": "A remark."}])
    own.page(".. toctree::\n\n   one\n   two\n").page(".. verl-runs:: 7B", "one.rst").page(
        ".. verl-runs:: 7B", "two.rst"
    )
    soup = own.build("singlehtml").soup()
    ids = [element["id"] for element in soup.select("[id]") if element["id"].startswith(("run-", "note-"))]
    assert sorted(ids) == ["note-a-1", "note-a-1-table-2", "run-a"]
    marks = [mark["href"].rpartition("#")[2] for mark in soup.select("a.verl-mark")]
    assert marks == ["note-a-1", "note-a-1-table-2"]


def test_myst_gives_what_restructuredtext_gives(own, data):
    data.run("a", notes=[{"code": "n", "text": "A remark."}])
    own.conf["extensions"] = ["myst_parser"]
    own.page("Text.").page(
        ".. verl-runs:: 7B 405B\n   :columns: id gpus\n\nThere are :verl:data:`runs`.", "page.rst"
    )
    rst = own.build("pseudoxml").text("page.pseudoxml")
    (own.path / "page.rst").unlink()
    own.page("```{verl-runs} 7B 405B\n:columns: id gpus\n```\n\nThere are {verl:data}`runs`.", "page.md")
    myst = own.build("pseudoxml").text("page.pseudoxml")
    normal = [re.sub(r'page\.(rst|md)"', 'page"', text) for text in (rst, myst)]
    sections = [text[text.index('<section ids="size-7b"') :] for text in normal]
    assert sections[0] == sections[1]


VERL = {
    # docs/conf.py of verl at 1dda039b9
    "extensions": [
        "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.autosectionlabel",
        "sphinx.ext.napoleon", "sphinx.ext.viewcode",
    ],
    "myst_enable_extensions": ["dollarmath", "amsmath"],
    "source_suffix": {".rst": "restructuredtext", ".md": "markdown"},
    "html_theme": "sphinx_rtd_theme",
    "suppress_warnings": ["ref.duplicate", "ref.myst"],
    "language": "en",
}  # fmt: skip


@pytest.mark.slow
def test_verl_settings(project, hardware_page):
    (project.path / "index.rst").write_text(hardware_page, "utf-8")
    project.page("Text.\n", "contributing-a-run.rst")
    project.page("Text.\n", "out-of-memory.rst")
    project.page(".. _verl-estimator:\n\nBelow\n-----\n\nText.\n", "estimator.rst")
    build = project.build(**VERL)
    assert build.warnings == []
    assert len(build.soup().select("table.verl-runs")) == 10


def test_verl_settings_with_the_memory_page(project, root):
    source = (root / "docs" / "memory.rst").read_text("utf-8")
    (project.path / "index.rst").write_text(re.sub(":doc:`[^`]*`", "x", source), "utf-8")
    build = project.build(**VERL)
    assert build.warnings == []
    assert len(build.soup().select("svg")) == 1
    assert len(build.soup().select("table.verl-memory")) == 6


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["alabaster", "furo", "sphinx_rtd_theme"])
def test_ids_are_unique_in_every_theme(rich, theme):
    # furo wraps each table and gives the wrapper the id of the table, for all tables.
    elements = rich.build(html_theme=theme).soup().select("[id]:not(.table-wrapper)")
    ids = [element["id"] for element in elements]
    assert len(ids) == len(set(ids))
