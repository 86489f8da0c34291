"""The texts of pages in the language of the documentation: ours, the project's own, and an unknown one."""

from __future__ import annotations

import gettext
import re
from typing import TYPE_CHECKING

import pytest
import yaml

from sphinx_verl_resources.i18n import CATALOG, LOCALE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from bs4 import BeautifulSoup

pytestmark = pytest.mark.slow

#: Every directive, with all its pieces.
DIRECTIVES = """
.. verl-runs:: 7B 671B 3B

.. verl-runs:: 1.5B
   :columns: id, model, estimate.peak, estimate.phase, kind, checkpoint, measured.gib, contributor
   :caption: C

.. verl-runs:: 7B
   :task: none-such

.. verl-runs:: 405B

.. verl-memory:: 3B
   :gib:

.. verl-memory:: Qwen/Qwen3-8B
   :show: specification, chart

.. verl-memory-summary:: 3B, 32B
   :gib:


.. verl-requirements::

.. verl-config:: 3B

.. verl-analysis:: assumptions

.. verl-analysis:: priorities

.. verl-analysis:: trade-offs

.. verl-analysis:: monitoring

.. verl-fewest::
   :memory: 80
   :sizes: 7B, 70B

.. verl-memory::
   :run: qwen2-5-7b-grpo-lora-1xh100
   :show: answer, table, components, host

.. verl-memory::
   :model: Qwen/Qwen2.5-7B-Instruct
   :gpus: 8*H100
   :show: answer, table, components

   algorithm.adv_estimator: gae

.. verl-accuracy::

.. verl-gpus::

.. verl-models::

"""
BLOCKS = "p, td, th, caption, dt, h2, text, li"


#: Texts from the data, and formulas.
RECORDED = ".verl-notes, .verl-path, .verl-formula, .verl-mark, .headerlink, code, pre"


def blocks(soup: BeautifulSoup) -> Iterator[str]:
    """Return the text of each part of the page, except for recorded texts."""
    page = soup.select_one("[role=main]")
    for element in page.select(RECORDED):
        element.extract()
    for element in page.select(BLOCKS):
        if not element.select(BLOCKS):
            yield " ".join(element.get_text().split())


def anywhere(message: str) -> str:
    """Return a pattern for a message with any values."""
    return "(.*?)".join(map(re.escape, re.split(r"\{\w+\}", message))).replace("'", "['’]")


def said(messages: Iterable[str], texts: Iterable[str]) -> dict[str, str]:
    """Return the messages in the texts, with their places: sentences anywhere, words only as a complete text."""
    distinct = list(dict.fromkeys(texts))
    found: dict[str, str] = {}
    for message in messages:
        match = re.compile(anywhere(message) if len(message.split()) > 3 else f"^{anywhere(message)}$").search
        found.update((message, text) for text in distinct if match(text))
    return found


@pytest.fixture(scope="module")
def chinese() -> dict[str, str]:
    """Return the messages that a translation changes, and their translations."""
    found = gettext.translation(CATALOG, LOCALE, ["zh_CN"])._catalog
    items = {key[0] if isinstance(key, tuple) else key: text for key, text in found.items() if key}
    kept = re.compile(r"\{\w+\}|GPUs?|Gi?B")
    return {
        key: text
        for key, text in items.items()
        if key != text and re.search("[A-Za-z]{2}", kept.sub("", key))
    }


def test_a_chinese_page_says_nothing_in_english(project, root, chinese):
    project.page(DIRECTIVES)
    english = said(chinese, blocks(project.build().soup()))
    del english["{count} case"]  # "Every case"
    assert len(english) > 150
    build = project.build(language="zh_CN")
    assert build.warnings == []
    translated = list(blocks(build.soup()))
    recorded = set(values(root / "data"))
    assert said(chinese, (text for text in translated if text not in recorded)) == {}
    whole = "\n".join(translated)
    assert [message for message in english if not re.search(anywhere(chinese[message]), whole)] == []


def values(data: Path) -> Iterator[str]:
    """Return every key and value of the data, each on one line."""

    def inside(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for key, item in value.items():
                if key in {"phase", "phases"}:  # no page shows these, and their names are our words
                    continue
                yield str(key)
                yield from inside(item)
        elif isinstance(value, list):
            for item in value:
                yield from inside(item)
        else:
            yield " ".join(str(value).split())

    for path in sorted(data.rglob("*.yaml")):
        yield from inside(yaml.safe_load(path.read_text("utf-8")))


def own_catalog(project, text: str, language: str = "zh_CN", name: str = CATALOG) -> Path:
    """Write a translation of the project; Sphinx compiles it."""
    path = project.path / "locales" / language / "LC_MESSAGES" / f"{name}.po"
    path.parent.mkdir(parents=True, exist_ok=True)
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\n"\n\n'
    path.write_text(text if "Content-Type" in text else header + text, "utf-8")
    return path


def caption(build) -> str:
    return build.soup().caption.get_text().removesuffix("¶").strip()


def test_each_build_of_a_process_speaks_its_own_language(project):
    project.page(".. verl-memory:: 3B\n   :show: specification\n")
    chinese, english = "3B：模型参数", "3B: the model"
    found = [caption(project.build(language=language)) for language in ("zh_CN", "en", "zh_CN")]
    assert [re.sub(r"^\S+ \d+ ", "", text) for text in found] == [chinese, english, chinese]


def test_the_project_words_single_messages_itself(project, root):
    """The example is that of the documentation."""
    guide = (root / "docs" / "languages.rst").read_text("utf-8")
    (example,) = re.findall(r"code-block:: po\n\n((?:   .*\n|\n)+)", guide)
    own_catalog(project, example.replace("   msg", "msg"))
    build = project.page(".. verl-analysis:: monitoring\n").build(language="zh_CN")
    assert caption(build).endswith("Metrics to keep an eye on")
    assert "关注要点" in build.soup().get_text()


def test_pages_are_read_again_when_the_project_words_something_otherwise(project):
    project.page(".. verl-analysis:: monitoring\n\n.. toctree::\n\n   other\n").page(
        "Nothing.\n", "other.rst"
    )
    own_catalog(project, 'msgid "What to watch"\nmsgstr "看什么"\n')
    project.build(language="zh_CN")
    assert project.build().read == set()
    own_catalog(project, 'msgid "What to watch"\nmsgstr "看哪些"\n')
    build = project.build()
    assert build.read == {"index"}
    assert caption(build).endswith("看哪些")


@pytest.mark.parametrize("parallel", [0, 2])
def test_rows_made_late_are_translated(own, data, parallel):
    data.run("a", kind="stated", contributor=...)
    for number in range(8):
        own.page("Nothing.\n", f"page{number}.rst")
    build = own.page(".. verl-runs:: 7B\n").build(language="zh_CN", parallel=parallel)
    assert build.warnings == []
    head, row = build.rows("size-7b")
    assert head[:3] == ["标签", "模型", "任务"]
    assert row[0] == "MIN（声称）"


def offered(build, name: str = "index.pot") -> set[str]:
    """Return the messages that Sphinx offers to translators."""
    text = build.text(name)
    return set(re.findall(r'^msgid "(.+)"$', text, re.MULTILINE))
