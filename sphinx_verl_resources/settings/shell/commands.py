"""Parse a shell script into a tree of commands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from . import syntax
from .syntax import Cause, Part, TooMuchError, Unknown, Word
from .words import Scanner, with_home

if TYPE_CHECKING:
    from ...diagnostics import Diagnostic
    from .syntax import Body, Node, Source

#: Commands with assignments as arguments.
_DECLARING = frozenset({"export", "local", "declare", "typeset", "readonly"})

_BLANKS = re.compile(r"(?:[ \t]|\\\n)+")
_COMMENT = re.compile(r"#[^\n]*")
_RESERVED = re.compile(
    r"(?:if|then|elif|else|fi|for|select|while|until|do|done|case|esac|function|time|[{}!])(?![^\s;&|()<>])"
)
#: Words and operators that close something and cannot begin a command.
_ENDS = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}", ")", ";;", ";&", ";;&"})
_COMPOUND = frozenset({"if", "for", "select", "while", "until", "case", "{", "("})
_FUNCTION = re.compile(r"(?:function[ \t]+)?(?P<name>[A-Za-z_][\w.:-]*)[ \t]*\([ \t]*\)")
_FUNCTION_WORD = re.compile(r"function[ \t]+(?P<name>[A-Za-z_][\w.:-]*)")
_LOOP_NAME = re.compile(r"[ \t]*(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:\s+in(?![^\s;]))?")
_IN = re.compile(r"\s*in(?![^\s;])")
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<index>\[[^\]\n]{0,80}\])?(?P<appends>\+?)=")
_REDIRECTION = re.compile(
    r"(?:[0-9]{1,3}|\{[A-Za-z_][A-Za-z0-9_]*\})?(?P<operator><<<|<<-?|&>>|&>|>>|<>|>\||[<>]&?)(?!\()"
)
#: Unquoted ``{a,b}`` and ``{1..3}``. The text has a null for each quoted or expanded part.
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_FALLS = Cause("a branch of 'case' falls through to the next one, which is not supported")
_SEVERAL = Cause("bash expands the unquoted braces to several words")
_PROCESS = re.compile(r"[<>]\(")
_TEST_OPERATOR = re.compile(r"[()<>&|]{1,2}")
_OPERATOR = re.compile(r"&&|\|\||;;&|;;|;&|\|&|[;&|()\n]")


def parse(source: Source) -> tuple[Body, list[Diagnostic]]:
    """Return the commands of a script, and its syntax errors.

    >>> from sphinx_verl_resources.settings.shell.syntax import Source
    >>> body, problems = parse(Source("N=2; if true; then N=3; fi"))
    >>> [type(node).__name__ for node in body], problems
    (['Simple', 'If'], [])
    """
    parser = _Parser(source)
    return parser.script(), parser.problems


class _Parser(Scanner):
    """A scanner that also reads commands."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._heredocs: list[tuple[str, str, int]] = []

    def script(self) -> Body:
        """Read all commands, and report unmatched closing words and brackets."""
        nodes: list[Node] = []
        try:
            while self.pos < len(self.text):
                if node := self._statement():
                    nodes.append(node)
                elif word := self._peek():
                    message = f"{word!r} does not close anything"
                    self.fail(self.pos, message, "delete it, or add the missing beginning")
                    self.pos += len(word)
        except TooMuchError as error:
            self.fail(self.pos, str(error), "split the script, or write the settings out")
        return tuple(nodes)

    def _statement(self) -> Node | None:
        """Read a chain of commands; return None before a word or operator that closes something."""
        self._skip_separators()
        at_end = self.pos >= len(self.text) or self._peek() in _ENDS
        return None if at_end else self._chain()

    def _body(self) -> Body:
        """Read commands up to a word or operator that closes something, which is not consumed."""
        with self.deeper():
            return tuple(iter(self._statement, None))

    def _peek(self) -> str:
        """Return the next reserved word or operator; empty if there is none."""
        match = _RESERVED.match(self.text, self.pos) or _OPERATOR.match(self.text, self.pos)
        return match[0] if match else ""

    def _accept(self, *words: str) -> str:
        """Consume and return the next word if it is one of ``words``; otherwise return an empty text."""
        word = self._peek()
        if word not in words:
            return ""
        self.pos += len(word)
        return word

    def _expect(self, word: str, opened: int, what: str) -> None:
        self._skip_separators()
        if not self._accept(word):
            self.fail(opened, f"{what!r} has no {word!r}", f"add {word!r}")

    def _skip_blanks(self) -> None:
        """Skip blanks, line continuations and a comment."""
        for pattern in (_BLANKS, _COMMENT):
            if match := pattern.match(self.text, self.pos):
                self.pos = match.end()

    def _skip_lines(self) -> None:
        """Skip blanks, comments, line ends, and here-documents after a line with ``<<EOF``."""
        self._skip_blanks()
        while self.text.startswith("\n", self.pos):
            self.pos += 1
            self._skip_heredocs()
            self._skip_blanks()

    def _skip_separators(self) -> None:
        self._skip_lines()
        while self._peek() in {";", "&"}:
            self.pos += 1
            self._skip_lines()

    def _skip_heredocs(self) -> None:
        for delimiter, indent, announced in self._heredocs:
            text = re.compile(rf"(?:[^\n]*\n)*?{indent}{re.escape(delimiter)}(?:\n|\Z)")
            match = text.match(self.text, self.pos)
            if not match:
                message = f"the here-document that begins here does not end with a line {delimiter!r}"
                self.fail(announced, message, "add that line, without blanks")
            self.pos = match.end() if match else len(self.text)
        self._heredocs.clear()

    def _chain(self) -> Node:
        first = self._pipeline()
        rest: list[tuple[str, Node]] = []
        while True:
            self._skip_blanks()
            operator = self._accept("&&", "||")
            if not operator:
                return syntax.Chain(first, tuple(rest)) if rest else first
            self._skip_lines()
            rest.append((operator, self._pipeline()))

    def _pipeline(self) -> Node:
        negated = False
        while word := self._accept("!", "time"):
            negated ^= word == "!"
            self._skip_blanks()
        commands = [self._command()]
        self._skip_blanks()
        while self._accept("|", "|&"):
            self._skip_lines()
            commands.append(self._command())
            self._skip_blanks()
        node = syntax.Apart(tuple((command,) for command in commands)) if len(commands) > 1 else commands[0]
        return syntax.Negated(node) if negated else node

    def _command(self) -> Node:
        start = self.pos
        if self.text.startswith("((", start):
            return self._calculation()
        if function := _FUNCTION.match(self.text, start) or _FUNCTION_WORD.match(self.text, start):
            self.pos = function.end()
            self._skip_lines()
            with self.deeper():
                return syntax.Function(function["name"], self._command())
        node: Node
        word = self._peek()
        if word not in _COMPOUND:
            return self._simple()
        self.pos += len(word)
        if word == "if":
            node = self._if(start)
        elif word == "case":
            node = self._case(start)
        elif word in {"{", "("}:
            closing = "}" if word == "{" else ")"
            body = self._body()
            self._expect(closing, start, word)
            node = syntax.Group(body) if word == "{" else syntax.Apart((body,))
        else:
            node = self._loop(word, start)
        self._skip_redirections()
        return node

    def _if(self, start: int) -> Node:
        branches: list[tuple[Body, Body]] = []
        word = "if"
        while word in {"if", "elif"}:
            condition = self._body()
            self._expect("then", start, "if")
            branches.append((condition, self._body()))
            word = self._accept("elif", "else")
        otherwise = self._body() if word == "else" else ()
        self._expect("fi", start, "if")
        return syntax.If(tuple(branches), otherwise, start)

    def _loop(self, word: str, start: int) -> Node:
        name = ""
        condition: Body = ()
        if word in {"while", "until"}:
            condition = self._body()
        else:
            self._skip_blanks()
            if self.text.startswith("((", self.pos):
                condition = (self._calculation(),)
            elif match := _LOOP_NAME.match(self.text, self.pos):
                name, self.pos = match["name"], match.end()
                while self._argument():
                    pass
        self._expect("do", start, word)
        body = self._body()
        self._expect("done", start, word)
        return syntax.Loop(name, condition, body, start)

    def _case(self, start: int) -> Node:
        self._skip_blanks()
        subject = self.word()
        if match := _IN.match(self.text, self.pos):
            self.pos = match.end()
        branches: list[tuple[tuple[Word, ...], Body]] = []
        falls: list[Word] = []
        self._skip_lines()
        while self.pos < len(self.text) and self._peek() != "esac":
            self._accept("(")
            patterns: list[Word] = []
            while not patterns or self._accept("|"):
                self._skip_blanks()
                patterns.append(self.word())
                self._skip_blanks()
            if not self._accept(")"):
                self.fail(self.pos, "a pattern of 'case' has no ')' after it", "add it")
            body = self._body()
            end = self._accept(";;", ";&", ";;&")
            if end in {";&", ";;&"} or falls:  # from here on, several branches may run
                falls = [Word((Part(Unknown(end, _FALLS), True),), subject.at)]
            branches.append((tuple(falls or patterns), body))
            if not end:
                break
            self._skip_lines()
        self._expect("esac", start, "case")
        return syntax.Case(subject, tuple(branches), start)

    def _calculation(self) -> Node:
        """Read ``(( … ))``."""
        source = self.through(self.pos, self.pos + 1, ")")
        return syntax.Calculation(self.calculation(source[2:-2]))

    def _simple(self) -> Node:
        start = self.pos
        assignments: list[syntax.Assignment] = []
        words: list[Word] = []
        declares = False
        while True:
            self._skip_redirections()
            match = _ASSIGNMENT.match(self.text, self.pos) if declares or not words else None
            if match:
                assignments.append(self._assignment(match))
                continue
            word = self._argument()
            if word is None:
                return syntax.Simple(tuple(assignments), tuple(words), start, declares)
            words.append(word)
            declares = words[0].plain in _DECLARING
            if len(words) == 1 and word.plain == "[[":
                words += self._test()

    def _argument(self) -> Word | None:
        """Read a word of a command; return None at the end of the command."""
        self._skip_blanks()
        start = self.pos
        if _PROCESS.match(self.text, start):
            return self._skipped(start + 1, "the output of a command is unknown")
        if self.text.startswith("(", start):
            self.fail(start, "a bracket is not allowed here", "put the word in quotes")
            return self._skipped(start, "it is in brackets")
        word = self._without_braces(self.word())
        return word if word.parts or self.pos > start else None

    def _without_braces(self, word: Word) -> Word:
        """Return a word; if bash expands it to several, it is unknown after its first brace."""
        plain = "".join(
            p.content if isinstance(p.content, str) and not p.quoted else "\0" for p in word.parts
        )
        if not _BRACES.search(plain):
            return word
        source = self.text[word.at : self.pos]
        before, brace, after = source.partition("{")
        known = Part(before, True) if re.fullmatch(r"[\w.+~]*=", before) else Part("", True)
        rest = brace + after if known.content else source
        return Word((known, Part(Unknown(rest, _SEVERAL), True)), word.at)

    def _skipped(self, bracket: int, reason: str) -> Word:
        """Skip past the bracket that closes the one at ``bracket``."""
        start = self.pos
        source = self.through(bracket, bracket + 1, ")")
        return Word((Part(Unknown(source, Cause(reason)), True),), start)

    def _assignment(self, match: re.Match[str]) -> syntax.Assignment:
        self.pos = match.end()
        name, appends = match["name"], bool(match["appends"])
        if self.text.startswith("(", self.pos):
            return syntax.Assignment(name, self._array(), appends)
        word = self.word()
        value = Word(with_home(word.parts), word.at)
        return syntax.Assignment(name, None if match["index"] else value, appends)

    def _array(self) -> tuple[Word, ...]:
        start = self.pos
        self.pos += 1
        items: list[Word] = []
        while True:
            self._skip_lines()
            before = self.pos
            if item := self._argument():
                items.append(item)
            elif self.text.startswith(")", before):
                self.pos += 1
                return tuple(items)
            elif before >= len(self.text):
                self.fail_unclosed(start, "bracket")
                return tuple(items)
            else:
                self.fail(
                    before, f"{self.text[before]!r} is not allowed in an array", "put the word in quotes"
                )
                self.pos += 1

    def _test(self) -> list[Word]:
        """Read the words of ``[[ … ]]``, where brackets and operators are words, too."""
        start = self.pos
        words: list[Word] = []
        while self.pos < len(self.text) and not self.text.startswith(";", self.pos):
            self._skip_lines()
            if operator := _TEST_OPERATOR.match(self.text, self.pos):
                words.append(Word((Part(operator[0], False),), self.pos))
                self.pos = operator.end()
                continue
            words.append(self.word())
            if words[-1].plain == "]]":
                return words
            self._skip_blanks()
        self.fail(start, "'[[' has no ']]'", "add ']]'")
        return words

    def _skip_redirections(self) -> None:
        """Skip blanks, ``> file``, ``2>&1`` and ``<<EOF``."""
        self._skip_blanks()
        while match := _REDIRECTION.match(self.text, self.pos):
            start, self.pos = self.pos, match.end()
            self._skip_blanks()
            target = self.word()
            if match["operator"] in {"<<", "<<-"}:
                delimiter = "".join(part.content for part in target.parts if isinstance(part.content, str))
                self._heredocs.append((delimiter, "\t*" if match["operator"] == "<<-" else "", start))
            self._skip_blanks()
