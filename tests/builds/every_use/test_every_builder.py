"""Every directive and role in every builder: without warnings, and complete."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from bs4 import BeautifulSoup

#: The files of the pages, by builder.
OUTPUTS = {
    "dirhtml": "**/*.html", "singlehtml": "index.html", "epub": "*.xhtml", "json": "*.fjson", "text": "*.txt",
    "latex": "*.tex", "man": "*.1", "texinfo": "*.texi", "xml": "*.xml", "pseudoxml": "*.pseudoxml",
}  # fmt: skip
#: Characters inside words in outputs: break points, escapes, HTML tags around parts of a cell.
INSIDE_WORDS = re.compile(
    r"\\f[BIP]|\\allowbreak\{\}|\\sphinxhyphen\{\}|\\-|\\(?=[_-])|&#?\w+;|\\u[0-9a-f]{4}"
)


def words_of(text):
    return set(re.findall(r"[A-Za-z]{4,}|\d+\.\d+", INSIDE_WORDS.sub("-", text)))


@pytest.fixture
def shown(every_use):
    """The words in the cells of all our tables, from HTML."""
    cells = [
        cell.get_text()
        for page in every_use.build(nitpicky=True).out.glob("*.html")
        for cell in BeautifulSoup(page.read_text("utf-8"), "html.parser").select("[class*=verl-] :is(td, th)")
    ]
    assert len(cells) > 500
    return words_of("\n".join(cells))


@pytest.mark.slow
def test_every_builder_shows_every_cell(every_use, shown):
    for builder, pattern in OUTPUTS.items():
        build = every_use.build(builder, nitpicky=True)
        assert (builder, build.read, build.warnings) == (builder, set(), [])
        text = "\n".join(path.read_text("utf-8") for path in sorted(build.out.glob(pattern)))
        assert (builder, shown - words_of(text)) == (builder, set())
        for placeholder in ("verl_runs", "verl_marks", "verl_remarks", "pending_xref"):
            assert placeholder not in text, (builder, placeholder)


def ids_of(soup):
    return [element["id"] for element in soup.select("[id^=verl-]")]


def test_pages_joined_in_one_file_keep_their_notes_apart(own, data):
    text = ".. verl-published:: 8B\n\n.. verl-accuracy::\n   :group: other\n"
    own.page(".. toctree::\n\n   one\n   two\n")
    for name in ("one", "two"):
        (own.path / f"{name}.rst").write_text(f"{name}\n===\n\n{text}", "utf-8")
    soup = own.build("singlehtml").soup()
    ids = ids_of(soup)
    assert len(ids) == len(set(ids)) > 20
    for page, suffix in (("one", ""), ("two", "-2")):
        section = soup.find(id=page)
        marks = {mark["href"][1:] for mark in section.select("a.verl-mark")}
        assert marks
        assert marks == {mark for mark in marks if section.find(id=mark)}, "each links to its own page"
        assert all(mark.endswith(suffix) for mark in marks)
    assert ids_of(own.build("html").soup("one.html")) == ids_of(own.build("html").soup("two.html"))


def test_documents_within_a_page_of_myst_keep_their_ids_apart(own, data):
    block = "```{eval-rst}\n.. verl-memory-summary::\n   :caption: Same\n\n.. verl-published:: 8B\n```\n\n"
    own.page(block * 2, "page.md").page("Text.")
    ids = ids_of(own.build(extensions=["myst_parser"]).soup("page.html"))
    assert len(ids) == len(set(ids)) > 6


@pytest.fixture
def asked():
    """A local server that has every file but one, and the requests to it."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            paths.append(self.path)
            self.send_response(404 if "missing" in self.path else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD  # noqa: N815

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", paths
    server.shutdown()
    server.server_close()


def test_linkcheck_follows_the_links_of_rows(own, data, asked):
    address, paths = asked
    data.run("a", script={"ref": "abc", "path": "examples/a.sh"})
    data.run("b", script={"ref": "abc", "path": "examples/missing.sh"})
    data.run("c", evidence=[{"kind": "commit", "ref": "def"}])
    own.page(".. verl-runs:: 7B 405B")
    build = own.build(
        "linkcheck",
        verl_resources_script_url=address + "/file/{ref}/{path}",
        verl_resources_commit_url=address + "/commit/{ref}",
        verl_resources_add_run=address + "/add",
        linkcheck_report_timeouts_as_broken=False,  # Sphinx 7.4 warns without this
    )
    assert set(paths) == {
        "/file/abc/examples/a.sh",
        "/file/abc/examples/missing.sh",
        "/commit/def",
        "/add",
    }
    (broken,) = [line for line in build.text("output.txt").splitlines() if "[broken]" in line]
    assert "missing.sh" in broken
