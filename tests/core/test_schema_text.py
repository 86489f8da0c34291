"""The JSON Schemas explain each field to editors, and list its values if they are fixed."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from sphinx_verl_resources.print_commands import MODELS
from sphinx_verl_resources.records import SIZES, Engine, Kind, Tag, Train
from sphinx_verl_resources.validation import schema

SCHEMAS = {kind: schema(model) for kind, model in MODELS.items()}
#: The keywords of conditions in a schema; editors show no explanations for fields in them.
CONDITIONS = {"if", "then", "else", "not", "oneOf", "dependencies"}


def properties(part: Any, path: str = ""):
    """The path and schema of every field, at any depth, including definitions."""
    if isinstance(part, list):
        for item in part:
            yield from properties(item, path)
    elif isinstance(part, dict):
        for name, field in part.get("properties", {}).items():
            yield f"{path}.{name}", field
            yield from properties(field, f"{path}.{name}")
        for key, value in part.items():
            if key not in {*CONDITIONS, "properties", "examples", "default", "const", "enum"}:
                yield from properties(value, f"{path}/{key}" if key not in {"anyOf", "allOf"} else path)


def values(field: dict[str, Any]) -> list[Any]:
    """The fixed values of a field."""
    return [value for one in (field, *field.get("anyOf", [])) for value in one.get("enum", [])]


def field_of(kind: str, path: str) -> dict[str, Any]:
    return dict(properties(SCHEMAS[kind]))[path]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_field_is_explained(kind):
    found = dict(properties(SCHEMAS[kind]))
    assert len(found) >= 5
    silent = [path for path, field in found.items() if not field.get("description", "").strip()]
    assert silent == []
    for path, field in found.items():
        assert field["description"].rstrip().endswith((".", ":")), path


def test_every_record_is_explained():
    for kind, whole in SCHEMAS.items():
        for name, part in {kind: whole, **whole.get("definitions", {})}.items():
            assert part.get("description", "").strip(), (kind, name)


@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [
        ("run", ".size", SIZES),
        ("run", ".tag", get_args(Tag)),
        ("run", ".train", get_args(Train)),
        ("run", ".kind", get_args(Kind)),
        ("run", "/definitions/Infer.engine", get_args(Engine)),
        ("gpus", "/definitions/Gpu.vendor", ("nvidia", "amd", "huawei", "intel")),
    ],
)
def test_fixed_values_are_listed(kind, path, expected):
    assert tuple(values(field_of(kind, path))) == tuple(expected)


@pytest.mark.parametrize(
    ("kind", "model", "gpu"),
    [
        ("run", ".model", "/definitions/Gpus.type"),
        ("cases", "/definitions/Case.model", "/definitions/CaseGpus.type"),
    ],
)
def test_names_of_registries_have_examples_that_exist(data, kind, model, gpu):
    catalog = data.load()
    models, gpus = (field_of(kind, path)["examples"] for path in (model, gpu))
    assert len(models) >= 2
    assert len(gpus) >= 2
    assert all(catalog.architectures.get(name) for name in models)
    assert all(catalog.gpus.get(name) for name in gpus)
