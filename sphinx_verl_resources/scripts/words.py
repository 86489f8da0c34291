"""Expand the words of a shell script, as far as the script determines them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Query, QueryCursor

from ..diagnostics import Location
from ..strict_yaml import read_yaml
from .values import Array, Cause, Text, Unknown, Value, Word, as_array, cause_of, source_of, split_key

#: The maximum number of characters that a script may expand to, including a cost per step.
MAX_TOTAL = 1_000_000

#: Words with a meaning of their own in bash, by meaning.
WORDS = read_yaml(Path(__file__).with_name("bash.yaml").read_bytes()).data
_COMMAND = Cause("the output of a command is unknown")
_FORM = Cause("this form of expansion is not supported")
_SEVERAL = Cause("bash expands the unquoted braces to several words")
_FILES = Cause("bash expands it to the names of files")
_DIRECTORY = Cause("bash replaces ~ with a directory")

_BASH = Language(tree_sitter_bash.language())
_PARSER = Parser(_BASH)
_FAULTS = Query(_BASH, WORDS["faults"])
#: A word of one blank, an escaped character, line ends inside a word, other line ends, and characters that
#: only the grammar takes for blanks.
_REWRITTEN = re.compile(
    rb"(?P<blank>(?<=[ \t])\\[ \t](?=[ \t]*\n))|\\[^\n]|(?P<inside>(?<=\S)(?:\\\n)+(?!\s|\\\n|\Z))"
    rb"|(?P<end>[ \t]?\\\n|\n)|(?P<other>[\v\f\r]|\xef\xbb\xbf)"
)
#: The maximum number of times that a script is parsed.
_MAX_PASSES = 20
_UNSUPPORTED = re.compile(r"[][()\\'\"$!^{}~]")  # in patterns
_BLANKS = re.compile(r"([ \t\n]+)")
_ESCAPE = re.compile(r"\\(\n|.|\Z)", re.DOTALL)
_QUOTED_ESCAPE = re.compile(r'\\([$`"\\\n])')
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_TILDE = re.compile(r"(?:\A|:|\A\w+=)~(?:[\w.+-]*/|[+-]?\Z)")
_PARAMETER = re.compile(
    r"\$\{?(?P<length>#(?=[\w@*]))?(?P<name>[A-Za-z_]\w*|(?:(?<=\{)|(?<=#))[0-9]+|[0-9]|[@*#?!$_-])"
    r"(?:\[(?P<index>[^\]]*)\])?(?P<operator>:?[-=+?])?",
    re.ASCII,
)
#: Functions whose results become whole numbers as in bash, without the digits after the point.
_OPERATORS: dict[str, Callable[[int, int], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": Fraction,
    "%": lambda one, other: one - other * int(Fraction(one, other)),
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
#: The names of variables that arithmetic changes.
_CHANGED = re.compile(
    r"([A-Za-z_]\w*)(?:\[[^\]]*\])?\s*(?:\+\+|--|(?:[-+*/%&|^:]|<<|>>)?=(?!=))|(?:\+\+|--)\s*([A-Za-z_]\w*)"
)

#: Commands that detect the device, the GPU in their output, and commands that look for a program or a module.
_PROBE, _GPU, _LOOKS = (re.compile(WORDS[name], re.DOTALL) for name in ("probe", "gpu", "looks"))

#: ``plain`` text is unquoted, ``operand`` text is the unquoted word after an operator such as ``:-``, and
#: ``split`` text is the value of an unquoted expansion.
Kind = Literal["plain", "quoted", "operand", "split"]


class TooMuchError(Exception):
    """A script that expands to too much text; reading stops."""


class Piece(NamedTuple):
    """A piece of a word; content None ends a word.

    Attributes:
        content: the text.
        kind: how it is written.
        place: the place of the word, for words of an array.
    """

    content: str | Unknown | None
    kind: Kind
    place: Location | None = None


def parse(text: str) -> Node:
    """Return the root of the syntax tree of a script.

    The text is changed where the grammar fails, with the same lines: it ends a word such as ``$A/b$C/d`` at
    the second variable, but not at ``${C}``, and at a backslash before a line end; it joins a line of several
    assignments to the next command; it overlooks a word of one blank, and a backslash at the end of the text;
    it ends a word at a form feed.
    """
    source = re.sub(r"(?<!\\)((?:\\\\)*)\\\n*\Z", r"\1", text).encode()
    for _ in range(_MAX_PASSES):
        root = _PARSER.parse(source).root_node
        nodes = QueryCursor(_FAULTS).captures(root)
        better = _rewritten(source, nodes.pop("text", []))
        faults = [node for each in nodes.values() for node in each]
        for node in sorted(faults, key=lambda node: -node.end_byte) if better == source else ():
            at, after = node.end_byte, better[node.end_byte :]
            if name := re.match(rb"[A-Za-z_]\w*", after) if node.type == "$" else None:
                better = better[:at] + b"{" + name[0] + b"}" + after[name.end() :]
            elif node.type != "$" and re.match(rb"[ \t]*(#[^\n]*)?\n", after):
                at = at if node.type == "variable_assignment" else node.start_byte
                better = better[:at] + b";" + better[at:]
        if better == source:
            return root
        source = better
    raise TooMuchError("the script has too many words that the grammar of bash does not know")


def _rewritten(source: bytes, texts: Iterable[Node]) -> bytes:
    """Rewrite what the grammar misreads of one line end or blank, but not inside ``texts``."""
    is_text = bytearray(len(source))
    for node in texts:
        is_text[node.start_byte : node.end_byte] = b"\1" * (node.end_byte - node.start_byte)
    missing = 0  # line ends, until the next one outside a word

    def rewrite(match: re.Match[bytes]) -> bytes:
        nonlocal missing
        kind = "" if is_text[match.start()] else match.lastgroup
        times = 1
        if kind == "inside":
            missing, times = missing + match[0].count(b"\n"), 0
        elif kind == "end":
            missing, times = 0, missing + 1
        return {"blank": b"''", "other": b'$""'}.get(kind or "", match[0] * times)

    return _REWRITTEN.sub(rewrite, source)


def text_of(node: Node | None) -> str:
    """Return the source of a node; empty for None."""
    return ((node and node.text) or b"").decode("utf-8", "replace")


class Expansion:
    """The variables of a script, and the expansion of words with them.

    Attributes:
        variables: the variables by name; None if unset. ``@`` has the arguments of a function; it is missing
            outside functions, because the script's arguments are unknown.
        variables_read: the names of variables that the script reads from its environment.
        fixed: the variables whose assignment fails, which ends a command.
        lost: why every variable is unknown from here on; None as long as they are not.
        devices: the commands so far whose output names the device, and their output on GPUs.
        place_of: returns the place of a node.
    """

    def __init__(self, environment: Mapping[str, str], place_of: Callable[[Node], Location]) -> None:
        self.variables: dict[str, Value | None] = {}
        self.variables_read: set[str] = set()
        self.fixed = {"IFS"}  # an assignment to this one changes how words are split
        self.lost: Cause | None = None
        self.devices: dict[str, str] = {}
        self.place_of = place_of
        self._environment = environment
        self._left = MAX_TOTAL
        self._sure = True

    def spend(self, amount: int) -> None:
        """Subtract from the budget that limits the time for a script.

        Raises:
            TooMuchError: the script needs too much work.
        """
        self._left -= amount
        if self._left < 0:
            raise TooMuchError("the script is too long or needs too many steps")

    def get(self, name: str) -> Value | None:
        """Return the value of a variable; None if unset."""
        if self.lost or name in WORDS["bash_sets"] or name.startswith("BASH"):
            return (Unknown(f"${name}", self.lost or Cause(f"bash sets ${name}")),)
        if name in self.variables or not name.isidentifier():
            return self.variables.get(name)
        self.variables_read.add(name)
        return (self._environment[name],) if name in self._environment else None

    def assign(self, name: str, value: Value | None) -> None:
        """Set a variable; None removes it."""
        if name in self.fixed and not self.lost:
            self.lost = Cause(f"the script sets ${name}")
        self.variables[name] = value

    def make_unknown(self, name: str, why: Cause) -> None:
        """Make a variable unknown."""
        self.assign(name, (Unknown(f"${name}", why),))

    def make_changed_unknown(self, source: str) -> set[str]:
        """Make the variables unknown that arithmetic changes, and return their names."""
        names = {first or second for first, second in _CHANGED.findall(source)}
        for name in names:
            self.make_unknown(name, Cause(f"${name} is calculated when the script runs"))
        return names

    # -- words

    def words(self, nodes: Iterable[Node]) -> Array:
        """Expand the words of a command; unquoted expansions are split at blanks and may vanish."""
        words: list[Word] = []
        self._sure = True
        for node in nodes:
            place = self.place_of(node)
            pieces = self._with_home([*self._pieces(node, "plain")])
            plain = "".join(str(piece.content) if piece.kind == "plain" else "\0" for piece in pieces)
            if _BRACES.search(plain):
                pieces, self._sure = [Piece(Unknown(text_of(node), _SEVERAL), "quoted")], False
            for word in _split_words(self._split(pieces)):
                text = self._join(word)
                parts = (part for part, kind, _ in word if isinstance(part, str) and kind != "quoted")
                if (self.lost or not split_key(text)[0]) and {"*", "?"} & {*"".join(parts)}:
                    text, self._sure = (Unknown(source_of(text), _FILES),), False
                words.append(Word(text, next((piece.place for piece in word if piece.place), place)))
        return Array(tuple(words), self._sure)

    def text(self, node: Node) -> Text:
        """Expand a word to one text, without splitting."""
        pieces = self._with_home([*self._pieces(node, "plain")])
        return self._join(Piece(" ", "quoted") if each.content is None else each for each in pieces)

    def pattern(self, node: Node) -> re.Pattern[str] | None:
        """Return a pattern of ``case`` as a regular expression; None if it is unknown or not supported."""
        pattern = ""
        for content, kind, _ in self._pieces(node, "plain"):
            if not isinstance(content, str) or (kind != "quoted" and _UNSUPPORTED.search(content)):
                return None
            escaped = re.escape(content)
            pattern += escaped if kind == "quoted" else escaped.replace(r"\*", ".*").replace(r"\?", ".")
        return re.compile(pattern, re.DOTALL)

    def _join(self, pieces: Iterable[Piece]) -> Text:
        text: list[str | Unknown] = []
        for content, *_ in pieces:
            self.spend(1 + len(content) if isinstance(content, str) else 1)
            if isinstance(content, str) and text and isinstance(text[-1], str):
                text[-1] += content
            elif content:
                text.append(content)
        return tuple(text) or ("",)

    def _split(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Split the values of unquoted expansions at blanks."""
        for piece in pieces:
            content = piece.content
            if isinstance(content, Unknown) and piece.kind in {"operand", "split"}:
                self._sure = False
            if not isinstance(content, str) or piece.kind in {"plain", "quoted"}:
                yield piece
            else:
                for number, part in enumerate(_BLANKS.split(content)):
                    yield piece._replace(content=None if number % 2 else part)

    def _with_home(self, pieces: list[Piece]) -> list[Piece]:
        """Replace an unquoted tilde with the home directory; other users' directories are unknown."""
        content, kind, place = pieces[0] if pieces else Piece("", "quoted")
        if kind not in {"plain", "operand"} or not isinstance(content, str) or not _TILDE.search(content):
            return pieces
        home = self._lookup("HOME", None, "~") if re.match(r"~/[^:]*\Z", content) else None
        rest = (*home, content[1:]) if isinstance(home, tuple) else (Unknown(content, _DIRECTORY),)
        return [*(Piece(each, "quoted", place) for each in rest), *pieces[1:]]

    def _pieces(self, node: Node, kind: Kind) -> Iterator[Piece]:
        """Yield the pieces of a word; ``kind`` is that of its unquoted text."""
        source = text_of(node)
        match node.type:
            case "string":
                pieces = [*self._span(node, 1, "quoted")]
                if pieces or not node.named_children:  # "$@" without arguments is no word
                    yield from (Piece("", "quoted"), *pieces)
            case "concatenation" | "command_name":
                yield from self._span(node, 0, kind)
            case "raw_string" | "ansi_c_string" if "\\" not in source or source[0] == "'":
                yield Piece(source if kind == "quoted" else source.lstrip("$")[1:-1], "quoted")
            case "ansi_c_string" | "translated_string" | "process_substitution":
                yield Piece(Unknown(source, _FORM), "quoted")
            case "simple_expansion" | "expansion":
                yield from self._parameter(node, quoted=kind == "quoted")
            case "arithmetic_expansion":
                yield Piece(self.calculate(node), "quoted")
            case "command_substitution" if (value := value_of(source)) and value.type != node.type:
                yield from self._pieces(value, kind)  # $(( … )) in an operand
            case "command_substitution":
                answer = output_on_gpus(source)
                self.devices |= {source: answer} if answer else {}
                yield Piece(answer or Unknown(source, _COMMAND), "quoted" if kind == "quoted" else "split")
            case _:
                yield from _literal(source, kind)

    def _span(self, node: Node, start: int, kind: Kind) -> Iterator[Piece]:
        """Yield the pieces of a node, which its children cover only partly, without its first and last sign.

        If ``start`` is 0, they are those of the whole node.
        """
        content = node.text or b""
        at, end = start, len(content) - bool(start)
        for child in node.named_children:
            first, last = child.start_byte - node.start_byte, child.end_byte - node.start_byte
            if child.type.endswith("expansion"):  # in quotes, it begins with the blanks before it
                first += len(child.text or b"") - len((child.text or b"").lstrip())
            if first >= at and last <= end:
                yield from _literal(content[at:first].decode("utf-8", "replace"), kind)
                yield from self._pieces(child, kind)
                at = last
        yield from _literal(content[at:end].decode("utf-8", "replace"), kind)

    # -- parameters

    def _parameter(self, node: Node, *, quoted: bool) -> Iterator[Piece]:
        """Yield the pieces of ``$NAME`` or ``${NAME:-operand}``."""
        source = "$" * (node.type == "variable_name") + text_of(node).lstrip()
        kind: Kind = "quoted" if quoted else "split"
        match = _PARAMETER.match(source)
        if not match or (source[match.end() :] not in {"", "}"} and not match["operator"]):
            self._sure = self._sure and not re.match(r"\$\{[!#]?(?:\w+\[)?[@*]", source)
            self.make_changed_unknown(re.sub(r"^[^\[:]*", "", source))
            yield Piece(Unknown(source, _FORM), kind)
            return
        name, index, operator = match["name"], match["index"], match["operator"] or ""
        self.make_changed_unknown(index or "")
        value = self._lookup(name, index, source)
        missing = value is None or (operator[:1] == ":" and is_empty(value))
        if match["length"]:
            is_known = value.sure if isinstance(value, Array) else value is not None and not cause_of(value)
            length = len(value.words if isinstance(value, Array) else source_of(value or ()))
            unknown = Cause(f"the length of ${name} is unknown", (name,) if value is None else ())
            yield Piece(str(length) if is_known else Unknown(source, unknown), kind)
        elif not operator or (missing is not True and operator[-1] != "+"):
            content = (Unknown(source, _unset(name), unset=True),) if value is None else value
            yield from self._spread(content, kind, joins=quoted and "*" in {name, index})
        elif operator[-1] == "+" and missing is None:
            yield Piece(Unknown(source, Cause(f"it depends on ${name}, which is unknown")), kind)
        elif operator[-1] == "?":
            yield Piece(Unknown(source, Cause(f"the script requires ${name}", (name,))), kind)
        elif operator[-1] == "=":
            self.assign(name, self._join(self._operand(node, match, "quoted")))
            yield from self._spread(self.variables[name] or (), kind, joins=False)
        elif operator[-1] == "-" or not missing:
            yield Piece("", kind)
            yield from self._operand(node, match, "quoted" if quoted else "operand")
        elif "@" not in {name, index}:
            yield Piece("", kind)

    def _operand(self, node: Node, match: re.Match[str], kind: Kind) -> Iterator[Piece]:
        """Yield the pieces of the word after an operator; unknown pieces suggest setting the variable."""
        operand = match.string[match.end() : -1]
        if node.has_error:  # the grammar lacks operands such as [a] and $(((a+b)*2)), but reads them alone
            quote = '"' if kind == "quoted" else ""
            value = value_of(f"{quote}{operand}{quote}")
            pieces = [*self._pieces(value, kind)] if value else [Piece(Unknown(operand, _FORM), kind)]
        else:
            pieces = [*self._span(node, len(node.text or b"") - 1 - len(operand.encode()), kind)]
        for piece in self._with_home(pieces):
            content = piece.content
            if isinstance(content, Unknown) and not content.cause.names:
                content = content._replace(cause=content.cause._replace(names=(match["name"],)))
            yield piece._replace(content=content)

    def _lookup(self, name: str, index: str | None, source: str) -> Value | None:
        """Return the value of a parameter, or of an element of an array; None if unset."""
        value: Value | None = self.variables.get("@") or Array()
        if name in {"@", "*"}:
            index = "@"
        elif name.isdigit() and name != "0":
            index = str(int(name) - 1)
        else:
            value = self.get(name)
            if value is None and (name in WORDS["always_set"] or not name.isidentifier()):
                return (Unknown(source, _unset(name)),)
        if value is None or (index is None and isinstance(value, tuple)):
            return value
        array = as_array(value, Location(""))
        if index in {"@", "*"}:
            return array
        if not array.sure or not re.fullmatch(r"[0-9]{1,6}", index or "0"):
            return (Unknown(source, Cause(f"this element of ${name} cannot be determined")),)
        return next((word.text for word in array.words[int(index or 0) :]), None)

    def _spread(self, value: Value, kind: Kind, *, joins: bool) -> Iterator[Piece]:
        """Yield the pieces of a value; an array gives several words, unless ``"${A[*]}"`` joins them."""
        if not isinstance(value, Array):
            yield from (Piece(content, kind) for content in value)
            return
        self._sure = self._sure and value.sure
        for number, word in enumerate(value.words):
            if number:
                yield Piece(" " if joins else None, kind)
            yield from (Piece(content, kind, word.place) for content in word.text)

    # -- arithmetic

    def calculate(self, node: Node) -> str | Unknown:
        """Return the value of ``$(( … ))`` or ``(( … ))``; variables that it changes become unknown."""
        source = text_of(node)
        if self.make_changed_unknown(source):
            return Unknown(source, Cause("arithmetic that changes variables is not followed"))
        try:
            return str(self._number(node))
        except ArithmeticError as error:
            why = error.args[0]
            return Unknown(source, why if isinstance(why, Cause) else Cause("the divisor is zero"))

    def _number(self, node: Node) -> int:
        """Return the value of a part of an arithmetic expression.

        Raises:
            ArithmeticError: it is unknown, not supported, or exceeds 64 bits; the argument is the cause.
        """
        parts = [child for child in node.named_children if child.type != "comment"]
        apply = _OPERATORS.get(text_of(node.child_by_field_name("operator")))
        match node.type:
            case "arithmetic_expansion" | "compound_statement" | "parenthesized_expression" if (
                len(parts) == 1
            ):
                number = self._number(parts[0])
            case "binary_expression" if apply:
                number = int(apply(self._number(parts[0]), self._number(parts[-1])))
            case "variable_name" | "number" | "word" | "simple_expansion" | "expansion" | "string":
                is_name = node.type == "variable_name"
                text = self._join(self._parameter(node, quoted=True)) if is_name else self.text(node)
                read = read_number(source_of(text))
                if read is None:
                    wrong = Cause(f"{source_of(text)[:40]!r} is not a whole number")
                    raise ArithmeticError(cause_of(text) or wrong)
                number = read
            case _:
                raise ArithmeticError(Cause(f"the arithmetic {text_of(node)[:80]!r} is not supported"))
        if not -(1 << 63) <= number < 1 << 63:
            raise ArithmeticError(Cause(f"{text_of(node)[:80]!r} exceeds 64 bits"))
        return number


def value_of(source: str) -> Node | None:
    """Return the syntax tree of the value of an assignment; None if it cannot be parsed."""
    root = parse(f"V={source}\n")
    value = root.named_children[0].child_by_field_name("value") if root.named_child_count == 1 else None
    return None if root.has_error else value


def first_error(node: Node) -> Node | None:
    """Return the first part of a tree that cannot be parsed; None if there is none."""
    if not node.has_error:
        return None
    match = _PARAMETER.match(text_of(node)) if node.type == "expansion" else None
    if match and value_of(text_of(node)[match.end() : -1]):
        return None
    own = node if node.is_error or node.is_missing else None
    return next(filter(None, map(first_error, node.children)), own)


def read_number(text: str) -> int | None:
    """Parse a decimal number of a shell, where empty text is 0; return None for other text.

    >>> [read_number(text) for text in ("-8", "10", "0x1F", "010", "1e3", " ")]
    [-8, 10, None, None, None, 0]
    """
    text = text.strip(" \t\n") or "0"
    return int(text) if _NUMBER.fullmatch(text) else None


def _literal(source: str, kind: Kind) -> Iterator[Piece]:
    """Yield the pieces of literal text; escaped characters are quoted."""
    if {"$", "`"} & {*_ESCAPE.sub("", source)}:
        yield Piece(Unknown(source, _FORM), "quoted" if kind == "quoted" else "split")
        return
    if kind == "quoted":
        source = _QUOTED_ESCAPE.sub(lambda match: match[1].strip("\n"), source)
    for number, part in enumerate([source] if kind == "quoted" else _ESCAPE.split(source)):
        if part.strip("\n" if number % 2 else ""):
            yield Piece(part, "quoted" if number % 2 else kind)


def _split_words(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Yield the pieces of each word; empty text begins a word only if it is quoted."""
    word: list[Piece] = []
    for piece in (*pieces, Piece(None, "quoted")):
        if piece.content is None:
            if word:
                yield word
            word = []
        elif piece.content or piece.kind == "quoted":
            word.append(piece)


def is_empty(value: Value) -> bool | None:
    """Return whether a value has no characters or no words; None if that depends on unknown parts."""
    if isinstance(value, Array):
        if not value.sure or len(value.words) > 1:
            return False if value.sure else None
        value = value.words[0].text if value.words else ()
    if any(piece for piece in value if isinstance(piece, str)):
        return False
    return None if cause_of(value) else True


def _unset(name: str) -> Cause:
    if name.isdigit():
        return Cause(f"the script's argument ${name} is unknown")
    if name.isidentifier():
        return Cause(f"the script does not set ${name}", (name,))
    return Cause(f"${name} is only known when the script runs")


# -- the device


def succeeds_on_gpus(command: str) -> bool | None:
    """Return whether a command that looks for a device succeeds on GPUs; None for other commands.

    >>> [succeeds_on_gpus(command) for command in ("command -v npu-smi", "which nvidia-smi", "ray status")]
    [False, True, None]
    """
    looks = _LOOKS.match(command)
    return looks[1] == "nvidia-smi" if looks else None


def output_on_gpus(command: str) -> str:
    """Return the output on GPUs of a command that detects the device; empty for other commands.

    >>> output_on_gpus("python3 -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu")
    'gpu'
    >>> output_on_gpus("nvidia-smi -L | wc -l")
    ''
    """
    word = _GPU.search(command) if _PROBE.search(command) else None
    return word[1] if word else "cuda" if "get_device_name" in command else ""
