"""The examples in the docstrings of the estimator say what they give."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

from sphinx_verl_resources import estimator

MODULES = [f"{estimator.__name__}.{module.name}" for module in pkgutil.iter_modules(estimator.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(import_module(name)).failed == 0


def test_there_are_examples():
    with_examples = [name for name in MODULES if doctest.testmod(import_module(name)).attempted]
    assert len(with_examples) >= 15
