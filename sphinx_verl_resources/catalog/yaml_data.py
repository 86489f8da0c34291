"""Strict YAML as plain values, with the places of keys and values on demand.

The text is parsed once, into dicts, tuples and scalars. To look up places for a report, it is parsed again,
because files are many and errors are rare.

Only ``true``/``false``, ``null``, plain integers and decimals are converted: ``on``, ``1_000``, ``12:30:00``
and ``0123456`` stay as text.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from ..diagnostics import FORBIDDEN, MAX_PROBLEMS, Code, Diagnostic, Location, Severity, visible
from .yaml_syntax import TOO_DEEP, position, syntax_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: libyaml if PyYAML was built with it; the pure Python parser gives the same events.
LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

#: The maximum file size in bytes. The largest real file, the registry of models, has less than a tenth.
MAX_BYTES = 1 << 20
#: The maximum number of entries in a list or mapping; the largest real list has a few hundred.
MAX_ITEMS = 5_000

_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
#: Without a dot, an exponent needs a sign: ``8446e41`` is a commit, ``1e-6`` a learning rate. Python writes
#: up to 20 decimals.
_NUMBER = re.compile(
    r"[-+]?(?:0|[1-9][0-9]{0,17})(?P<fraction>\.[0-9]{1,20}(?:[eE][-+]?[0-9]{1,2})?|[eE][-+][0-9]{1,2})?\Z"
)

Loc = tuple["str | int", ...]


@dataclass
class Document:
    """A parsed YAML text.

    Attributes:
        text: the text.
        shown: its name in messages.
        data: the value; None if it could not be parsed.
        problems: the problems of the YAML, before any validation.
        inside: for an item of a list, the whole document and the item's index.
    """

    text: str
    shown: str = ""
    data: Any = None
    problems: list[Diagnostic] = field(default_factory=list)
    inside: tuple[Document, int] | None = None

    def items(self) -> list[Document]:
        """Split a list into a document for each item, with its problems; places stay the same."""
        values = self.data if isinstance(self.data, tuple) else ()
        items = [
            Document(self.text, self.shown, value, inside=(self, index)) for index, value in enumerate(values)
        ]
        for problem in self.problems if items else ():
            before = [item for item in items if item.place() <= problem.place]
            (before or items[:1])[-1].problems.append(problem)
        return items

    @cached_property
    def _root(self) -> yaml.Node | None:
        if self.inside:
            whole, index = self.inside
            return _walk(whole._root, (index,))[1]
        root: yaml.Node | None = yaml.compose(self.text, Loader=LOADER)
        return root

    def key_place(self, loc: Loc) -> Location:
        """Return the place of the key (or list item) at the end of ``loc``."""
        return self._place(_walk(self._root, loc)[0])

    def place(self, loc: Loc = ()) -> Location:
        """Return the place of the value at ``loc``, or of the nearest existing parent."""
        return self._place(_walk(self._root, loc)[1])

    def _place(self, node: yaml.Node | None) -> Location:
        return Location(self.shown, *position(node.start_mark if node else None))

    def source(self, loc: Loc) -> str:
        """Return the scalar at ``loc`` as typed, without quotes; empty for other values."""
        node = _walk(self._root, loc)[1]
        return node.value if isinstance(node, yaml.ScalarNode) else ""

    def is_plain(self, loc: Loc) -> bool:
        """Return whether the value at ``loc`` is a scalar typed without quotes."""
        node = _walk(self._root, loc)[1]
        return isinstance(node, yaml.ScalarNode) and not node.style

    def diagnostic(
        self, loc: Loc, code: Code, message: str, remedy: str = "", severity: Severity = Severity.ERROR
    ) -> Diagnostic:
        """Return a diagnostic about the value at ``loc``."""
        return Diagnostic(self.place(loc), code, message, remedy, severity)


def leaves(data: Any, loc: Loc = ()) -> Iterator[tuple[Loc, Any]]:
    """Yield all scalars and empty collections in nested data, with their positions."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, tuple) else ()
    if not items:
        yield loc, data
    for key, item in items:
        yield from leaves(item, (*loc, key))


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


def read_yaml(content: bytes, shown: str = "") -> Document:
    """Parse the content of a file. Problems are in the result, never raised.

    Args:
        content: the file.
        shown: its name in messages.
    """

    def unreadable(line: int, column: int, code: Code, message: str, remedy: str) -> Document:
        problem = Diagnostic(Location(shown, line, column), code, message, remedy)
        return Document("", shown, problems=[problem])

    if len(content) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES >> 20} MiB and was not read"
        return unreadable(1, 1, Code.file_too_large, message, "split it; a run file has a few kilobytes")
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        before = content[content.rfind(b"\n", 0, error.start) + 1 : error.start]
        column = len(before.decode(errors="replace")) + 1
        message = f"byte 0x{content[error.start]:02x} is not UTF-8"
        return unreadable(line, column, Code.encoding, message, "save the file as UTF-8")
    # An invalid document keeps no text, so that a lookup of a place does not parse it again.
    if FORBIDDEN.search(text):
        return Document("", shown, problems=list(_forbidden_characters(text, shown)))
    reader = _Reader(text, shown)
    try:
        return Document(text, shown, reader.document(), reader.problems)
    except _RefusedError as refused:
        last = refused.problem
    except yaml.MarkedYAMLError as error:
        last = syntax_problem(error, text, shown)
    except RecursionError:  # only libyaml 0.2.6 and later limits nesting, and to more levels than Python
        last = Diagnostic(Location(shown, 1, 1), Code.yaml_syntax, *TOO_DEEP)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The last two come from PyYAML's scanner, for escapes such as "\U00110000".
        hint = "put text with a backslash in single quotes"
        last = Diagnostic(Location(shown, 1, 1), Code.yaml_syntax, f"not valid YAML: {error}", hint)
    return Document("", shown, problems=[*reader.problems, last])


def _forbidden_characters(text: str, shown: str) -> Iterator[Diagnostic]:
    """Yield the first forbidden character of each line."""
    lines = enumerate(re.split(r"\r\n|[\r\n]", text), 1)
    found = ((number, match) for number, line in lines if (match := FORBIDDEN.search(line)))
    for number, match in itertools.islice(found, MAX_PROBLEMS):
        yield _invisible(Location(shown, number, match.start() + 1), match)


def _invisible(place: Location, match: re.Match[str]) -> Diagnostic:
    return Diagnostic(place, Code.bad_character, f"invisible character U+{ord(match[0]):04X}", "delete it")


class _RefusedError(Exception):
    """A problem after which parsing cannot continue."""

    def __init__(self, problem: Diagnostic) -> None:
        super().__init__(problem.message)
        self.problem = problem


class _Reader:
    """A reader of the YAML events of a text."""

    def __init__(self, text: str, shown: str) -> None:
        self.shown = shown
        self.problems: list[Diagnostic] = []
        # Twice as fast as `yaml.parse`, a generator around this.
        self._next: Callable[[], Any] = LOADER(text).get_event

    def document(self) -> Any:
        """Return the value of the single document."""
        values: list[Any] = []
        for event in iter(self._next, None):
            if isinstance(event, yaml.DocumentStartEvent):
                if values:
                    self._refuse(event, "a second document in the file")
                values.append(self._value(self._next()))
        return values[0] if values else None

    def _value(self, event: Any) -> Any:
        """Return the value that begins with an event."""
        if isinstance(event, yaml.ScalarEvent):
            if event.anchor or event.tag:
                self._refuse_decoration(event)
            return plain_value(event.value) if event.implicit[0] else self._quoted(event)
        self._refuse_decoration(event)
        return self._list() if isinstance(event, yaml.SequenceStartEvent) else self._mapping()

    # A level takes two calls. Later code takes one, so it does not reach Python's limit of recursion first.
    def _list(self) -> tuple[Any, ...]:
        items: list[Any] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            if len(items) > MAX_ITEMS:
                self._refuse_more(event)
            items.append(self._value(event))
        return tuple(items)

    def _mapping(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._key(event)
            if len(found) > MAX_ITEMS:
                self._refuse_more(event)
            if key in found and len(self.problems) < MAX_PROBLEMS:
                message = f"duplicate key {key!r}"
                problem = self._problem(event, Code.duplicate_key, message, "keep one of the two")
                self.problems.append(problem)
            found[key] = self._value(self._next())
        return found

    def _key(self, event: Any) -> str:
        if not isinstance(event, yaml.ScalarEvent) or event.anchor or event.tag:
            self._refuse_decoration(event)
            self._refuse(event, "a key that is not plain text")
        if not event.implicit[0]:
            return self._quoted(event)
        if event.value == "<<":
            self._refuse(event, "the merge key '<<'")
        return str(event.value)

    def _quoted(self, event: yaml.ScalarEvent) -> str:
        """Return quoted or block text, which may contain escaped forbidden characters."""
        text: str = event.value
        match = FORBIDDEN.search(text)
        if match is None:
            return text
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(_invisible(self._place(event), match))
        return visible(text)

    def _refuse_more(self, event: yaml.Event) -> NoReturn:
        message = f"a list or mapping of more than {MAX_ITEMS:,} items is not read"
        raise _RefusedError(self._problem(event, Code.file_too_large, message, "split the file"))

    def _refuse_decoration(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent):
            self._refuse(event, f"the alias '*{event.anchor}'")
        if event.anchor:
            self._refuse(event, f"the anchor '&{event.anchor}'")
        if event.tag:
            self._refuse(event, f"the tag '{event.tag}'")

    def _refuse(self, event: yaml.Event, what: str) -> NoReturn:
        remedy = (
            "write the values out; data files do not support anchors, aliases, merge keys, tags "
            "and several documents"
        )
        raise _RefusedError(self._problem(event, Code.yaml_feature, f"{what} is not read", remedy))

    def _problem(self, event: yaml.Event, code: Code, message: str, remedy: str) -> Diagnostic:
        return Diagnostic(self._place(event), code, message, remedy)

    def _place(self, event: yaml.Event) -> Location:
        return Location(self.shown, *position(event.start_mark))


@lru_cache(maxsize=10_000)
def plain_value(text: str) -> Any:
    """Return the value of an unquoted scalar."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    number = _NUMBER.match(text)
    if number:
        return float(text) if number["fraction"] else int(text)
    return text


def _walk(root: yaml.Node | None, loc: Loc) -> tuple[yaml.Node | None, yaml.Node | None]:
    """Return the key node and the value node at ``loc``, skipping parts that do not match.

    A location from pydantic also contains names of union branches, and can end in a missing key. A part with
    dots also matches nested mappings: ``a.b`` matches ``{a: {b: 1}}``.
    """
    key = value = root
    for part in loc:
        if isinstance(value, yaml.MappingNode):
            key, value = _look_up(value, str(part)) or (key, value)
        elif isinstance(value, yaml.SequenceNode) and isinstance(part, int) and part < len(value.value):
            key = value = value.value[part]
    return key, value


def _look_up(mapping: yaml.MappingNode, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the key node and the value node of a name, which may have dots for nested mappings."""
    pairs = _by_name(mapping)
    if name in pairs:
        return pairs[name]
    for dot in re.finditer(r"\.", name):
        _, value = pairs.get(name[: dot.start()], (None, None))
        if isinstance(value, yaml.MappingNode) and (found := _look_up(value, name[dot.end() :])):
            return found
    return None


@lru_cache(maxsize=4)  # a file with many problems looks up many keys of one mapping
def _by_name(mapping: yaml.MappingNode) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    """Return the key and value nodes by name; for a duplicate key the last, whose value was read."""
    return {key.value: (key, value) for key, value in mapping.value if isinstance(key, yaml.ScalarNode)}
