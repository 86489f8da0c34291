"""The examples in docstrings are right."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import sphinx_verl_resources

PACKAGES = pkgutil.walk_packages(sphinx_verl_resources.__path__, "sphinx_verl_resources.")
MODULES = [name for _, name, _ in PACKAGES if not name.endswith("__main__")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(import_module(name)).failed == 0
