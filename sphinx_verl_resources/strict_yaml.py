"""Strict YAML as plain values, and the place of each key and value.

Only ``true``/``false``, ``null``, plain integers and decimals are converted: ``on``, ``1_000``, ``12:30:00``
and ``0123456`` stay text. Anchors, aliases, tags, merge keys and duplicate keys are refused.
"""

from __future__ import annotations

import codecs
import re
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from .diagnostics import FORBIDDEN, Code, Diagnostic, Location, Severity, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Loc = tuple["str | int", ...]
#: libyaml if PyYAML was built with it; the pure Python parser gives the same events.
LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: The maximum file size in bytes. The largest real file, the registry of models, has less than a tenth.
MAX_BYTES = 1 << 20
#: The maximum depth of nested lists and mappings; data files need five.
_MAX_DEPTH = 20
TOO_DEEP = "too many nested lists or mappings", "nest fewer"

_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
#: Without a dot, an exponent needs a sign: ``8446e41`` is a commit, ``1e-6`` a learning rate.
_NUMBER = re.compile(
    r"[-+]?(?:0|[1-9][0-9]{0,17})(?P<fraction>\.[0-9]{1,20}(?:[eE][-+]?[0-9]{1,2})?|[eE][-+][0-9]{1,2})?\Z"
)


@dataclass
class Document:
    """A parsed YAML text.

    Attributes:
        text: the text.
        shown: its name in messages.
        data: the value, with lists as tuples; None if the text could not be parsed.
        problems: the problems of the YAML itself.
        inside: the position of ``data`` in the text: of an item of a list, its index.
    """

    text: str
    shown: str = ""
    data: Any = None
    problems: list[Diagnostic] = field(default_factory=list)
    inside: Loc = ()
    # By dotted name, because ``a.b`` in a location also stands for ``{a: {b: 1}}``.
    _keys: dict[str, yaml.Event] = field(default_factory=dict, repr=False)
    _values: dict[str, yaml.Event] = field(default_factory=dict, repr=False)

    def items(self) -> list[Document]:
        """Return a document for each item of a list; problems go to the item that they are in."""
        values = self.data if isinstance(self.data, tuple) else ()
        items = [replace(self, data=value, problems=[], inside=(at,)) for at, value in enumerate(values)]
        for problem in self.problems if items else ():
            before = [item for item in items if item.place() <= problem.place]
            (before or items[:1])[-1].problems.append(problem)
        return items

    def place(self, loc: Loc = ()) -> Location:
        """Return the place of the value at ``loc``, or of the nearest existing parent."""
        return self._place(loc, self._values)

    def key_place(self, loc: Loc) -> Location:
        """Return the place of the key at the end of ``loc``, or of the nearest existing parent."""
        return self._place(loc, ChainMap(self._keys, self._values))

    def _place(self, loc: Loc, events: Mapping[str, yaml.Event]) -> Location:
        # A location from pydantic may end in a missing key or the name of a type.
        for length in range(len(loc), -1, -1):
            if event := events.get(self._name(loc[:length])):
                return Location(self.shown, *position(event.start_mark))
        return Location(self.shown, 1, 1)

    def _name(self, loc: Loc) -> str:
        return ".".join(map(str, (*self.inside, *loc)))

    def source(self, loc: Loc) -> str:
        """Return the scalar at ``loc`` as typed, without quotes; empty for other values."""
        return str(getattr(self._values.get(self._name(loc)), "value", ""))

    def is_plain(self, loc: Loc) -> bool:
        """Return whether the value at ``loc`` is a scalar typed without quotes."""
        return getattr(self._values.get(self._name(loc)), "implicit", (False,)) == (True, False)

    def diagnostic(
        self, loc: Loc, code: Code, message: str, remedy: str = "", severity: Severity = Severity.ERROR
    ) -> Diagnostic:
        """Return a diagnostic about the value at ``loc``."""
        return Diagnostic(self.place(loc), code, message, remedy, severity)


def position(mark: Any) -> tuple[int, int]:
    """Return the line and column, from 1, of a mark of PyYAML or libyaml, which share no base class."""
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def dotted_leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings with dotted keys, in order; a key may occur twice.

    >>> list(dotted_leaves({"a": {"b": 1}, "a.b": 2}))
    [('a.b', 1), ('a.b', 2)]
    """
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from dotted_leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def plain_value(text: str) -> Any:
    """Return the value of an unquoted scalar.

    >>> plain_value("0.10"), plain_value("1_000"), plain_value("~")
    (0.1, '1_000', None)
    """
    if text in _WORDS:
        return _WORDS[text]
    number = _NUMBER.match(text)
    if number:
        return float(text) if number["fraction"] else int(text)
    return text


def read_yaml(content: bytes, shown: str = "") -> Document:
    """Parse the content of a file. Problems are in the result, never raised.

    Args:
        content: the file.
        shown: its name in messages.
    """
    document = Document("", shown)
    try:
        document.text = _decoded(content, shown)
        document.data = _Reader(document).document()
        return document
    except _RefusedError as refused:
        (problem,) = refused.args
    except yaml.MarkedYAMLError as error:
        problem = _syntax_problem(error, document.text, shown)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The last two come from PyYAML's scanner, for escapes such as "\U00110000".
        hint = "put text with a backslash in single quotes"
        problem = Diagnostic(Location(shown, 1, 1), "yaml_syntax", f"not valid YAML: {error}", hint)
    return Document("", shown, problems=[*document.problems, problem])


class _RefusedError(Exception):
    """A problem, the only argument, after which parsing cannot continue."""


def _decoded(content: bytes, shown: str) -> str:
    def refuse(before: str, code: Code, message: str, remedy: str) -> NoReturn:
        lines = before.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        place = Location(shown, len(lines), len(lines[-1]) + 1)
        raise _RefusedError(Diagnostic(place, code, message, remedy))

    if len(content) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES >> 20} MiB and was not read"
        refuse("", "file_too_large", message, "split it; a run file has a few kilobytes")
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode(errors="replace")
        message = f"byte 0x{content[error.start]:02x} is not UTF-8"
        refuse(before, "encoding", message, "save the file as UTF-8")
    if match := FORBIDDEN.search(text):
        refuse(text[: match.start()], *_invisible(match))
    return text


def _invisible(match: re.Match[str]) -> tuple[Code, str, str]:
    return "bad_character", f"invisible character U+{ord(match[0]):04X}", "delete it"


class _Reader:
    """A reader of the YAML events of a document, which notes the place of each value."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._next: Callable[[], Any] = LOADER(document.text).get_event

    def document(self) -> Any:
        """Return the value of the single document."""
        values: list[Any] = []
        for event in iter(self._next, None):
            if isinstance(event, yaml.DocumentStartEvent):
                if values:
                    self._refuse(event, "a second document in the file")
                values.append(self._value(self._next()))
        return values[0] if values else None

    def _value(self, event: Any, name: str = "", depth: int = 0) -> Any:
        """Return the value that begins with an event, and note its place by its dotted name."""
        self._refuse_decoration(event)
        self._document._values[name] = event
        if isinstance(event, yaml.ScalarEvent):
            return plain_value(event.value) if event.implicit[0] else self._text(event)
        if depth > _MAX_DEPTH:
            raise _RefusedError(self._problem(event, "yaml_syntax", *TOO_DEEP))
        prefix = f"{name}." if depth else ""
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(event := self._next(), yaml.SequenceEndEvent):
                items.append(self._value(event, f"{prefix}{len(items)}", depth + 1))
            return tuple(items)
        found: dict[str, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._key(event)
            if key in found:
                twice = self._problem(event, "duplicate_key", f"duplicate key {key!r}", "keep one of the two")
                self._document.problems.append(twice)
            self._document._keys[f"{prefix}{key}"] = event
            found[key] = self._value(self._next(), f"{prefix}{key}", depth + 1)
        return found

    def _key(self, event: Any) -> str:
        self._refuse_decoration(event)
        if not isinstance(event, yaml.ScalarEvent):
            self._refuse(event, "a key that is not plain text")
        if event.implicit[0] and event.value == "<<":
            self._refuse(event, "the merge key '<<'")
        return self._text(event)

    def _text(self, event: Any) -> str:
        """Return a text, which may contain escaped forbidden characters."""
        if match := FORBIDDEN.search(event.value):
            self._document.problems.append(self._problem(event, *_invisible(match)))
        return visible(event.value)

    def _refuse_decoration(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent):
            self._refuse(event, f"the alias '*{event.anchor}'")
        if event.anchor:
            self._refuse(event, f"the anchor '&{event.anchor}'")
        if event.tag:
            self._refuse(event, f"the tag '{event.tag}'")

    def _refuse(self, event: yaml.Event, what: str) -> NoReturn:
        remedy = (
            "write the values out; data files do not support anchors, aliases, merge keys, tags and several "
            "documents"
        )
        raise _RefusedError(self._problem(event, "yaml_feature", f"{what} is not read", remedy))

    def _problem(self, event: yaml.Event, code: Code, message: str, remedy: str) -> Diagnostic:
        return Diagnostic(Location(self._document.shown, *position(event.start_mark)), code, message, remedy)


#: A key with its value directly after the colon.
_NO_SPACE = re.compile(r" *(?:- )*[A-Za-z_][\w.]*:(?=[^\s:/])")
_NOT_ALIKE = "this does not belong to the keys above it"
#: The likely causes of a syntax error: a word of the parser's message (libyaml and PyYAML share only words),
#: whether the cause is where the construct began, the message and the remedy.
_CAUSES = (
    ("nesting depth", False, *TOO_DEEP),
    ("tab character", False, "a tab cannot indent YAML", "use spaces"),
    *(
        (word, False, "invalid escape sequence", "double the backslash, or use single quotes")
        for word in ("escape", "hexdecimal", "Unicode character code")
    ),
    ("quoted scalar", True, "the quote that opens here is never closed", "add the closing quote"),
    ("flow node", False, "a value is missing here", "write it, and check for unclosed brackets and quotes"),
    ("flow", True, "the bracket that opens here is not closed", "close it, or add a comma"),
    ("expected ':'", True, "a key without a colon", "write 'key: value', with a space after the colon"),
    ("values are not allowed", False, "a colon in a text without quotes", "put the text in quotes"),
    ("cannot start any token", False, "text cannot begin with {!r}", "put it in quotes"),
    ("block", False, _NOT_ALIKE, "indent all keys of a level alike, and close each quote and bracket once"),
)


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, shown: str) -> Diagnostic:
    """Return the likely cause of a syntax error, which is not always where the parser reports it."""
    lines = text.splitlines() or [""]
    noticed = position(error.problem_mark or error.context_mark)
    if noticed[0] > len(lines):  # report the end of the text on its last line
        noticed = len(lines), len(lines[-1]) + 1
    began = position(error.context_mark or error.problem_mark)
    line, at = lines[noticed[0] - 1], noticed[1] - 1
    said = f"{error.problem or ''} {error.context or ''}".strip()
    if line[at : at + 1] == "\t":
        said = "tab character"
    default = (said, False, f"not valid YAML: {said}", "")
    _, at_beginning, message, remedy = next((cause for cause in _CAUSES if cause[0] in said), default)
    place = began if at_beginning else noticed
    if "colon" in message:  # is a space missing on this line, or on the one above?
        for number in (place[0], place[0] - 1):
            if number and (match := _NO_SPACE.match(lines[number - 1])):
                place, message, remedy = (number, match.end()), "a colon without a space after it", "add it"
                break
        else:
            if "values" in said and not re.search(r":\s", line[:at]):
                message, remedy = _NOT_ALIKE, "indent all keys of a level alike"
    message = message.format(line[noticed[1] - 1 :][:1]) if "{!r}" in message else message
    return Diagnostic(Location(shown, *place), "yaml_syntax", message, remedy)
