"""The page "Architecture" is true: every module is on it, imports go down only, and none is circular."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter

import pytest
import yaml


@pytest.fixture(scope="module")
def imports(root) -> dict[str, set[str]]:
    """The modules of this package that each module imports, also for type checks; the root is ``__init__``."""
    package = root / "sphinx_verl_resources"
    paths = {path: path.relative_to(package).with_suffix("").parts for path in package.rglob("*.py")}
    names = {
        ".".join(parts[:-1] if parts[1:] and parts[-1] == "__init__" else parts): path
        for path, parts in paths.items()
    }
    result: dict[str, set[str]] = {name: set() for name in names}
    for name, path in names.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = [*paths[path][: -node.level], *filter(None, [node.module])]
                for alias in node.names:
                    target = ".".join([*base, alias.name])
                    result[name].add(target if target in names else ".".join(base) or "__init__")
    return result


def top(name: str) -> str:
    return name.partition(".")[0]


def test_every_module_is_on_the_page_and_imports_go_down_only(root, imports):
    layers = [*yaml.safe_load((root / "docs/architecture.yaml").read_text("utf-8")).values()]
    rows = {name: index for index, layer in enumerate(layers) for name in layer}
    assert sorted(rows) == sorted({*map(top, imports)})
    pairs = [(name, other) for name, others in imports.items() for other in others - {"__init__"}]
    assert [(name, other) for name, other in pairs if rows[top(other)] < rows[top(name)]] == []


def test_the_drawing_and_the_text_name_layers_and_modules_of_the_code(root, imports):
    layers = yaml.safe_load((root / "docs/architecture.yaml").read_text("utf-8"))
    drawing = (root / "docs/images/architecture.svg").read_text("utf-8")
    layers_in_drawing = re.findall(r'class="layer" x="\d+" y="([\d.]+)"[^>]*>([^<]+)<', drawing)
    assert [name for _, name in sorted(layers_in_drawing, key=lambda item: float(item[0]))] == [*layers]
    (boxes,) = re.findall(rf"(?s){layers_in_drawing[0][1]}(.*)imports", drawing)
    named = {*" ".join(re.findall('"monospace"[^>]*>([^<]+)<', boxes)).split()} - {"·", "…"}
    assert named <= {*map(top, imports)}
    assert {name for layer in layers.values() if len(layer) == 1 for name in layer} <= named
    text = (root / "docs/architecture.rst").read_text("utf-8")
    flows = text.partition("- **A row")[2].partition("The modules")[0]
    assert set(re.findall("``([^`]+)``", flows)) <= {*imports}


def test_no_import_is_circular(imports):
    below = {name: others - {name, "__init__"} for name, others in imports.items() if name != "__init__"}
    TopologicalSorter(below).prepare()  # raises CycleError with the cycle
