"""The words of a shell script, parsed into quotes, escapes and expansions, but not yet expanded."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...diagnostics import Diagnostic
from .syntax import Arithmetic, Cause, Parameter, Part, Source, TooMuchError, Unknown, Word

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The maximum nesting depth of expansions and of commands; real scripts have five.
MAX_DEPTH = 25

#: Characters without a special meaning in a word, between quotes, after ``${NAME:-`` and in ``$((``.
_WITH_SIGNS = re.compile(r"(?:[^\s\\'\"$`]|[^\S \t\n])+")
_UNQUOTED = re.compile(r"(?:[^\s;&|<>()\\'\"$`]|[^\S \t\n])+")
_DOUBLE_QUOTED = re.compile(r"[^\"\\$`]+")
_OPERAND = re.compile(r"[^}\\'\"$`]+")
_QUOTED_OPERAND = re.compile(r"[^}\\\"$`]+")
_CALCULATION = re.compile(r"[^\\$`]+")

_SINGLE_QUOTES = re.compile(r"'(?P<text>[^']*)(?P<end>'?)")
_ESCAPED_QUOTES = re.compile(r"\$'(?P<text>(?:[^'\\]|\\.?)*)(?P<end>'?)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[@*#?$!0-9-]")
_BRACES = re.compile(
    r"\$\{(?P<length>#(?=[A-Za-z_]))?(?P<name>[A-Za-z_][A-Za-z0-9_]*|[0-9]{1,9}|[@*#?$!-])"
    r"(?:\[(?P<index>[^\[\]{}$]{1,40})\])?(?P<operator>:?[-=+?]|(?=\})|:)"
)

#: The arguments from a number on.
_SLICE = re.compile(r"\$\{([@*]):\s*([0-9]{1,4})\}")

#: The separators of words: blanks, line ends and comments.
_BETWEEN = re.compile(r"(?:[ \t\n]|\\\n|#[^\n]*)*")

_NO_BRACKETS = re.compile(r"[^\\'\"$`(){}#]+")
_CLOSING = {"(": ")", "{": "}", "`": "`", '"': '"'}
_COMMAND = Cause("the output of a command is unknown")
_FORM = Cause("this form of expansion is not supported")
_HOME = re.compile(r"~(?=/|\Z)")


def split_words(source: Source) -> tuple[list[Word], list[Diagnostic]]:
    r"""Split a text without commands into words; line ends are blanks, and brackets and operators are text.

    >>> [part.content for word in split_words(Source("a=f(1) # one\nb='2 3'"))[0] for part in word.parts]
    ['a=f(1)', 'b=', '2 3']
    """
    scanner = Scanner(source)
    words: list[Word] = []
    while True:
        if between := _BETWEEN.match(scanner.text, scanner.pos):
            scanner.pos = between.end()
        word = scanner.word(_WITH_SIGNS)
        if word.parts:
            words.append(word)
        elif scanner.pos >= len(scanner.text):
            return words, scanner.problems


class Scanner:
    """A reader of words, starting at ``pos``."""

    def __init__(self, source: Source, depth: int = 0) -> None:
        self.source = source
        self.text = source.text
        self.pos = 0
        self.depth = depth
        self.problems: list[Diagnostic] = []

    def word(self, run: re.Pattern[str] = _UNQUOTED) -> Word:
        """Read the word at ``pos``, made of ``run`` and expansions; it may be empty."""
        start = self.pos
        return Word(self._parts(run, quoted=False), start)

    def calculation(self, text: str) -> Word:
        """Read the inside of ``$(( … ))``, where only expansions are special."""
        return Word(Scanner(Source(text), self.depth)._parts(_CALCULATION, quoted=True))

    def through(self, opened: int, start: int, closing: str) -> str:
        """Skip to the matching closing bracket or quote, and return the text from ``opened`` to it.

        Args:
            opened: the beginning of the text to return.
            start: the position after the opening bracket or quote.
            closing: the closing character; if it is missing, the text ends at the end of the script.
        """
        what = "quote" if closing == "`" else "bracket"
        self.pos = self._behind(start, closing) or self.fail_unclosed(opened, what)
        return self.text[opened : self.pos]

    def fail(self, at: int, message: str, remedy: str) -> None:
        """Report a syntax error."""
        self.problems.append(Diagnostic(self.source.place(at), "shell_syntax", message, remedy))

    def fail_unclosed(self, start: int, what: str) -> int:
        """Report an unclosed quote or bracket; return the end of the text, to go on from there."""
        self.fail(start, f"the {what} that opens here is never closed", f"add the closing {what}")
        return len(self.text)

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Enter a nesting level.

        Raises:
            TooMuchError: there are too many levels.
        """
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooMuchError(f"the script is nested deeper than {MAX_DEPTH} levels")
        yield
        self.depth -= 1

    def _behind(self, start: int, closing: str) -> int:
        """Return the position after the bracket or quote that closes the one before ``start``, or 0."""
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

    def _parts(self, run: re.Pattern[str], *, quoted: bool, closing: str = "") -> tuple[Part, ...]:
        """Read text and expansions up to ``closing`` or the end of the word.

        Args:
            run: the characters without a special meaning here.
            quoted: whether the parts are between double quotes.
            closing: the character that ends them, which is not consumed.
        """
        parts: list[Part] = []
        while self.pos < len(self.text) and self.text[self.pos] != closing:
            if match := run.match(self.text, self.pos):
                self.pos = match.end()
                parts.append(Part(match[0], quoted))
            elif quoted and self.text[self.pos] != '"':
                parts.append(self._in_double_quotes())
            elif (special := self._special()) is not None:
                parts += special
            else:
                break
        return tuple(parts)

    def _special(self) -> tuple[Part, ...] | None:
        """Read a quote, escape or expansion outside double quotes; return None if there is none."""
        char, following = self.text[self.pos], self.text[self.pos + 1 : self.pos + 2]
        if char == "\\":
            self.pos += 2
            # At the end of a file, bash ignores a backslash.
            return () if following in {"", "\n"} else (Part(following, True),)
        if char == "'":
            return (Part(self._quotes(_SINGLE_QUOTES), True),)
        if char == '"':
            return self._double_quotes()
        if char == "$" and following == "'":
            text = self._quotes(_ESCAPED_QUOTES)
            return (Part(Unknown(f"$'{text}'", _FORM) if "\\" in text else text, True),)
        if char == "$" and following == '"':
            self.pos += 1
            return ()
        return (Part(self._expansion(quoted=False), False),) if char in "$`" else None

    def _quotes(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.pos)
        assert match
        if not match["end"]:
            self.fail_unclosed(self.pos, "quote")
        self.pos = match.end()
        return match["text"]

    def _double_quotes(self) -> tuple[Part, ...]:
        start = self.pos
        self.pos += 1
        parts = self._parts(_DOUBLE_QUOTED, quoted=True, closing='"')
        if self.pos >= len(self.text):
            self.fail_unclosed(start, "quote")
        self.pos += 1
        return parts or (Part("", True),)  # "" is a word, too

    def _in_double_quotes(self) -> Part:
        """Read an escape or an expansion between double quotes."""
        if self.text[self.pos] != "\\":
            return Part(self._expansion(quoted=True), True)
        escaped = self.text[self.pos + 1 : self.pos + 2]
        self.pos += 2
        return Part({"$": "$", "`": "`", '"': '"', "\\": "\\", "\n": ""}.get(escaped, f"\\{escaped}"), True)

    def _expansion(self, *, quoted: bool) -> str | Unknown | Parameter | Arithmetic:
        text, start = self.text, self.pos
        if text[start] == "`":
            return Unknown(self.through(start, start + 1, "`"), _COMMAND)
        if text.startswith("$(", start):
            source = self.through(start, start + 2, ")")
            if not (source.startswith("$((") and source.endswith("))")):
                return Unknown(source, _COMMAND)
            with self.deeper():
                return Arithmetic(self.calculation(source[3:-2]), source)
        if text.startswith("${", start):
            return self._braces(quoted=quoted)
        name = _NAME.match(text, start + 1)
        self.pos = name.end() if name else start + 1
        return Parameter(name[0], f"${name[0]}") if name else "$"

    def _braces(self, *, quoted: bool) -> Parameter | Unknown:
        """Read ``${ … }``."""
        start, match = self.pos, _BRACES.match(self.text, self.pos)
        if not match or match["operator"] == ":":
            source = self.through(start, start + 2, "}")
            slice_ = _SLICE.fullmatch(source)
            return Parameter(slice_[1], source, slice_[2], "from") if slice_ else Unknown(source, _FORM)
        self.pos = match.end()
        with self.deeper():
            parts = self._parts(_QUOTED_OPERAND if quoted else _OPERAND, quoted=quoted, closing="}")
            if self.pos >= len(self.text):
                self.fail_unclosed(start, "brace")
            parts = parts if quoted else with_home(parts)
        self.pos += 1
        operator = "length" if match["length"] else match["operator"]
        source = self.text[start : self.pos]
        return Parameter(match["name"], source, match["index"], operator, Word(parts))


def with_home(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return the parts of a value, with an unquoted ``~`` at the beginning replaced with ``$HOME``."""
    content, quoted = parts[0] if parts else ("", True)
    if quoted or not isinstance(content, str) or not _HOME.match(content):
        return parts
    return (Part(Parameter("HOME", "~"), True), Part(content[1:], False), *parts[1:])
