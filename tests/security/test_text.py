"""Text stays text: every page and every printed table shows the fields of a run as typed."""

from __future__ import annotations

import re

import pytest

from sphinx_verl_resources.commands import main
from sphinx_verl_resources.diagnostics import Diagnostic, Location

#: Texts that are special to some parser.
HOSTILE = (
    "<script>alert(1)</script>",
    "</td><img src=x onerror=alert(1)>",
    ":raw-html:`<b>x</b>`",
    "|subst| `x <javascript:y>`_ *a* **b** ``c``",
    r"\input{secret} \write18{x} $x^2$ % # & ~ ^ _ { }",
    ".. include:: /etc/passwd",
    ".. raw:: html",
    "[x](javascript:alert(1)) ![y](z) ~~a~~",
    "=cmd|' /C calc'!A0",
    "+1+cmd",
    "@SUM(A1)",
    "-1+1",
    "{{ 7*7 }} {% raw %} ${HOME} `id`",
    "&lt;b&gt; &#60;",
    "'.sp 99 and \\fB roff",
    ".TH roff",
)
BUILDERS = ("html", "latex", "text", "epub", "man")


@pytest.fixture
def hostile(data):
    """A run for each hostile text, which is in every text field."""
    for index, text in enumerate(HOSTILE):
        data.run(
            f"r{index}",
            label=text,
            task=text,
            contributor={"name": text},
            script={"ref": "main", "path": "a.sh", "text": text},
            settings={"data.x": text, "data.y": [text]},
            notes=[{"code": "n", "text": text}],
        )
    return data


COLUMNS = "model task script contributor settings.data.x settings.data.y"
PAGE = f".. verl-runs:: 7B\n   :columns: id {COLUMNS}\n   :caption: All\n   :sort: id\n"


def cells(soup) -> dict[str, list[str]]:
    """The text of each cell by run, without the marks of notes."""
    for mark in soup.select("a.verl-mark"):
        mark.decompose()
    rows = [[cell.get_text().strip() for cell in row.select("td")] for row in soup.select("tbody tr")]
    return {row[0]: row[1:] for row in rows if row}


@pytest.mark.parametrize("builder", ["html", "epub"])
def test_pages(own, hostile, builder):
    own.page(PAGE)
    build = own.build(builder, version="1", copyright="c", html_theme="basic", epub_show_urls="no")
    assert [line for line in build.warnings if "verl" in line] == []
    soup = build.soup("index.html" if builder == "html" else "index.xhtml")
    body = soup.select_one("div.body") or soup.body
    assert cells(body) == {f"r{index}": [text] * 6 for index, text in enumerate(HOSTILE)}
    notes = " ".join(item.get_text() for item in body.select(".verl-notes li"))
    assert all(text in notes for text in HOSTILE)
    assert not body.select("script:not([type='application/json']), img, b, math")
    assert not any("<" in data.get_text() for data in body.select("script"))
    for link in body.select("a[href]"):
        assert re.match(r"https?://|#|[\w.-]+\.x?html(#|$)", link["href"]), link
    assert not [name for tag in body.find_all(True) for name in tag.attrs if name.startswith("on")]


def test_latex(own, hostile):
    text = own.page(PAGE).build("latex").text("projectnamenotset.tex")
    body = text[text.index(r"\begin{document}") :]
    assert r"\input" not in body
    assert r"\write18" not in body
    assert body.count(r"\textbackslash{}input") >= 6
    # Each special character of TeX follows a backslash or begins a command of Sphinx.
    assert r"\$x\textasciicircum{}2\$ \% \# \&" in body


def test_text(own, hostile):
    own.page(PAGE.replace("   :caption:", "   :name: x\n   :caption:"))
    text = " ".join(own.build("text").text("index.txt").split())
    for entry in HOSTILE[:3]:
        assert entry in text


def test_man(own, hostile):
    build = own.page(PAGE).build("man")
    (page,) = build.out.glob("*.1")
    lines = page.read_text("utf-8").splitlines()
    assert any("include::" in line for line in lines)
    titles = [line for line in lines if line.startswith(".TH")]
    assert len(titles) == 1, "a run wrote a heading"
    assert not [line for line in lines if line.startswith((".. ", "'.sp", ".include", ".so"))]


def table(form: str, monkeypatch, capsys, data) -> str:
    """The output of the command, in the order of the runs."""
    monkeypatch.chdir(data.path.parent)
    assert main(["table", "--format", form, "--columns", f"id,{COLUMNS.replace(' ', ',')}"]) == 0
    return capsys.readouterr().out


def test_printed_for_sphinx(project, hostile, monkeypatch, capsys):
    build = project.page(table("list-table", monkeypatch, capsys, hostile)).build(smartquotes=False)
    assert build.warnings == []
    found = cells(build.soup().select_one("div.body"))
    assert found == {f"r{index}": [text] * 6 for index, text in enumerate(HOSTILE)}


def test_printed_for_github(hostile, monkeypatch, capsys, needs):
    from bs4 import BeautifulSoup

    needs("myst_parser")
    from markdown_it import MarkdownIt

    text = table("github", monkeypatch, capsys, hostile)
    text = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text)
    soup = BeautifulSoup(text, "html.parser")
    assert cells(soup) == {f"r{index}": [text] * 6 for index, text in enumerate(HOSTILE)}
    assert not soup.select("script, img, b, a, em, strong, code, s")


def test_no_message_commands_a_terminal(data, monkeypatch, capsys):
    escape = "\x1b[31m\x07\u202e\u2066"
    written = escape.encode("unicode_escape").decode()
    data.write("runs/a.yaml", f'id: "a{written}"\n"key{written}": 1\ntag: "{written}"\nsize: "{written}"\n')
    data.write(f"runs/b{escape}.yaml", "id: b")
    data.write("gpus.yaml", f'gpus:\n- {{name: "H100{written}", vendor: "{written}"}}\n')
    data.write("cases/a.yaml", f'- id: "{written}"\n')
    monkeypatch.chdir(data.path.parent)
    assert main(["check", "data"]) == 1
    printed = capsys.readouterr()
    assert printed.err.count("\n") > 5
    assert all(char.isprintable() or char == "\n" for char in printed.err + printed.out)


def test_any_diagnostic_can_be_printed():
    found = Diagnostic(Location("a"), "wrong_value", "x\x1b[0m\ny\x85z", "\u202eh")
    assert found.text == r"x\x1b[0m y z; \u202eh"
