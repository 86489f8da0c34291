"""``.. verl-schema:: KIND``: the fields of a data file, from the model that checks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from sphinx_verl_resources.catalog.schema import MODELS, schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx


class SchemaTable(SphinxDirective):
    """A definition list of fields, dotted where they lie deeper."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        whole = schema(MODELS[self.arguments[0]])
        fields = nodes.definition_list()
        for path, description, required in _fields(whole, whole, ""):
            term = nodes.term("", "", nodes.literal("", path))
            if required:
                term += nodes.inline("", " (required)")
            definition = nodes.definition("", nodes.paragraph("", description))
            fields += nodes.definition_list_item("", term, definition)
        return [fields]


def _fields(whole: dict[str, Any], part: dict[str, Any], prefix: str) -> Iterator[tuple[str, str, bool]]:
    for name, field in part["properties"].items():
        inner = _resolve(whole, field)
        path = f"{prefix}{name}"
        if prefix or not (inner and inner is not part and len(part["properties"]) == 1):
            values = [value for value in _enum(whole, field) if value]
            allowed = f" One of {', '.join(values)}." if values else ""
            yield path, field.get("description", "") + allowed, name in part.get("required", [])
            child = f"{path}."
        else:  # the only key of a registry file: describe its entries instead
            child = ""
        if inner:
            yield from _fields(whole, inner, child)


def _resolve(whole: dict[str, Any], field: dict[str, Any]) -> dict[str, Any] | None:
    """The object schema inside a field: itself, an alternative, or an item of a list."""
    candidates = [field, *field.get("anyOf", []), *field.get("allOf", []), field.get("items", {})]
    for candidate in candidates:
        if "$ref" in candidate:
            return whole["definitions"][candidate["$ref"].rsplit("/", 1)[-1]]
    return None


def _enum(whole: dict[str, Any], field: dict[str, Any]) -> list[str]:
    return [value for candidate in (field, *field.get("anyOf", [])) for value in candidate.get("enum", [])]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("verl-schema", SchemaTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
