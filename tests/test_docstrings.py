"""Docstrings: examples are right, and docstrings of functions begin with an imperative verb."""

from __future__ import annotations

import ast
import doctest
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest

import sphinx_verl_resources

MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(sphinx_verl_resources.__path__, "sphinx_verl_resources.")
    if not name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(import_module(name)).failed == 0


def test_examples_are_found():
    assert sum(doctest.testmod(import_module(name)).attempted for name in MODULES) > 100


FUNCTIONS = [
    (
        f"{path.name}:{node.lineno}",
        ast.get_docstring(node),
        [ast.unparse(item) for item in node.decorator_list],
    )
    for path in Path(sphinx_verl_resources.__file__).parent.rglob("*.py")
    for node in ast.walk(ast.parse(path.read_text("utf-8")))
    if isinstance(node, ast.FunctionDef) and ast.get_docstring(node)
]
#: Words that begin a description rather than an instruction.
NO_VERBS = {"A", "An", "The", "One", "All", "Every", "Each", "This", "That", "What", "Whether", "How", "True"}


def test_functions_say_what_to_do():
    wrong = [
        (place, text.splitlines()[0])
        for place, text, decorators in FUNCTIONS
        if not any("property" in name for name in decorators)
        if (word := text.split()[0].strip(",:")) in NO_VERBS
        or word.endswith("ing")
        or re.search("[^s]s$", word)
    ]
    assert wrong == []


def test_properties_say_what_they_are():
    wrong = [
        (place, text.splitlines()[0])
        for place, text, decorators in FUNCTIONS
        if any("property" in name for name in decorators)
        if text.split()[0] in {"Return", "Yield", "What", "Whether", "How"}
    ]
    assert wrong == []
