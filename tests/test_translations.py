"""The message catalogs: complete, up to date, and used for every text that a reader sees."""

from __future__ import annotations

from string import Formatter

import pytest
from modules import module_at


@pytest.fixture(scope="module")
def tool(root):
    """Return the program that ``make messages`` runs."""
    return module_at(root / "tools" / "messages.py")


@pytest.fixture(params=["zh_CN"])
def po(request, tool):
    return tool.LOCALE / request.param / "LC_MESSAGES" / f"{tool.DOMAIN}.po"


def test_the_template_is_that_of_the_sources(tool):
    assert tool.TEMPLATE.read_bytes() == tool.text(tool.template()), "run make messages"


def test_a_translation_has_what_the_template_has(tool, po):
    found = tool.translation(po)
    found.update(tool.template())
    assert po.read_bytes() == tool.text(found), "run make messages"


def names(text: str) -> set[str]:
    return {name for _, name, *_ in Formatter().parse(text) if name is not None}


def test_everything_is_translated(tool, po):
    messages = [message for message in tool.translation(po) if message.id]
    assert len(messages) > 300
    for message in messages:
        assert not message.fuzzy, message.id
        ids = message.id if isinstance(message.id, tuple) else (message.id,)
        strings = message.string if isinstance(message.id, tuple) else (message.string,)
        for string in strings:
            assert string.strip(), message.id
            assert names(string) == names(ids[-1]), message.id


def test_what_is_compiled_is_what_is_written(tool, po):
    assert po.with_suffix(".mo").read_bytes() == tool.compiled(tool.translation(po)), "run make messages"
