"""Strict YAML as plain values, and the place of each key and value.

Only ``true``/``false``, ``null``, plain integers and decimals are converted: ``on``, ``1_000``, ``12:30:00``
and ``0123456`` stay text. Anchors, aliases, tags, merge keys and duplicate keys are refused.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from .diagnostics import FORBIDDEN, Code, Diagnostic, Location, NoAnswerError, Severity, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

Loc = tuple["str | int", ...]
#: libyaml if PyYAML was built with it; the pure Python parser gives the same events.
LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: The maximum file size in bytes. The largest real file, the registry of models, has less than a tenth.
MAX_BYTES = 1 << 20
#: The maximum depth of nested lists and mappings; data files need five.
_MAX_DEPTH = 20
_TOO_DEEP = "too many nested lists or mappings", "nest fewer"

_WORDS: dict[str, bool | None] = {
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
    """A YAML text and its value.

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
    # Events by dotted name, because ``a.b`` in a location also stands for ``{a: {b: 1}}``.
    _keys: dict[str, Any] = field(default_factory=dict, repr=False)
    _values: dict[str, Any] = field(default_factory=dict, repr=False)

    def place(self, loc: Loc = ()) -> Location:
        """Return the place of the value at ``loc``, or of the nearest existing parent."""
        # A location from pydantic may end in a missing key or the name of a type.
        parents = (self._values.get(self._name(loc[:length])) for length in range(len(loc), -1, -1))
        return self._place(next(filter(None, parents), None))

    def key_place(self, loc: Loc) -> Location:
        """Return the place of the key at the end of ``loc``; without a key, that of the value."""
        key = self._keys.get(self._name(loc))
        return self._place(key) if key else self.place(loc)

    def source(self, loc: Loc) -> str:
        """Return the scalar at ``loc`` as typed, without quotes; empty for other values."""
        return str(getattr(self._values.get(self._name(loc)), "value", ""))

    def diagnostic(
        self, loc: Loc, code: Code, message: str, remedy: str = "", severity: Severity = Severity.ERROR
    ) -> Diagnostic:
        """Return a diagnostic about the value at ``loc``."""
        return Diagnostic(self.place(loc), code, message, remedy, severity)

    def _name(self, loc: Loc) -> str:
        return ".".join(map(str, (*self.inside, *loc)))

    def _place(self, event: Any) -> Location:
        return Location(self.shown, *position(event and event.start_mark))

    def _events(self) -> Iterator[Any]:
        """Yield the events of the parser; refuse what data files do not support."""
        documents = 0
        for event in iter(LOADER(self.text).get_event, None):
            documents += isinstance(event, yaml.DocumentStartEvent)
            if documents > 1:
                self._refuse(event, "a second document in the file")
            if anchor := getattr(event, "anchor", None):
                kind = "alias '*" if isinstance(event, yaml.AliasEvent) else "anchor '&"
                self._refuse(event, f"the {kind}{anchor}'")
            if tag := getattr(event, "tag", None):
                self._refuse(event, f"the tag '{tag}'")
            yield event

    def _refuse(self, event: Any, what: str) -> NoReturn:
        remedy = "write the values out; data files have no anchors, aliases, tags and several documents"
        raise NoAnswerError(Diagnostic(self._place(event), "yaml_feature", f"{what} is not read", remedy))

    def _parse(self) -> None:
        """Set the value of the text, and note the places of keys and values."""
        events = self._events()
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                self.data = self._value(events, next(events))

    def _value(self, events: Iterator[Any], event: Any, name: str = "", depth: int = 0) -> Any:
        """Return the value that begins with an event; ``name`` is its dotted name."""
        self._values[name] = event
        if isinstance(event, yaml.ScalarEvent):
            return plain_value(event.value) if event.implicit[0] else self._text(event)
        if depth > _MAX_DEPTH:
            raise NoAnswerError(Diagnostic(self._place(event), "yaml_syntax", *_TOO_DEEP))
        prefix = f"{name}." if depth else ""
        if isinstance(event, yaml.SequenceStartEvent):
            inner = takewhile(lambda event: not isinstance(event, yaml.SequenceEndEvent), events)
            return tuple(
                self._value(events, event, f"{prefix}{index}", depth + 1) for index, event in enumerate(inner)
            )
        found: dict[str, Any] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                self._refuse(event, "a key that is not plain text")
            key = self._text(event)
            if key in found:
                message, remedy = f"duplicate key {key!r}", "keep one of the two"
                self.problems.append(Diagnostic(self._place(event), "duplicate_key", message, remedy))
            self._keys[f"{prefix}{key}"] = event
            found[key] = self._value(events, next(events), f"{prefix}{key}", depth + 1)
        return found

    def _text(self, event: Any) -> str:
        """Return a text, which may contain escaped forbidden characters."""
        if match := FORBIDDEN.search(event.value):
            self.problems.append(Diagnostic(self._place(event), *_bad_character(match)))
        return visible(event.value)


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
    if number := _NUMBER.match(text):
        return float(text) if number["fraction"] else int(text)
    return _WORDS.get(text, text)


def read_yaml(content: bytes, shown: str = "") -> Document:
    """Parse the content of a file. Problems are in the result, never raised.

    Args:
        content: the file.
        shown: its name in messages.
    """
    document = Document("", shown)
    try:
        document.text = _decoded(content, shown)
        document._parse()
        return document
    except NoAnswerError as refused:
        problem = refused.diagnostics[0]
    except yaml.MarkedYAMLError as error:
        problem = _syntax_problem(error, document)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The last two come from PyYAML's scanner, for escapes such as "\U00110000".
        problem = Diagnostic(Location(shown, 1, 1), "yaml_syntax", f"not valid YAML: {error}", _REMEDY)
    return Document("", shown, problems=[*document.problems, problem])


def _decoded(content: bytes, shown: str) -> str:
    if len(content) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES >> 20} MiB and was not read"
        remedy = "split it; a run file has a few kilobytes"
        raise NoAnswerError(Diagnostic(Location(shown, 1, 1), "file_too_large", message, remedy))
    text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
    if match := FORBIDDEN.search(text):
        lines = text[: match.start()].replace("\r\n", "\n").replace("\r", "\n").split("\n")
        place = Location(shown, len(lines), len(lines[-1]) + 1)
        raise NoAnswerError(Diagnostic(place, *_bad_character(match)))
    return text


def _bad_character(match: re.Match[str]) -> tuple[Code, str, str]:
    number = ord(match[0])
    if 0xDC80 <= number <= 0xDCFF:  # the escape of a byte
        return "encoding", f"byte 0x{number - 0xDC00:02x} is not UTF-8", "save the file as UTF-8"
    return "bad_character", f"invisible character U+{number:04X}", "delete it"


#: A key with its value directly after the colon.
_NO_SPACE = re.compile(r" *(?:- )*[A-Za-z_][\w.]*:(?=[^\s:/])")
_REMEDY = "indent all keys of a level alike, close each quote and bracket, and put unusual text in quotes"
#: The likely causes of a syntax error: a pattern of the message of the parser (libyaml or PyYAML),
#: whether the cause is where the construct began, the message and the remedy.
_CAUSES = (
    ("nesting depth", False, *_TOO_DEEP),
    ("tab character", False, "a tab cannot indent YAML", "use spaces"),
    ("end of stream.*quoted", True, "the quote that opens here is never closed", "add the closing quote"),
    ("flow [sm]", True, "the bracket that opens here is not closed", "close it, or add a comma"),
    ("expected ':'", True, "a key without a colon", "write 'key: value', with a space after the colon"),
    (
        "values are not allowed",
        False,
        "a colon in a text without quotes",
        "quote it, or indent all keys alike",
    ),
    ("", False, "not valid YAML: {}", _REMEDY),
)


def _syntax_problem(error: yaml.MarkedYAMLError, document: Document) -> Diagnostic:
    """Return the likely cause of a syntax error, which is not always where the parser reports it."""
    lines = document.text.splitlines() or [""]
    said = f"{error.problem or ''} {error.context or ''}".strip()
    line, column = position(error.problem_mark or error.context_mark)
    if line > len(lines):  # report the end of the text on its last line
        line, column = len(lines), len(lines[-1]) + 1
    if lines[line - 1].startswith("\t", column - 1):
        said = "tab character"
    _, is_earlier, message, remedy = next(cause for cause in _CAUSES if re.search(cause[0], said))
    if is_earlier:
        line, column = position(error.context_mark or error.problem_mark)
    for number in (line, max(line - 1, 1)) if "colon" in message else ():
        if match := _NO_SPACE.match(lines[number - 1]):
            line, column = number, match.end()
            message, remedy = "a colon without a space after it", "add it"
            break
    return Diagnostic(Location(document.shown, line, column), "yaml_syntax", message.format(said), remedy)
