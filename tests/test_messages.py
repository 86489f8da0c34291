"""Every message has a code, a place and a remedy in the source.

A remedy is a hint, or an instruction in the message. The list of messages also has a remedy for each code; if
that one only refers to the message, the message must contain an instruction.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from sphinx_verl_resources.diagnostics import Code

PACKAGE = Path(__file__).resolve().parent.parent / "sphinx_verl_resources"


class Shape(NamedTuple):
    """The positions of the arguments of a function that reports a problem; None if it has no such argument."""

    message: int
    code: int | None
    remedy: int | None
    place: int | None
    has_code: bool
    is_method: bool


def shapes() -> dict[str, dict[str, Shape]]:
    """Return every function that takes a message and a code or remedy, by name and module."""
    found: dict[str, dict[str, Shape]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                plain = [argument.arg for argument in node.args.args if argument.arg not in {"self", "cls"}]
                needed = plain[: len(plain) - len(node.args.defaults)]
                names = plain + [argument.arg for argument in node.args.kwonlyargs]
                if "message" in names and {"code", "remedy", "hint"} & set(names):
                    is_method = len(plain) < len(node.args.args)
                    found.setdefault(node.name, {})[str(path)] = shape(names, needed, is_method)
    # The fields of the class come before its methods.
    found["Diagnostic"] = {"": shape(["place", "code", "message", "remedy"], ["code"], False)}
    return found


def shape(names: list[str], needed: list[str], is_method: bool) -> Shape:
    """Return the positions of parameters; a code with a default is optional."""

    def position(*wanted: str) -> int | None:
        return next((index for index, name in enumerate(names) if name in wanted), None)

    place = position("place", "key", "loc", "event", "at")
    remedy = position("remedy", "hint")
    return Shape(names.index("message"), position("code"), remedy, place, "code" in needed, is_method)


SHAPES = shapes()
#: Words of a message that contain an instruction.
SAYS = re.compile(
    r"; \S|\b(expected|must|name|set|write|say|needs|requires|(?:go|goes) with|either|whole number|a number|true or false)\b"
)
#: Variables that contain a whole message, to which a prefix is added.
HANDED_ON = {"error", "problem", "text", "what", "message"}


class Call(NamedTuple):
    """A call that makes a message."""

    path: str
    node: ast.Call
    shape: Shape
    function: ast.AST

    @property
    def where(self) -> str:
        return f"{self.path}:{self.node.lineno}: {ast.unparse(self.node)}"

    def argument(self, position: int | None, keyword: str) -> ast.expr | None:
        """Return the argument at a position or keyword; a starred argument includes all after it."""
        for index, argument in enumerate(self.node.args):
            if index == position or (isinstance(argument, ast.Starred) and position is not None):
                return argument
        return next((item.value for item in self.node.keywords if item.arg == keyword), None)

    def text(self, expression: ast.expr | None) -> str:
        """Return the fixed words of an expression; look up variables in the enclosing function."""
        if isinstance(expression, ast.Name):
            values = [
                node.value
                for node in ast.walk(self.function)
                if isinstance(node, ast.Assign)
                and any(
                    expression.id in {n.id for n in ast.walk(t) if isinstance(n, ast.Name)}
                    for t in node.targets
                )
            ]
            # The words of every possible value of the variable; a parameter is tested at the caller.
            return " ".join(map(self.text, values)) or "; handed on"
        if isinstance(expression, ast.JoinedStr):
            *_, last = expression.values
            handed_on = isinstance(last, ast.FormattedValue) and (
                ast.unparse(last.value) in HANDED_ON or ast.unparse(last.value).endswith(".text")
            )
            fixed = (
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in expression.values
            )
            return "".join(fixed) + (self.text(last.value) if handed_on else "")
        handed_on = expression is None or isinstance(expression, (ast.Attribute, ast.Call))
        return "; handed on" if handed_on else ast.unparse(expression)


def shape_of(call: ast.Call, path: Path) -> Shape | None:
    """Return the shape of the called function or method, from the same module or another one."""
    owner, _, name = ast.unparse(call.func).rpartition(".")
    by_module = SHAPES.get(name, {}) if owner not in {"nodes", "objects"} else {}  # modules have these names
    if str(path) in by_module or not by_module or name.startswith("_"):
        return by_module.get(str(path))
    alike = [known for known in by_module.values() if known.is_method is bool(owner)]
    *_, last = alike or by_module.values()
    return last if len(call.args) + len(call.keywords) > last.message else None


def calls() -> list[Call]:
    """Return every call in the package that creates a message."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        around = {
            id(node): function
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
        }
        found += [
            Call(str(path.relative_to(PACKAGE)), node, found_shape, around.get(id(node), tree))
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and (found_shape := shape_of(node, path))
        ]
    return found


EVERY = calls()


def test_the_walk_finds_them():
    assert len(EVERY) > 150
    assert {"Diagnostic", "because", "broken_at"} <= set(SHAPES)


def test_every_message_has_a_code():
    wrong = []
    for call in EVERY:
        code = call.argument(call.shape.code, "code")
        text = ast.unparse(code) if code is not None else ""
        is_name = isinstance(code, ast.Constant) and code.value in Code.__members__
        is_member = text.startswith("Code.") and text.removeprefix("Code.").split("[")[0] in {
            *Code.__members__,
            "",
        }
        handed_on = isinstance(code, (ast.Starred, ast.Name)) or text.endswith(
            (".code", "Code[kind]", ".unknown")
        )
        given = is_name or is_member or handed_on or (code is None and not call.shape.has_code)
        if call.shape.code is not None and not given:
            wrong.append(call.where)
    assert wrong == []


def test_every_message_has_a_place():
    wrong = [
        call.where
        for call in EVERY
        if call.shape.place is not None
        and (place := call.argument(call.shape.place, "place")) is not None
        and isinstance(place, ast.Constant)
        and not place.value
    ]
    assert wrong == []


def test_every_message_has_a_remedy():
    wrong = []
    for call in EVERY:
        hint = call.argument(call.shape.remedy, "remedy")
        has_hint = hint is not None and not (isinstance(hint, ast.Constant) and not hint.value)
        if not has_hint and not SAYS.search(call.text(call.argument(call.shape.message, "message"))):
            wrong.append(call.where)
    assert wrong == []


@pytest.mark.parametrize("code", Code, ids=lambda code: code.name)
def test_every_code_says_what_it_means_and_what_to_do(code):
    for text in (code.meaning, code.remedy):
        assert text[0].isupper()
        assert text.endswith(".")


#: Ways to print without a code: loggers of Sphinx and Python, reporters of docutils.
PAST = re.compile(
    r"\b(?:sphinx\.util import logging|import logging|import warnings|warnings\.warn|reporter\.(?:info|warning|error|severe)|system_message\("
    r"|directive_error|DirectiveError|SphinxError|ExtensionError|create_warning)"
)


def test_no_message_passes_by_the_codes():
    found = [
        f"{path.name}: {match[0]}"
        for path in sorted(PACKAGE.rglob("*.py"))
        # log_config.py silences Python's warnings about a text that it parses.
        if path.name not in {"logs.py", "log_config.py"}
        for match in [PAST.search(re.sub(r'"""[\s\S]*?"""', "", path.read_text("utf-8")))]
        if match
    ]
    assert found == []


#: Functions that Sphinx calls, and their allowed exceptions; others would print a traceback.
CALLED_BY_SPHINX = {"sphinx_ext", "views", "query", "breakdown"}
RAISED = {
    "NoAnswerError",  # directives and roles report it
    "NotImplementedError",
    "TypeError",  # a fingerprint of an unsupported type: a bug
    "nodes",  # nodes.SkipNode, by which a visitor leaves its node
    "found",  # a NoAnswerError kept by the domain
}


def test_sphinx_gets_no_exception():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0].removesuffix(".py") not in CALLED_BY_SPHINX:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Raise) and node.exc is not None:
                name = re.split(r"\W", ast.unparse(node.exc))[0]
                if name not in RAISED:
                    wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {name}")
    assert wrong == []
