"""The repairs of ``check --fix``.

Each repair edits the text in place, which preserves comments and layout, unlike a YAML writer. A repair that
would change another value, and a file that is not valid YAML, are skipped.
"""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import yaml

from ..catalog.fields import field_at
from ..catalog.links import is_fixed_ref, repository_place
from ..catalog.models.base import SLUG
from ..catalog.run_text import SCHEMA_LINE, SCHEMA_LINE_READ
from ..catalog.yaml_data import leaves, read_yaml
from .file_rules import has_schema, schema_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..catalog.files import DataFile
    from ..catalog.yaml_data import Loc
    from ..git import Repository
    from .context import CheckContext, SourceFile

    _Repairer = Callable[["_RunFile", "_Value"], "_Edit | None"]

#: A line above the data: a comment, an empty line, or a YAML marker.
_ABOVE_DATA = re.compile(r"#.*|\s*|---|%.*")
#: An address without its scheme.
_BARE_ADDRESS = re.compile(r"(?:[A-Za-z0-9-]{1,63}\.){1,5}[a-z]{2,12}/[^\s\"'{}\[\],#]*")

#: The maximum number of attempts to isolate the edits that would change another value.
_MAX_TRIES = 64


@dataclass(frozen=True, order=True)
class Repair:
    """A change: its line in the original file, and a description."""

    line: int
    done: str


class RepairedFile(NamedTuple):
    """A file to rewrite, its new text, and its repairs."""

    source: SourceFile
    text: str
    repairs: tuple[Repair, ...]


def repaired_files(context: CheckContext) -> Iterator[RepairedFile]:
    """Yield the files that can be repaired.

    Args:
        context: the data. With a checkout of verl, branches are replaced by their commits in it.
    """
    for source in context.files:
        file = source.file
        text, repairs = repaired(
            decoded(file),
            file.path.stem,
            source.kind,
            context.repository,
            needs_schema_line=has_schema(source),
        )
        if repairs:
            yield RepairedFile(source, encoded(file, text), repairs)


def decoded(file: DataFile) -> str:
    """Return the text of a file, without a byte order mark."""
    return file.content.decode("utf-8-sig")


def encoded(file: DataFile, text: str) -> str:
    """Return a new text for a file, with a byte order mark if the file has one."""
    return f"\ufeff{text}" if file.content.startswith(codecs.BOM_UTF8) else text


def repaired(
    text: str,
    stem: str,
    kind: str = "run",
    repository: Repository | None = None,
    *,
    needs_schema_line: bool = True,
) -> tuple[str, tuple[Repair, ...]]:
    r"""Repair a data file: the schema line, and in a run file also the id, quotes and links.

    A text with single carriage returns is not changed, because editors count its lines differently.

    Args:
        text: the content of the file.
        stem: the file name without ``.yaml``.
        kind: the name of its schema.
        repository: a checkout of verl, to look up the commits of branches.
        needs_schema_line: whether to add a missing schema line.

    Returns:
        The new text and the repairs, ordered by line.

    >>> text, repairs = repaired("id: b  # mine\nsize: 7B\n", "a")
    >>> print(text, end="")
    # yaml-language-server: $schema=../schema/run.json
    id: a  # mine
    size: 7B
    >>> [repair.done for repair in repairs]
    ["id 'b' changed to 'a', the file name", 'schema line added']
    """
    new = text.replace("\r\n", "\n")
    done: list[Repair] = []
    if "\r" in new or (kind == "run" and not _scalars(new)):
        return text, ()
    if kind == "run":
        file = _RunFile(new, stem, repository)
        for repair in _REPAIRS:
            new = _with_edits(file, repair, done)
            file = file if new == file.text else _RunFile(new, stem, repository)
    new = _led_to_schema(new, schema_target(kind), done, needed=needs_schema_line)
    if not done:
        return text, ()
    ends = "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"
    return new.replace("\n", ends), tuple(sorted(done))


def _with_edits(file: _RunFile, repair: _Repairer, done: list[Repair]) -> str:
    """Apply all edits of one repair that change no other value, and append them to ``done``."""
    text, values = file.text, _scalars(file.text)
    edits = [edit for value in file.values.values() if (edit := repair(file, value))]
    groups = [[edit for edit in edits if edit.text != text[edit.start : edit.end]]]
    for _ in range(_MAX_TRIES):
        group = groups.pop() if groups else []
        if not group:
            break
        edited, wanted = _edited(text, values, group)
        if _scalars(edited) == wanted:
            text, values = edited, wanted
            done += [Repair(edit.value.line, edit.done) for edit in group]
        elif half := len(group) // 2:
            groups += [group[:half], group[half:]]
    return text


def _edited(text: str, values: dict[Loc, object], edits: list[_Edit]) -> tuple[str, dict[Loc, object]]:
    """Return the edited text, and its expected values."""
    parts, end = [], len(text)
    wanted, values = dict(values), {loc: value for edit in edits for loc, value in edit.values.items()}
    for edit in reversed(edits):  # from the end, so that earlier positions stay valid
        parts += [text[edit.end : end], edit.text]
        end = edit.start
        wanted.pop(edit.value.loc, None)
    return "".join([text[:end], *reversed(parts)]), wanted | values


def _led_to_schema(text: str, target: str, done: list[Repair], *, needed: bool) -> str:
    """Put a correct schema line at the top, if the text has or needs one; append the repairs to ``done``."""
    lines = text.split("\n")
    top = next((row for row, line in enumerate(lines) if not _ABOVE_DATA.fullmatch(line)), len(lines))
    matches = ((row, SCHEMA_LINE_READ.match(lines[row])) for row in range(top))
    row, match = next(((row, match) for row, match in matches if match), (0, None))
    if match is None and not needed:
        return text
    if match is None:
        done.append(Repair(1, "schema line added"))
        return f"{SCHEMA_LINE.format(target)}\n{text}"
    if match[1].rsplit("/", 1)[-1] != target.rsplit("/", 1)[-1]:
        lines[row] = SCHEMA_LINE.format(target) + lines[row][match.end() :]
        done.append(Repair(row + 1, "schema line corrected"))
    if row:  # another line above would give editors two schemas
        lines.insert(0, lines.pop(row))
        done.append(Repair(row + 1, "schema line moved to the top"))
    return "\n".join(lines)


def _scalars(text: str) -> dict[Loc, object]:
    """Return the scalars of a data file by position; none if the file is invalid."""
    document = read_yaml(text.encode("utf-8", "surrogatepass"))
    usable = not document.problems and isinstance(document.data, dict)
    return dict(leaves(document.data)) if usable else {}


@dataclass(frozen=True)
class _Value:
    """A value in a text: its position in the data, its node, and the node of its key, if any."""

    loc: Loc
    node: yaml.Node
    key: yaml.ScalarNode | None = None

    @property
    def line(self) -> int:
        """The line of its key or, without a key, of the value, from 1."""
        return int((self.key or self.node).start_mark.line) + 1

    @property
    def text(self) -> str:
        """The text of a scalar without quotes; empty for other values."""
        return self.node.value if isinstance(self.node, yaml.ScalarNode) else ""

    @property
    def name(self) -> str:
        """Its position in messages."""
        return ".".join(map(str, self.loc))


def _values(node: yaml.Node, loc: Loc = (), key: yaml.ScalarNode | None = None) -> Iterator[_Value]:
    """Yield the values with keys in a node, outer ones first, except ``settings``, which are not repaired."""
    if key is not None:
        yield _Value(loc, node, key)
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if isinstance(name, yaml.ScalarNode) and (*loc, name.value) != ("settings",):
                yield from _values(value, (*loc, name.value), name)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _values(value, (*loc, index))


class _RunFile:
    """A run file to repair, with its values by position."""

    def __init__(self, text: str, stem: str, repository: Repository | None) -> None:
        self.text = text
        self.stem = stem
        self.repository = repository
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        # libyaml accepts some files that this parser rejects.
        except (yaml.YAMLError, ValueError, RecursionError):
            root = None
        self.values = {value.loc: value for value in _values(root)} if root else {}


class _Edit(NamedTuple):
    """A replacement of a part of the text, and the values that the new text should have."""

    value: _Value
    start: int
    end: int
    text: str
    done: str
    values: dict[Loc, object]


def _set(value: _Value, typed: str, done: str) -> _Edit:
    """Replace a scalar with ``typed``, which is YAML."""
    new = {value.loc: read_yaml(typed.encode("utf-8", "surrogatepass")).data}
    return _Edit(value, value.node.start_mark.index, value.node.end_mark.index, typed, done, new)


def _identify(file: _RunFile, value: _Value) -> _Edit | None:
    """Set the id to the file name."""
    if value.loc != ("id",) or not re.fullmatch(SLUG, file.stem):
        return None
    return _set(value, _typed(file.stem), f"id {value.text!r} changed to {file.stem!r}, the file name")


def _quote(file: _RunFile, value: _Value) -> _Edit | None:
    """Quote versions, commits and lines, so that YAML does not read them as numbers."""
    described = field_at(value.loc)
    if not described or not value.text or getattr(value.node, "style", None) is not None:
        return None
    meaning = read_yaml(value.text.encode("utf-8", "surrogatepass")).data
    # A commit that YAML reads as text stays as it is; null and true are not versions.
    is_word = meaning is None or isinstance(meaning, bool)
    is_number = value.loc[-1] == "ref" and not isinstance(meaning, str)
    if is_word or not (described.quoted or is_number):
        return None
    return _set(value, _quoted(value.text), f"{value.name} quoted")


def _take_apart(file: _RunFile, value: _Value) -> _Edit | None:
    """Replace an address in verl's repository with its commit, path and lines."""
    place = repository_place(value.text) if value.loc[-1] in {"url", "path"} else None
    if place is None or value.key is None or value.loc[0] not in {"evidence", "script"}:
        return None
    fields = {
        name: word for name, word in place.fields.items() if name != "lines" or value.loc[0] != "script"
    }
    values: dict[Loc, object] = {(*value.loc[:-1], name): word for name, word in fields.items()}
    if any(loc in file.values for loc in values if loc != value.loc):
        return None  # both are given, and only the author knows which is right
    start = value.key.start_mark.index
    before = file.text[file.text.rfind("\n", 0, start) + 1 : start]
    between = ", " if "{" in before else "\n" + " " * len(before)
    pairs = (f"{name}: {_quoted(word) if name == 'lines' else _typed(word)}" for name, word in fields.items())
    done = f"{value.name}: address split into {', '.join(fields)}"
    return _Edit(value, start, value.node.end_mark.index, between.join(pairs), done, values)


def _pin(file: _RunFile, value: _Value) -> _Edit | None:
    """Replace a branch with its commit, if the linked file exists there."""
    if not file.repository or value.loc[-1] != "ref" or is_fixed_ref(value.text):
        return None
    commit = file.repository.commit(value.text)
    path = file.values.get((*value.loc[:-1], "path"))
    if not commit or (path and not file.repository.has(commit, path.text)):
        return None
    return _set(value, _typed(commit), f"{value.name}: {value.text!r} replaced with {commit}")


def _complete(file: _RunFile, value: _Value) -> _Edit | None:
    """Add the scheme to an address."""
    if value.loc[-1] != "url" or not _BARE_ADDRESS.fullmatch(value.text):
        return None
    return _set(value, f"https://{value.text}", f"{value.name}: https:// added")


def _drop_name(file: _RunFile, value: _Value) -> _Edit | None:
    """Remove a link text that repeats the file name."""
    path = file.values.get(("script", "path"))
    if value.loc != ("script", "text") or not path or value.text != path.text.rsplit("/", 1)[-1]:
        return None
    assert value.key is not None
    text, start, end = file.text, value.key.start_mark.index, value.node.end_mark.index
    line, next_line = text.rfind("\n", 0, start) + 1, text.find("\n", end) + 1 or len(text)
    if not (text[line:start] + text[end:next_line]).strip():
        start, end = line, next_line
    elif (before := text[:start].rstrip()).endswith(","):
        start = len(before[:-1].rstrip())
    elif comma := re.match(r"\s*,\s*", text[end:]):
        end += comma.end()
    else:
        return None
    return _Edit(value, start, end, "", "script.text removed, because it repeats the file name", {})


#: The repairs in order; a later one may build on an earlier one.
_REPAIRS: tuple[_Repairer, ...] = (_identify, _quote, _take_apart, _pin, _complete, _drop_name)


def _quoted(text: str) -> str:
    """Return a text in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _typed(word: str) -> str:
    """Return a text as YAML, in quotes if YAML would read it as another type."""
    return word if read_yaml(word.encode()).data == word else _quoted(word)
