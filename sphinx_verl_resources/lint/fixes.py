"""What can be put right in a run file without knowing more than the file says.

Each repair changes the places that it is about and nothing else. Where the text would then say something
else than was meant, or was no YAML to begin with, it is left as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import yaml

from ..catalog.fields import field_at
from ..catalog.links import is_fixed_ref, repository_place
from ..catalog.models.base import SLUG, models_in
from ..catalog.models.run import Run
from ..catalog.run_text import FIELD_ORDER, RUN_SCHEMA, SCHEMA_LINE, SCHEMA_LINE_READ
from ..catalog.yaml_data import leaves, read_yaml
from .yaml_edit import at, plain, quoted, replaced, scalar, values, with_keys_in_order, without

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pydantic import BaseModel

    from .yaml_edit import Path, Value

    #: Branch and file; the commit that the branch is at, if it has the file.
    CommitOf = Callable[[str, str | None], str | None]

#: A line above the data: a comment, nothing, or a mark of YAML.
_ABOVE_DATA = re.compile(r"#.*|\s*|---|%.*")
#: An address without its scheme.
_BARE_ADDRESS = re.compile(r"(?:[A-Za-z0-9-]{1,63}\.){1,5}[a-z]{2,12}/[^\s\"'{}\[\],#]*")


@dataclass(frozen=True, order=True)
class Repair:
    """What was changed: the line of the file as it was, and what was done there."""

    line: int
    done: str


def _unknown(_ref: str, _path: str | None) -> None:
    """No commit is known."""


def repaired(text: str, stem: str, commit_of: CommitOf = _unknown) -> tuple[str, tuple[Repair, ...]]:
    r"""A run file with everything put right that needs no knowledge: schema line, id, quotes, links, order.

    Args:
        text: the file.
        stem: its name without ``.yaml``.
        commit_of: the commit that a branch is at, if it has the file; None where nobody knows.

    Returns:
        The text, and what was changed in it, in the order of the lines. Comments and layout stay.

    >>> text, repairs = repaired("size: 7B\nid: b  # mine\n", "a")
    >>> print(text, end="")
    # yaml-language-server: $schema=../schema/run.json
    id: a  # mine
    size: 7B
    >>> [repair.done for repair in repairs]
    ['fields brought into order', 'schema line added', "id 'b' made 'a', as the file is called"]
    """

    def change(plain: str) -> tuple[str, tuple[Repair, ...]]:
        work = _Work(plain)
        if not _leaves(plain):
            return plain, ()
        for repair in (_identify, _quote, _take_apart, _complete, _drop_name, _order, _lead_to_schema):
            repair(work, stem)
            if repair is _take_apart:
                _pin(work, commit_of)
        return work.text, tuple(sorted(work.done))

    return _with_line_ends(text, change)


def with_schema_line(text: str, target: str) -> tuple[str, tuple[Repair, ...]]:
    """A data file whose first line leads to its schema, and what was changed for that.

    Args:
        text: the file.
        target: where the schema lies, seen from the file.
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


@dataclass
class _Work:
    """The text so far, and what has been done to it."""

    text: str
    done: list[Repair] = field(default_factory=list)

    def try_text(
        self, new: str, line: int, done: str, set_to: Mapping[Path, str], gone: tuple[Path, ...] = ()
    ) -> None:
        """Take a new text if it says what the old one did, but for the values that were to be changed."""
        before, after = _leaves(self.text), _leaves(new)
        wanted = {path: value for path, value in before.items() if path not in gone} | dict(set_to)
        if new != self.text and after == wanted:
            self.text = new
            self.done.append(Repair(line, done))

    def paths(self, *names: str) -> list[Path]:
        """Where values of these names stand."""
        return [value.path for value in values(self.text) if value.path and value.path[-1] in names]

    def value(self, path: Path) -> Value:
        """The value at a path that there is."""
        found = at(values(self.text), *path)
        assert found is not None
        return found


def _led_to_schema(text: str, target: str) -> tuple[str, tuple[Repair, ...]]:
    """The same for lines that end in one way."""
    lines = text.split("\n")
    top = next((row for row, line in enumerate(lines) if not _ABOVE_DATA.fullmatch(line)), len(lines))
    row = next((row for row in range(top) if SCHEMA_LINE_READ.match(lines[row])), None)
    if row is None:
        return f"{SCHEMA_LINE.format(target)}\n{text}", (Repair(1, "schema line added"),)
    done = []
    found = SCHEMA_LINE_READ.match(lines[row])
    if found and found[1].rsplit("/", 1)[-1] != target.rsplit("/", 1)[-1]:
        lines[row] = SCHEMA_LINE.format(target) + lines[row][found.end() :]
        done.append(Repair(row + 1, "schema line corrected"))
    if row:  # another one above it would give editors two
        lines.insert(0, lines.pop(row))
        done.append(Repair(row + 1, "schema line moved to the top"))
    return "\n".join(lines), tuple(done)


def _lead_to_schema(work: _Work, _stem: str) -> None:
    new, done = _led_to_schema(work.text, RUN_SCHEMA)
    if done:
        work.try_text(new, done[0].line, done[0].done, {})
        work.done += done[1:]


def _identify(work: _Work, stem: str) -> None:
    """The id is that of the file's name."""
    for path in work.paths("id"):
        value = work.value(path)
        if path == ("id",) and re.fullmatch(SLUG, stem):
            done = f"id {scalar(value)!r} made {stem!r}, as the file is called"
            work.try_text(replaced(work.text, value, _typed(stem)), value.line, done, {path: stem})


def _quote(work: _Work, _stem: str) -> None:
    """Versions, commits and lines are text, whatever digits they are made of."""
    for path in [value.path for value in values(work.text)]:
        value, described = work.value(path), field_at(path)
        word = plain(value)
        # A commit that is text as it stands stays so; null and true are no versions.
        if not described or not word or _is_word_of_yaml(word):
            continue
        if not described.quoted and (path[-1] != "ref" or _is_text(word)):
            continue
        new = replaced(work.text, value, quoted(word))
        work.try_text(new, value.line, f"{_dotted(path)} put in quotes", {path: word})


def _take_apart(work: _Work, _stem: str) -> None:
    """An address in verl's repository becomes commit, path and lines, from which every link is made."""
    for path in work.paths("url", "path"):
        place = repository_place(scalar(work.value(path)) or "")
        if place is None or path[0] not in {"evidence", "script"}:
            continue
        value, fields = work.value(path), place.fields
        if path[0] == "script":
            fields.pop("lines", None)
        change = {(*path[:-1], name): word for name, word in fields.items()}
        if any(at(values(work.text), *other) for other in change if other != path):
            continue  # both are given, and only somebody who knows can say which is right
        done = f"{_dotted(path)}: the address taken apart into {', '.join(fields)}"
        gone = () if path[-1] in fields else (path,)
        work.try_text(_with_fields(work.text, value, fields), value.line, done, change, gone)


def _pin(work: _Work, commit_of: CommitOf) -> None:
    """A branch becomes the commit that it is at, for what it shows changes."""
    for path in work.paths("ref"):
        value = work.value(path)
        ref = scalar(value) or ""
        if path[0] not in {"evidence", "script"} or is_fixed_ref(ref):
            continue
        file = at(values(work.text), *path[:-1], "path")
        commit = commit_of(ref, scalar(file) if file else None)
        if commit:
            new = replaced(work.text, value, _typed(commit))
            work.try_text(new, value.line, f"{_dotted(path)}: {ref!r} pinned to {commit}", {path: commit})


def _drop_name(work: _Work, _stem: str) -> None:
    """The text of a link that is the name of the file goes, since it would be shown anyway."""
    text, path = (at(values(work.text), "script", name) for name in ("text", "path"))
    if text and path and scalar(text) == (scalar(path) or "").rsplit("/", 1)[-1]:
        done = "script.text removed, which is the name of the file"
        work.try_text(without(work.text, text), text.line, done, {}, (text.path,))


def _with_fields(text: str, value: Value, fields: Mapping[str, str]) -> str:
    """The text with several keys in place of one."""
    assert value.key is not None
    start = value.key.start_mark.index
    before = text[text.rfind("\n", 0, start) + 1 : start]
    between = ", " if "{" in before else "\n" + " " * len(before)
    pairs = (f"{name}: {_typed(word) if name != 'lines' else quoted(word)}" for name, word in fields.items())
    return text[:start] + between.join(pairs) + text[value.end :]


def _complete(work: _Work, _stem: str) -> None:
    """An address without its scheme gets it."""
    for path in work.paths("url"):
        value = work.value(path)
        word = scalar(value) or ""
        if path[0] != "settings" and _BARE_ADDRESS.fullmatch(word):
            new = replaced(work.text, value, f"https://{word}")
            done = f"{_dotted(path)}: https:// put in front"
            work.try_text(new, value.line, done, {path: f"https://{word}"})


def _order(work: _Work, _stem: str) -> None:
    """The fields stand in the order of the schema, in the file and in each of its records."""
    for path, order in list(_orders(work.text)):
        value = work.value(path)
        new = with_keys_in_order(work.text, value, order)
        what = f"fields of {_dotted(path)}" if path else "fields"
        work.try_text(new, value.line, f"{what} brought into order", {})


def _orders(text: str) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Every record of the file with the order of its fields; the outermost last: it moves the others."""
    for value in reversed(values(text)):
        if not isinstance(value.node, yaml.MappingNode) or not value.node.value:
            continue
        model: type[BaseModel] | None = Run
        for name in (part for part in value.path if isinstance(part, str)):
            found = model.model_fields.get(name) if model else None
            model = next(iter(models_in(found.annotation)), None) if found else None
        if model is not None:
            yield value.path, FIELD_ORDER if model is Run else tuple(model.model_fields)


def _is_text(word: str) -> bool:
    return isinstance(read_yaml(word.encode()).data, str)


def _is_word_of_yaml(word: str) -> bool:
    """Whether a scalar without quotes is true, false or null."""
    value = read_yaml(word.encode()).data
    return value is None or isinstance(value, bool)


def _typed(word: str) -> str:
    """A text as it stands in YAML: in quotes where it would be something else without."""
    return word if read_yaml(word.encode()).data == word else quoted(word)


def _dotted(path: Path) -> str:
    return ".".join(str(part) for part in path)


def _leaves(text: str) -> dict[Path, object]:
    """The scalars of a data file by their paths; none if it is not one."""
    document = read_yaml(text.encode("utf-8", "surrogatepass"))
    usable = not document.problems and isinstance(document.data, dict)
    return dict(leaves(document.data)) if usable else {}
