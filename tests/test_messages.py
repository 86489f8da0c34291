"""Every message has a code, a place and a remedy: read from the calls in the source that make one.

These calls are found by the parameters of the function: ``message`` with ``code`` or ``remedy``.

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


class Callee(NamedTuple):
    """A function or class, of which many make messages.

    Attributes:
        path: its module.
        parameters: their names in order, without ``self``.
        optional: the names of those that have a default.
    """

    path: Path
    parameters: list[str]
    optional: set[str]

    @property
    def makes_messages(self) -> bool:
        """It takes a message with its code or remedy, or must be given a remedy."""
        takes, requires = {*self.parameters}, {*self.parameters} - self.optional
        return "remedy" in requires or ("message" in takes and bool({"code", "remedy"} & takes))


#: Words of a message that say what to write.
SAYS = re.compile(
    r"; \S|\b(expected|must|name|write|say|needs|(?:go|goes) with|either|whole number|a number|true or false)\b"
)
#: Variables that hold a whole message, to which something is put in front.
HANDED_ON = {"error", "problem", "problem.text", "text", "what", "message"}


class Call(NamedTuple):
    """A call that makes a message."""

    path: str
    node: ast.Call
    callee: Callee
    function: ast.AST

    @property
    def where(self) -> str:
        return f"{self.path}:{self.node.lineno}: {ast.unparse(self.node)}"

    def argument(self, name: str) -> ast.expr | None:
        """Return the argument for a parameter; a starred argument stands for all behind it."""
        position = self.callee.parameters.index(name) if name in self.callee.parameters else None
        for index, argument in enumerate(self.node.args):
            if index == position or (isinstance(argument, ast.Starred) and position is not None):
                return argument
        return next((item.value for item in self.node.keywords if item.arg == name), None)

    @property
    def handed_on(self) -> set[str]:
        """The parameters of the function around the call; it is made where that function is called."""
        is_function = isinstance(self.function, ast.FunctionDef)
        return set(parameters_of(self.function)[0]) if is_function else set()

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


def parameters_of(node: ast.FunctionDef) -> tuple[list[str], set[str]]:
    """Return the names of the parameters of a function, and of those that have a default."""
    arguments = node.args
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    by_name = [argument.arg for argument in arguments.kwonlyargs]
    defaults = {name for name, default in zip(by_name, arguments.kw_defaults, strict=True) if default}
    optional = {*positional[len(positional) - len(arguments.defaults) :], *defaults}
    return [name for name in (*positional, *by_name) if name not in {"self", "cls"}], optional


def parsed() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def signatures(modules: dict[Path, ast.Module]) -> dict[str, list[Callee]]:
    """Return every function and class of the package by the name with which it is called."""
    every: dict[str, list[Callee]] = {}
    for path, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                every.setdefault(node.name, []).append(Callee(path, *parameters_of(node)))
            elif isinstance(node, ast.ClassDef):
                fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
                names = [ast.unparse(field.target) for field in fields]
                callee = Callee(
                    path, names, {name for name, field in zip(names, fields, strict=True) if field.value}
                )
                constructor = [item for item in node.body if getattr(item, "name", "") == "__init__"]
                callee = Callee(path, *parameters_of(constructor[0])) if constructor else callee
                every.setdefault(node.name, []).append(callee)
    return every


def calls() -> list[Call]:
    """Return every call in the package that makes a message."""
    modules = parsed()
    known = signatures(modules)
    every = []
    for path, tree in modules.items():
        around = {
            id(node): function
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func).rpartition(".")[2]
                # Of functions with one name, the nearest is meant; a private one is called in its module only.
                near = min(
                    (callee for callee in known.get(name, []) if callee.path == path or name[0] != "_"),
                    key=lambda callee: (callee.path != path, callee.path.parent != path.parent),
                    default=None,
                )
                if near and near.makes_messages:
                    where = str(path.relative_to(PACKAGE))
                    every.append(Call(where, node, near, around.get(id(node), tree)))
    return every


EVERY = calls()


def test_the_walk_finds_them():
    assert len(EVERY) > 150
    assert {"Diagnostic", "because", "fail", "error_at", "problem"} <= {
        ast.unparse(call.node.func).rpartition(".")[2] for call in EVERY
    }


def test_what_is_handed_on_has_the_names_by_which_it_is_found():
    """A function that hands a parameter on as a message makes messages, and is seen by its parameters' names."""
    wrong = []
    for call in EVERY:
        for name in ("code", "message", "remedy"):
            argument = call.argument(name)
            if isinstance(argument, ast.Name) and argument.id in call.handed_on - {name}:
                wrong.append(call.where)
    assert wrong == []


def test_every_message_has_a_code():
    wrong = []
    for call in EVERY:
        code = call.argument("code")
        text = ast.unparse(code) if code is not None else ""
        is_name = isinstance(code, ast.Constant) and code.value in Code.__members__
        is_member = text.startswith("Code.") and text.removeprefix("Code.").split("[")[0] in {
            *Code.__members__,
            "",
        }
        handed_on = isinstance(code, (ast.Starred, ast.Name)) or text.endswith(
            (".code", "Code[kind]", ".unknown")
        )
        given = is_name or is_member or handed_on or (code is None and "code" in call.callee.optional)
        if "code" in call.callee.parameters and not given:
            wrong.append(call.where)
    assert wrong == []


def test_every_message_has_a_place():
    wrong = [
        call.where
        for call in EVERY
        if isinstance(place := call.argument("place"), ast.Constant) and not place.value
    ]
    assert wrong == []


def test_every_message_has_a_remedy():
    wrong = []
    for call in EVERY:
        hint = call.argument("remedy")
        has_hint = hint is not None and not (isinstance(hint, ast.Constant) and not hint.value)
        message = call.text(call.argument("message")) if "message" in call.callee.parameters else ""
        if not has_hint and not SAYS.search(message):
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
#: A TypeError is for programmers: an answer holds a value that has no fingerprint.
RAISED = {"NoAnswerError", "NotImplementedError", "TypeError", "answer"}


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
