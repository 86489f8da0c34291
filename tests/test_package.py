"""The package as a whole: lazy, layered, typed, tidy, and the same in all its places."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

import sphinx_verl_resources

if TYPE_CHECKING:
    from pathlib import Path

#: Which layer may import which; a module belongs to the longest prefix.
LAYERS = {
    "diagnostics": set(),
    "units": set(),
    "lazy": set(),
    "words": set(),
    "catalog": {"diagnostics", "words", "catalog"},
    "memory": {"diagnostics", "units", "lazy", "words", "catalog", "memory"},
    "estimator": {"diagnostics", "units", "lazy", "words", "catalog", "memory", "estimator"},
    "render": {"diagnostics", "units", "words", "catalog", "memory", "estimator", "render"},
    "config": {"diagnostics", "catalog"},
    "logs": {"diagnostics"},
    "objects": {"words"},
    "uses": {"catalog", "memory", "estimator"},
    "run_index": {"objects", "catalog", "domain", "words", "__init__"},
    "domain": {
        "uses",
        "objects",
        "words",
        "diagnostics",
        "catalog",
        "memory",
        "estimator",
        "config",
        "logs",
        "__init__",
    },
    "directives": {
        "diagnostics",
        "words",
        "catalog",
        "memory",
        "estimator",
        "render",
        "domain",
        "objects",
        "uses",
        "logs",
        "directives",
    },
    "transforms": {"diagnostics", "words", "catalog", "render", "domain", "directives", "logs"},
    "latex": {"transforms", "units"},
    "latex_formulas": {"render", "transforms"},
    "assets": set(),
    "extension": {
        "assets",
        "config",
        "directives",
        "domain",
        "latex",
        "latex_formulas",
        "objects",
        "render",
        "run_index",
        "transforms",
        "words",
        "__init__",
    },
    "cli": {"diagnostics", "catalog", "memory", "estimator", "render", "cli", "__init__"},
    "__init__": {"extension"},
    "__main__": {"cli"},
}
#: Third-party packages by layer; whatever is not named here may not be imported there.
OUTSIDE = {
    "diagnostics": set(),
    "units": set(),
    "lazy": set(),
    "words": set(),
    "memory": set(),
    "estimator": set(),
    "catalog": {"pydantic", "pydantic_core", "yaml"},
    "render": {"docutils", "tabulate", "yaml"},
    "cli": set(),
}
THIRD_PARTY = {"pydantic", "pydantic_core", "yaml", "docutils", "sphinx", "tabulate"}


def test_import_is_lazy():
    code = (
        "import sys, sphinx_verl_resources\n"
        "heavy = {'pydantic', 'yaml', 'tabulate', 'docutils', 'sphinx'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_extension_does_not_import_pydantic():
    code = (
        "import sys, sphinx_verl_resources.extension\nassert not {'pydantic', 'tabulate'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_version_is_that_of_the_distribution():
    assert version("sphinx-verl-resources") == sphinx_verl_resources.__version__


def imports_of(path: Path, package: Path) -> set[tuple[str, str]]:
    """Pairs of ("inside" or "outside", name) that a module imports anywhere, for types or not."""
    found: set[tuple[str, str]] = set()
    parts = path.relative_to(package).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(("outside", alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(("outside", str(node.module).split(".")[0]))
        elif isinstance(node, ast.ImportFrom):
            base = parts[: len(parts) - node.level]
            names = [str(node.module)] if node.module else [alias.name for alias in node.names]
            for name in names:
                target = (*base, *name.split("."))
                inside = (package / target[0]).is_dir() or (package / f"{target[0]}.py").is_file()
                found.add(("inside", target[0] if inside else "__init__"))
    return found


def test_imports_go_down_only(root):
    package = root / "sphinx_verl_resources"
    wrong = []
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(package)
        layer = relative.parts[0].removesuffix(".py")
        for where, name in imports_of(path, package):
            if where == "inside" and name not in LAYERS[layer]:
                wrong.append(f"{relative} imports {name}")
            if where == "outside" and name in THIRD_PARTY - OUTSIDE.get(layer, THIRD_PARTY):
                wrong.append(f"{relative} imports {name}")
    assert wrong == []


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
