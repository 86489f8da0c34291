"""Queries of pages are values, and their fingerprints depend on what is shown."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, is_dataclass
from enum import Enum
from pathlib import Path

import pytest

from sphinx_verl_resources.analysis import queries as analysis_queries
from sphinx_verl_resources.answer import queries as answer_queries
from sphinx_verl_resources.estimator import queries as estimator_queries
from sphinx_verl_resources.query import Query, digest, plain
from sphinx_verl_resources.sphinx_ext import queries


def kinds(kind):
    return {kind}.union(*map(kinds, kind.__subclasses__()))


MODULES = {analysis_queries, answer_queries, estimator_queries, queries}
QUERIES = sorted((kind for kind in kinds(Query) if is_dataclass(kind)), key=lambda kind: kind.__name__)


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    names: frozenset[str]


@dataclass(frozen=True)
class Outer:
    number: float
    inner: tuple[Inner, ...]
    colour: Colour


def test_plain_values_of_dataclasses():
    made = Outer(1.5, (Inner(frozenset("ba")),), Colour.RED)
    assert plain(made) == [1.5, [[["a", "b"]]], "RED"]
    assert plain({"a": made.inner, 1: None}) == {"a": [[["a", "b"]]], "1": None}


@pytest.mark.parametrize("value", [object(), Path("x"), [object()], {"a": object()}])
def test_what_is_no_plain_value_has_no_fingerprint(value):
    with pytest.raises(TypeError):
        digest(value)
    with pytest.raises(TypeError):
        plain(value)


def test_an_answer_of_records_is_shown_as_a_whole_and_one_of_objects_must_name_what_is_shown():
    found = {Query().fingerprint((Inner(frozenset(names)),)) for names in ("ab", "ba", "a")}
    assert len(found) == 2
    with pytest.raises(TypeError):
        Query().fingerprint((Inner(frozenset()), object()))


@pytest.mark.parametrize("kind", QUERIES)
def test_queries_are_frozen_values(kind):
    assert kind.__dataclass_params__.frozen
    assert kind.__module__ in {module.__name__ for module in MODULES}
    made = object.__new__(kind)
    for name in kind.__dataclass_fields__:
        object.__setattr__(made, name, name)
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(pickle.loads(pickle.dumps(made))) == hash(made)
