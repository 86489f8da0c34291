"""The commands that a shell script starts, determined without running it.

Variables are tracked through assignments, branches and functions. If the script does not determine a
condition, both branches are followed; variables that differ between them become unknown.
"""

from __future__ import annotations

import operator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...diagnostics import Diagnostic, warning
from . import syntax
from .commands import parse
from .expansion import Expansion, read_number
from .syntax import Cause, Parameter, TooMuchError, Unknown, Word, parts_of
from .variables import Array, Scope, as_array, found_on_gpus, gpu_answer, is_empty, known, names_in, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .syntax import Body, Node, Source
    from .variables import Argument, Text, Value

#: The maximum nesting depth of commands, including function calls.
MAX_DEPTH = 60
#: The maximum number of words in an array.
MAX_WORDS = 2_000
#: The cost of a command, besides the characters that it expands to.
_STEP = 10

#: Commands that declare variables as local to a function.
_LOCAL = frozenset({"local", "declare", "typeset"})
_COMPARISONS = {f"-{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_PATTERN_SIGNS = frozenset("*?[")


class Followed(NamedTuple):
    """The result of following a script.

    Attributes:
        commands: the commands that it starts, each with its words. Words of an array have their place in it.
        problems: the problems of the script, and the assumptions about it.
        doubts: the condition that determines whether a command starts, by the position of its first word.
        sourced: the sourced files, which are not followed, by position.
        passed: the lines of branches that are not taken.
        assigned: the lines of values of variables.
        asked: the names of variables that the script reads from its environment.
    """

    commands: list[tuple[Argument, ...]]
    problems: list[Diagnostic]
    doubts: dict[int, Cause]
    sourced: dict[int, str]
    passed: frozenset[int]
    assigned: frozenset[int]
    asked: frozenset[str]


def follow(source: Source, environment: Mapping[str, str]) -> Followed:
    """Follow the commands of a script in order.

    Builtins that only affect the script itself are not reported as commands.

    >>> from sphinx_verl_resources.settings.shell.syntax import Source
    >>> script = Source("N=${N:-4}; python3 train.py size=$(( N * 2 ))")
    >>> [argument.text for argument in follow(script, {"N": "8"}).commands[0]]
    [('python3',), ('train.py',), ('size=16',)]
    """
    body, problems = parse(source)
    follower = _Follower(source, environment)
    try:
        follower.run_all(body)
    except TooMuchError as error:
        place = source.place(follower.at)
        problems.append(
            Diagnostic(place, "shell_syntax", str(error), "split the script; the rest was not read")
        )
    return follower.result(problems)


class _Follower:
    """A walk through the commands of a script in order."""

    def __init__(self, source: Source, environment: Mapping[str, str]) -> None:
        self.at = 0
        self._commands: list[tuple[Argument, ...]] = []
        self._notes: dict[int, Diagnostic] = {}
        self._doubts: dict[int, Cause] = {}
        self._sourced: dict[int, str] = {}
        self._passed: list[Body] = []
        self._followed: dict[int, syntax.Simple] = {}
        self._tested: list[str] = []
        self._probes = 0
        self._source = source
        self._expansion = Expansion(environment)
        self._functions: dict[str, Node] = {}
        self._locals: list[set[str]] = []
        self._depth = 0

    def result(self, problems: list[Diagnostic]) -> Followed:
        """Return the result; ``problems`` come before those found here."""
        passed = (each for each in parts_of(self._passed, syntax.Simple) if each.at not in self._followed)
        assigned = (each.assignments for each in self._followed.values())
        return Followed(
            self._commands,
            [*problems, *self._notes.values()],
            self._doubts,
            self._sourced,
            self._lines(passed),
            self._lines(assigned),
            frozenset(self._expansion.environment.asked),
        )

    def _lines(self, trees: Iterable[object]) -> frozenset[int]:
        """Return the lines of the words in commands."""
        return frozenset(self._source.place(word.at).line for tree in trees for word in parts_of(tree, Word))

    def run_all(self, body: Body) -> bool | None:
        """Follow commands; return whether the last one succeeds, None if unknown."""
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
        """Collect variables in a new scope, then return to the current one."""
        outer = self._scope
        self._expansion.scope = Scope(outer)
        yield self._expansion.scope
        self._expansion.scope = outer

    def _way(self, body: Body) -> Scope:
        """Follow ``body`` in a new scope, and return the scope."""
        with self._within() as scope:
            self.run_all(body)
        return scope

    def _follow(self, node: Node) -> bool | None:
        """Follow a command; return whether it succeeds, None if unknown."""
        self._expansion.spend(_STEP)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TooMuchError("commands or function calls are nested too deeply")
        status = self._run(node)
        self._depth -= 1
        return status

    def _run(self, node: Node) -> bool | None:
        if isinstance(node, syntax.Simple):
            self.at = node.at
            self._followed[node.at] = node
            return self._simple(node)
        if isinstance(node, syntax.Chain):
            return self._chain(node)
        if isinstance(node, syntax.Negated):
            return negated(self._follow(node.command))
        if isinstance(node, syntax.Group):
            return self.run_all(node.body)
        if isinstance(node, syntax.Calculation):
            value = known(self._expansion.calculate(node.inner, "((…))"))
            return None if value is None else value != "0"
        if isinstance(node, syntax.If):
            conditions = [(partial(self.run_all, condition), body) for condition, body in node.branches]
            self._choose(conditions, node.otherwise, node.at)
        elif isinstance(node, syntax.Case):
            subject = self._expansion.text(node.word)
            self._note_device(node.at)
            cases = [(partial(self._fits, subject, patterns), body) for patterns, body in node.branches]
            self._choose(cases, (), node.at)
        elif isinstance(node, syntax.Loop):
            self._loop(node)
        elif isinstance(node, syntax.Apart):
            for body in node.bodies:
                self._way(body)
        elif isinstance(node, syntax.Function):
            self._functions[node.name] = node.body
        return None

    def _chain(self, node: syntax.Chain) -> bool | None:
        tested, before = len(self._tested), len(self._commands)
        probes = self._probes
        status = self._follow(node.first)
        at = self.at
        self._note_probes(at, probes)
        for sign, command in node.rest:
            if status is not None and status != (sign == "&&"):
                self._passed.append((command,))
                continue
            why = self._condition(at, tested)
            with self._within() as way:
                following = self._follow(command)
            ways = [way] if status is not None and not way.ended else [Scope(self._scope), way]
            self._decide(ways, why, before)
            before = len(self._commands)  # commands collected earlier keep their condition
            # An unknown chain fails after a failing '&&' part and succeeds after a succeeding '||' part.
            status = following if status is not None or following == (sign == "||") else None
        return status

    def _choose(
        self, branches: Sequence[tuple[Callable[[], bool | None], Body]], otherwise: Body, at: int
    ) -> None:
        """Follow each branch that may be taken; its first item is a function that returns whether it is."""
        start, before = len(self._tested), len(self._commands)
        ways: list[Scope] = []
        for index, (decide, body) in enumerate(branches, 1):
            probes = self._probes
            taken = decide()
            self._note_probes(at, probes)
            if taken is False:
                self._passed.append(body)
                continue
            tested = len(self._tested)
            ways.append(self._way(body))
            del self._tested[tested:]
            # The script is read for its training: if the taken branch exits, follow the others, too.
            if taken and not ways[-1].ended:
                self._passed += [*(rest for _, rest in branches[index:]), otherwise]
                break
        else:
            ways.append(self._way(otherwise))
        self._decide(ways, self._condition(at, start), before)

    def _decide(self, ways: list[Scope], why: Cause, before: int) -> None:
        """Merge alternative ways; ``why`` decides between them, and their commands begin at ``before``."""
        self._scope.join(ways, why)
        if len(ways) > 1:
            self._doubts |= dict.fromkeys((words[0].at for words in self._commands[before:]), why)

    def _fits(self, subject: Text, patterns: Sequence[Word]) -> bool | None:
        fits = [matches(subject, self._expansion.text(pattern)) for pattern in patterns]
        return True in fits or (self._test(None, [subject]) if None in fits else False)

    def _test(self, outcome: bool | None, texts: Sequence[Text]) -> bool | None:
        """Return the outcome of a test; if unknown, note the variables that determine it."""
        self._tested += names_in(texts) if outcome is None else ()
        return outcome

    def _loop(self, node: syntax.Loop) -> None:
        """Follow a loop, which runs any number of times: variables that it changes are unknown inside it."""
        why = Cause(f"the loop in line {self._source.place(node.at).line} sets it", at=node.at)
        names = {node.name} - {""}
        before = len(self._commands)
        for _ in range(2):
            del self._commands[before:]  # drop the first pass, which did not yet know the changed variables
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
            if self._locals and node.words and node.words[0].plain in _LOCAL:
                bare = {word.plain for word in node.words[1:] if word.plain.isidentifier()}
                self._scope.own |= dict.fromkeys(bare)
                self._locals[-1] |= {*bare, *(assignment.name for assignment in node.assignments)}
            values = ((assignment.name, self._assigned(assignment)) for assignment in node.assignments)
            # All arguments of a command are expanded before it runs.
            for name, value in list(values) if node.declares else values:
                self._expansion.assign(name, value)
            return True
        words = self._expansion.words(node.words)
        self._note_device(node.at)
        command = known(words[0].text) or "" if words else ""
        if command in self._functions:
            return self._call(command, words[1:])
        return self._builtin(command, words)

    def _call(self, name: str, arguments: tuple[Argument, ...]) -> bool | None:
        """Follow a function call, but not a recursive one."""
        body = self._functions.pop(name)
        with self._within() as scope:
            self._locals.append({"@"})
            self._expansion.assign("@", Array(arguments))
            self._follow(body)
        self._functions.setdefault(name, body)
        scope.ended = False  # the function may have returned instead of ending the script
        for local in self._locals.pop():
            scope.own.pop(local, None)
        self._scope.join([scope], Cause(""))
        return None

    def _builtin(self, name: str, words: tuple[Argument, ...]) -> bool | None:
        """Follow a builtin of the shell; collect any other command as one that the script starts."""
        arguments = [word.text for word in words[1:]]
        if name in {"[", "[[", "test"}:
            return self._test(holds(arguments if name == "test" else arguments[:-1]), arguments)
        if name in {"true", "false", ":"}:
            return name != "false"
        if name in {"set", "shift"}:
            self._set_arguments(name, words)
            return True
        if name in {"exit", "return"}:
            self._scope.ended = True
        elif name == "unset":
            for argument in arguments:
                self._expansion.assign(known(argument) or "", None)
        elif name in {"read", "mapfile", "readarray", "getopts", "let"}:
            self._forget(arguments)
        elif name == "printf":
            self._forget(arguments[1:2] if arguments and known(arguments[0]) == "-v" else [])
        elif name in {"source", "."}:
            self._sourced[words[0].at] = " ".join(map(written, arguments))
        elif words:
            self._commands.append(words)
            text = " ".join(written(word.text) for word in words)
            if name == "eval" and " -m " not in text:
                self._sourced[words[0].at] = text
            found = found_on_gpus(text)
            self._probes += found is not None
            return found
        return None

    def _note_probes(self, at: int, before: int) -> None:
        """Report a condition that detects the device."""
        if self._probes > before:
            remedy = "for another device, replace the condition with its other branch"
            self._notes[at] = warning(
                self._source.place(at), "assumed_device", "the device is assumed to be a GPU", remedy
            )

    def _set_arguments(self, name: str, words: tuple[Argument, ...]) -> None:
        """Follow ``set -- a b`` and ``shift 2``."""
        texts = [known(word.text) for word in words[1:]]
        if name == "set":
            if "--" in texts:
                self._expansion.assign("@", Array(words[texts.index("--") + 2 :]))
            return
        arguments = self._scope.get("@")
        count = read_number(texts[0] or "") if texts else 1
        if isinstance(arguments, Array) and count is not None and arguments.sure:
            if count <= len(arguments.words):
                self._expansion.assign("@", Array(arguments.words[count:]))
        elif arguments is not None:
            self._expansion.assign("@", Array(as_array(arguments).words, sure=False))

    def _forget(self, arguments: list[Text]) -> None:
        """Make variables unknown that a builtin may set."""
        for argument in arguments:
            name = (known(argument) or "").partition("=")[0].rstrip("+-*/% ")
            if name.isidentifier():
                self._expansion.doubt(name, Cause(f"${name} is set when the script runs"))

    def _assigned(self, assignment: syntax.Assignment) -> Value:
        """Return the value of an assignment, and report an assumed device in it."""
        value = self._value(assignment)
        self._note_device(self.at, assignment)
        return value

    def _value(self, assignment: syntax.Assignment) -> Value:
        name, word, appends = assignment
        if isinstance(word, tuple):
            words = self._expansion.words(word)
            earlier = self._scope.get(name) if appends else None
            array = Array() if earlier is None else as_array(earlier, self.at)
            if len(array.words) + len(words) <= MAX_WORDS:
                return Array((*array.words, *words), array.sure)
        elif word is not None:
            text = self._expansion.text(word)
            earlier = self._scope.get(name) if appends else None
            if not isinstance(earlier, Array):
                return self._expansion.bounded((*earlier, *text)) if earlier else text
        return (Unknown(f"${name}", Cause(f"the elements of ${name} cannot be determined")),)

    def _condition(self, at: int, tested: int) -> Cause:
        """Return a condition as a cause; ``tested`` is the number of variables tested before it."""
        names = tuple(dict.fromkeys(self._tested[tested:]))
        depends = f"depends on {', '.join(f'${name}' for name in names)}" if names else "cannot be evaluated"
        return Cause(f"the condition in line {self._source.place(at).line} {depends}", names, at)

    def _note_device(self, at: int, assignment: syntax.Assignment | None = None) -> None:
        """Report the assumed output of commands that detect the device."""
        name = assignment.name if assignment else "the device"
        asked = {part.name for part in parts_of(assignment, Parameter)}
        for command in self._expansion.detected:
            message = f"{name} is assumed to be {gpu_answer(command)}"
            other = "npu" if "npu" in command else "NAME"
            remedy = f"add --env {name}={other}" if name in asked else "write its value here"
            self._notes[at] = warning(
                self._source.place(at), "assumed_device", message, f"for another device, {remedy}"
            )
        self._expansion.detected.clear()


# -- tests in brackets and patterns of ``case``, as far as the script determines them


def holds(test: Sequence[Text]) -> bool | None:
    """Return whether a test in brackets succeeds; None if that depends on more than the script.

    Tests of files and tests joined with ``&&`` are not evaluated.

    >>> [holds([(word,) for word in test.split()]) for test in ("8 -gt 4", "! a != a", "-f run.sh")]
    [True, True, None]
    """
    negations = next((index for index, text in enumerate(test) if known(text) != "!"), len(test))
    holds = _simple_test(test[negations:])
    return negated(holds) if negations % 2 else holds


def _simple_test(test: Sequence[Text]) -> bool | None:
    if len(test) == 1:
        return negated(_is_empty(test[0]))
    if len(test) == 2:
        empty = _is_empty(test[1])
        return {"-z": empty, "-n": negated(empty)}.get(known(test[0]) or "")
    if len(test) == 3:
        return _compare(test[0], known(test[1]) or "", test[2])
    return None


def _compare(one: Text, sign: str, other: Text) -> bool | None:
    if sign in {"=", "==", "!="}:
        equal = matches(one, other) if known(one) is not None else None
        return negated(equal) if sign == "!=" else equal
    first, second = (read_number(known(text) or "") for text in (one, other))
    if sign not in _COMPARISONS or first is None or second is None:
        return None
    return bool(_COMPARISONS[sign](first, second))


def matches(text: Text, pattern: Text) -> bool | None:
    """Return whether a text matches a pattern of ``case``; None unless the pattern is a plain word or ``*``.

    >>> [matches(("vllm",), (pattern,)) for pattern in ("vllm", "sglang", "*", "v*")]
    [True, False, True, None]
    """
    one, other = known(text), known(pattern)
    if other == "*":
        return True
    return None if one is None or other is None or _PATTERN_SIGNS & set(other) else one == other


def _is_empty(text: Text) -> bool | None:
    """Return whether a text is empty if the environment sets no variables."""
    unset = len(text) == 1 and isinstance(text[0], Unknown) and text[0].unset
    return True if unset else is_empty(text)


def negated(value: bool | None) -> bool | None:
    """Return the opposite of an outcome; None if unknown."""
    return None if value is None else not value
