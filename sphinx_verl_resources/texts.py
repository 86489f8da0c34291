"""Runs and verl's settings as text: cells, sentences, tables to paste, YAML and overrides."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shlex
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import yaml
from tabulate import tabulate

from .i18n import N_, _
from .nodes import PATH_CLASS, Cell
from .records import Evidence, Links, Run, Word
from .selection import FIELDS, as_text, field_named, is_numeric
from .units import crossed

#: A text, and the address of its link or None.
Piece = tuple[str, str | None]

FORMATS = ("plain", "github", "list-table", "csv", "json")
#: The command that launches verl.
LAUNCHER = "python3 -m verl.trainer.main_ppo"
#: The evidence words of runs.
WORD_TEXTS: Mapping[Word, str] = {"ran": N_("ran"), "reported": N_("reported"), "claimed": N_("claimed")}
#: The classes of cells.
_CLASSES = {"tag": ("verl-col-tag",), "script": (PATH_CLASS,), "evidence": (PATH_CLASS,)}

# -- words


def run_title(run: Run) -> str:
    """Return the title of a run, in words if its GPU is unknown."""
    text = _("{model}, {task} on {gpus}")
    if not (run.gpus.type or run.gpus.memory_gb):
        text = _("{model}, {task} on {count} GPUs of unknown type")
    names = {"model": run.short_name, "task": run.task, "count": run.gpus.count}
    return text.format(gpus=crossed(run.gpus), **names)


# -- cells


def row_classes(run: Run) -> str:
    """Return the classes of all page elements about a run."""
    return f"verl-run-{run.id} verl-more" if run.is_folded else f"verl-run-{run.id}"


def run_heading(name: str) -> Cell:
    """Return the heading of a column, with a class that is the same in every language."""
    column = name.replace(".", "-").replace("_", "-")
    return Cell([(_(field_named(name).heading), None)], classes=(f"verl-col-{column}",))


def run_cells(run: Run, columns: Sequence[str], links: Links) -> list[Cell]:
    """Return the cells of a run; unless it ran, one of them contains its evidence word.

    Args:
        run: the run.
        columns: the names of fields.
        links: the link templates.
    """
    cells = []
    for name in columns:
        numeric = ("num",) if is_numeric(field_named(name).value(run)) else ()
        cells.append(Cell(field_pieces(run, name, links), classes=_CLASSES.get(name, numeric)))
    if run.word != "ran" and not {"tag", "kind"} & {*columns}:
        text, address = cells[0].pieces[0]
        cells[0].pieces[0] = (_with_word(text, run), address)
    return cells


def _with_word(text: str, run: Run) -> str:
    """Return a text with the evidence word of a run; beside a text, the word of runs that ran is left out."""
    if text and run.word == "ran":
        return text
    word = _(WORD_TEXTS[run.word])
    return _("{text} ({word})").format(text=text, word=word) if text else word


def field_pieces(run: Run, name: str, links: Links) -> list[Piece]:
    """Return one field of a run as texts with addresses; an empty text if nothing is recorded."""
    if name in _PIECES:
        return _PIECES[name](run, links) or [("", None)]
    return [(field_named(name).text(run), None)]


def _script(run: Run, links: Links) -> list[Piece]:
    """Return the launch script with its address, otherwise the first piece of evidence."""
    if run.script:
        return [(str(run.script), links.file(run.script.ref, run.script.path))]
    return [_evidence(item, links) for item in run.evidence[:1]]


def _evidence(item: Evidence, links: Links) -> Piece:
    if item.url:
        return item.kind, item.url
    assert item.ref is not None
    if item.path:
        return item.path.rsplit("/", 1)[-1], links.file(item.ref, item.path, item.lines)
    return f"{item.kind} {item.ref[:9]}", links.commit(item.ref)


def _measurement_pieces(run: Run, _links: Links) -> list[Piece]:
    """Return the measured figures with their headings."""
    figures = [(_(each.heading), each.text(run)) for each in FIELDS if each.name.startswith("measured.")]
    form, empty = _("{title}: {text}"), ("", "not-stated")
    return [(form.format(title=title, text=text), None) for title, text in figures if text not in empty]


#: The fields whose cells contain more than the text of their value.
_PIECES: Mapping[str, Callable[[Run, Links], list[Piece]]] = {
    "tag": lambda run, _links: [(_with_word(run.tag or "", run), None)],
    "kind": lambda run, _links: [(_with_word("", run), None)],
    "script": _script,
    "versions": lambda run, _links: [(f"{name} {text}", None) for name, text in run.versions or () if text],
    "measured": _measurement_pieces,
    "evidence": lambda run, links: [_evidence(item, links) for item in run.evidence],
    "contributor": lambda run, _links: (
        [(run.contributor.name, run.contributor.url)] if run.contributor else []
    ),
}


# -- a table of runs


def runs_text(runs: Iterable[Run], columns: Sequence[str], form: str) -> str:
    """Return a table with these runs and columns in one of ``FORMATS``.

    Args:
        runs: the runs, one per row.
        columns: the names of fields.
        form: the format.
    """
    fields = [field_named(name) for name in columns]
    if form == "json":
        values = [{each.name: _json_value(each.value(run)) for each in fields} for run in runs]
        return json.dumps(values, indent=2)
    headings = [field.heading for field in fields]
    cells = [run_cells(run, columns, Links()) for run in runs]
    if form == "list-table":
        lines = [".. list-table::", "   :header-rows: 1", ""]
        for row in [map(_rst, headings), *(map(_with_links, row) for row in cells)]:
            lines += [f"   {'  ' if index else '* '}- {text}".rstrip() for index, text in enumerate(row)]
        return "\n".join(lines)
    rows = [headings, *([cell.text for cell in row] for row in cells)]
    if form == "csv":
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows(rows)
        return stream.getvalue().rstrip("\n")
    if form == "github":
        rows = [list(map(_markdown, row)) for row in rows]
    return tabulate(rows[1:], rows[0], tablefmt="simple" if form == "plain" else form, disable_numparse=True)


def _json_value(value: Any) -> Any:
    """Return a value for JSON: numbers as numbers, null if nothing is recorded."""
    return value if value is None or isinstance(value, (bool, int, float)) else as_text(value)


def _with_links(cell: Cell) -> str:
    """Return a cell as reStructuredText with its links."""
    return ", ".join(_link(text, address) if address else _rst(text) for text, address in cell.pieces)


def _link(text: str, address: str) -> str:
    """Return a link; docutils would read an address that ends with an underscore as a name."""
    label = re.sub(r"([\\*`|_:<>])", r"\\\1", text)
    target = re.sub(r"[\\<>`]|_\Z", r"\\\g<0>", address)
    return f"`{label} <{target}>`__"


def _rst(text: str) -> str:
    """Return reStructuredText that shows the text, anywhere in a cell."""
    escaped = re.sub(r"([\\*`|_:@])", r"\\\1", text)
    # At the start of a cell these start a list, a directive or a comment.
    begins_block = re.match(r"[^\w\\]|\w+[.)]", escaped)
    # A cell of backslashes alone would be read as the underline of a title.
    before = "\\ " if escaped.startswith(r"\\") else "\\" if begins_block else ""
    return f"{before}{escaped}"


#: Characters with a meaning in Markdown; an underscore inside a word has none.
_MARKDOWN = re.compile(r"[\\`\[\]|~]|(?<![^\W_])_|_(?![^\W_])")
#: Characters from which GitHub makes links, formulas and pictures, even after a backslash.
_GITHUB = re.compile(r"[$@]|#(?=\d)|:(?=//|[\w+-]+:)|(?<=www)\.|(?<=gh)-(?=\d)", re.IGNORECASE)


def _markdown(text: str) -> str:
    """Return Markdown that GitHub shows as the text; a single asterisk needs no escape."""
    escaped = _MARKDOWN.sub(r"\\\g<0>", html.escape(text, quote=False))
    if text.count("*") > 1:
        escaped = escaped.replace("*", r"\*")
    return _GITHUB.sub(r"<span>\g<0></span>", escaped)


# -- verl's settings


def nested_yaml(settings: Mapping[str, Any]) -> str:
    """Return dotted keys as YAML with one level per dot, in order."""
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        *groups, name = key.split(".")
        branch = tree
        for group in groups:
            branch = branch.setdefault(group, {})
        branch[name] = value
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=200).rstrip()


def overrides(settings: Mapping[str, Any], new: Container[str] = ()) -> list[str]:
    """Return settings as arguments of verl's launcher, quoted for a shell.

    Args:
        settings: the values by key.
        new: the keys that are not in the composed configuration; Hydra requires a plus before them.
    """
    return [_quoted(f"{'+' if key in new else ''}{key}={_hydra(value)}") for key, value in settings.items()]


def _quoted(word: str) -> str:
    """Quote a word for bash, on one line."""
    if "\n" not in word:
        return shlex.quote(word)
    return "$'" + re.sub(r"[\\']", r"\\\g<0>", word).replace("\n", "\\n") + "'"


def _hydra(value: Any) -> str:
    """Return a value in the grammar of Hydra's overrides."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(_hydra(item) for item in value)}]"
    if not isinstance(value, str):
        return "null" if value is None else str(value)
    is_word = re.fullmatch(r"[\w./:@%+-]+", value)
    if is_word and not re.fullmatch(r"[-+.\d].*|true|false|null|inf|nan", value, re.IGNORECASE):
        return value
    # To Hydra, a backslash is an ordinary character unless a quote follows.
    escaped = re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), value)
    return f"'{escaped}'"
