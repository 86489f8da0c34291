"""Every printed format reproduces any text as plain text."""

from __future__ import annotations

import re

import pytest
from bs4 import BeautifulSoup
from docutils import nodes
from docutils.core import publish_doctree
from hypothesis import example, given
from hypothesis import strategies as st

from sphinx_verl_resources.diagnostics import FORBIDDEN
from sphinx_verl_resources.records import Run
from sphinx_verl_resources.texts import runs_text

COLUMN = "settings.data.x"
RUN = {
    "id": "a", "size": "7B", "tag": "MIN", "model": "Qwen/Qwen2.5-7B", "task": "GRPO",
    "gpus": {"count": 2, "type": "H100"}, "train": "fsdp", "infer": {"engine": "vllm"},
}  # fmt: skip
#: Texts with a meaning in some format, mixed with words and other characters.
PIECES = (
    *"\\`*_{}[]()<>#+-.!|~$@&:;,=%^'\" ", "__", "**", "~~", "$$", "x", "ab", "7", "www.", "http", "https://", "a.b", "@me",
    "#1", "GH-1", ":smile:", "&amp;", "&lt", "<b>", "</b>", "<!--", "-->", "![", "](", "`_", "..", "::", "|x|", "\\|", "\u00e9",
    "=1", "-1+1", "1)", "a.",
)  # fmt: skip
texts = st.lists(
    st.sampled_from(PIECES) | st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8
).map("".join)
#: The loader refuses e-mail addresses.
any_text = texts.map(lambda text: " ".join(FORBIDDEN.sub("", text).split())).filter(
    lambda text: text and not re.search(r"@[\w-]+\.\w", text)
)


def output(text: str, form: str, *more: str) -> str:
    """Return a table with one row, and the text in its first cell."""
    return runs_text([Run(**RUN, settings={"data.x": text})], [COLUMN, *more], form)


def cell_of(soup: BeautifulSoup) -> str:
    (row,) = soup.select("tbody tr")
    (cell,) = row.select("td")
    return " ".join(cell.get_text().split())


@pytest.fixture(scope="module")
def markdown():
    """Return a parser of GitHub's Markdown, without links made from addresses, which are searched in its output."""
    parser = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"linkify": False})
    return lambda text: BeautifulSoup(parser.render(text), "html.parser")


#: Texts that GitHub converts after Markdown: mentions, issue numbers, pictures, formulas, links.
ACTIVE = re.compile(r"@\w|#\d|\bGH-\d|:[\w+-]+:|\$.+\$|://|www\.", re.IGNORECASE)


@given(text=any_text)
@example(text="__x__")
@example(text="$x$ and $`y`$")
@example(
    text="<b>&amp;</b> ~~a~~ @name #1 GH-1 org/repo#2 www.a.b https://c.d e@f `|` \\| :smile: *a* _b_ a_b_c"
)
def test_github(markdown, text):
    soup = markdown(output(text, "github"))
    assert cell_of(soup) == text
    assert {tag.name for tag in soup.select("td *")} <= {"span"}
    assert not [node for node in soup.select_one("td").find_all(string=True) if ACTIVE.search(node)]


@given(text=any_text, more=st.sampled_from([(), (COLUMN,), (COLUMN, "max_batch")]))
@example(text="\\", more=())
def test_restructured_text(text, more):
    document = publish_doctree(
        output(text, "list-table", *more), settings_overrides={"report_level": 5, "smart_quotes": False}
    )
    for message in list(document.findall(nodes.system_message)):
        assert message["level"] == 1  # a message that is not shown
        message.parent.remove(message)
    (row,) = [row for body in document.findall(nodes.tbody) for row in body.findall(nodes.row)]
    assert [" ".join(cell.astext().split()) for cell in row] == [text, text, ""][: len(more) + 1]
    assert {type(node) for node in row.findall(nodes.Inline)} == set()
