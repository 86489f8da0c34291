"""The package as a whole: lazy, typed, tidy and consistent."""

from __future__ import annotations

import doctest
import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from itertools import chain

import pytest
from nox.project import load_toml
from packaging.requirements import Requirement

import sphinx_verl_resources

#: The kinds of changes of https://keepachangelog.com/en/1.1.0/, in its order.
KINDS_OF_CHANGES = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


PACKAGES = pkgutil.walk_packages(sphinx_verl_resources.__path__, "sphinx_verl_resources.")


@pytest.mark.parametrize("name", [name for _, name, _ in PACKAGES if not name.endswith("__main__")])
def test_the_examples_in_docstrings_are_right(name):
    assert doctest.testmod(import_module(name)).failed == 0


def test_import_is_lazy():
    code = "import sys, sphinx_verl_resources; print({'pydantic', 'yaml', 'tabulate', 'docutils', 'sphinx'} & {*sys.modules})"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


def test_the_version_has_one_place(root):
    """The version is in the package; metadata, documentation and the newest release in the changelog follow."""
    values = {"__file__": str(root / "docs/conf.py")}
    exec((root / "docs/conf.py").read_text("utf-8"), values)
    output = {values["version"], values["release"], version("sphinx-verl-resources")}
    assert output == {sphinx_verl_resources.__version__}
    project = load_toml(root / "pyproject.toml")
    assert project["tool"]["hatch"]["version"] == {"path": "sphinx_verl_resources/__init__.py"}


def test_form_of_the_changelog(root):
    """It has the headings of Keep a Changelog: releases, newest first, and kinds of changes, each once."""
    _, *versions = re.split(r"^## ", (root / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    headings = [section.splitlines()[0] for section in versions]
    released = [heading for heading in headings if heading != "Unreleased"]
    assert headings in (released, ["Unreleased", *released])
    assert released == [] or released[0].startswith(f"{sphinx_verl_resources.__version__} - ")
    days = [re.fullmatch(r"\d+\.\d+\.\d+ - (\d{4}-\d\d-\d\d)", heading)[1] for heading in released]
    assert days == sorted(days, reverse=True)
    for section in versions:
        kinds = re.findall(r"^### (.+)$", section, re.MULTILINE)
        assert kinds == [kind for kind in KINDS_OF_CHANGES if kind in kinds]


@pytest.mark.parametrize("name", ["package", "development", "oldest"])
def test_exact_packages_satisfy_the_ranges(root, name):
    """If not, run ``make upgrade``."""
    output = load_toml(root / "pyproject.toml")
    needed = [*output["build-system"]["requires"], *output["project"]["dependencies"]]
    if name != "package":
        needed += chain.from_iterable(output["project"]["optional-dependencies"].values())
    text = (root / f"requirements/{name}.txt").read_text("utf-8")
    assert "://" not in text, "it names no package index"
    pins = re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    for requirement in map(Requirement, needed):
        versions = (pinned for name, pinned in pins if name == requirement.name.lower())
        allowed = [requirement.specifier.contains(pinned) for pinned in versions]
        assert (allowed and all(allowed)) or requirement.name == "sphinx-verl-resources", requirement


@pytest.mark.parametrize("command", ["ruff check .", "ruff format --check .", "mypy"])
def test_style(root, command):
    result = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=root, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
