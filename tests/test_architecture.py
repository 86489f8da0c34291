"""The page "Architecture" is true: every module is on it, imports go down only, and none is circular."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter

import pytest
import yaml

#: Packages that are to be written anew; new rooms import nothing of them.
OLD = {"answer", "cli", "estimator", "intake", "settings", "sphinx_ext", "views"}


@pytest.fixture(scope="module")
def layers(root) -> list[dict[str, str]]:
    return [*yaml.safe_load((root / "docs/architecture.yaml").read_text("utf-8")).values()]


@pytest.fixture(scope="module")
def imports(root) -> dict[str, set[str]]:
    """The modules of this package that each module imports, also for type checks; the root is ``__init__``."""
    package = root / "sphinx_verl_resources"
    names = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "__init__"] = path
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        parts = [] if name == "__init__" else name.split(".")
        parts = parts if path.name == "__init__.py" else parts[:-1]
        found[name] = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = [*parts[: len(parts) - node.level + 1], *filter(None, [node.module])]
                for alias in node.names:
                    target = ".".join([*base, alias.name])
                    found[name].add(target if target in names else ".".join(base) or "__init__")
    return found


def top(name: str) -> str:
    return name.partition(".")[0]


def test_every_module_is_on_the_page_and_no_other(layers, imports):
    assert sorted(name for layer in layers for name in layer) == sorted({*map(top, imports)})


def test_imports_go_down_only(layers, imports):
    rows = {name: index for index, layer in enumerate(layers) for name in layer}
    up = {
        f"{name} imports {other}"
        for name, others in imports.items()
        for other in others
        if rows[top(other)] < rows[top(name)] and other != "__init__"
    }
    assert up == set()


def test_no_import_is_circular(imports):
    below = {name: others - {name, "__init__"} for name, others in imports.items() if name != "__init__"}
    TopologicalSorter(below).prepare()  # raises CycleError with the cycle


def test_no_room_beside_the_old_ones(root):
    package = root / "sphinx_verl_resources"
    assert {path.parent.name for path in package.glob("*/__init__.py")} == OLD
