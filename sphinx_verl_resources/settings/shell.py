"""What a shell script would start, found out without starting anything.

Variables are followed through assignments, branches and functions. Where a branch depends on what the script
does not tell, both ways are followed; what they set differently is unknown from there on.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from . import conditions
from .commands import parse
from .expansion import Expansion
from .places import Places
from .syntax import (
    Calculation,
    Case,
    Chain,
    Function,
    Group,
    If,
    Loop,
    Negated,
    Pipeline,
    Simple,
    SyntaxProblem,
    TooMuchError,
)
from .variables import MAX_WORDS, Array, Field, Scope, Unknown, known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .syntax import Assignment, Body, Node
    from .variables import Value

#: Commands inside commands, calls of functions included.
MAX_DEPTH = 60
#: What a command costs, beside the characters that it makes.
_STEP = 10


def read_commands(text: str) -> tuple[list[tuple[Field, ...]], list[SyntaxProblem]]:
    """The commands that a script starts, each with its words, and what is wrong with the script.

    Builtins that only matter to the script itself are left out. Words that stand in an array have their place
    there.

    >>> commands, problems = read_commands("N=4; python3 train.py size=$(( N * 2 ))")
    >>> [field.text for field in commands[0]]
    [('python3',), ('train.py',), ('size=8',)]
    """
    body, problems = parse(text)
    reader = _Reader(text)
    try:
        reader.run_all(body)
    except TooMuchError as error:
        problems.append(SyntaxProblem(reader.at, str(error), "what follows is not read"))
    return reader.found, problems


class _Reader:
    """Goes through the commands of one script in their order."""

    def __init__(self, text: str) -> None:
        self.found: list[tuple[Field, ...]] = []
        self.at = 0
        self._places = Places(text)
        self._expansion = Expansion()
        self._functions: dict[str, Node] = {}
        self._depth = 0

    def run_all(self, body: Body) -> bool | None:
        """Follow commands; whether the last of them succeeds, None if that is not known."""
        status: bool | None = True
        for node in body:
            if self._scope.ended:
                break
            status = self._follow(node)
        return status

    @property
    def _scope(self) -> Scope:
        return self._expansion.scope

    @contextmanager
    def _within(self, scope: Scope) -> Iterator[Scope]:
        """Let a scope hold what is set, and come back."""
        outer, self._expansion.scope = self._scope, scope
        yield scope
        self._expansion.scope = outer

    def _way(self, body: Body) -> Scope:
        """What following ``body`` from here would leave behind."""
        with self._within(Scope(self._scope)) as scope:
            self.run_all(body)
        return scope

    def _follow(self, node: Node) -> bool | None:
        """Follow one command; whether it succeeds, None if that is not known."""
        self._expansion.budget.spend(_STEP)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TooMuchError("commands are nested, or functions call each other, too deeply")
        status = self._run(node)
        self._depth -= 1
        return status

    def _run(self, node: Node) -> bool | None:
        if isinstance(node, Simple):
            self.at = node.at
            return self._simple(node)
        if isinstance(node, Chain):
            return self._chain(node)
        if isinstance(node, Negated):
            status = self._follow(node.command)
            return None if status is None else not status
        if isinstance(node, If):
            self._if(node)
        elif isinstance(node, Case):
            self._case(node)
        elif isinstance(node, Loop):
            self._loop(node)
        elif isinstance(node, Pipeline):
            for command in node.commands:
                self._way((command,))
        elif isinstance(node, Group):
            if not node.apart:
                return self.run_all(node.body)
            self._way(node.body)
        elif isinstance(node, Function):
            self._functions[node.name] = node.body
        elif isinstance(node, Calculation):
            value = known(self._expansion.calculate(node.inner, "((…))"))
            return None if value is None else value != "0"
        return None

    def _chain(self, node: Chain) -> bool | None:
        status = self._follow(node.first)
        for operator, command in node.rest:
            if status is not None and status != (operator == "&&"):
                continue
            with self._within(Scope(self._scope)) as way:
                following = self._follow(command)
            ways = [way] if status is not None and not way.ended else [Scope(self._scope), way]
            self._scope.join(ways, self._condition(self.at))
            status = following if status is not None else None
        return status

    def _if(self, node: If) -> None:
        ways: list[Scope] = []
        for condition, body in node.branches:
            status = self.run_all(condition)
            if status is False:
                continue
            ways.append(self._way(body))
            # A script that is read to learn what it trains is not one that gives up before.
            if status and not ways[-1].ended:
                break
        else:
            ways.append(self._way(node.otherwise))
        self._scope.join(ways, self._condition(node.at))

    def _case(self, node: Case) -> None:
        subject = self._expansion.text(node.word)
        ways: list[Scope] = []
        for patterns, body in node.branches:
            fits = [conditions.matches(subject, self._expansion.text(pattern)) for pattern in patterns]
            if not any(fit is not False for fit in fits):
                continue
            ways.append(self._way(body))
            if True in fits and not ways[-1].ended:
                break
        else:
            ways.append(Scope(self._scope))
        self._scope.join(ways, self._condition(node.at))

    def _loop(self, node: Loop) -> None:
        """A body that runs any number of times: what it changes is unknown before it, too."""
        why = f"is set in the loop in line {self._places.at(node.at).line}"
        names = {node.name} - {""}
        before = len(self.found)
        for _ in range(2):
            del self.found[before:]  # Those of the first time have not yet seen what the body changes.
            start = Scope(self._scope)
            with self._within(start):
                for name in names:
                    value: Value | None = self._scope.get(name)
                    unknown = (Unknown(f"${name}", f"${name} {why}"),)
                    self._expansion.assign(
                        name, Array(value.words, sure=False) if isinstance(value, Array) else unknown
                    )
                self.run_all(node.condition)
                body = self._way(node.body)
            names |= {*start.own, *body.own}
        body.ended = False
        start.join([Scope(start), body], why)
        self._scope.join([Scope(self._scope), start], why)

    def _simple(self, node: Simple) -> bool | None:
        if node.declares or not node.words:
            values = ((assignment.name, self._assigned(assignment)) for assignment in node.assignments)
            # The arguments of a command are all filled in before it does something.
            for name, value in list(values) if node.declares else values:
                self._expansion.assign(name, value)
            return True
        fields = self._expansion.fields(node.words)
        command = known(fields[0].text) or "" if fields else ""
        if command in self._functions:
            return self._call(command, fields[1:])
        return self._builtin(command, fields)

    def _call(self, name: str, arguments: tuple[Field, ...]) -> bool | None:
        """Follow a function, but not into a call of itself."""
        body = self._functions.pop(name)
        outer, self._expansion.arguments = self._expansion.arguments, arguments
        with self._within(Scope(self._scope)) as scope:
            self._follow(body)
        self._expansion.arguments = outer
        self._functions.setdefault(name, body)
        scope.ended = False  # It may have returned.
        self._scope.join([scope], "")
        return None

    def _builtin(self, name: str, fields: tuple[Field, ...]) -> bool | None:
        arguments = fields[1:]
        if name in {"[", "[["}:
            return conditions.holds(arguments[:-1])
        if name == "test":
            return conditions.holds(arguments)
        if name in {"true", ":", "set", "shift"}:
            if name == "shift" and self._expansion.arguments:
                self._expansion.arguments = self._expansion.arguments[1:]
            return True
        if name == "false":
            return False
        if name in {"exit", "return"}:
            self._scope.ended = True
        elif name == "unset":
            for field in arguments:
                self._expansion.assign(known(field.text) or "", None)
        elif name in {"read", "mapfile", "readarray", "getopts", "let"}:
            for field in arguments:
                self._forget(known(field.text) or "")
        elif name == "printf":
            if len(arguments) > 1 and known(arguments[0].text) == "-v":
                self._forget(known(arguments[1].text) or "")
        elif fields:
            self.found.append(fields)
        return None

    def _forget(self, word: str) -> None:
        """A variable that a builtin may set."""
        name = word.partition("=")[0].rstrip("+-*/% ")
        if name.isidentifier():
            self._expansion.assign(name, (Unknown(f"${name}", f"${name} is set when the script runs"),))

    def _assigned(self, assignment: Assignment) -> Value:
        """What an assignment makes of its variable."""
        name, expansion = assignment.name, self._expansion
        value: Value = (Unknown(f"${name}", f"${name} is set word by word, which is not followed"),)
        if isinstance(assignment.value, tuple):
            words = expansion.fields(assignment.value)
            earlier = self._earlier(assignment) or Array(())
            if isinstance(earlier, tuple):
                earlier = Array((Field(earlier, self.at),), known(earlier) is not None)
            if len(earlier.words) + len(words) <= MAX_WORDS:
                value = Array((*earlier.words, *words), earlier.sure)
        elif assignment.value is not None:
            text = expansion.value(assignment.value)
            earlier = self._earlier(assignment) or ()
            if isinstance(earlier, tuple):
                value = expansion.bounded((*earlier, *text)) if earlier else text
        return value

    def _earlier(self, assignment: Assignment) -> Value | None:
        """What ``+=`` adds to."""
        return self._scope.get(assignment.name) if assignment.appends else None

    def _condition(self, at: int) -> str:
        return f"depends on the condition in line {self._places.at(at).line}"
