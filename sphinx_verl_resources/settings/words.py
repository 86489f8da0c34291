"""Words of a shell script: quotes, escapes and expansions, told apart but not yet filled in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .escapes import unescaped
from .syntax import Arithmetic, Literal, Opaque, Parameter, SyntaxProblem, TooMuchError, Word

if TYPE_CHECKING:
    from .syntax import Part

#: Levels of expansions inside expansions, and of commands inside commands; real scripts have five.
MAX_DEPTH = 25

#: Runs of characters that mean nothing special in a word, between quotes, behind ``${NAME:-``, in ``$((``.
_UNQUOTED = re.compile(r"(?:[^\s;&|<>()\\'\"$`]|[^\S \t\n])+")
_DOUBLE_QUOTED = re.compile(r"[^\"\\$`]+")
_OPERAND = re.compile(r"[^}\\'\"$`]+")
_QUOTED_OPERAND = re.compile(r"[^}\\\"$`]+")
_CALCULATION = re.compile(r"[^\\$`]+")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[@*#?$!0-9-]")
_BRACES = re.compile(
    r"\$\{(?P<length>#(?=[A-Za-z_]))?(?P<name>[A-Za-z_][A-Za-z0-9_]*|[0-9]{1,9}|[@*#?$!-])"
    r"(?:\[(?P<index>[^\[\]{}$]{1,40})\])?(?P<operator>:?[-=+?]|(?=\})|:)"
)

#: What separates words: blanks, ends of lines, and comments.
_BETWEEN = re.compile(r"(?:[ \t\n]|\\\n|#[^\n]*)*")
_METACHARACTER = re.compile(r"[;&|<>()]")

_NO_BRACKETS = re.compile(r"[^\\'\"$`(){}#]+")
_CLOSING = {"(": ")", "{": "}", "`": "`", '"': '"'}
_COMMAND = "the output of a command is not known"
_FORM = "this form of expansion is not followed"


def split_words(text: str) -> tuple[tuple[Word, ...], list[SyntaxProblem]]:
    r"""The words of a text that holds no commands: ends of lines are blanks, and brackets and signs are text.

    >>> [part.text for word in split_words("a=f(1) # one\nb='2 3'")[0] for part in word.parts]
    ['a=f', '(', '1', ')', 'b=', '2 3']
    """
    scanner = Scanner(text)
    words: list[Word] = []
    while True:
        scanner.pos = _BETWEEN.match(text, scanner.pos).end()  # type: ignore[union-attr]  # It may be empty.
        start = scanner.pos
        parts = list(scanner.word().parts)
        while _METACHARACTER.match(text, scanner.pos):
            parts.append(Literal(text[scanner.pos], False))
            scanner.pos += 1
            parts += scanner.word().parts
        if parts:
            words.append(Word(tuple(parts), start))
        elif scanner.pos >= len(text):
            return tuple(words), scanner.problems


class Scanner:
    """Reads words off a text, one after the other, beginning at ``pos``."""

    def __init__(self, text: str, depth: int = 0) -> None:
        self.text = text
        self.pos = 0
        self.depth = depth
        self.problems: list[SyntaxProblem] = []

    def word(self) -> Word:
        """The word at ``pos``; one without parts if none begins there."""
        start = self.pos
        parts: list[Part] = []
        while self.pos < len(self.text):
            if not self._take(_UNQUOTED, parts, quoted=False) and not self._special(parts):
                break
        return Word(tuple(parts), start)

    def calculation(self) -> Word:
        """The whole text as the inside of ``$(( … ))``: only expansions mean something."""
        parts: list[Part] = []
        while self.pos < len(self.text):
            if not self._take(_CALCULATION, parts, quoted=True):
                self._in_double_quotes(parts)
        return Word(tuple(parts), 0)

    def skip(self, start: int, closing: str) -> int:
        """The place behind the bracket or quote that closes what opened before ``start``; 0 if none does."""
        text, at, awaited = self.text, start, [closing]
        while at < len(text):
            run = _NO_BRACKETS.match(text, at)
            if run:
                at = run.end()
                continue
            char, quoted = text[at], awaited[-1] == '"'
            at += 1
            if char == awaited[-1]:
                awaited.pop()
                if not awaited:
                    return at
            elif char == "\\":
                at += 1
            elif char == "'" and not quoted:
                at = text.find("'", at) + 1 or len(text)
            elif char == "#" and awaited[-1] == ")" and text[at - 2].isspace():  # a comment
                at = text.find("\n", at) + 1 or len(text)
            elif char == "$" and text[at : at + 1] in {"(", "{"}:
                awaited.append(_CLOSING[text[at]])
                at += 1
            elif char in {'"', "`"} or (char == "(" and awaited[-1] == ")"):
                awaited.append(_CLOSING[char])
        return 0

    def fail(self, at: int, message: str, remedy: str = "") -> None:
        """Note what no shell would accept."""
        self.problems.append(SyntaxProblem(at, message, remedy))

    def fail_unclosed(self, start: int, what: str) -> int:
        """Note a quote or bracket without its end, which is then that of the text."""
        self.fail(start, f"the {what} that opens here is never closed", "close it")
        return len(self.text)

    def enter(self) -> None:
        """Go one level deeper; ``leave`` comes back."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooMuchError(f"it is nested deeper than {MAX_DEPTH} levels")

    def leave(self) -> None:
        """Come back from ``enter``."""
        self.depth -= 1

    def _take(self, pattern: re.Pattern[str], parts: list[Part], *, quoted: bool) -> bool:
        match = pattern.match(self.text, self.pos)
        if match:
            parts.append(Literal(match[0], quoted))
            self.pos = match.end()
        return bool(match)

    def _special(self, parts: list[Part]) -> bool:
        """A quote, an escape or an expansion outside of double quotes; false if none stands here."""
        char, following = self.text[self.pos], self.text[self.pos + 1 : self.pos + 2]
        if char == "\\":
            self.pos += 2
            if following != "\n":
                parts.append(Literal(following or "\\", True))
        elif char == "'":
            self._single_quotes(parts)
        elif char == '"':
            self._double_quotes(parts)
        elif char == "$" and following == "'":
            self._escaped_quotes(parts)
        elif char == "$" and following == '"':
            self.pos += 1
        elif char in "$`":
            self._expansion(parts, quoted=False)
        else:
            return False
        return True

    def _single_quotes(self, parts: list[Part]) -> None:
        start = self.pos + 1
        end = self.text.find("'", start)
        if end < 0:
            end = self.fail_unclosed(self.pos, "quote")
        parts.append(Literal(self.text[start:end], True))
        self.pos = end + 1

    def _escaped_quotes(self, parts: list[Part]) -> None:
        """``$'…'``, in which a backslash before a quote does not end it."""
        start = end = self.pos + 2
        while self.text[end : end + 1] not in {"'", ""}:
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            end = self.fail_unclosed(self.pos, "quote")
        parts.append(Literal(unescaped(self.text[start:end]), True))
        self.pos = end + 1

    def _double_quotes(self, parts: list[Part]) -> None:
        start, before = self.pos, len(parts)
        self.pos += 1
        while self.pos < len(self.text):
            if self._take(_DOUBLE_QUOTED, parts, quoted=True):
                continue
            if self.text[self.pos] == '"':
                break
            self._in_double_quotes(parts)
        else:
            self.fail_unclosed(start, "quote")
        self.pos += 1
        if len(parts) == before:
            parts.append(Literal("", True))  # "" is a word, too.

    def _in_double_quotes(self, parts: list[Part]) -> None:
        """An escape or an expansion between double quotes."""
        if self.text[self.pos] != "\\":
            self._expansion(parts, quoted=True)
            return
        escaped = self.text[self.pos + 1 : self.pos + 2]
        self.pos += 2
        if escaped in {"$", "`", '"', "\\"}:
            parts.append(Literal(escaped, True))
        elif escaped != "\n":
            parts.append(Literal(f"\\{escaped}", True))

    def _expansion(self, parts: list[Part], *, quoted: bool) -> None:
        text, start = self.text, self.pos
        if text[start] == "`":
            parts.append(Opaque(self._through(start + 1, "`"), _COMMAND, quoted))
        elif text.startswith("$(", start):
            parts.append(self._parenthesis(quoted=quoted))
        elif text.startswith("${", start):
            parts.append(self._braces(quoted=quoted))
        elif name := _NAME.match(text, start + 1):
            self.pos = name.end()
            parts.append(Parameter(name[0], f"${name[0]}", quoted))
        else:
            self.pos += 1
            parts.append(Literal("$", quoted))

    def _parenthesis(self, *, quoted: bool) -> Part:
        """``$(( … ))`` or ``$( … )``."""
        source = self._through(self.pos + 2, ")")
        if not (source.startswith("$((") and source.endswith("))")):
            return Opaque(source, _COMMAND, quoted)
        self.enter()
        inner = Scanner(source[3:-2], self.depth).calculation()
        self.leave()
        return Arithmetic(inner, source, quoted)

    def _braces(self, *, quoted: bool) -> Part:
        """``${ … }``."""
        start, match = self.pos, _BRACES.match(self.text, self.pos)
        if not match:
            return Opaque(self._through(start + 2, "}"), _FORM, quoted)
        name, operator = match["name"], match["operator"]
        if operator == ":":  # a part of the text, or some of the arguments
            source = self._through(start + 2, "}")
            return Parameter(name, source, quoted) if name in "@*" else Opaque(source, _FORM, quoted)
        self.pos = match.end()
        operand = self._operand(start, quoted=quoted)
        source = self.text[start : self.pos]
        operator = "length" if match["length"] else operator
        return Parameter(name, source, quoted, match["index"], operator, operand)

    def _operand(self, start: int, *, quoted: bool) -> Word:
        """What stands between an operator and the brace that closes the expansion."""
        self.enter()
        at = self.pos
        parts: list[Part] = []
        pattern = _QUOTED_OPERAND if quoted else _OPERAND
        while self.text[self.pos : self.pos + 1] != "}":
            if self.pos >= len(self.text):
                self.fail_unclosed(start, "brace")
                break
            if self._take(pattern, parts, quoted=quoted):
                continue
            if quoted and self.text[self.pos] != '"':
                self._in_double_quotes(parts)
            else:
                self._special(parts)
        self.pos += 1
        self.leave()
        return Word(tuple(parts), at)

    def _through(self, start: int, closing: str) -> str:
        """Go behind an expansion whose inside begins at ``start``, and return it as written."""
        opened = self.pos
        what = "quote" if closing == "`" else "bracket"
        self.pos = self.skip(start, closing) or self.fail_unclosed(opened, what)
        return self.text[opened : self.pos]
