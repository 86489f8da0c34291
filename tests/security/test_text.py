"""Text stays text in printed tables: Sphinx and Markdown show the fields of a run as typed."""

from __future__ import annotations

import pytest
from bs4 import BeautifulSoup

from sphinx_verl_resources.commands import main

#: Texts that are special to some parser.
HOSTILE = (
    "<script>alert(1)</script>", "</td><img src=x onerror=alert(1)>", ":raw-html:`<b>x</b>`", "|subst| `x <javascript:y>`_ *a* **b** ``c``",
    r"\input{secret} \write18{x} $x^2$ % # & ~ ^ _ { }", ".. include:: /etc/passwd", ".. raw:: html", "[x](javascript:alert(1)) ![y](z) ~~a~~",
    "=cmd|' /C calc'!A0", "+1+cmd", "@SUM(A1)", "-1+1", "- a", "1. a", "* a", "====", "a_ b__", r"\\", "_a_ __b__ ***c***",
    "{{ 7*7 }} {% raw %} ${HOME} `id`", "&lt;b&gt; &#60;", "'.sp 99 and \\fB roff", ".TH roff", "https://example.org www.example.org",
)  # fmt: skip
COLUMNS = "id,model,task,script,contributor,settings.data.x,settings.data.y"


@pytest.fixture
def table(data, capsys):
    """Return a function that prints a table of runs, each with a hostile text in every text field."""
    for index, text in enumerate(HOSTILE):
        settings = {"data.x": text, "data.y": [text]}
        script = {"ref": "main", "path": "a.sh", "text": text}
        data.run(
            f"r{index}", label=text, task=text, contributor={"name": text}, script=script, settings=settings
        )

    def printed(form):
        assert main(["table", str(data.path), "--format", form, "--columns", COLUMNS]) == 0
        return capsys.readouterr().out

    return printed


def assert_shown_as_typed(soup):
    rows = [[cell.get_text().strip() for cell in row.select("td")] for row in soup.select("tbody tr")]
    assert {row[0]: row[1:] for row in rows} == {
        f"r{index}": [text] * 6 for index, text in enumerate(HOSTILE)
    }
    assert not soup.select("script, img, b, em, strong, code, s")


def test_for_sphinx(project, table):
    build = project.page(table("list-table")).build(smartquotes=False)
    assert build.warnings == []
    assert_shown_as_typed(build.soup().select_one("div.body table"))


def test_for_github(table, needs):
    needs("myst_parser")
    from markdown_it import MarkdownIt

    text = table("github")
    markdown = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    soup = BeautifulSoup(markdown.render(text), "html.parser")
    assert_shown_as_typed(soup)
    assert not soup.select("a")
    assert "://" not in text.replace("<span>:</span>//", "")
