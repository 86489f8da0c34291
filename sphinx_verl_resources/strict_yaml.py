"""Strict YAML as plain values, and the place of each key and value.

Only ``true``/``false``, ``null``, plain integers and decimals are converted: ``on``, ``1_000``, ``12:30:00``
and ``0123456`` stay text. Anchors, aliases, tags and duplicate keys are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NoReturn

import yaml

from .diagnostics import FORBIDDEN, Code, Diagnostic, Location, NoAnswerError, Severity

Loc = tuple["str | int", ...]
#: libyaml if PyYAML was built with it; the pure Python parser gives the same events.
LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: The maximum file size in bytes. The largest real file, the registry of models, has less than a tenth.
MAX_BYTES = 1 << 20
_PLAIN = "write the values out; data files have no anchors, aliases, tags and several documents"
#: A line that git writes into a file with a merge conflict.
_CONFLICT = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
#: The maximum depth of nested lists and mappings; data files need five.
_MAX_DEPTH = 20

_LOWER = {"": None, "~": None, "null": None, "true": True, "false": False}
_WORDS = {form: value for word, value in _LOWER.items() for form in (word, word.title(), word.upper())}
#: Without a dot, an exponent needs a sign: ``8446e41`` is a commit, ``1e-6`` a learning rate.
_NUMBER = re.compile(r"[-+]?(0|[1-9]\d{0,17})(\.\d{1,20}([eE][-+]?\d{1,2})?|[eE][-+]\d{1,2})?", re.ASCII)


@dataclass
class Document:
    """A YAML text and its value.

    Attributes:
        text: the text.
        label: its name in messages.
        data: the value, with lists as tuples; None if the text is empty or not strict YAML.
        problems: the first problem of the YAML itself, if any.
        inside: the position of ``data`` in the text: of an item of a list, its index.
    """

    text: str
    label: str = ""
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
        return "".join(f".{part}" for part in (*self.inside, *loc))

    def _place(self, event: Any) -> Location:
        return Location(self.label, *position(event and event.start_mark))

    def _events(self) -> Iterator[Any]:
        """Yield the events of the parser; refuse what data files do not support."""
        for event in iter(LOADER(self.text).get_event, None):
            for kind in ("anchor", "tag"):
                if name := getattr(event, kind, None):
                    _refuse(self._place(event), "yaml_feature", f"the {kind} {name!r} is not read", _PLAIN)
            if match := FORBIDDEN.search(getattr(event, "value", "")):
                _refuse_character(match[0], self._place(event))
            yield event

    def _parse(self) -> Any:
        """Return the value of the text, and note the places of keys and values."""
        value, events = None, self._events()
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if self._values:
                    _refuse(self._place(event), "yaml_feature", "a second document is not read", _PLAIN)
                value = self._value(events, next(events))
        return value

    def _value(self, events: Iterator[Any], event: Any, name: str = "", depth: int = 0) -> Any:
        """Return the value that begins with an event; ``name`` is its dotted name."""
        self._values[name] = event
        if isinstance(event, yaml.ScalarEvent):
            return plain_value(event.value) if event.implicit[0] else event.value
        if depth > _MAX_DEPTH:
            _refuse(self._place(event), "yaml_syntax", "too many nested lists or mappings", "nest fewer")
        if isinstance(event, yaml.SequenceStartEvent):
            inner = takewhile(lambda event: not isinstance(event, yaml.SequenceEndEvent), events)
            return tuple(self._value(events, one, f"{name}.{at}", depth + 1) for at, one in enumerate(inner))
        mapping: dict[str, Any] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                _refuse(self._place(event), "yaml_feature", "a list or mapping as a key is not read", _PLAIN)
            if (key := event.value) in mapping:
                _refuse(self._place(event), "duplicate_key", f"duplicate key {key!r}", "keep one of the two")
            self._keys[f"{name}.{key}"] = event
            mapping[key] = self._value(events, next(events), f"{name}.{key}", depth + 1)
        return mapping


def position(mark: Any) -> tuple[int, int]:
    """Return the line and column, from 1, of a mark of PyYAML or libyaml, which share no base class."""
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def plain_value(text: str) -> Any:
    """Return the value of an unquoted scalar.

    >>> plain_value("0.10"), plain_value("1_000"), plain_value("~")
    (0.1, '1_000', None)
    """
    if number := _NUMBER.fullmatch(text):
        return float(text) if number[2] else int(text)
    return _WORDS.get(text, text)


#: The most frequent syntax errors: words of the parser (libyaml or PyYAML), which of its two places is meant
#: (where the construct begins, or where it fails), the message and the remedy.
_CAUSES = (
    ("cannot start|tab", "problem", "a line or value begins with a tab, '@' or '`'", "use spaces or quotes"),
    ("stream.*quoted", "context", "the quote that opens here is never closed", "add the closing quote"),
    ("flow [sm]", "context", "the bracket that opens here is not closed", "close it, or add a comma"),
    ("simple key", "context", "a key without a colon", "write 'key: value', with a space after the colon"),
    ("values are not", "problem", "an unexpected colon", "quote the text, or indent all keys alike"),
)
_INDENT = "indent all keys of a level alike, close each quote and bracket, and put unusual text in quotes"


def read_yaml(content: bytes, label: str = "") -> Document:
    """Parse the content of a file. Problems are in the result, never raised.

    Args:
        content: the file.
        label: its name in messages.
    """
    document = Document("", label)
    try:
        document.text = _decoded(content, label)
        document.data = document._parse()
    except NoAnswerError as refused:
        document.problems += refused.diagnostics
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The last two come from PyYAML's scanner, for escapes such as "\U00110000".
        complaint = " ".join(str(getattr(error, name, None) or "") for name in ("problem", "context")).strip()
        causes = (cause for words, *cause in _CAUSES if re.search(words, complaint))
        which, message, remedy = next(causes, ("problem", f"not valid YAML: {complaint or error}", _INDENT))
        place = Location(label, *position(getattr(error, f"{which}_mark", None)))
        document.problems.append(Diagnostic(place, "yaml_syntax", message, remedy))
    return document


def _decoded(content: bytes, label: str) -> str:
    if len(content) > MAX_BYTES:
        _refuse(Location(label), "file_too_large", f"the file is over {MAX_BYTES >> 20} MiB", "split it")
    text = content.decode("utf-8-sig", "surrogateescape")
    if match := _CONFLICT.search(text):
        remedy = "keep one side, and delete the lines with <<<<<<<, ======= and >>>>>>>"
        place = Location(label, text.count("\n", 0, match.start()) + 1)
        _refuse(place, "yaml_syntax", "the file contains a merge conflict", remedy)
    if match := FORBIDDEN.search(text):
        lines = text[: match.start()].replace("\r\n", "\n").replace("\r", "\n").split("\n")
        _refuse_character(match[0], Location(label, len(lines), len(lines[-1]) + 1))
    return text


def _refuse(place: Location, code: Code, message: str, remedy: str) -> NoReturn:
    raise NoAnswerError(Diagnostic(place, code, message, remedy))


def _refuse_character(character: str, place: Location) -> NoReturn:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # the escape of a byte
        _refuse(place, "encoding", f"byte 0x{number - 0xDC00:02x} is not UTF-8", "save the file as UTF-8")
    _refuse(place, "bad_character", f"invisible character U+{number:04X}", "delete it")
