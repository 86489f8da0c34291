"""The commands that a shell script would start, found without starting any.

Variables are followed through assignments, branches and functions. Where a branch depends on what the script
does not tell, both ways are followed; what they set differently is unknown from there on.
"""

from __future__ import annotations

import operator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...diagnostics import Code, Diagnostic
from . import syntax
from .commands import parse
from .expansion import Expansion, read_number
from .syntax import TooMuchError, Unknown
from .variables import Array, Scope, as_array, is_empty, known

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .syntax import Body, Node, Source
    from .variables import Argument, Text, Value

#: Commands inside commands, calls of functions included.
MAX_DEPTH = 60
#: Words in one array.
MAX_WORDS = 2_000
#: The cost of a command, beside the characters that it makes.
_STEP = 10

_COMPARISONS = {f"-{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_PATTERN_SIGNS = frozenset("*?[")


def read_commands(source: Source) -> tuple[list[tuple[Argument, ...]], list[Diagnostic]]:
    """Return the commands that a script starts, each with its words, and the problems of the script.

    Builtins that only matter to the script itself are left out. The place of a word of an array is in
    the array.

    >>> from sphinx_verl_resources.settings.shell.syntax import Source
    >>> commands, problems = read_commands(Source("N=4; python3 train.py size=$(( N * 2 ))"))
    >>> [argument.text for argument in commands[0]]
    [('python3',), ('train.py',), ('size=8',)]
    """
    body, problems = parse(source)
    follower = _Follower(source)
    try:
        follower.run_all(body)
    except TooMuchError as error:
        place = source.place(follower.at)
        problems.append(Diagnostic(place, Code.shell_syntax, str(error), "what follows is not read"))
    return follower.commands, problems


class _Follower:
    """A walk through the commands of one script in their order."""

    def __init__(self, source: Source) -> None:
        self.commands: list[tuple[Argument, ...]] = []
        self.at = 0
        self._source = source
        self._expansion = Expansion()
        self._functions: dict[str, Node] = {}
        self._depth = 0

    def run_all(self, body: Body) -> bool | None:
        """Follow commands; return whether the last of them succeeds, None if that is not known."""
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
    def _within(self) -> Iterator[Scope]:
        """Let a new scope hold what is set, and come back."""
        outer = self._scope
        self._expansion.scope = Scope(outer)
        yield self._expansion.scope
        self._expansion.scope = outer

    def _way(self, body: Body) -> Scope:
        """Return what following ``body`` from here would leave behind."""
        with self._within() as scope:
            self.run_all(body)
        return scope

    def _follow(self, node: Node) -> bool | None:
        """Follow one command; return whether it succeeds, None if that is not known."""
        self._expansion.spend(_STEP)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TooMuchError("commands are nested, or functions call each other, too deeply")
        status = self._run(node)
        self._depth -= 1
        return status

    def _run(self, node: Node) -> bool | None:
        if isinstance(node, syntax.Simple):
            self.at = node.at
            return self._simple(node)
        if isinstance(node, syntax.Chain):
            return self._chain(node)
        if isinstance(node, syntax.Negated):
            return _negated(self._follow(node.command))
        if isinstance(node, syntax.Group):
            return self.run_all(node.body)
        if isinstance(node, syntax.Calculation):
            value = known(self._expansion.calculate(node.inner, "((…))"))
            return None if value is None else value != "0"
        if isinstance(node, syntax.If):
            conditions = ((self.run_all(condition), body) for condition, body in node.branches)
            self._choose(conditions, node.otherwise, node.at)
        elif isinstance(node, syntax.Case):
            self._choose(self._cases(node), (), node.at)
        elif isinstance(node, syntax.Loop):
            self._loop(node)
        elif isinstance(node, syntax.Apart):
            for body in node.bodies:
                self._way(body)
        elif isinstance(node, syntax.Function):
            self._functions[node.name] = node.body
        return None

    def _chain(self, node: syntax.Chain) -> bool | None:
        status = self._follow(node.first)
        for sign, command in node.rest:
            if status is not None and status != (sign == "&&"):
                continue
            with self._within() as way:
                following = self._follow(command)
            ways = [way] if status is not None and not way.ended else [Scope(self._scope), way]
            self._scope.join(ways, self._condition(self.at))
            status = following if status is not None else None
        return status

    def _choose(self, branches: Iterable[tuple[bool | None, Body]], otherwise: Body, at: int) -> None:
        """Follow each branch that may be taken; the first item of a branch tells whether it is."""
        ways: list[Scope] = []
        for taken, body in branches:
            if taken is False:
                continue
            ways.append(self._way(body))
            # A script that is read to learn what it trains is not one that gives up before.
            if taken and not ways[-1].ended:
                break
        else:
            ways.append(self._way(otherwise))
        self._scope.join(ways, self._condition(at))

    def _cases(self, node: syntax.Case) -> Iterator[tuple[bool | None, Body]]:
        subject = self._expansion.text(node.word)
        for patterns, body in node.branches:
            fits = [_matches(subject, self._expansion.text(pattern)) for pattern in patterns]
            yield True in fits or (None if None in fits else False), body

    def _loop(self, node: syntax.Loop) -> None:
        """Follow a body that runs any number of times: what it changes is unknown before it, too."""
        why = f"is set in the loop in line {self._source.place(node.at).line}"
        names = {node.name} - {""}
        before = len(self.commands)
        for _ in range(2):
            del self.commands[before:]  # Those of the first time have not yet seen what the body changes.
            with self._within() as start:
                for name in names:
                    value = self._scope.get(name)
                    if isinstance(value, Array):
                        self._expansion.assign(name, Array(value.words, sure=False))
                    else:
                        self._expansion.doubt(name, why)
                self.run_all(node.condition)
                body = self._way(node.body)
            names |= {*start.own, *body.own}
        body.ended = False
        start.join([Scope(start), body], why)
        self._scope.join([Scope(self._scope), start], why)

    def _simple(self, node: syntax.Simple) -> bool | None:
        if node.declares or not node.words:
            values = ((assignment.name, self._assigned(assignment)) for assignment in node.assignments)
            # The arguments of a command are all filled in before it does something.
            for name, value in list(values) if node.declares else values:
                self._expansion.assign(name, value)
            return True
        words = self._expansion.words(node.words)
        command = known(words[0].text) or "" if words else ""
        if command in self._functions:
            return self._call(command, words[1:])
        return self._builtin(command, words)

    def _call(self, name: str, arguments: tuple[Argument, ...]) -> bool | None:
        """Follow a function, but not into a call of itself."""
        body = self._functions.pop(name)
        outer, self._expansion.arguments = self._expansion.arguments, arguments
        with self._within() as scope:
            self._follow(body)
        self._expansion.arguments = outer
        self._functions.setdefault(name, body)
        scope.ended = False  # It may have returned.
        self._scope.join([scope], "")
        return None

    def _builtin(self, name: str, words: tuple[Argument, ...]) -> bool | None:
        """Follow a command that the shell runs itself; note any other as one that the script starts."""
        arguments = [word.text for word in words[1:]]
        if name in {"[", "[[", "test"}:
            return _holds(arguments if name == "test" else arguments[:-1])
        if name in {"true", ":", "set", "shift"}:
            if name == "shift" and self._expansion.arguments:
                self._expansion.arguments = self._expansion.arguments[1:]
            return True
        if name == "false":
            return False
        if name in {"exit", "return"}:
            self._scope.ended = True
        elif name == "unset":
            for argument in arguments:
                self._expansion.assign(known(argument) or "", None)
        elif name in {"read", "mapfile", "readarray", "getopts", "let"}:
            self._forget(arguments)
        elif name == "printf":
            self._forget(arguments[1:2] if arguments and known(arguments[0]) == "-v" else [])
        elif words:
            self.commands.append(words)
        return None

    def _forget(self, arguments: list[Text]) -> None:
        """Make the variables unknown that a builtin may set."""
        for argument in arguments:
            name = (known(argument) or "").partition("=")[0].rstrip("+-*/% ")
            if name.isidentifier():
                self._expansion.doubt(name, "is set when the script runs")

    def _assigned(self, assignment: syntax.Assignment) -> Value:
        """Return the value that an assignment gives to its variable."""
        name, word, appends = assignment
        if isinstance(word, tuple):
            words = self._expansion.words(word)
            earlier = self._scope.get(name) if appends else None
            array = Array() if earlier is None else as_array(earlier, self.at)
            if len(array.words) + len(words) <= MAX_WORDS:
                return Array((*array.words, *words), array.sure)
        elif word is not None:
            text = self._expansion.value(word)
            earlier = self._scope.get(name) if appends else None
            if not isinstance(earlier, Array):
                return self._expansion.bounded((*earlier, *text)) if earlier else text
        return (Unknown(f"${name}", f"${name} is set word by word, which is not followed"),)

    def _condition(self, at: int) -> str:
        return f"depends on the condition in line {self._source.place(at).line}"


def _holds(test: Sequence[Text]) -> bool | None:
    """Return whether a test between brackets succeeds; None where that depends on more than the script.

    Files are not looked at, and tests joined by ``&&`` are not followed.

    >>> [_holds([(word,) for word in test.split()]) for test in ("8 -gt 4", "! a != a", "-f run.sh")]
    [True, True, None]
    """
    negations = next((index for index, text in enumerate(test) if known(text) != "!"), len(test))
    holds = _simple_test(test[negations:])
    return _negated(holds) if negations % 2 else holds


def _simple_test(test: Sequence[Text]) -> bool | None:
    if len(test) == 1:
        return _negated(_is_empty(test[0]))
    if len(test) == 2:
        empty = _is_empty(test[1])
        return {"-z": empty, "-n": _negated(empty)}.get(known(test[0]) or "")
    if len(test) == 3:
        return _compare(test[0], known(test[1]) or "", test[2])
    return None


def _compare(one: Text, sign: str, other: Text) -> bool | None:
    if sign in {"=", "==", "!="}:
        equal = _matches(one, other) if known(one) is not None else None
        return _negated(equal) if sign == "!=" else equal
    first, second = (read_number(known(text) or "") for text in (one, other))
    if sign not in _COMPARISONS or first is None or second is None:
        return None
    return bool(_COMPARISONS[sign](first, second))


def _matches(text: Text, pattern: Text) -> bool | None:
    """Return whether a text fits a pattern of ``case``; None for all patterns but plain words and ``*``.

    >>> [_matches(("vllm",), (pattern,)) for pattern in ("vllm", "sglang", "*", "v*")]
    [True, False, True, None]
    """
    one, other = known(text), known(pattern)
    if other == "*":
        return True
    return None if one is None or other is None or _PATTERN_SIGNS & set(other) else one == other


def _is_empty(text: Text) -> bool | None:
    """Return whether a text is empty when nothing is set around the script."""
    unset = len(text) == 1 and isinstance(text[0], Unknown) and text[0].unset
    return True if unset else is_empty(text)


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value
