"""Settings as YAML and as overrides load as the same settings."""

from __future__ import annotations

import shlex

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

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


@given(st.text(max_size=20))
def test_a_shell_hands_on_one_argument(text):
    (argument,) = shlex.split(overrides({"key": text.replace("\0", "")})[0])
    assert argument.startswith("key=")


names = st.text("abc", min_size=1, max_size=3)
values = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text("ab: 1", max_size=5)


@given(st.dictionaries(st.tuples(names, names, names), values, max_size=6))
def test_nested_yaml_keeps_every_value(settings):
    tree = yaml.safe_load(nested_yaml({".".join(key): value for key, value in settings.items()})) or {}
    for (one, two, three), value in settings.items():
        assert tree[one][two][three] == value
