"""Overrides have the values that Hydra gives them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.scripts.overrides import parse_value, read_overrides

TABLE = yaml.safe_load((Path(__file__).parent / "overrides.yaml").read_text("utf-8"))
HERE = Location("here")


def lists(value):
    if isinstance(value, dict):
        return {key: lists(item) for key, item in value.items()}
    return [*map(lists, value)] if isinstance(value, tuple) else value


@pytest.mark.parametrize(("text", "value"), TABLE["values"].items())
def test_values(text, value):
    read = lists(parse_value(text))
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(("text", "message"), TABLE["refused"].items())
def test_values_that_are_refused(text, message):
    read = read_overrides([f"a.b={text}", "c.d=1"], HERE)
    assert read.values == {"c.d": 1}
    assert message in read.problems[0].message


def test_words():
    words = ["data.size=64", "+a.b=1", "++c.d=x=y", "e.f=", "~g.h", "i={k: 1, l: {m: [1, 2]}}", "n.o={}"]
    read = read_overrides([*words, "hydra.run.dir=x", "model_engine=megatron", "p.q_1-r=2", "e.f=3"], HERE)
    assert read.values == {
        "data.size": 64, "a.b": 1, "c.d": "x=y", "e.f": 3, "g.h": None, "i.k": 1, "i.l.m": (1, 2),
        "model_engine": "megatron", "p.q_1-r": 2,
    }  # fmt: skip
    assert read.places == dict.fromkeys(read.values, HERE)
    assert [problem.code for problem in read.problems] == ["duplicate_key"]


@pytest.mark.parametrize("word", ["a.b", "=1", "a..b=1", "1a=2", "", "a b=1"])
def test_words_that_set_nothing(word):
    read = read_overrides([word], HERE)
    assert (read.values, [problem.code for problem in read.problems]) == ({}, ["wrong_value"])


def test_references_to_other_keys():
    words = [
        "a.b=${c.d}",
        "c.d=${e.f}",
        "e.f=1",
        "g.h=${no.such}",
        "i.j=${oc.env:HOME}/x",
        "k=${l}",
        "l=${k}",
    ]
    read = read_overrides(words, HERE)
    assert read.values == {"a.b": 1, "c.d": 1, "e.f": 1}
    assert read.unresolved == {"g.h": "${no.such}", "i.j": "${oc.env:HOME}/x", "k": "${l}", "l": "${k}"}
