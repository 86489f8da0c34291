"""YAML as plain values, read strictly, with the place of every key and value on demand.

The text is parsed into events once and built into dicts, tuples and scalars. Places are looked up only
when there is something to report, by composing the same text again: errors are rare, files are many.

Only ``true``/``false``, ``null``, plain integers and decimals become anything but text, so that
``on``, ``1_000``, ``12:30:00`` and ``0123456`` stay what the author typed.
"""

from __future__ import annotations

import codecs
import itertools
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from ..diagnostics import Code
from .yaml_errors import explain, position

if TYPE_CHECKING:
    from collections.abc import Iterator

#: libyaml where PyYAML was built with it; the pure Python parser gives the same events.
LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

#: Bytes. The largest real file is the architecture registry with well under a tenth of this.
MAX_BYTES = 1 << 20
#: Levels of nesting; real files have five. Keeps recursive code below us from overflowing.
MAX_DEPTH = 20

#: Entries of one list, and keys of one mapping; the largest real list has some hundred.
MAX_ITEMS = 5_000
#: Problems listed per file; a file with more of them is no data file.
MAX_PROBLEMS = 50

#: What nobody sees and what reorders what everybody sees: controls except tab and line breaks, line
#: separators, zero-width and bidirectional controls, fillers, tag characters, surrogates, non-characters.
#: Joiners and variation selectors stay: scripts and emoji need them.
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\ufffe\uffff\U000e0000-\U000e0fff]"
)


def printable(name: str) -> str:
    """A file name as it can be printed on one line of any terminal."""
    return re.sub(f"{FORBIDDEN.pattern}|[\t\n\r]", _escaped, name)


def _escaped(match: re.Match[str]) -> str:
    return repr(match[0])[1:-1]


_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
#: Without a dot an exponent needs its sign: ``8446e41`` is a commit, ``1e-6`` a learning rate.
_NUMBER = re.compile(
    r"[-+]?(?:0|[1-9][0-9]{0,17})(?P<fraction>\.[0-9]{1,17}(?:[eE][-+]?[0-9]{1,2})?|[eE][-+][0-9]{1,2})?\Z"
)

Loc = tuple["str | int", ...]


@dataclass(frozen=True)
class Problem:
    """Something wrong in one YAML text; ``line`` and ``column`` count from 1."""

    line: int
    column: int
    code: Code
    message: str
    remedy: str = ""


class _RefusedError(Exception):
    """Stops reading at the first problem after which nothing sensible follows."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass
class Document:
    """One parsed YAML text.

    Attributes:
        text: the text itself.
        data: the value; None if it could not be built.
        problems: everything found wrong below the schema.
        inside: for one item of a list, the whole document and the item's index.
    """

    text: str
    data: Any = None
    problems: list[Problem] = field(default_factory=list)
    inside: tuple[Document, int] | None = None

    def item(self, index: int) -> Document:
        """One item of a list as a document of its own; its places are those in the whole text."""
        return Document(self.text, self.data[index], inside=(self, index))

    @cached_property
    def _root(self) -> yaml.Node | None:
        if self.inside:
            whole, index = self.inside
            return _walk(whole._root, (index,))[1]
        return yaml.compose(self.text, Loader=LOADER)

    def key_place(self, loc: Loc) -> tuple[int, int]:
        """Line and column of the key (or list item) that ``loc`` ends in."""
        return _place(_walk(self._root, loc)[0])

    def value_place(self, loc: Loc) -> tuple[int, int]:
        """Line and column of the value at ``loc``, or of its nearest parent that exists."""
        return _place(_walk(self._root, loc)[1])

    def source(self, loc: Loc) -> str:
        """The scalar at ``loc`` as it was typed, without quotes; empty for anything else."""
        node = _walk(self._root, loc)[1]
        return node.value if isinstance(node, yaml.ScalarNode) else ""


def leaves(data: Any, loc: Loc = ()) -> Iterator[tuple[Loc, Any]]:
    """Yield every value that holds no others, with its place."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, tuple) else ()
    if not items:
        yield loc, data
    for key, item in items:
        yield from leaves(item, (*loc, key))


def read_yaml(content: bytes) -> Document:
    """Read one file's content; never raises, every problem ends up in the result."""
    if len(content) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES >> 20} MiB and was not read"
        problem = Problem(1, 1, Code.file_too_large, message, "a run file takes a few kilobytes")
        return Document("", problems=[problem])
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        before = content[content.rfind(b"\n", 0, error.start) + 1 : error.start]
        column = len(before.decode(errors="replace")) + 1
        message = f"byte 0x{content[error.start]:02x} is not UTF-8"
        problem = Problem(line, column, Code.encoding, message, "save the file as UTF-8")
        return Document("", problems=[problem])
    document = Document(text)
    document.problems.extend(_forbidden_characters(text))
    if document.problems:
        return document
    try:
        document.data = _build(text, document.problems)
    except _RefusedError as refused:
        document.problems.append(refused.problem)
        document.text = ""  # so that nobody composes it to look up a place
    except yaml.MarkedYAMLError as error:
        found = explain(error, text)
        document.problems.append(
            Problem(found.line, found.column, Code.yaml_syntax, found.message, found.remedy)
        )
        document.text = ""
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The last two come from PyYAML's own scanner, at escapes such as "\U00110000".
        hint = "put text that holds a backslash in single quotes"
        document.problems.append(Problem(1, 1, Code.yaml_syntax, f"not valid YAML: {error}", hint))
        document.text = ""
    return document


def _forbidden_characters(text: str) -> Iterator[Problem]:
    """The first forbidden character of each line."""
    if not FORBIDDEN.search(text):
        return
    lines = enumerate(re.split(r"\r\n|[\r\n]", text), 1)
    found = ((number, match) for number, line in lines if (match := FORBIDDEN.search(line)))
    for number, match in itertools.islice(found, MAX_PROBLEMS):
        message = f"invisible character U+{ord(match[0]):04X}"
        yield Problem(number, match.start() + 1, Code.bad_character, message, "delete it")


def _build(text: str, problems: list[Problem]) -> Any:
    """Turn the events of ``text`` into plain values, without recursion."""
    documents: list[Any] = []
    stack: list[_Mapping | _Sequence] = []
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.ScalarEvent):
            _refuse_decoration(event)
            value = _scalar(event, problems)
        elif isinstance(event, yaml.CollectionStartEvent):
            _refuse_decoration(event)
            if len(stack) == MAX_DEPTH:
                _refuse(event, f"nesting of more than {MAX_DEPTH} levels")
            if stack and isinstance(stack[-1], _Mapping) and stack[-1].expects_key:
                _refuse(event, "a key that is not plain text")
            stack.append(_Mapping(problems) if isinstance(event, yaml.MappingStartEvent) else _Sequence())
            continue
        elif isinstance(event, yaml.CollectionEndEvent):
            value = stack.pop().value()
        elif isinstance(event, yaml.AliasEvent):
            _refuse(event, f"the alias '*{event.anchor}'")
        elif isinstance(event, yaml.DocumentStartEvent):
            if documents:
                _refuse(event, "a second document in the file")
            continue
        else:
            continue
        if stack:
            if len(stack[-1].items) > MAX_ITEMS:
                _refuse_length(event)
            stack[-1].add(value, event)
        else:
            documents.append(value)
    return documents[0] if documents else None


class _Mapping:
    """A mapping under construction: keys and values come in turn."""

    def __init__(self, problems: list[Problem]) -> None:
        self.items: dict[str, Any] = {}
        self.expects_key = True
        self._key = ""
        self._problems = problems

    def add(self, value: Any, event: yaml.Event) -> None:
        if self.expects_key:
            assert isinstance(event, yaml.ScalarEvent)
            self._key = FORBIDDEN.sub(_escaped, event.value)
            if self._key == "<<" and event.implicit[0]:
                _refuse(event, "the merge key '<<'")
            if self._key in self.items:
                message = f"the key {self._key!r} stands here a second time"
                if len(self._problems) < MAX_PROBLEMS:
                    hint = "keep one of the two"
                    self._problems.append(Problem(*_start(event), Code.duplicate_key, message, hint))
        else:
            self.items[self._key] = value
        self.expects_key = not self.expects_key

    def value(self) -> dict[str, Any]:
        return self.items


class _Sequence:
    """A list under construction; tuples keep the result immutable."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def add(self, value: Any, event: yaml.Event) -> None:
        self.items.append(value)

    def value(self) -> tuple[Any, ...]:
        return tuple(self.items)


def _scalar(event: yaml.ScalarEvent, problems: list[Problem]) -> Any:
    text: str = event.value
    if not event.implicit[0]:  # quoted, or a block of text
        match = FORBIDDEN.search(text)
        if match:  # written as an escape such as "\u202e"
            if len(problems) < MAX_PROBLEMS:
                message = f"invisible character U+{ord(match[0]):04X}"
                problems.append(Problem(*_start(event), Code.bad_character, message, "delete it"))
            return FORBIDDEN.sub(_escaped, text)
        return text
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    number = _NUMBER.match(text)
    if number:
        return float(text) if number["fraction"] else int(text)
    return text


def _refuse_decoration(event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
    if event.anchor:
        _refuse(event, f"the anchor '&{event.anchor}'")
    if event.tag:
        _refuse(event, f"the tag '{event.tag}'")


def _refuse(event: yaml.Event, what: str) -> NoReturn:
    hint = (
        "write the values out; data files do without anchors, aliases, merge keys, tags and second documents"
    )
    raise _RefusedError(Problem(*_start(event), Code.yaml_feature, f"{what} is not read", hint))


def _refuse_length(event: yaml.Event) -> NoReturn:
    message = f"a list or mapping of more than {MAX_ITEMS:,} items is not read"
    raise _RefusedError(Problem(*_start(event), Code.file_too_large, message, "split the file"))


def _start(event: yaml.Event) -> tuple[int, int]:
    return position(event.start_mark)


def _walk(root: yaml.Node | None, loc: Loc) -> tuple[yaml.Node | None, yaml.Node | None]:
    """The key node and the value node at ``loc``; parts that match nothing are skipped.

    A location from pydantic also holds names of union branches, and ends in a key that is missing. A part
    with dots also leads through nested mappings, ``a.b`` to ``{a: {b: 1}}``.
    """
    key = value = root
    for part in loc:
        if isinstance(value, yaml.MappingNode):
            key, value = _look_up(value, str(part)) or (key, value)
        elif isinstance(value, yaml.SequenceNode) and isinstance(part, int) and part < len(value.value):
            key = value = value.value[part]
    return key, value


def _look_up(mapping: yaml.MappingNode, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    """The key node and the value node of a name, which may be that of a nested value."""
    # Of a key that stands there twice, the last value is the one that was read.
    for key, value in reversed(mapping.value):
        if key.value == name:
            return key, value
    for key, value in reversed(mapping.value):
        if isinstance(value, yaml.MappingNode) and name.startswith(f"{key.value}."):
            found = _look_up(value, name[len(key.value) + 1 :])
            if found:
                return found
    return None


def _place(node: yaml.Node | None) -> tuple[int, int]:
    return position(node.start_mark if node else None)
