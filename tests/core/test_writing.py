"""Settings as YAML and as overrides load as the same settings, and any values come back from YAML."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.strict_yaml import read_yaml
from sphinx_verl_resources.texts import nested_yaml, overrides


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "a.b=True"),
        (None, "a.b=null"),
        (12000, "a.b=12000"),
        ("Qwen/Qwen3-8B", "a.b=Qwen/Qwen3-8B"),
        ("", "'a.b='\"'\"''\"'\"''"),
        ("0.10", "'a.b='\"'\"'0.10'\"'\"''"),
        ("a b", "'a.b='\"'\"'a b'\"'\"''"),
        ((1, "x", None), "'a.b=[1,x,null]'"),
    ],
)
def test_overrides(value, text):
    assert overrides({"a.b": value}) == [text]


def test_a_key_that_is_new_to_the_configuration_gets_a_plus():
    assert overrides({"a": 1, "b": 2}, new={"b"}) == ["a=1", "+b=2"]


@given(st.text(max_size=20).map(lambda text: text.replace("\0", "")))
def test_a_shell_hands_on_one_argument(text):
    (word,) = overrides({"key": text})
    assert "\n" not in word
    output = subprocess.run(["bash", "-c", f"printf '%s\\0' {word}"], capture_output=True, check=True).stdout
    assert re.fullmatch(rb"key=[^\0]*\0", output)


texts = st.text(max_size=5) | st.sampled_from(
    ["null", "1e400", "\x85", "\u202e", "\x1b[0m", "!!int 8", "&a *a <<: "]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def plain(value):
    """Return a value with tuples as lists."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@given(anything)
def test_values_come_back_from_yaml(value):
    document = read_yaml(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"), "a.yaml")
    assert document.problems or plain(document.data) == value


names = st.text("abc", min_size=1, max_size=3)
values = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text("ab: 1", max_size=5)


@given(st.dictionaries(st.tuples(names, names, names), values, max_size=6))
def test_nested_yaml_keeps_every_value(settings):
    tree = yaml.safe_load(nested_yaml({".".join(key): value for key, value in settings.items()})) or {}
    for (one, two, three), value in settings.items():
        assert tree[one][two][three] == value
