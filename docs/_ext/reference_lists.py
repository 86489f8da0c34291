"""Reference lists of this documentation, generated from the code that they describe."""

from __future__ import annotations

import argparse
import inspect
import json
import re
import textwrap
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import sphinx_verl_resources
from sphinx_verl_resources.check import RULES
from sphinx_verl_resources.commands import COMMANDS, command_named, load_check, schema_of
from sphinx_verl_resources.diagnostics import CODES
from sphinx_verl_resources.extension import DIRECTIVES, ESTIMATE, load
from sphinx_verl_resources.selection import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

    from sphinx_verl_resources.directive import VerlDirective

#: One message a line; tests/builds/test_codes.py writes those of builds and commands.
MESSAGES = Path(__file__).parent.parent / "examples/messages.txt"
_DIRECTIVE = re.compile(r"^\.\. ([\w-]+)::(.*)\n((?:   .*\n|\n(?=   ))*)", re.MULTILINE)
_ROLE = re.compile(r":verl:([a-z]+):(?=`)")


def note_code(env: BuildEnvironment) -> None:
    """Read the page again when the package's code changes."""
    for path in Path(sphinx_verl_resources.__file__).parent.rglob("*.py"):
        env.note_dependency(path)


class ReferenceList(SphinxDirective):
    """A definition list of names and what they mean."""

    def run(self) -> list[nodes.Node]:
        note_code(self.env)
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
        whole = json.loads(schema_of(self.arguments[0]))
        for path, description, required in schema_fields(whole, whole, ""):
            yield path, "(required)" if required else "", description


class Fields(ReferenceList):
    """``.. docs-fields::``: the fields for columns and sort orders."""

    def items(self) -> Iterator[tuple[str, str, str]]:
        for field in FIELDS:
            yield field.name, "", f"Heading: {field.heading}."


class Generated(SphinxDirective):
    """Content generated as reStructuredText and parsed in place."""

    def run(self) -> list[nodes.Node]:
        note_code(self.env)
        return self.parse_text_to_nodes("\n".join(self.lines()), allow_section_headings=True)

    def lines(self) -> Iterable[str]:
        raise NotImplementedError


def forms() -> dict[tuple[str, str], type[VerlDirective]]:
    """Return the directives by name and form; only one has two forms."""
    found = {(name, ""): load(place) for name, place in DIRECTIVES.items()}
    found["verl-memory", "analysis"] = found.pop(("verl-memory", ""))
    return {**found, ("verl-memory", "estimate"): load(ESTIMATE)}


class Options(Generated):
    """``.. docs-options:: DIRECTIVE [FORM]``: the options of a directive, or of one of its forms."""

    required_arguments = 1
    optional_arguments = 1

    def lines(self) -> Iterator[str]:
        name, form = " ".join([*self.arguments, ""]).split(" ")[:2]
        first = load(DIRECTIVES[name]).takes
        for option in forms()[name, form].takes:
            yield f".. rst:directive:option:: {option.name}"
            if form == "estimate" and option.name in {item.name for item in first}:
                yield "   :no-index:"  # links lead to the first form
            yield ""
            yield f"   {option.help}"
            yield f"   Values: {option.values}." if option.values else "   A flag without a value."
            yield f"   Default: {option.default}." if option.default else ""
            yield ""


class Snippet(Generated):
    """``.. docs-snippet:: NAME``: an example in both languages, and its output; tests use it by its name."""

    required_arguments = 1
    has_content = True

    def lines(self) -> Iterator[str]:
        text = "\n".join([*self.content, ""])
        yield from (".. code-block:: rst", "", textwrap.indent(text, "   "), "In MyST Markdown:", "")
        yield from (".. code-block:: markdown", "", textwrap.indent(in_myst(text), "   "), "Both give:", "")
        yield text


def in_myst(text: str) -> str:
    r"""Convert directives to fenced blocks, and roles to braces.

    >>> print(in_myst(".. verl-gpus:: H100\n   :caption: One\n\nSee :verl:gpu:`H100`.\n"), end="")
    ```{verl-gpus} H100
    :caption: One
    ```
    <BLANKLINE>
    See {verl:gpu}`H100`.
    """
    return _ROLE.sub(r"{verl:\1}", _DIRECTIVE.sub(_fenced, text))


def _fenced(match: re.Match[str]) -> str:
    name, argument, inside = match.groups()
    return f"```{{{name}}}{argument}\n{textwrap.dedent(inside)}```\n"


class Commands(Generated):
    """``.. docs-commands::``: a section with the help of each command."""

    def lines(self) -> Iterator[str]:
        for name in COMMANDS:
            parser = copy(command_named(name))
            parser.formatter_class = partial(argparse.RawDescriptionHelpFormatter, width=80)
            yield from (
                f".. _command-{name}:",
                "",
                name,
                "~" * len(name),
                "",
                ".. code-block:: text",
                "   :class: docs-wide",
                "",
            )
            yield textwrap.indent(parser.format_help(), "   ")


class Rules(Generated):
    """``.. docs-rules::``: a section for each rule of ``check``, which is its docstring."""

    def lines(self) -> Iterator[str]:
        load_check([])  # all rules
        yield from (".. highlight:: yaml", "")
        for name, rule in RULES.items():
            yield from (f".. _rule-{name}:", "", f"``{name}``", "^" * (len(name) + 4), "")
            yield from (f":Level: {rule.severity.value}", "", inspect.getdoc(rule.find) or "", "")


class Codes(Generated):
    """``.. docs-codes::``: a table of all codes, each with an example and an anchor."""

    def lines(self) -> Iterator[str]:
        self.env.note_dependency(str(MESSAGES))
        messages = MESSAGES.read_text("utf-8").splitlines()
        examples = {message.rpartition(" [verl.")[2].removesuffix("]"): message for message in messages}
        yield ".. list-table::\n   :header-rows: 1\n   :widths: 30 70\n   :class: docs-codes\n"
        yield "   * - Code\n     - Example"
        for code in sorted(CODES):
            yield f"   * - .. _verl.{code}:\n\n       ``verl.{code}``"
            yield f"     - .. code-block:: text\n\n          {examples[code]}\n"


def schema_fields(
    whole: dict[str, Any], part: dict[str, Any], prefix: str
) -> Iterator[tuple[str, str, bool]]:
    """Yield the path and the description of each field of a schema, and whether it is required."""
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
    """Return the object schema of a field, of an alternative, or of a list's items."""
    for candidate in (field, *field.get("anyOf", []), *field.get("allOf", []), field.get("items", {})):
        if "$ref" in candidate:
            return whole["definitions"][candidate["$ref"].rsplit("/", 1)[-1]]
    return None


def allowed(field: dict[str, Any]) -> list[str]:
    """Return the values that a field allows."""
    return [value for candidate in (field, *field.get("anyOf", [])) for value in candidate.get("enum", [])]


def setup(app: Sphinx) -> dict[str, Any]:
    for directive in (Schema, Fields, Options, Snippet, Commands, Rules, Codes):
        app.add_directive(f"docs-{directive.__name__.lower()}", directive)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
