"""Reference lists of this documentation, each made from the code that it describes."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from sphinx_verl_resources.catalog.fields import recorded_fields
from sphinx_verl_resources.catalog.schema import MODELS, schema
from sphinx_verl_resources.config import PREFIX, VerlConfig
from sphinx_verl_resources.diagnostics import Code
from sphinx_verl_resources.render.runs import COMPUTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sphinx.application import Sphinx


class ReferenceList(SphinxDirective):
    """A definition list of names and what they mean."""

    def run(self) -> list[nodes.Node]:
        result = nodes.definition_list()
        for name, note, meaning in self.items():
            term = nodes.term("", "", nodes.literal("", name))
            if note:
                term += nodes.Text(f" {note}")
            paragraph = nodes.paragraph("", "", *self.parse_inline(meaning)[0])
            result += nodes.definition_list_item("", term, nodes.definition("", paragraph))
        return [result]

    def items(self) -> Iterable[tuple[str, str, str]]:
        raise NotImplementedError


class Schema(ReferenceList):
    """``.. docs-schema:: KIND``: the fields of a data file."""

    required_arguments = 1

    def items(self) -> Iterator[tuple[str, str, str]]:
        whole = schema(MODELS[self.arguments[0]])
        for path, description, required in schema_fields(whole, whole, ""):
            yield path, "(required)" if required else "", description


class Codes(ReferenceList):
    """``.. docs-codes::``: the kinds of problems."""

    def items(self) -> Iterator[tuple[str, str, str]]:
        for code in Code:
            yield code.id, "", f"{code.meaning} {code.remedy}"


class Fields(ReferenceList):
    """``.. docs-fields::``: what columns and orders can name."""

    def items(self) -> Iterator[tuple[str, str, str]]:
        for name, heading in recorded_fields().items():
            yield name, "", f"Heading: {heading}."
        for name, heading in COMPUTED.items():
            yield name, "(computed, for columns only)", f"Heading: {heading}."


class Config(ReferenceList):
    """``.. docs-config::``: the values of conf.py."""

    def items(self) -> Iterator[tuple[str, str, str]]:
        for item in fields(VerlConfig):
            default = getattr(VerlConfig(), item.name)
            yield PREFIX + item.name, "", f"{item.metadata['help']} Default: ``{default!r}``."


def schema_fields(
    whole: dict[str, Any], part: dict[str, Any], prefix: str
) -> Iterator[tuple[str, str, bool]]:
    """Path, description and whether it is required, of every field of a schema."""
    for name, field in part["properties"].items():
        inner = resolve(whole, field)
        path = f"{prefix}{name}"
        if not prefix and inner and len(part["properties"]) == 1:
            path = ""  # the only key of a registry file: describe its entries instead
        else:
            values = [f"``{value}``" for value in allowed(field) if value]
            one_of = f" One of {', '.join(values)}." if values else ""
            description = " ".join(field.get("description", "").split()) + one_of
            yield path, description.replace("*", "\\*"), name in part.get("required", [])
        if inner:
            yield from schema_fields(whole, inner, f"{path}." if path else "")


def resolve(whole: dict[str, Any], field: dict[str, Any]) -> dict[str, Any] | None:
    """The object schema inside a field: itself, an alternative, or an item of a list."""
    for candidate in (field, *field.get("anyOf", []), *field.get("allOf", []), field.get("items", {})):
        if "$ref" in candidate:
            return whole["definitions"][candidate["$ref"].rsplit("/", 1)[-1]]
    return None


def allowed(field: dict[str, Any]) -> list[str]:
    """The values that a field is limited to."""
    return [value for candidate in (field, *field.get("anyOf", [])) for value in candidate.get("enum", [])]


def setup(app: Sphinx) -> dict[str, Any]:
    for name, directive in {"schema": Schema, "codes": Codes, "fields": Fields, "config": Config}.items():
        app.add_directive(f"docs-{name}", directive)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
