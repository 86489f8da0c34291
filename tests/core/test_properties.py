"""Any bytes are read as YAML, or give problems with places; any values come back."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.strict_yaml import read_yaml

PARTS = ["null", "- ", ": ", "{", "]", ", ", "!!int ", "&a ", "*a", "<<: ", "|", "---\n", "#", "%x", "'", '"', "`", "\\", "\t", "\n",
    "\r", " ", "x", "8", "1e400", "9" * 400, "\u202e", "\u200b", "\x00", "\x1b[0m", "\x85", "\U000e0041", "::error::", "<b>", "TODO",
    "a@b.c", "[verl.x]", "a.yaml:1:1: ERROR: "]  # fmt: skip
#: Words that are special to YAML, terminals and messages, and any others.
texts = st.lists(st.sampled_from(PARTS) | st.text(max_size=5), max_size=5).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def plain(value):
    """Return a value with tuples as lists."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@given(values)
def test_values_come_back_from_yaml(value):
    document = read_yaml(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"), "a.yaml")
    assert document.problems or plain(document.data) == value


@given(st.binary(max_size=200) | texts.map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_are_read(content):
    document = read_yaml(content, "a.yaml")
    for problem in document.problems:
        assert re.match(r"a\.yaml:[1-9]\d*:[1-9]\d*: ERROR: ", str(problem))
        assert str(problem).isprintable()
