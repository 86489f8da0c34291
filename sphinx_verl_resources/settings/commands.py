"""Commands of a shell script: from text to a tree, whatever stands in the text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .syntax import (
    Assignment,
    Calculation,
    Case,
    Chain,
    Function,
    Group,
    If,
    Literal,
    Loop,
    Negated,
    Opaque,
    Pipeline,
    Simple,
    TooMuchError,
    Word,
)
from .words import Scanner

if TYPE_CHECKING:
    from .syntax import Body, Node, Part, SyntaxProblem

#: Commands that take assignments as their arguments.
DECLARING = frozenset({"export", "local", "declare", "typeset", "readonly"})

_BLANKS = re.compile(r"(?:[ \t]|\\\n)+")
_COMMENT = re.compile(r"#[^\n]*")
_RESERVED = re.compile(
    r"(?:if|then|elif|else|fi|for|select|while|until|do|done|case|esac|function|time|[{}!])(?![^\s;&|()<>])"
)
#: What closes something, and can therefore begin no command.
_ENDS = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}", ")", ";;", ";&", ";;&"})
_FUNCTION = re.compile(r"(?:function[ \t]+)?(?P<name>[A-Za-z_][\w.:-]*)[ \t]*\([ \t]*\)")
_FUNCTION_WORD = re.compile(r"function[ \t]+(?P<name>[A-Za-z_][\w.:-]*)")
_LOOP_NAME = re.compile(r"[ \t]*(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:\s+in(?![^\s;]))?")
_IN = re.compile(r"\s*in(?![^\s;])")
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<index>\[[^\]\n]{0,80}\])?(?P<appends>\+?)=")
_REDIRECTION = re.compile(
    r"(?:[0-9]{1,3}|\{[A-Za-z_][A-Za-z0-9_]*\})?(?P<operator><<<|<<-?|&>>|&>|>>|<>|>\||[<>]&?)(?!\()"
)
_PROCESS = re.compile(r"[<>]\(")
_TEST_OPERATOR = re.compile(r"[()<>&|]{1,2}")
_OPERATOR = re.compile(r"&&|\|\||;;&|;;|;&|\|&|[;&|()\n]")


def parse(text: str) -> tuple[Body, list[SyntaxProblem]]:
    """The commands of a script, and what no shell would accept in it.

    >>> body, problems = parse("N=2; if true; then N=3; fi")
    >>> [type(node).__name__ for node in body], problems
    (['Simple', 'If'], [])
    """
    parser = _Parser(text)
    nodes: list[Node] = []
    try:
        while parser.pos < len(text):
            if node := parser.statement(frozenset()):
                nodes.append(node)
            else:
                parser.skip_stray()
    except TooMuchError as error:
        parser.fail(parser.pos, str(error), "split the script, or write the settings out")
    return tuple(nodes), parser.problems


class _Parser(Scanner):
    """A scanner that also knows commands."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._heredocs: list[tuple[str, bool, int]] = []

    def statement(self, ends: frozenset[str]) -> Node | None:
        """The next commands that belong together; None before a word or operator that ends something."""
        self._skip_separators(ends)
        at_end = self.pos >= len(self.text) or self._peek() in ends | _ENDS
        return None if at_end else self._chain()

    def skip_stray(self) -> None:
        """Report a word or bracket that closes nothing, and go on behind it."""
        found = self._peek()
        if found:
            message = f"{found!r} closes nothing that is open"
            self.fail(self.pos, message, "delete it, or open what it should close")
            self.pos += len(found)

    def _body(self, *ends: str) -> Body:
        """Commands up to one of the words or operators in ``ends``, which is left to be read."""
        self.enter()
        nodes: list[Node] = []
        while node := self.statement(frozenset(ends)):
            nodes.append(node)
        self.leave()
        return tuple(nodes)

    def _peek(self) -> str:
        """The reserved word or operator that stands next, empty if there is none."""
        match = _RESERVED.match(self.text, self.pos) or _OPERATOR.match(self.text, self.pos)
        return match[0] if match else ""

    def _expect(self, word: str, opened: int, what: str) -> None:
        self._skip_separators(frozenset({word}))
        if self._peek() == word:
            self.pos += len(word)
        else:
            self.fail(opened, f"{what!r} has no {word!r}", f"add {word!r}")

    def _accept(self, *words: str) -> str:
        found = self._peek()
        if found in words:
            self.pos += len(found)
            return found
        return ""

    def _skip_blanks(self) -> None:
        """Blanks, lines that continue, and a comment."""
        for pattern in (_BLANKS, _COMMENT):
            if match := pattern.match(self.text, self.pos):
                self.pos = match.end()

    def _skip_lines(self) -> None:
        """Blanks, comments and ends of lines."""
        self._skip_blanks()
        while self.text.startswith("\n", self.pos):
            self.pos += 1
            self._skip_heredocs()
            self._skip_blanks()

    def _skip_separators(self, ends: frozenset[str]) -> None:
        self._skip_lines()
        while self._peek() in {";", "&"} - ends:
            self.pos += 1
            self._skip_lines()

    def _skip_heredocs(self) -> None:
        """Go behind the texts that the line just ended announced."""
        for delimiter, may_indent, announced in self._heredocs:
            while self.pos < len(self.text):
                end = self.text.find("\n", self.pos)
                end = len(self.text) if end < 0 else end
                line = self.text[self.pos : end]
                self.pos = end + 1
                if (line.lstrip("\t") if may_indent else line) == delimiter:
                    break
            else:
                hint = "put it on a line of its own, without blanks"
                self.fail(announced, f"the text that begins here has no line {delimiter!r} at its end", hint)
        self._heredocs.clear()

    def _chain(self) -> Node:
        first = self._pipeline()
        rest: list[tuple[str, Node]] = []
        while True:
            self._skip_blanks()
            operator = self._accept("&&", "||")
            if not operator:
                return Chain(first, tuple(rest)) if rest else first
            self._skip_lines()
            rest.append((operator, self._pipeline()))

    def _pipeline(self) -> Node:
        negated = False
        while word := self._accept("!", "time"):
            negated ^= word == "!"
            self._skip_blanks()
        commands = [self._command()]
        while True:
            self._skip_blanks()
            if not self._accept("|", "|&"):
                break
            self._skip_lines()
            commands.append(self._command())
        node = Pipeline(tuple(commands)) if len(commands) > 1 else commands[0]
        return Negated(node) if negated else node

    def _command(self) -> Node:
        start = self.pos
        if self.text.startswith("((", start):
            return self._calculation()
        if function := _FUNCTION.match(self.text, start) or _FUNCTION_WORD.match(self.text, start):
            self.pos = function.end()
            self._skip_lines()
            self.enter()
            called = self._command()
            self.leave()
            return Function(function["name"], called)
        word = self._peek()
        node: Node
        if word == "if":
            node = self._if(start)
        elif word in {"for", "select", "while", "until"}:
            node = self._loop(word, start)
        elif word == "case":
            node = self._case(start)
        elif word in {"{", "("}:
            closing = "}" if word == "{" else ")"
            self.pos += 1
            body = self._body(closing)
            self._expect(closing, start, word)
            node = Group(body, word == "(")
        else:
            return self._simple()
        while self._redirection():
            pass
        return node

    def _if(self, start: int) -> Node:
        branches: list[tuple[Body, Body]] = []
        otherwise: Body = ()
        word = self._accept("if")
        while word in {"if", "elif"}:
            condition = self._body("then")
            self._expect("then", start, "if")
            branches.append((condition, self._body("elif", "else", "fi")))
            word = self._accept("elif", "else")
        if word == "else":
            otherwise = self._body("fi")
        self._expect("fi", start, "if")
        return If(tuple(branches), otherwise, start)

    def _loop(self, word: str, start: int) -> Node:
        self.pos += len(word)
        name = ""
        condition: Body = ()
        if word in {"for", "select"}:
            self._skip_blanks()
            if self.text.startswith("((", self.pos):
                condition = (self._calculation(),)
            elif match := _LOOP_NAME.match(self.text, self.pos):
                name, self.pos = match["name"], match.end()
                self._words()
        else:
            condition = self._body("do")
        self._expect("do", start, word)
        body = self._body("done")
        self._expect("done", start, word)
        return Loop(name, condition, body, start)

    def _case(self, start: int) -> Node:
        self.pos += len("case")
        self._skip_blanks()
        subject = self.word()
        if match := _IN.match(self.text, self.pos):
            self.pos = match.end()
        branches: list[tuple[tuple[Word, ...], Body]] = []
        self._skip_lines()
        while self.pos < len(self.text) and self._peek() != "esac":
            patterns = self._patterns()
            branches.append((patterns, self._body(";;", ";&", ";;&", "esac")))
            if not self._accept(";;", ";&", ";;&"):
                break
            self._skip_lines()
        self._expect("esac", start, "case")
        return Case(subject, tuple(branches), start)

    def _patterns(self) -> tuple[Word, ...]:
        self._accept("(")
        patterns: list[Word] = []
        while True:
            self._skip_blanks()
            patterns.append(self.word())
            self._skip_blanks()
            if not self._accept("|"):
                break
        if not self._accept(")"):
            self.fail(self.pos, "a pattern of 'case' has no ')' behind it", "add it")
        return tuple(patterns)

    def _calculation(self) -> Node:
        """``(( … ))``."""
        start = self.pos
        self.pos = self.skip(start + 1, ")") or self.fail_unclosed(start, "bracket")
        inner = Scanner(self.text[start + 2 : self.pos - 2], self.depth).calculation()
        return Calculation(inner)

    def _simple(self) -> Node:
        start = self.pos
        assignments: list[Assignment] = []
        words: list[Word] = []
        declares = False
        while True:
            self._skip_blanks()
            if self._redirection():
                continue
            match = _ASSIGNMENT.match(self.text, self.pos) if declares or not words else None
            if match:
                assignments.append(self._assignment(match))
                continue
            word = self._argument()
            if word is None:
                break
            words.append(word)
            declares = words[0].plain in DECLARING
            if len(words) == 1 and word.plain == "[[":
                words += self._test()
        return Simple(tuple(assignments), tuple(words), start, declares)

    def _argument(self) -> Word | None:
        """One word of a command; None at the end of the command."""
        start = self.pos
        if _PROCESS.match(self.text, start):
            self.pos += 1
            return Word((self._skipped("the output of a command is not known"),), start)
        if self.text.startswith("(", start):
            self.fail(start, "a bracket stands where none can", "put the word in quotes")
            return Word((self._skipped("it stands in brackets"),), start)
        word = self.word()
        return word if word.parts or self.pos > start else None

    def _skipped(self, reason: str) -> Part:
        """What stands between the bracket here and the one that closes it."""
        start = self.pos
        self.pos = self.skip(start + 1, ")") or self.fail_unclosed(start, "bracket")
        return Opaque(self.text[start : self.pos], reason, True)

    def _words(self) -> tuple[Word, ...]:
        """Words up to the end of the command."""
        words: list[Word] = []
        while True:
            self._skip_blanks()
            word = self._argument()
            if word is None:
                return tuple(words)
            words.append(word)

    def _assignment(self, match: re.Match[str]) -> Assignment:
        self.pos = match.end()
        name, appends = match["name"], bool(match["appends"])
        if self.text.startswith("(", self.pos):
            return Assignment(name, self._array(), appends)
        value = self.word()
        return Assignment(name, None if match["index"] else value, appends)

    def _array(self) -> tuple[Word, ...]:
        start = self.pos
        self.pos += 1
        items: list[Word] = []
        while True:
            self._skip_lines()
            if self.text.startswith(")", self.pos):
                self.pos += 1
                return tuple(items)
            before = self.pos
            item = self._argument()
            if item is not None:
                items.append(item)
            elif self.pos >= len(self.text):
                self.fail_unclosed(start, "bracket")
                return tuple(items)
            if self.pos == before:
                self.fail(before, f"{self.text[before]!r} stands in an array", "put the word in quotes")
                self.pos += 1

    def _test(self) -> list[Word]:
        """The words of ``[[ … ]]``, in which brackets and signs are words, too."""
        start = self.pos
        words: list[Word] = []
        while self.pos < len(self.text) and not self.text.startswith(";", self.pos):
            self._skip_lines()
            if operator := _TEST_OPERATOR.match(self.text, self.pos):
                words.append(Word((Literal(operator[0], False),), self.pos))
                self.pos = operator.end()
                continue
            words.append(self.word())
            if words[-1].plain == "]]":
                return words
            self._skip_blanks()
        self.fail(start, "'[[' has no ']]'", "add ']]'")
        return words

    def _redirection(self) -> bool:
        """Skip ``> file``, ``2>&1`` or ``<<EOF``; false if none stands here."""
        self._skip_blanks()
        match = _REDIRECTION.match(self.text, self.pos)
        if not match:
            return False
        start, self.pos = self.pos, match.end()
        self._skip_blanks()
        target = self.word()
        if match["operator"] in {"<<", "<<-"}:
            delimiter = "".join(part.text for part in target.parts if isinstance(part, Literal))
            self._heredocs.append((delimiter, match["operator"] == "<<-", start))
        return True
