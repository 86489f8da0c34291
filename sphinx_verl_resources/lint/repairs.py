"""Repairs of data files that need no more knowledge than the file holds, for ``check --fix``.

Each repair edits the text at the places that it is about; comments and layout stay, which a YAML writer would
not keep. A repair that would change any other value, or that meets no valid YAML, leaves the text as it is.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import yaml

from ..catalog.fields import every_field, field_at
from ..catalog.links import is_fixed_ref, repository_place
from ..catalog.models.base import SLUG
from ..catalog.run_text import RUN_SCHEMA, SCHEMA_LINE, SCHEMA_LINE_READ
from ..catalog.yaml_data import leaves, read_yaml
from .file_rules import schema_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..git import Repository
    from .context import CheckContext, SourceFile

    Path = tuple[str | int, ...]
    #: From a branch and a file to the commit that the branch is at, None if it does not have the file.
    CommitOf = Callable[[str, str | None], str | None]

_BOM = "\ufeff"
#: A line above the data: a comment, nothing, or a mark of YAML.
_ABOVE_DATA = re.compile(r"#.*|\s*|---|%.*")
#: An address without its scheme.
_BARE_ADDRESS = re.compile(r"(?:[A-Za-z0-9-]{1,63}\.){1,5}[a-z]{2,12}/[^\s\"'{}\[\],#]*")


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
        before = source.file.content.decode("utf-8")
        text = before.removeprefix(_BOM)
        if source.kind == "run":
            new, repairs = repaired(text, source.file.path.stem, _commit_of(context.repository))
        else:
            new, repairs = with_schema_line(text, schema_target(source.kind))
        if repairs:
            yield RepairedFile(source, before[: len(before) - len(text)] + new, repairs)


def _commit_of(repository: Repository | None) -> CommitOf:
    def commit_of(ref: str, path: str | None) -> str | None:
        commit = repository.commit(ref) if repository else None
        return commit if repository and commit and (path is None or repository.has(commit, path)) else None

    return commit_of


def repaired(
    text: str, stem: str, commit_of: CommitOf = lambda ref, path: None
) -> tuple[str, tuple[Repair, ...]]:
    r"""Repair a run file: schema line, id, quotes and links.

    Args:
        text: the file.
        stem: its name without ``.yaml``.
        commit_of: finds the commit that a branch is at; by default it knows none.

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

    def change(plain: str) -> tuple[str, tuple[Repair, ...]]:
        if not _scalars(plain):
            return plain, ()
        work = _Work(plain, stem, commit_of)
        for names, repair in _REPAIRS:
            paths = [value.path for value in _values(work.text) if value.path and value.path[-1] in names]
            for path in paths:
                value = work.value(*path)
                if value and path[0] != "settings":
                    repair(work, value)
        new, repairs = _led_to_schema(work.text, RUN_SCHEMA)
        return new, tuple(sorted([*work.done, *repairs]))

    return _with_line_ends(text, change)


def with_schema_line(text: str, target: str) -> tuple[str, tuple[Repair, ...]]:
    """Repair the first line of a data file, which leads to its schema.

    Args:
        text: the file.
        target: the path of the schema, relative to the file.
    """
    return _with_line_ends(text, lambda plain: _led_to_schema(plain, target))


def _with_line_ends(
    text: str, change: Callable[[str], tuple[str, tuple[Repair, ...]]]
) -> tuple[str, tuple[Repair, ...]]:
    r"""Change a text as if its lines ended in ``\n``; the result has the ends that most of them have.

    A text with a carriage return alone is left as it is, for its lines are not those that an editor shows.
    """
    plain = text.replace("\r\n", "\n")
    if "\r" in plain:
        return text, ()
    ends = "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"
    new, repairs = change(plain)
    return (new.replace("\n", ends), repairs) if repairs else (text, ())


def _led_to_schema(text: str, target: str) -> tuple[str, tuple[Repair, ...]]:
    """Return the text with a first line that leads to the schema, and the repairs."""
    lines = text.split("\n")
    top = next((row for row, line in enumerate(lines) if not _ABOVE_DATA.fullmatch(line)), len(lines))
    row = next((row for row in range(top) if SCHEMA_LINE_READ.match(lines[row])), None)
    if row is None:
        return f"{SCHEMA_LINE.format(target)}\n{text}", (Repair(1, "schema line added"),)
    done = []
    match = SCHEMA_LINE_READ.match(lines[row])
    if match and match[1].rsplit("/", 1)[-1] != target.rsplit("/", 1)[-1]:
        lines[row] = SCHEMA_LINE.format(target) + lines[row][match.end() :]
        done.append(Repair(row + 1, "schema line corrected"))
    if row:  # another one above it would give editors two
        lines.insert(0, lines.pop(row))
        done.append(Repair(row + 1, "schema line moved to the top"))
    return "\n".join(lines), tuple(done)


@dataclass(frozen=True)
class _Value:
    """A value in a text: its path in the data, its node, and the node of its key if it has one."""

    path: Path
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
        """Its path as messages show it."""
        return ".".join(map(str, self.path))


def _values(text: str) -> list[_Value]:
    """Return all values of a text, outer ones first; none if it is not YAML."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return []
    return list(_below(root, ())) if root else []


def _below(node: yaml.Node, path: Path, key: yaml.ScalarNode | None = None) -> Iterator[_Value]:
    yield _Value(path, node, key)
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if isinstance(name, yaml.ScalarNode):
                yield from _below(value, (*path, name.value), name)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _below(value, (*path, index))


def _scalars(text: str) -> dict[Path, object]:
    """Return the scalars of a data file by their paths; none if it is not one."""
    document = read_yaml(text.encode("utf-8", "surrogatepass"))
    usable = not document.problems and isinstance(document.data, dict)
    return dict(leaves(document.data)) if usable else {}


@dataclass
class _Work:
    """A run file under repair: the text so far, and what was done."""

    text: str
    stem: str
    commit_of: CommitOf
    done: list[Repair] = field(default_factory=list)

    def value(self, *path: str | int) -> _Value | None:
        """Return the value at a path, None where there is none."""
        return next((value for value in _values(self.text) if value.path == path), None)

    def set(self, value: _Value, typed: str, done: str) -> None:
        """Replace a scalar; ``typed`` is the new one as YAML."""
        start, end = value.node.start_mark.index, value.node.end_mark.index
        new = self.text[:start] + typed + self.text[end:]
        self.accept(new, value, done, {value.path: read_yaml(typed.encode()).data})

    def accept(self, new: str, value: _Value, done: str, fields: Mapping[Path, object]) -> None:
        """Take a new text if nothing but ``value``, which ``fields`` replace, has changed."""
        wanted: dict[Path, object] = {
            path: scalar for path, scalar in _scalars(self.text).items() if path != value.path
        }
        if new != self.text and _scalars(new) == wanted | dict(fields):
            self.text = new
            self.done.append(Repair(value.line, done))


def _identify(work: _Work, value: _Value) -> None:
    """Make the id that of the file's name."""
    if value.path == ("id",) and re.fullmatch(SLUG, work.stem):
        work.set(value, _typed(work.stem), f"id {value.text!r} made {work.stem!r}, as the file is called")


def _quote(work: _Work, value: _Value) -> None:
    """Put versions, commits and lines in quotes, so that their digits stay text."""
    described = field_at(value.path)
    if not described or not value.text or getattr(value.node, "style", None) is not None:
        return
    meaning = read_yaml(value.text.encode("utf-8", "surrogatepass")).data
    # A commit that YAML reads as text stays; null and true are no versions.
    is_word = meaning is None or isinstance(meaning, bool)
    if not is_word and (described.quoted or (value.path[-1] == "ref" and not isinstance(meaning, str))):
        work.set(value, _quoted(value.text), f"{value.name} put in quotes")


def _take_apart(work: _Work, value: _Value) -> None:
    """Replace an address in verl's repository by commit, path and lines, from which links are made."""
    place = repository_place(value.text)
    if place is None or value.key is None or value.path[0] not in {"evidence", "script"}:
        return
    fields = dict(place.fields)
    if value.path[0] == "script":
        fields.pop("lines", None)
    paths: dict[Path, object] = {(*value.path[:-1], name): word for name, word in fields.items()}
    if any(work.value(*path) for path in paths if path != value.path):
        return  # both are given, and only somebody who knows can say which is right
    start = value.key.start_mark.index
    before = work.text[work.text.rfind("\n", 0, start) + 1 : start]
    between = ", " if "{" in before else "\n" + " " * len(before)
    pairs = (f"{name}: {_quoted(word) if name == 'lines' else _typed(word)}" for name, word in fields.items())
    new = work.text[:start] + between.join(pairs) + work.text[value.node.end_mark.index :]
    work.accept(new, value, f"{value.name}: the address taken apart into {', '.join(fields)}", paths)


def _pin(work: _Work, value: _Value) -> None:
    """Replace a branch by the commit that it is at."""
    if value.path[0] in {"evidence", "script"} and not is_fixed_ref(value.text):
        file = work.value(*value.path[:-1], "path")
        commit = work.commit_of(value.text, file.text if file else None)
        if commit:
            work.set(value, _typed(commit), f"{value.name}: {value.text!r} pinned to {commit}")


def _complete(work: _Work, value: _Value) -> None:
    """Add the scheme to an address."""
    if _BARE_ADDRESS.fullmatch(value.text):
        work.set(value, f"https://{value.text}", f"{value.name}: https:// put in front")


def _drop_name(work: _Work, value: _Value) -> None:
    """Remove the text of a link that repeats the name of the file."""
    path = work.value("script", "path")
    if value.path != ("script", "text") or not path or value.text != path.text.rsplit("/", 1)[-1]:
        return
    assert value.key is not None
    text, start, end = work.text, value.key.start_mark.index, value.node.end_mark.index
    line, next_line = text.rfind("\n", 0, start) + 1, text.find("\n", end) + 1 or len(text)
    if not text[line:start].strip() and not text[end:next_line].strip():
        new = text[:line] + text[next_line:]
    elif comma := re.search(r"\s*,\s*\Z", text[:start]):
        new = text[: comma.start()] + text[end:]
    elif comma := re.match(r"\s*,\s*", text[end:]):
        new = text[:start] + text[end + comma.end() :]
    else:
        return
    work.accept(new, value, "script.text removed, which is the name of the file", {})


#: Each repair with the names of the keys whose values it looks at, in the order in which they are made.
_REPAIRS: tuple[tuple[tuple[str, ...], Callable[[_Work, _Value], None]], ...] = (
    (("id",), _identify),
    (("ref", *(name.rsplit(".", 1)[-1] for name, field in every_field().items() if field.quoted)), _quote),
    (("url", "path"), _take_apart),
    (("ref",), _pin),
    (("url",), _complete),
    (("text",), _drop_name),
)


def _quoted(text: str) -> str:
    """Return a text in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _typed(word: str) -> str:
    """Return a text as YAML: in quotes where it would not be text without."""
    return word if read_yaml(word.encode()).data == word else _quoted(word)
