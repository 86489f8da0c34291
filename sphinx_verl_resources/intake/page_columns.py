"""The columns of a hand-typed page: parsing their cells, recognising them, and showing a run's cells."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urljoin

from ..catalog.fields import every_field
from ..catalog.links import Links, is_address, is_fixed_ref, repository_place
from ..catalog.names import ENGINES, KINDS, TAGS, TRAIN_BACKENDS, fold
from ..catalog.run_text import TODO
from ..diagnostics import Code, Diagnostic, Location, Severity, nearest, suggest_or

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..catalog.catalog import Registry
    from ..catalog.models.architecture import Architecture
    from ..catalog.models.registries import Gpu
    from ..catalog.models.run import Run
    from .page_tables import Cell

Fields = dict[str, Any]

#: An e-mail address with the brackets around it.
_EMAIL = re.compile(r"[\s(<,;]*(?<![\w.+%-])[\w.+%-]+@[\w-]+(\.[\w-]+)+[\s)>]*")


@dataclass(frozen=True)
class Known:
    """The registries and options for reading rows.

    Attributes:
        gpus: the registry of GPUs.
        architectures: the registry of models.
        models: the user's models by label.
        ref: the commit for links without one; None leaves them unchanged.
    """

    gpus: Registry[Gpu]
    architectures: Registry[Architecture]
    models: Mapping[str, str] = field(default_factory=dict)
    ref: str | None = None


@dataclass(frozen=True)
class CellReader:
    """A cell being read, with its problems.

    Attributes:
        cell: the cell, which is not empty.
        match: the match of its column's form.
        known: registries and options.
        place: the row and the heading.
        problems: problems of the cell.
    """

    cell: Cell
    match: re.Match[str]
    known: Known
    place: Location
    problems: list[Diagnostic] = field(default_factory=list)

    def warn(self, code: Code, message: str, remedy: str) -> None:
        """Report a warning."""
        self.problems.append(Diagnostic(self.place, code, message, remedy, Severity.WARNING))

    def refuse(self, code: Code, message: str, remedy: str) -> None:
        """Report an error."""
        self.problems.append(Diagnostic(self.place, code, message, remedy))


def _tag(read: CellReader) -> Fields:
    tag, kind = read.match["tag"], read.match["kind"] or read.match["alone"]
    return {"tag": tag and tag.upper(), **({"kind": kind.lower().replace(" ", "-")} if kind else {})}


def _model(read: CellReader) -> Fields:
    """Return the label and its model; TODO if the model would be a guess."""
    label, names = read.cell.text, read.known.architectures.names
    checkpoint = read.known.models.get(label, label)
    if checkpoint in names:
        return {"label": label, "model": checkpoint}
    option = f"--model {label}=CHECKPOINT"
    by_name = {fold(name.rsplit("/", 1)[-1]): name for name in names}
    taken = by_name.get(fold(label)) or by_name.get(fold(f"{label}-Instruct"))
    if taken:
        remedy = f"if the script loads another model, use {option}"
        read.warn(Code.page_assumed, f"the label {label!r} is read as the model {taken}", remedy)
        return {"label": label, "model": taken}
    near = nearest(fold(label), by_name)
    hint = f"; the nearest is {by_name[near]}" if near else ""
    remedy = f"'model' is TODO; use {option} to give the model that the script loads"
    read.refuse(Code.unknown_model, f"unknown model {label!r}{hint}", remedy)
    return {"label": label, "model": TODO}


def _gpus(read: CellReader) -> Fields:
    count, gpu, memory = read.match.group("count", "type", "memory")
    if gpu and gpu not in read.known.gpus:
        remedy = suggest_or(gpu, read.known.gpus.names, "add it to gpus.yaml")
        read.refuse(Code.unknown_gpu, f"unknown GPU {gpu!r}; it is kept", remedy)
    return {"gpus": {"count": int(count), "type": gpu, **({"memory_gb": float(memory)} if memory else {})}}


def _infer(read: CellReader) -> Fields:
    engine, version = read.match.group("engine", "version")
    return {"infer": {"engine": engine.lower(), **({"version": version} if version else {})}}


def _script(read: CellReader) -> Fields:
    """Return the place of the script in verl's repository; for other links, the address as evidence."""
    text, link = read.cell.text, "".join(read.cell.links[:1])
    # A relative link counts as a link to the main branch, regardless of the page's place.
    try:
        address = urljoin(Links().file("main", ""), link.lstrip("./"))
    except ValueError:  # brackets without a valid host address
        address = ""
    if not link or len(read.cell.links) > 1 or read.cell.broken or not is_address(address):
        remedy = "link to the script at its commit, as in `name.sh <address>`_, or remove the text"
        read.refuse(Code.page_link, f"{text!r} is not a single link to a script", remedy)
        return {}
    place = repository_place(address)
    if place is None or place.path is None:
        message = f"{link[:80]!r} is not a file in verl's repository; it is kept as evidence"
        remedy = "give the script under 'script' in the run file"
        read.warn(Code.page_link, message, remedy)
        return {"evidence": [{"kind": "document", "url": address}]}
    ref, name = place.ref, place.path.rsplit("/", 1)[-1]
    if not is_fixed_ref(ref):
        ref = read.known.ref or ref
        remedy = "check that this file was run" if read.known.ref else "pin it with --ref COMMIT"
        read.warn(Code.page_link, f"the link has no commit; it is written as a link to {ref!r}", remedy)
    if text in (name, link):
        return {"script": {"ref": ref, "path": place.path}}
    if text.removesuffix(".sh") != name.removesuffix(".sh"):
        message = f"the text {text!r} differs from the linked file {name!r}; both are kept"
        read.warn(Code.page_link, message, "check which file is right")
    return {"script": {"ref": ref, "path": place.path, "text": text}}


def _contributor(read: CellReader) -> Fields:
    """Return the name and a public profile, but no e-mail address."""
    name, mails = _EMAIL.subn(" ", read.cell.text)
    links = [link for link in read.cell.links if not _EMAIL.search(unquote(link))]
    if not name.strip():
        message = "the contributor has an e-mail address but no name"
        read.refuse(Code.email_address, message, "write the person's name or handle")
        return {}
    if mails or len(links) < len(read.cell.links):
        remedy = "add a public profile to the run file if the person wants one"
        read.warn(Code.email_address, "an e-mail address is left out, since it would be published", remedy)
    if links and not is_address(links[0]):
        read.warn(Code.page_link, "a link is left out", "link to a profile that begins with https://")
        links = []
    return {"contributor": {"name": name.strip(), **({"url": links[0]} if links else {})}}


class Column(NamedTuple):
    """A column.

    Attributes:
        fields: function that returns the fields of the run file for a cell.
        form: pattern of its cells, in any case.
        remedy: instruction for a cell in another form.
        looks: pattern of a cell's text and links that identifies the column; default: ``form``.
    """

    fields: Callable[[CellReader], Fields]
    form: str = ".*"
    remedy: str = ""
    looks: str = ""


_TAG, _KIND, _ENGINE = "|".join(TAGS), "|".join(KINDS).replace("-", "[ -]"), "|".join(ENGINES)
#: The columns of the page by field.
COLUMNS = {
    # As in ``MIN``, and for untested rows ``MIN (script default)`` or ``stated``.
    "tag": Column(
        _tag,
        rf"(?P<tag>{_TAG})(\s*\((?P<kind>{_KIND})\))?|(?P<alone>{_KIND})",
        f"write {' or '.join(TAGS)}",
    ),
    "model": Column(_model, looks=r"(?!.*(://|\.sh)).*\d\s*B\b.*"),
    "task": Column(lambda read: {"task": read.cell.text}, looks=r"(\w*PO|RLOO|REINFORCE|ReMax|SFT)\b.*"),
    # As in ``4*H800``, ``4 x H800``, ``8*GPU`` and ``8*GPU 80 GB``.
    "gpus": Column(
        _gpus,
        r"(?P<count>[0-9]{1,6})\s*[*x×]\s*"
        r"(GPUs?(\s+(?P<memory>[0-9]{1,5}(\.[0-9]{1,3})?)\s*GB)?|(?P<type>[A-Z][^*]*))",
        "write number and type, as in 4*H800",
    ),
    "max_batch": Column(
        lambda read: {"max_batch": int(read.cell.text)}, "[0-9]{1,8}", "write a whole number of prompts"
    ),
    "train": Column(
        lambda read: {"train": read.cell.text.lower()},
        "|".join(TRAIN_BACKENDS),
        f"write one of {', '.join(TRAIN_BACKENDS)}",
    ),
    # As in ``vllm0.8.3``, ``vLLM 0.8.3`` and ``sglang==0.4.6.post5``.
    "infer": Column(
        _infer,
        rf"(?P<engine>{_ENGINE})([\s=:_-]*v?(?P<version>[0-9][\w.+-]*))?",
        f"write one of {', '.join(ENGINES)} with its version, as in vllm0.8.3",
    ),
    "script": Column(_script, looks=r".*(\.sh|://.*)"),
    "contributor": Column(_contributor, looks=".*mailto:.*"),
}
#: The heading of each column.
HEADINGS = {name: every_field()[name].heading for name in COLUMNS}
#: Required columns, and columns with links.
NEEDED = ("tag", "model", "task", "gpus", "train", "infer")
_LINKED = ("script", "contributor")


def read_cell(name: str, cell: Cell, known: Known, row: Location) -> tuple[Fields, list[Diagnostic]]:
    """Return the fields of the run file for a cell, and its problems."""
    column, place = COLUMNS[name], replace(row, key=HEADINGS[name])
    match = re.fullmatch(column.form, cell.text, re.IGNORECASE)
    if match is None:
        message = f"invalid value {cell.text!r}"
        return {}, [Diagnostic(place, Code.page_cell, message, column.remedy)]
    read = CellReader(cell, match, known, place)
    if (cell.links or cell.broken) and name not in _LINKED:
        read.warn(Code.page_link, "a link is left out", "only scripts and contributors have links")
    return column.fields(read), read.problems


def cells_of(run: Run) -> dict[str, str]:
    """Return a run's cells by field, with the addresses of links, and its size class."""
    cells = {name: every_field()[name].text(run) for name in ("size", *COLUMNS)}
    if run.script:
        cells["script"] += f" <{Links().file(run.script.ref, run.script.path)}>"
    if run.contributor and run.contributor.url:
        cells["contributor"] += f" <{run.contributor.url}>"
    return cells


def aligned(cells: Iterable[Cell], columns: Sequence[str | None]) -> dict[int, int]:
    """Return the column that each cell seems to belong to; both keep their order."""
    matches = SequenceMatcher(None, [_looks_like(cell) for cell in cells], columns, autojunk=False)
    return {
        cell + step: column + step
        for cell, column, length in matches.get_matching_blocks()
        for step in range(length)
    }


def _looks_like(cell: Cell) -> str:
    """Return the column that a cell seems to belong to; an empty cell is most often MaxBatch."""
    text = " ".join((cell.text, *cell.links))
    forms = {name: column.looks or column.form for name, column in COLUMNS.items()}
    alike = (name for name, form in forms.items() if re.fullmatch(form, text, re.IGNORECASE))
    return "max_batch" if cell.is_empty else next(alike, "contributor")
