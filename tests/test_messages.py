"""Every message has a code, a place and a remedy: what the source says where it makes one.

A remedy is a hint, or words in the message itself that say what to write. The code has one too, in the list of
messages; where that only sends back to the message, the message must say it.
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
    """Where a call that makes a message takes what; None where it takes no such thing.

    Attributes:
        code: the position of the code.
        message: that of the message.
        hint: that of the hint.
        place: that of the place.
        default: the code where none is given; empty where one must be.
    """

    code: int | None
    message: int
    hint: int | None = None
    place: int | None = None
    default: str = ""


CALLS = {
    "Diagnostic": Shape(1, 2, 3, place=0),
    "OptionError": Shape(1, 0, default="directive"),
    "broken_at": Shape(None, 1, 2, place=0),
    "diagnostic": Shape(1, 2, 3),
    "unreadable": Shape(2, 3, 4),
    "self._problem": Shape(1, 2, 3, place=0),
    "_unexpected": Shape(None, 1, 2, place=0),
    "log_at": Shape(1, 2, place=0),
    "explain": Shape(None, 1, 2, place=0),
    "error_at": Shape(3, 1, 2, place=0, default="wrong_value"),
    "warning_at": Shape(3, 1, 2, place=0, default="wrong_value"),
    "read.error": Shape(3, 1, 2, place=0, default="wrong_value"),
    "read.warning": Shape(3, 1, 2, place=0, default="wrong_value"),
    "config.error": Shape(3, 1, 2, place=0, default="wrong_value"),
    "config.warning": Shape(3, 1, 2, place=0, default="wrong_value"),
    "self.error": Shape(3, 1, 2, place=0, default="wrong_value"),
    "self.warning": Shape(3, 1, 2, place=0, default="wrong_value"),
    "NoAnswerError.because": Shape(2, 0, 1, default="directive"),
    "problem": Shape(0, 1, 2),
    "collector.fail": Shape(1, 2, 3, place=0),
    "collector.warn": Shape(1, 2, 3, place=0),
    "self.warn": Shape(1, 2, 3, place=0),
    "source.error": Shape(None, 1, 2, place=0),
    "source.note": Shape(3, 1, 2, place=0),
    "self.note": Shape(3, 1, 2, place=0),
    "self._default_for": Shape(None, 2, place=0),
}
#: Words of a message that say what to write.
SAYS = re.compile(
    r"; \S|\b(expected|must|name|write|say|needs|(?:go|goes) with|either|whole number|a number|true or false)\b"
)
#: Variables that hold a whole message, to which something is put in front.
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
        """What is given at a position or under a keyword; a starred argument stands for all behind it."""
        for index, argument in enumerate(self.node.args):
            if index == position or (isinstance(argument, ast.Starred) and position is not None):
                return argument
        return next((item.value for item in self.node.keywords if item.arg == keyword), None)

    def text(self, expression: ast.expr | None) -> str:
        """The fixed words of an expression; a variable is looked up in the function around it."""
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
            # The words of every value that the variable may have; what is handed on is tested where it is made.
            return " ".join(map(self.text, values)) or "; handed on"
        if isinstance(expression, ast.JoinedStr):
            *_, last = expression.values
            handed_on = isinstance(last, ast.FormattedValue) and ast.unparse(last.value) in HANDED_ON
            fixed = (
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in expression.values
            )
            return "".join(fixed) + (self.text(last.value) if handed_on else "")
        handed_on = expression is None or isinstance(expression, (ast.Attribute, ast.Call))
        return "; handed on" if handed_on else ast.unparse(expression)


def name_of(call: ast.Call) -> str:
    """The name that is called, with what stands before the dot."""
    name = ast.unparse(call.func)
    return name if name in CALLS else name.rpartition(".")[2] if not name.startswith("self.") else name


def calls() -> list[Call]:
    """Every call in the package that makes a message."""
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
            Call(str(path.relative_to(PACKAGE)), node, CALLS[name_of(node)], around.get(id(node), tree))
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and name_of(node) in CALLS
        ]
    return found


EVERY = calls()


def test_the_walk_finds_them():
    assert len(EVERY) > 150
    assert {name_of(call.node) for call in EVERY} == set(CALLS)


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
        given = is_name or is_member or handed_on or (code is None and bool(call.shape.default))
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
        hint = call.argument(call.shape.hint, "remedy")
        has_hint = hint is not None and not (isinstance(hint, ast.Constant) and not hint.value)
        if not has_hint and not SAYS.search(call.text(call.argument(call.shape.message, "message"))):
            wrong.append(call.where)
    assert wrong == []


@pytest.mark.parametrize("code", Code, ids=lambda code: code.name)
def test_every_code_says_what_it_means_and_what_to_do(code):
    for text in (code.meaning, code.remedy):
        assert text[0].isupper()
        assert text.endswith(".")


#: What prints past the codes: Sphinx' and Python's own loggers, docutils' reporters.
PAST = re.compile(
    r"\b(?:sphinx\.util import logging|import logging|import warnings|warnings\.warn|reporter\b|system_message\("
    r"|directive_error|DirectiveError|SphinxError|ExtensionError|create_warning)"
)


def test_no_message_passes_by_the_codes():
    found = [
        f"{path.name}: {match[0]}"
        for path in sorted(PACKAGE.rglob("*.py"))
        # What a typed page is read with logs nothing: docutils hands its remarks over.
        if path.name != "logs.py" and path.parent.name != "intake"
        for match in [PAST.search(re.sub(r'"""[\s\S]*?"""', "", path.read_text("utf-8")))]
        if match
    ]
    assert found == []


#: What no build calls.
NEVER_CALLED = {"git", "intake", "lint", "testing"}
#: What the side that Sphinx calls may raise; what else is raised becomes a traceback.
RAISED = {"OptionError", "NotImplementedError", "answer"}


def test_sphinx_gets_no_exception():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        layer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if layer in {
            "cli",
            "catalog",
            "settings",
            "analysis",
            "estimator",
            "diagnostics",
            "units",
            "i18n",
            *NEVER_CALLED,
        }:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Raise) and node.exc is not None:
                name = re.split(r"\W", ast.unparse(node.exc))[0]
                if name not in RAISED:
                    wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {name}")
    assert wrong == []
