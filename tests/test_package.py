"""The package as a whole: lazy, typed, tidy, and the same in all its places."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version

import pytest

import sphinx_verl_resources


def test_import_is_lazy():
    code = (
        "import sys, sphinx_verl_resources\n"
        "heavy = {'pydantic', 'yaml', 'tabulate', 'docutils', 'sphinx'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_extension_does_not_import_pydantic():
    code = "import sys, sphinx_verl_resources.sphinx_ext.extension\nassert not {'pydantic', 'tabulate'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_version_is_that_of_the_distribution():
    assert version("sphinx-verl-resources") == sphinx_verl_resources.__version__


def test_modules_stay_small(root):
    sizes = {
        str(path): len(path.read_text("utf-8").splitlines())
        for path in (root / "sphinx_verl_resources").rglob("*.py")
    }
    assert {name: size for name, size in sizes.items() if size > 400} == {}


@pytest.mark.parametrize(
    "command", [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]], ids=" ".join
)
def test_style(root, command):
    result = subprocess.run([sys.executable, "-m", *command], cwd=root, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_message_without_code(root):
    """Every message of a build goes through ``logs``, which asks for a code and a place."""
    for path in (root / "sphinx_verl_resources").rglob("*.py"):
        if path.name != "logs.py":
            assert not re.search(r"logger\.|logging|warnings\.warn", path.read_text("utf-8")), path
