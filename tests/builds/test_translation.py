"""The texts of pages in the language of the documentation: ours, and those that a project words itself."""

from __future__ import annotations

import gettext
import re
from typing import TYPE_CHECKING

import pytest
import yaml
from bs4 import BeautifulSoup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

pytestmark = pytest.mark.slow

BLOCKS = "p, td, th, caption, dt, h2, text, li, label, legend, button, option"
#: Texts from the data, and formulas.
RECORDED = ".verl-notes, .verl-path, .verl-formula, .verl-mark, .headerlink, code, pre, script, [hidden]"


def blocks(build) -> Iterator[str]:
    """Yield the text of each part of our pages, except for recorded texts."""
    for path in sorted(build.out.glob("*.html")):
        page = BeautifulSoup(path.read_text("utf-8"), "html.parser").select_one("[role=main]")
        for element in page.select(RECORDED):
            element.extract()
        for element in page.select(BLOCKS):
            if not element.select(BLOCKS):
                yield " ".join(element.get_text().split())


def anywhere(message: str) -> str:
    """Return a pattern for a message with any values."""
    return "(.*?)".join(map(re.escape, re.split(r"\{\w+\}", message))).replace("'", "['’]")


def sentences(messages: Iterable[str], texts: Iterable[str]) -> set[str]:
    """Return the messages in the texts: sentences anywhere, words only as a complete text."""
    distinct = set(texts)
    result = set()
    for message in messages:
        match = re.compile(anywhere(message) if len(message.split()) > 3 else f"^{anywhere(message)}$").search
        result |= {message} if any(map(match, distinct)) else set()
    return result


def values(value: object) -> Iterator[str]:
    """Yield every key and value of the data, each on one line."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from () if key in {"phase", "phases"} else values(item)  # no page shows these words
    elif isinstance(value, list):
        for item in value:
            yield from values(item)
    else:
        yield " ".join(str(value).split())


def test_a_chinese_page_says_nothing_in_english(everything, root):
    locale = root / "sphinx_verl_resources/locale"
    catalog = gettext.translation("sphinx_verl_resources", locale, ["zh_CN"])._catalog
    items = {key[0] if isinstance(key, tuple) else key: text for key, text in catalog.items() if key}
    untranslated = re.compile(r"\{\w+\}|GPUs?|Gi?B")
    keys = [
        key
        for key, text in items.items()
        if key != text and re.search("[A-Za-z]{2}", untranslated.sub("", key))
    ]
    chinese = {key: items[key] for key in keys}
    # The first two are the ends of other texts: "Every case", "1 more run"; the third is a label of the data, too.
    english = sentences(chinese, blocks(everything.build())) - {
        "{count} case",
        "{total} run",
        "Fragmentation",
    }
    assert len(english) > 150
    build = everything.build(language="zh_CN")
    assert build.warnings == []
    files = [*root.glob("data/**/*.yaml"), *everything.path.parent.glob("data/**/*.yaml")]
    recorded = {text for path in files for text in values(yaml.safe_load(path.read_text("utf-8")))}
    translated = [*blocks(build)]
    own = {text for text in translated if not {text, text.partition(": ")[2]} & recorded}
    assert sentences(chinese, own) == set()
    whole = "\n".join(translated)
    assert [message for message in english if not re.search(anywhere(chinese[message]), whole)] == []
