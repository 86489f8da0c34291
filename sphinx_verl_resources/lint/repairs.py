"""The repairs of ``check --fix``.

Each repair edits the text at the places that it is about; comments and layout stay, which a YAML writer would
not keep. A repair that would change any other value, or that meets no valid YAML, leaves the text as it is.
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

#: A line above the data: a comment, nothing, or a mark of YAML.
_ABOVE_DATA = re.compile(r"#.*|\s*|---|%.*")
#: An address without its scheme.
_BARE_ADDRESS = re.compile(r"(?:[A-Za-z0-9-]{1,63}\.){1,5}[a-z]{2,12}/[^\s\"'{}\[\],#]*")

#: Attempts to find the edits of one kind that change another value; all others are made at once.
_MAX_TRIES = 64


@dataclass(frozen=True, order=True)
class Repair:
    """A change: the line of the file as it was, and a description."""

    line: int
    done: str


class RepairedFile(NamedTuple):
    """A file to write anew, its new text, and the repairs in it."""

    source: SourceFile
    text: str
    repairs: tuple[Repair, ...]


def repaired_files(context: CheckContext) -> Iterator[RepairedFile]:
    """Yield the files in which something can be repaired.

    Args:
        context: the data; with a checkout of verl, branches are pinned to the commits that they are at there.
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
    """Return the text of a file, without the mark that it may begin with."""
    return file.content.decode("utf-8-sig")


def encoded(file: DataFile, text: str) -> str:
    """Return a new text of a file, with the mark that it begins with."""
    return f"\ufeff{text}" if file.content.startswith(codecs.BOM_UTF8) else text


def repaired(
    text: str,
    stem: str,
    kind: str = "run",
    repository: Repository | None = None,
    *,
    needs_schema_line: bool = True,
) -> tuple[str, tuple[Repair, ...]]:
    r"""Repair a data file: the schema line; of a run file also id, quotes and links.

    A text with a carriage return alone is left as it is, for its lines are not those that an editor shows.

    Args:
        text: the file.
        stem: its name without ``.yaml``.
        kind: the name of its schema.
        repository: a checkout of verl, which tells the commit that a branch is at.
        needs_schema_line: whether the line is added where there is none.

    Returns:
        The text, and what was changed in it, in the order of the lines.

    >>> text, repairs = repaired("id: b  # mine\nsize: 7B\n", "a")
    >>> print(text, end="")
    # yaml-language-server: $schema=../schema/run.json
    id: a  # mine
    size: 7B
    >>> [repair.done for repair in repairs]
    ["id 'b' made 'a', as the file is called", 'schema line added']
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
    """Return the text with every edit of one kind that changes no other value, and note the repairs."""
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
    """Return the text with edits, and the values that it should have."""
    parts, end = [], len(text)
    wanted, values = dict(values), {loc: value for edit in edits for loc, value in edit.values.items()}
    for edit in reversed(edits):  # from the end, so that the places of the others stay right
        parts += [text[edit.end : end], edit.text]
        end = edit.start
        wanted.pop(edit.value.loc, None)
    return "".join([text[:end], *reversed(parts)]), wanted | values


def _led_to_schema(text: str, target: str, done: list[Repair], *, needed: bool) -> str:
    """Return the text with a first line that leads to the schema if it has or needs one; note repairs."""
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
    if row:  # another one above it would give editors two
        lines.insert(0, lines.pop(row))
        done.append(Repair(row + 1, "schema line moved to the top"))
    return "\n".join(lines)


def _scalars(text: str) -> dict[Loc, object]:
    """Return the scalars of a data file by their positions; none if it is not one."""
    document = read_yaml(text.encode("utf-8", "surrogatepass"))
    usable = not document.problems and isinstance(document.data, dict)
    return dict(leaves(document.data)) if usable else {}


@dataclass(frozen=True)
class _Value:
    """A value in a text: its position in the data, its node, and the node of its key if it has one."""

    loc: Loc
    node: yaml.Node
    key: yaml.ScalarNode | None = None

    @property
    def line(self) -> int:
        """The line of its key, or its own, counted from 1."""
        return int((self.key or self.node).start_mark.line) + 1

    @property
    def text(self) -> str:
        """The text of a scalar without quotes; empty for anything else."""
        return self.node.value if isinstance(self.node, yaml.ScalarNode) else ""

    @property
    def name(self) -> str:
        """Its position as messages show it."""
        return ".".join(map(str, self.loc))


def _values(node: yaml.Node, loc: Loc = (), key: yaml.ScalarNode | None = None) -> Iterator[_Value]:
    """Yield the values with keys of a node, outer ones first; ``settings`` are not repaired."""
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
    """A run file under repair, with its values by their positions."""

    def __init__(self, text: str, stem: str, repository: Repository | None) -> None:
        self.text = text
        self.stem = stem
        self.repository = repository
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except (yaml.YAMLError, ValueError, RecursionError):  # libyaml accepts more
            root = None
        self.values = {value.loc: value for value in _values(root)} if root else {}


class _Edit(NamedTuple):
    """A text in place of another one, and the values in place of one."""

    value: _Value
    start: int
    end: int
    text: str
    done: str
    values: dict[Loc, object]


def _set(value: _Value, typed: str, done: str) -> _Edit:
    """Replace a scalar; ``typed`` is the new one as YAML."""
    new = {value.loc: read_yaml(typed.encode("utf-8", "surrogatepass")).data}
    return _Edit(value, value.node.start_mark.index, value.node.end_mark.index, typed, done, new)


def _identify(file: _RunFile, value: _Value) -> _Edit | None:
    """Make the id that of the file's name."""
    if value.loc != ("id",) or not re.fullmatch(SLUG, file.stem):
        return None
    return _set(value, _typed(file.stem), f"id {value.text!r} made {file.stem!r}, as the file is called")


def _quote(file: _RunFile, value: _Value) -> _Edit | None:
    """Put versions, commits and lines in quotes, so that their digits stay text."""
    described = field_at(value.loc)
    if not described or not value.text or getattr(value.node, "style", None) is not None:
        return None
    meaning = read_yaml(value.text.encode("utf-8", "surrogatepass")).data
    # A commit that YAML reads as text stays; null and true are no versions.
    is_word = meaning is None or isinstance(meaning, bool)
    is_number = value.loc[-1] == "ref" and not isinstance(meaning, str)
    if is_word or not (described.quoted or is_number):
        return None
    return _set(value, _quoted(value.text), f"{value.name} put in quotes")


def _take_apart(file: _RunFile, value: _Value) -> _Edit | None:
    """Replace an address in verl's repository by commit, path and lines, from which links are made."""
    place = repository_place(value.text) if value.loc[-1] in {"url", "path"} else None
    if place is None or value.key is None or value.loc[0] not in {"evidence", "script"}:
        return None
    fields = {
        name: word for name, word in place.fields.items() if name != "lines" or value.loc[0] != "script"
    }
    values: dict[Loc, object] = {(*value.loc[:-1], name): word for name, word in fields.items()}
    if any(loc in file.values for loc in values if loc != value.loc):
        return None  # both are given, and only somebody who knows can say which is right
    start = value.key.start_mark.index
    before = file.text[file.text.rfind("\n", 0, start) + 1 : start]
    between = ", " if "{" in before else "\n" + " " * len(before)
    pairs = (f"{name}: {_quoted(word) if name == 'lines' else _typed(word)}" for name, word in fields.items())
    done = f"{value.name}: the address taken apart into {', '.join(fields)}"
    return _Edit(value, start, value.node.end_mark.index, between.join(pairs), done, values)


def _pin(file: _RunFile, value: _Value) -> _Edit | None:
    """Replace a branch by the commit that it is at, if the file that is linked exists there."""
    if not file.repository or value.loc[-1] != "ref" or is_fixed_ref(value.text):
        return None
    commit = file.repository.commit(value.text)
    path = file.values.get((*value.loc[:-1], "path"))
    if not commit or (path and not file.repository.has(commit, path.text)):
        return None
    return _set(value, _typed(commit), f"{value.name}: {value.text!r} pinned to {commit}")


def _complete(file: _RunFile, value: _Value) -> _Edit | None:
    """Add the scheme to an address."""
    if value.loc[-1] != "url" or not _BARE_ADDRESS.fullmatch(value.text):
        return None
    return _set(value, f"https://{value.text}", f"{value.name}: https:// put in front")


def _drop_name(file: _RunFile, value: _Value) -> _Edit | None:
    """Remove the text of a link that repeats the name of the file."""
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
    return _Edit(value, start, end, "", "script.text removed, which is the name of the file", {})


#: In the order in which they are made: what one leaves behind, the next may repair.
_REPAIRS: tuple[_Repairer, ...] = (_identify, _quote, _take_apart, _pin, _complete, _drop_name)


def _quoted(text: str) -> str:
    """Return a text in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _typed(word: str) -> str:
    """Return a text as YAML: in quotes where it would not be text without."""
    return word if read_yaml(word.encode()).data == word else _quoted(word)
