"""The columns of a hand-typed page: how their cells are read, how they look, and how a run shows them."""

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
    """The records and options that rows are read with.

    Attributes:
        gpus: the registry of GPUs.
        architectures: the registry of models.
        models: checkpoints by label, as the user named them.
        ref: the commit for links that name none; None leaves them as they are.
    """

    gpus: Registry[Gpu]
    architectures: Registry[Architecture]
    models: Mapping[str, str] = field(default_factory=dict)
    ref: str | None = None


@dataclass(frozen=True)
class CellReader:
    """A cell that is read, what it is read with, and what is found.

    Attributes:
        cell: it is not empty.
        match: of the form of its column.
        known: registries and options.
        place: the row and the heading.
        problems: those of the cell.
    """

    cell: Cell
    match: re.Match[str]
    known: Known
    place: Location
    problems: list[Diagnostic] = field(default_factory=list)

    def warn(self, code: Code, message: str, remedy: str) -> None:
        """Report what a person should see."""
        self.problems.append(Diagnostic(self.place, code, message, remedy, Severity.WARNING))

    def refuse(self, code: Code, message: str, remedy: str) -> None:
        """Report what is left out."""
        self.problems.append(Diagnostic(self.place, code, message, remedy))


def _tag(read: CellReader) -> Fields:
    tag, kind = read.match["tag"], read.match["kind"] or read.match["alone"]
    return {"tag": tag and tag.upper(), **({"kind": kind.lower().replace(" ", "-")} if kind else {})}


def _model(read: CellReader) -> Fields:
    """Return the label and its checkpoint; TODO where that would have to be guessed."""
    label, names = read.cell.text, read.known.architectures.names
    checkpoint = read.known.models.get(label, label)
    if checkpoint in names:
        return {"label": label, "model": checkpoint}
    option = f"--model {label}=CHECKPOINT"
    by_name = {fold(name.rsplit("/", 1)[-1]): name for name in names}
    taken = by_name.get(fold(label)) or by_name.get(fold(f"{label}-Instruct"))
    if taken:
        remedy = f"see which one the script loads, and say so with {option} if it is another"
        read.warn(Code.page_assumed, f"the model {label!r} is taken for the checkpoint {taken}", remedy)
        return {"label": label, "model": taken}
    near = nearest(fold(label), by_name)
    hint = f"; the nearest is {by_name[near]}" if near else ""
    remedy = f"'model' is left TODO; see which one the script loads, and say so with {option}"
    read.refuse(Code.unknown_model, f"there is no checkpoint called {label!r}{hint}", remedy)
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
    """Return the place of the script in verl's repository, or else the address as evidence."""
    text, link = read.cell.text, "".join(read.cell.links[:1])
    # A relative link counts as one to the main branch, wherever the page is.
    try:
        address = urljoin(Links().file("main", ""), link.lstrip("./"))
    except ValueError:  # brackets that hold no address of a machine
        address = ""
    if not link or len(read.cell.links) > 1 or read.cell.broken or not is_address(address):
        remedy = "link the script at its commit, as in `name.sh <address>`_, or remove the text"
        read.refuse(Code.page_link, f"{text!r} is not one link to a script", remedy)
        return {}
    place = repository_place(address)
    if place is None or place.path is None:
        message = f"{link[:80]!r} is no file in verl's repository"
        remedy = "it is kept as evidence; name the script under 'script' in the run file"
        read.warn(Code.page_link, message, remedy)
        return {"evidence": [{"kind": "document", "url": address}]}
    ref, name = place.ref, place.path.rsplit("/", 1)[-1]
    if not is_fixed_ref(ref):
        ref = read.known.ref or ref
        remedy = "see that it is the file that was run" if read.known.ref else "pin it with --ref COMMIT"
        read.warn(Code.page_link, f"the link names no commit; it is kept as one to {ref!r}", remedy)
    if text in (name, link):
        return {"script": {"ref": ref, "path": place.path}}
    if text.removesuffix(".sh") != name.removesuffix(".sh"):
        message = f"the text {text!r} differs from the name of the file that it links to, {name!r}"
        read.warn(Code.page_link, message, "both are kept; look which file is meant")
    return {"script": {"ref": ref, "path": place.path, "text": text}}


def _contributor(read: CellReader) -> Fields:
    """Return the name, and a public profile; never an e-mail address."""
    name, mails = _EMAIL.subn(" ", read.cell.text)
    links = [link for link in read.cell.links if not _EMAIL.search(unquote(link))]
    if not name.strip():
        message = "the contributor has no name but an e-mail address"
        read.refuse(Code.email_address, message, "name the person")
        return {}
    if mails or len(links) < len(read.cell.links):
        remedy = "add a public profile to the run file if the person wants one"
        read.warn(Code.email_address, "an e-mail address is left out, for it would be published", remedy)
    if links and not is_address(links[0]):
        read.warn(Code.page_link, "a link is left out", "link a profile that begins with https://")
        links = []
    return {"contributor": {"name": name.strip(), **({"url": links[0]} if links else {})}}


class Column(NamedTuple):
    """A column.

    Attributes:
        fields: returns the fields of the run file that a cell fills.
        form: the form of its cells, in any case.
        remedy: what to write instead of another form.
        looks: the form of a cell, its text and links, that no other column has; default: ``form``.
    """

    fields: Callable[[CellReader], Fields]
    form: str = ".*"
    remedy: str = ""
    looks: str = ""


_TAG, _KIND, _ENGINE = "|".join(TAGS), "|".join(KINDS).replace("-", "[ -]"), "|".join(ENGINES)
#: The columns of the page by the field that they show.
COLUMNS = {
    # As in ``MIN``, and of rows that nobody tested ``MIN (script default)`` or ``stated``.
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
#: The heading of each of them.
HEADINGS = {name: every_field()[name].heading for name in COLUMNS}
#: The columns without which a row is no run, and those whose cells hold links.
NEEDED = ("tag", "model", "task", "gpus", "train", "infer")
_LINKED = ("script", "contributor")


def read_cell(name: str, cell: Cell, known: Known, row: Location) -> tuple[Fields, list[Diagnostic]]:
    """Return the fields of the run file that a cell fills, and its problems."""
    column, place = COLUMNS[name], replace(row, key=HEADINGS[name])
    match = re.fullmatch(column.form, cell.text, re.IGNORECASE)
    if match is None:
        message = f"{cell.text!r} is not understood"
        return {}, [Diagnostic(place, Code.page_cell, message, column.remedy)]
    read = CellReader(cell, match, known, place)
    if (cell.links or cell.broken) and name not in _LINKED:
        read.warn(Code.page_link, "a link is left out", "only scripts and contributors have links")
    return column.fields(read), read.problems


def cells_of(run: Run) -> dict[str, str]:
    """Return the cells of a run on a page by field, with the addresses of links, and its size class."""
    cells = {name: every_field()[name].text(run) for name in ("size", *COLUMNS)}
    if run.script:
        cells["script"] += f" <{Links().file(run.script.ref, run.script.path)}>"
    if run.contributor and run.contributor.url:
        cells["contributor"] += f" <{run.contributor.url}>"
    return cells


def aligned(cells: Iterable[Cell], columns: Sequence[str | None]) -> dict[int, int]:
    """Return the columns of cells by their looks, in the order of both."""
    matches = SequenceMatcher(None, [_looks_like(cell) for cell in cells], columns, autojunk=False)
    return {
        cell + step: column + step
        for cell, column, length in matches.get_matching_blocks()
        for step in range(length)
    }


def _looks_like(cell: Cell) -> str:
    """Return the column that a cell seems to belong to; of those that may be empty, MaxBatch often is."""
    text = " ".join((cell.text, *cell.links))
    forms = {name: column.looks or column.form for name, column in COLUMNS.items()}
    alike = (name for name, form in forms.items() if re.fullmatch(form, text, re.IGNORECASE))
    return "max_batch" if cell.is_empty else next(alike, "contributor")
