"""The page "Architecture" is true: layers, and the functions that Sphinx's events call."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def drawn(root) -> dict[str, Any]:
    return yaml.safe_load((root / "docs/architecture.yaml").read_text("utf-8"))


@pytest.fixture(scope="module")
def modules(drawn) -> dict[str, dict[str, Any]]:
    return {name: module for layer in drawn["layers"] for name, module in layer["modules"].items()}


@pytest.fixture(scope="module")
def package(root) -> Path:
    return root / "sphinx_verl_resources"


def imports_of(path: Path, package: Path) -> set[tuple[str, str]]:
    """Return pairs of ("inside" or "outside", name) for all imports of a module, including type checks."""
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


def module_of(path: Path, package: Path) -> str:
    return path.relative_to(package).parts[0].removesuffix(".py")


def test_every_module_is_drawn_and_no_other(modules, package):
    assert {module_of(path, package) for path in package.rglob("*.py")} == set(modules)


def test_imports_are_those_drawn(modules, package):
    wrong = []
    for path in sorted(package.rglob("*.py")):
        module = module_of(path, package)
        inside = {module, *modules[module]["imports"]}
        outside = {*modules[module]["packages"], *sys.stdlib_module_names}
        for where, name in imports_of(path, package):
            if name not in (inside if where == "inside" else outside):
                wrong.append(f"{path.relative_to(package)} imports {name}")
    assert wrong == []


def test_what_is_drawn_is_used(modules, package):
    used: dict[str, set[str]] = {name: set() for name in modules}
    for path in package.rglob("*.py"):
        used[module_of(path, package)].update(name for _, name in imports_of(path, package))
    unused = {
        name: sorted({*module["imports"], *module["packages"]} - used[name])
        for name, module in modules.items()
    }
    assert {name: rest for name, rest in unused.items() if rest} == {}


def modules_imported(package: Path) -> dict[str, set[str]]:
    """Return each module's imports from the package, including type checks, without the root."""
    names = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        parts = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        targets = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = [*parts[: len(parts) - node.level + 1], *(node.module or "").split(".")]
                stem = ".".join(filter(None, base))
                targets |= {f"{stem}.{a.name}" if f"{stem}.{a.name}" in names else stem for a in node.names}
        found[name] = targets & names.keys() - {name, ""}
    del found[""]  # the version, which other modules import, and setup()
    return found


def test_imports_have_no_circle(package):
    TopologicalSorter(modules_imported(package)).prepare()  # raises CycleError with the cycle


def test_imports_go_down_only(drawn):
    """``__init__`` is at the top; lower layers import its version."""
    rows = {name: index for index, layer in enumerate(drawn["layers"]) for name in layer["modules"]}
    for layer in drawn["layers"]:
        for name, module in layer["modules"].items():
            assert not [
                other for other in module["imports"] if other != "__init__" and rows[other] < rows[name]
            ], name


def test_steps_of_lives_exist(drawn):
    for phase in [*drawn["lives"]["run"], *drawn["lives"]["estimate"]]:
        for step in phase["steps"]:
            module, attributes = step["calls"], []
            while True:
                module, _, attribute = module.rpartition(".")
                attributes.insert(0, attribute)
                try:
                    found = importlib.import_module(f"sphinx_verl_resources.{module}")
                    break
                except ModuleNotFoundError:
                    assert module, step
            for attribute in attributes:
                found = getattr(found, attribute)


def test_events_are_those_that_the_extension_connects(drawn, package):
    text = (package / "sphinx_ext/extension.py").read_text("utf-8")
    connected = set(re.findall(r'app\.connect\("([\w-]+)", (\w+)\)', text))
    steps = [step for phase in drawn["lives"]["run"] for step in phase["steps"] if "event" in step]
    assert {(step["event"], step["calls"].rpartition(".")[2]) for step in steps} == connected
