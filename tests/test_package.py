"""The package as a whole: lazy, typed, tidy and consistent."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from itertools import chain

import pytest
from nox.project import load_toml
from packaging.requirements import Requirement

import sphinx_verl_resources

#: The kinds of changes of https://keepachangelog.com/en/1.1.0/, in its order.
KINDS_OF_CHANGES = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def test_import_is_lazy():
    code = (
        "import sys, sphinx_verl_resources\n"
        "heavy = {'pydantic', 'yaml', 'tabulate', 'docutils', 'sphinx'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_version_is_that_of_the_distribution():
    assert version("sphinx-verl-resources") == sphinx_verl_resources.__version__


def test_the_version_has_one_place(root):
    """The version is in the package; metadata, documentation and the newest release in the changelog follow."""
    values = {"__file__": str(root / "docs/conf.py")}
    exec((root / "docs/conf.py").read_text("utf-8"), values)
    assert values["version"] == values["release"] == sphinx_verl_resources.__version__
    project = (root / "pyproject.toml").read_text("utf-8")
    assert 'dynamic = ["version", ' in project
    assert '[tool.hatch.version]\npath = "sphinx_verl_resources/__init__.py"\n' in project
    releases = re.findall(r"^## (\d\S+)", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert releases[:1] in ([], [sphinx_verl_resources.__version__])


def test_form_of_the_changelog(root):
    """It has the headings of Keep a Changelog: releases, newest first, and kinds of changes, each once."""
    _, *versions = re.split(r"^## ", (root / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    headings = [section.splitlines()[0] for section in versions]
    released = [heading for heading in headings if heading != "Unreleased"]
    assert headings in (released, ["Unreleased", *released])
    days = [re.fullmatch(r"\d+\.\d+\.\d+ - (\d{4}-\d\d-\d\d)", heading)[1] for heading in released]
    assert days == sorted(days, reverse=True)
    for section in versions:
        kinds = re.findall(r"^### (.+)$", section, re.MULTILINE)
        assert kinds == [kind for kind in KINDS_OF_CHANGES if kind in kinds]


@pytest.mark.parametrize("name", ["package", "development", "oldest"])
def test_exact_packages_satisfy_the_ranges(root, name):
    """If not, run ``make upgrade``."""
    found = load_toml(root / "pyproject.toml")
    needed = [*found["build-system"]["requires"], *found["project"]["dependencies"]]
    if name != "package":
        needed += chain.from_iterable(found["project"]["optional-dependencies"].values())
    text = (root / f"requirements/{name}.txt").read_text("utf-8")
    assert "://" not in text, "it names no package index"
    pins = re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    for requirement in map(Requirement, needed):
        if requirement.name != "sphinx-verl-resources":
            allowed = [
                requirement.specifier.contains(v) for pin, v in pins if pin == requirement.name.lower()
            ]
            assert allowed, requirement
            assert all(allowed), requirement


def test_modules_stay_small(root):
    sizes = {
        str(path): len(path.read_text("utf-8").splitlines())
        for path in (root / "sphinx_verl_resources").rglob("*.py")
    }
    assert {name: size for name, size in sizes.items() if size > 640} == {}


@pytest.mark.parametrize(
    "command", [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]], ids=" ".join
)
def test_style(root, command):
    result = subprocess.run([sys.executable, "-m", *command], cwd=root, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_message_without_code(root):
    """Every message of a build goes through ``domain``, which requires a code and a place."""
    for path in (root / "sphinx_verl_resources").rglob("*.py"):
        if path.name != "domain.py":
            assert not re.search(r"logger\.|logging|warnings\.warn", path.read_text("utf-8")), path
