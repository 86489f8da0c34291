"""The message catalogs: complete, up to date, and used for every text that a reader sees."""

from __future__ import annotations

from string import Formatter

import pytest
from modules import module_at


@pytest.fixture(scope="module")
def tool(root):
    """Return the program that ``make messages`` runs."""
    return module_at(root / "tools" / "messages.py")


@pytest.fixture
def po(tool):
    return tool.LOCALE / "zh_CN" / "LC_MESSAGES" / f"{tool.DOMAIN}.po"


def test_make_messages_changes_nothing(tool, po):
    assert tool.TEMPLATE.read_bytes() == tool.text(tool.template()), "run make messages"
    result = tool.translation(po)
    assert po.with_suffix(".mo").read_bytes() == tool.compiled(result), "run make messages"
    result.update(tool.template(), no_fuzzy_matching=True)
    assert po.read_bytes() == tool.text(result), "run make messages"


def names(text: str) -> set[str]:
    return {name for _, name, *_ in Formatter().parse(text) if name is not None}


def test_everything_is_translated_with_its_placeholders(tool, po):
    messages = [message for message in tool.translation(po) if message.id]
    assert len(messages) > 200
    for message in messages:
        ids, strings = (
            (each if isinstance(each, tuple) else (each,)) for each in (message.id, message.string)
        )
        assert not message.fuzzy, ids
        assert all(text.strip() and names(text) == names(ids[-1]) for text in strings), ids
