"""Strict reading of YAML; every problem has a place."""

from __future__ import annotations

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources import strict_yaml as yaml_data
from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.strict_yaml import read_yaml


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("1", 1), ("-7", -7), ("+3", 3), ("0", 0),
        ("0.10", 0.1), ("2.5", 2.5), ("-0.5", -0.5),
        ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
        ("on", "on"), ("off", "off"), ("yes", "yes"), ("no", "no"), ("y", "y"),
        ("1_000", "1_000"), ("12:30:00", "12:30:00"), ("0123456", "0123456"), ("0x1F", "0x1F"),
        ("80e9", "80e9"), ("1e5", "1e5"), ("1e-6", 1e-6), ("2E+3", 2000.0), ("1.5e3", 1500.0), ("1e-999", "1e-999"), ("8.", "8."), (".5", ".5"), (".inf", ".inf"), (".nan", ".nan"),
        ("2025-06-12", "2025-06-12"), ("0.8.3", "0.8.3"), ("1*H100", "1*H100"),
        ("9" * 5000, "9" * 5000), ('"0.10"', "0.10"), ("'null'", "null"),
    ],
)  # fmt: skip
def test_scalars(source, value):
    document = read_yaml(f"key: {source}\n".encode())
    assert document.problems == []
    assert document.data == {"key": value}
    assert type(document.data["key"]) is type(value)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a: [1, 2\nb: 3\n", (1, 4, "yaml_syntax")),
        ("a: 1\nb: 2\na: 3\n", (3, 1, "duplicate_key")),
        ("a: {b: 1, b: 2}\n", (1, 11, "duplicate_key")),
        ("a: &x 1\n", (1, 4, "yaml_feature")),
        ("a: *x\n", (1, 4, "yaml_feature")),
        ("a: {<<: {b: 1}}\n", (1, 5, "yaml_feature")),
        ("a: !!python/object/apply:os.system [ls]\n", (1, 4, "yaml_feature")),
        ("a: !!str 1\n", (1, 4, "yaml_feature")),
        ("a: 1\n---\nb: 2\n", (2, 1, "yaml_feature")),
        ("[1, 2]: 3\n", (1, 1, "yaml_feature")),
        ("a: x\u202ey\n", (1, 5, "bad_character")),
        ("# \u2066\na: 1\n", (1, 3, "bad_character")),
        ("a: x\x07y\n", (1, 5, "bad_character")),
        ('a: "x\\u202ey"\n', (1, 4, "bad_character")),
        ('a: "\\0"\n', (1, 4, "bad_character")),
    ],
)
def test_problems_have_a_place(source, expected):
    problems = read_yaml(source.encode()).problems
    assert [(problem.place.line, problem.place.column, problem.code) for problem in problems] == [expected]


@pytest.mark.parametrize("loader", [yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)])
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a: 1\n\tb: 2\n", (2, 1, "a tab cannot indent YAML")),
        ("a:\n  b: 1\n\tc: 2\n", (3, 1, "a tab cannot indent YAML")),
        ('a: 1\nb: "open\n', (2, 4, "the quote that opens here is never closed")),
        ("a: {b: 1\nc: 2\n", (1, 4, "the bracket that opens here is not closed")),
        ("a: 1\nb\nc: 2\n", (2, 1, "a key without a colon")),
        ("a: b: c\n", (1, 5, "a colon in a text without quotes")),
        ("a: @x\n", (1, 4, "text cannot begin with '@'")),
        ("a: 'it's'\n", (1, 8, "this does not belong to the keys above it")),
        ("a:\n  b: 1\n c: 2\n", (3, 2, "this does not belong to the keys above it")),
        ("a: 1\nb:\n  c: 1\n    d: 2\n", (4, 6, "this does not belong to the keys above it")),
    ],
)
def test_syntax_errors_in_words(source, expected, loader, monkeypatch):
    monkeypatch.setattr(yaml_data, "LOADER", loader)
    (problem,) = read_yaml(source.encode()).problems
    assert (problem.place.line, problem.place.column, problem.message) == expected
    assert problem.remedy


@pytest.mark.parametrize("source", ["a: 1\nb:2\nc: 3\n", "a:\n  b:2\n  c: 3\n"])
def test_a_colon_without_a_space_is_reported_at_its_line(source):
    (problem,) = read_yaml(source.encode()).problems
    assert (problem.place.line, problem.message) == (2, "a colon without a space after it")


@pytest.mark.parametrize("last", ["b: [", "b: &x 1", 'b: "\\U00110000"'])
def test_problems_before_the_one_that_ends_the_reading_are_kept(last):
    document = read_yaml(f"a: 1\na: 2\n{last}\n".encode())
    assert document.problems[0].code == "duplicate_key"
    assert len(document.problems) == 2


def test_a_bomb_of_aliases_is_refused_at_the_first():
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{name}: &{name} [{', '.join(['*' + chr(ord(name) - 1)] * 9)}]" for name in "bcdefghi"]
    document = read_yaml("\n".join(lines).encode())
    assert document.data is None
    assert [problem.code for problem in document.problems] == ["yaml_feature"]


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{a: ", "}"), ("- ", "")])
@pytest.mark.parametrize("levels", [1_000, 1_500, 100_000])
def test_deep_nesting_does_not_overflow(opening, closing, levels):
    """The limit is that of libyaml or of Python, and the message does not call for brackets that are there."""
    problems = read_yaml((opening * levels + "1" + closing * levels).encode()).problems
    assert [problem.message for problem in problems] == ["too many nested lists or mappings"]


def test_not_utf8():
    problems = read_yaml(b"a: 1\nb: caf\xe9\n").problems
    assert [(problem.place.line, problem.place.column, problem.code) for problem in problems] == [
        (2, 7, "encoding")
    ]
    (problem,) = read_yaml(b"\xef\xbb\xbfa: 1\nb: \xc3\xa4\xff\n").problems
    assert (problem.place.line, problem.place.column, problem.message) == (2, 5, "byte 0xff is not UTF-8")
    assert [problem.code for problem in read_yaml("a: 1".encode("utf-16")).problems] == ["encoding"]


def test_byte_order_mark_and_windows_line_ends():
    document = read_yaml(b"\xef\xbb\xbfa: 1\r\nb:\r\n  c: 2\r\n")
    assert document.data == {"a": 1, "b": {"c": 2}}
    assert document.place(("b", "c")) == Location("", 3, 6)
    assert document.key_place(("a",)) == Location("", 1, 1)


@pytest.mark.parametrize("content", [b"a: \x00", b"a: [", b"\xff", b"", b"a: &x 1", b"a: \xe2\x80\xae"])
def test_a_place_in_what_is_no_yaml_is_its_beginning(content):
    assert str(read_yaml(content, "a.yaml").place(("a", 0))) == "a.yaml:1:1"


def test_places_skip_what_is_not_there():
    document = read_yaml(b"a:\n  - b: 1\n  - c: 2\n")
    assert document.place(("a", 1, "c")) == Location("", 3, 8)
    assert document.key_place(("a", 1, "c")) == Location("", 3, 5)
    assert document.place(("a", 1, "branch", "missing")) == Location("", 3, 5)
    assert document.place(()) == Location("", 1, 1)
    assert document.source(("a", 1, "c")) == "2"


@pytest.mark.parametrize("loader", [yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)])
def test_both_parsers_agree(loader, monkeypatch):
    monkeypatch.setattr(yaml_data, "LOADER", loader)
    document = read_yaml(b"a: 1\nb: [x, {c: 0.10}]\nd: >-\n  some\n  text\n")
    assert document.data == {"a": 1, "b": ("x", {"c": 0.1}), "d": "some text"}
    assert document.place(("b", 1, "c")) == Location("", 2, 12)


@pytest.mark.parametrize("loader", [yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)])
@pytest.mark.parametrize("escape", ["\\U00110000", "\\UFFFFFFFF", "\\ud800", "\\x0", "\\d"])
def test_escapes_that_are_no_character(escape, loader, monkeypatch):
    monkeypatch.setattr(yaml_data, "LOADER", loader)
    (problem,) = read_yaml(f'b: 1\na: "{escape}"\n'.encode()).problems
    assert problem.place.line in {1, 2}


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_input_raises(content):
    document = read_yaml(content)
    if document.data is not None and not document.problems:
        assert no_floats_but_finite(document.data)


def no_floats_but_finite(value):
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, tuple):
        return all(map(no_floats_but_finite, value))
    if isinstance(value, dict):
        return all(map(no_floats_but_finite, value.values()))
    return True
