"""Every builder shows everything without a warning; processes and hash seeds do not change a byte."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from bs4 import BeautifulSoup

#: The files of the pages, by builder.
OUTPUTS = {
    "dirhtml": "**/*.html", "singlehtml": "index.html", "epub": "*.xhtml", "json": "*.fjson", "text": "*.txt",
    "latex": "*.tex", "man": "*.1", "texinfo": "*.texi", "xml": "*.xml", "pseudoxml": "*.pseudoxml",
}  # fmt: skip
#: Characters inside words in outputs: escapes, HTML tags around parts of a cell.
INSIDE_WORDS = re.compile(r"\\f[BIP]|\\sphinxhyphen\{\}|\\-|\\(?=[_-])|&#?\w+;|\\u[0-9a-f]{4}")
BUILDERS = ("html", "latex", "gettext")
#: Builds with these in sequence, which share the pages read; gettext shares with none.
BUILD = f"""
import sys
from sphinx.cmd.build import main
source, out, jobs = sys.argv[1:]
for name in {BUILDERS}:
    doctrees = f"{{out}}/doctrees-{{name == 'gettext'}}"
    failed = main(["-q", "-W", "-n", "-j", jobs, "-b", name, "-d", doctrees, source, f"{{out}}/{{name}}"])
    if failed:
        sys.exit(failed)
"""


def words_of(text):
    return set(re.findall(r"[A-Za-z]{4,}|\d+\.\d+", INSIDE_WORDS.sub("-", text)))


def outputs(build, pattern):
    return "\n".join(path.read_text("utf-8") for path in sorted(build.out.glob(pattern)))


def cells(build):
    """Return the words in the cells of all our tables in HTML."""
    soup = BeautifulSoup(outputs(build, "*.html"), "html.parser")
    return words_of("\n".join(cell.get_text() for cell in soup.select("[class*=verl-] :is(td, th)")))


@pytest.mark.slow
def test_every_builder_shows_every_cell(everything):
    words = cells(everything.build(nitpicky=True))
    assert len(words) > 400
    for builder, pattern in OUTPUTS.items():
        build = everything.build(builder, nitpicky=True)
        assert (builder, build.read, build.warnings) == (builder, set(), [])
        text = outputs(build, pattern)
        assert (builder, words - words_of(text)) == (builder, set())
        for inner in ("verl_", "pending_xref") if builder not in {"xml", "pseudoxml"} else ():
            assert inner not in text.replace("\\_", "_"), (builder, inner)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["furo", "pydata_sphinx_theme", "sphinx_rtd_theme"])
def test_every_theme_keeps_ids_and_scopes(everything, theme):
    build = everything.build(html_theme=theme)
    assert build.warnings == []
    for page in build.out.rglob("*.html"):
        soup = BeautifulSoup(page.read_text("utf-8"), "html.parser")
        # furo wraps each table and gives the wrapper the id of the table, for all tables.
        ids = [element["id"] for element in soup.select("[id]:not(.table-wrapper)")]
        assert len(ids) == len(set(ids)), page
        for table in soup.select("table[class*=verl-]"):
            assert {cell.get("scope") for cell in table.select("thead th")} <= {"col"}


@pytest.mark.slow
def test_processes_and_hash_seeds_change_no_byte(everything, written, tmp_path):
    everything.build()  # writes conf.py

    def output(jobs: int) -> dict[str, bytes]:
        out = tmp_path / f"jobs-{jobs}"
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1", "PYTHONHASHSEED": str(jobs), "TZ": "UTC"}
        command = [sys.executable, "-c", BUILD, str(everything.path), str(out), str(jobs)]
        subprocess.run(command, check=True, env=environment)
        return {f"{name}/{path}": text for name in BUILDERS for path, text in written(out / name).items()}

    one, several = output(1), output(4)
    assert [name for name in one.keys() | several.keys() if one.get(name) != several.get(name)] == []
    assert {"html/objects.inv", "html/searchindex.js", "gettext/runs.pot"} <= one.keys()
