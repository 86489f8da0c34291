"""The columns of a hand-typed page: how their cells are read, and how they are told apart."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from ..catalog.fields import every_field
from ..catalog.links import Links, is_address, is_fixed_ref, repository_place
from ..catalog.names import ENGINES, KINDS, TAGS, TRAIN_BACKENDS, fold
from ..catalog.run_text import TODO
from ..diagnostics import Code, NoAnswerError, Severity, did_you_mean, nearest, suggest_or

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date

    from ..catalog.catalog import Registry
    from ..catalog.models.architecture import Architecture
    from ..catalog.models.registries import Gpu
    from .page_tables import Cell

_VARIANT = "-Instruct"
_DEFAULT_REF = "main"

#: As in ``4*H800``, ``4 x H800`` and ``8*GPU 80 GB``.
_RESOURCE = re.compile(r"(?P<count>[0-9]{1,6})\s*[*x×]\s*(?P<gpu>[A-Za-z][^*]*)", re.IGNORECASE)
_UNNAMED_GPU = re.compile(r"GPUs?(?:\s+(?P<memory>[0-9]{1,5}(?:\.[0-9]{1,3})?)\s*GB)?", re.IGNORECASE)
#: As in ``vllm0.8.3``, ``vLLM 0.8.3`` and ``sglang==0.4.6.post5``.
_INFER = re.compile(
    rf"(?P<engine>{'|'.join(ENGINES)})(?:[\s=:_-]*v?(?P<version>[0-9][\w.+-]*))?", re.IGNORECASE
)
#: The tag of a row that nobody tested, as in ``MIN (script default)``.
_WITH_KIND = re.compile(
    r"(?P<tag>.*?)\s*\(?(?P<kind>tested|measured|stated|script[ -]default)\)?", re.IGNORECASE
)
_EMAIL = re.compile(r"<?[\w.+%-]+@[\w-]+(\.[\w-]+)+>?")


@dataclass(frozen=True)
class Known:
    """What rows are read with.

    Attributes:
        gpus: the registry of GPUs.
        architectures: the registry of models.
        models: checkpoints by label, as the user named them.
        ref: the commit for links that name none; None leaves them as they are.
        added: the day that the page gives for all its rows, if any.
    """

    gpus: Registry[Gpu]
    architectures: Registry[Architecture]
    models: Mapping[str, str] = field(default_factory=dict)
    ref: str | None = None
    added: date | None = None


class Note(Protocol):
    """The function by which a column reports something about a cell."""

    def __call__(self, code: Code, message: str, remedy: str, severity: Severity = Severity.WARNING) -> None:
        """Report it; the row is read on."""


class Column(NamedTuple):
    """A column.

    Attributes:
        fields: returns the fields of the run file that a cell fills; raises NoAnswerError for any other text.
        fits: tells whether only this column has such cells.
        needed: a row without it is no run.
    """

    fields: Callable[[Cell, Known, Note], dict[str, Any]]
    fits: Callable[[Cell], bool]
    needed: bool = True


def _tag(cell: Cell, known: Known, note: Note) -> dict[str, Any]:
    match = _WITH_KIND.fullmatch(cell.text)
    if match is None:
        return {"tag": _one_of(cell.text, TAGS)}
    return {
        "kind": _one_of(match["kind"], KINDS),
        "tag": _one_of(match["tag"], TAGS) if match["tag"] else None,
    }


def _model(cell: Cell, known: Known, note: Note) -> dict[str, Any]:
    return {"label": cell.text, "model": _checkpoint(cell.text, known, note)}


def _checkpoint(label: str, known: Known, note: Note) -> str:
    """Return the checkpoint that a label stands for; TODO where it would have to be guessed."""
    names = known.architectures.names
    if label in known.models or label in names:
        return known.models.get(label, label)
    option = f"--model {label}=CHECKPOINT"
    short = {name: name.rsplit("/", 1)[-1] for name in names}
    for text in (label, label + _VARIANT):
        alike = sorted(name for name, last in short.items() if fold(last) == fold(text))
        if alike:
            break
    if len(alike) == 1:
        model, variant = alike[0], f"{alike[0]}{_VARIANT}"
        other = f"; there is {variant} too" if variant in known.architectures else ""
        message = f"the model {label!r} is taken for the checkpoint {model}{other}"
        remedy = f"see which one the script loads, and say so with {option} if it is another"
        note(Code.page_assumed, message, remedy)
        return model
    if alike:
        message = f"{label!r} may stand for any of {', '.join(alike)}"
    else:
        near = nearest(label, short.values())
        full = next((name for name in names if near and name.endswith(f"/{near}")), near)
        message = f"there is no checkpoint called {label!r}" + (f"; the nearest is {full}" if full else "")
    remedy = f"'model' is left TODO; see which one the script loads, and say so with {option}"
    note(Code.unknown_model, message, remedy, Severity.ERROR)
    return TODO


def _gpus(cell: Cell, known: Known, note: Note) -> dict[str, Any]:
    match = _RESOURCE.fullmatch(cell.text)
    if not match:
        message = f"{cell.text!r} is no number of GPUs and their type"
        raise NoAnswerError.because(message, "write it as 4*H800", code=Code.page_cell)
    count, gpu = int(match["count"]), match["gpu"].strip()
    unnamed = _UNNAMED_GPU.fullmatch(gpu)
    if unnamed:
        memory = {"memory_gb": float(unnamed["memory"])} if unnamed["memory"] else {}
        return {"gpus": {"count": count, "type": None, **memory}}
    if gpu not in known.gpus:
        remedy = suggest_or(gpu, known.gpus.names, "add it to gpus.yaml")
        note(Code.unknown_gpu, f"unknown GPU {gpu!r}; it is kept", remedy, Severity.ERROR)
    return {"gpus": {"count": count, "type": gpu}}


def _max_batch(cell: Cell, known: Known, note: Note) -> dict[str, Any]:
    if not re.fullmatch(r"[0-9]{1,8}", cell.text):
        message = f"{cell.text!r} is no whole number"
        raise NoAnswerError.because(
            message, "write the largest batch that fits, in prompts", code=Code.page_cell
        )
    return {"max_batch": int(cell.text)}


def _infer(cell: Cell, known: Known, note: Note) -> dict[str, Any]:
    match = _INFER.fullmatch(cell.text)
    if not match:
        message = f"{cell.text!r} is no rollout engine"
        raise NoAnswerError.because(message, did_you_mean(cell.text, ENGINES), code=Code.page_cell)
    version = {"version": match["version"]} if match["version"] else {}
    return {"infer": {"engine": match["engine"].lower(), **version}}


def _one_of(text: str, allowed: Sequence[str]) -> str:
    """Return the word of a vocabulary that a text means, whatever its case and separators."""
    for word in allowed:
        if fold(word) == fold(text):
            return word
    remedy = did_you_mean(text, allowed)
    raise NoAnswerError.because(f"unknown value {text!r}", remedy, code=Code.page_cell)


def _script(cell: Cell, known: Known, note: Note) -> dict[str, Any]:
    address = _script_address(cell)
    place = _in_repository(address)
    if place is None:
        if not re.match(r"https?://", address, re.IGNORECASE):
            message = f"the link {address[:80]!r} is not understood"
            raise NoAnswerError.because(message, "link the script", code=Code.page_link)
        message = f"{address[:80]!r} is no file in verl's repository"
        remedy = "it is kept as evidence; name the script under 'script' in the run file"
        note(Code.page_link, message, remedy)
        return {"evidence": [{"kind": "document", "url": address}]}
    ref, path = place
    if ref is None or not is_fixed_ref(ref):
        ref = _pinned(ref, address, known, note)
    elif (written := Links().file(ref, path)) != address:
        remedy = f"the page has {address[:200]}; see that both lead to the same file"
        note(Code.page_mended, f"the link is written as {written}", remedy)
    name = path.rsplit("/", 1)[-1]
    if cell.text == name or (cell.text == address and cell.text != path):
        return {"script": {"ref": ref, "path": path}}
    if cell.text != path and cell.text.removesuffix(".sh") != name.removesuffix(".sh"):
        message = f"the text {cell.text!r} differs from the name of the file that it links to, {name!r}"
        note(Code.page_link, message, "both are kept; look which file is meant")
    return {"script": {"ref": ref, "path": path, "text": cell.text}}


def _script_address(cell: Cell) -> str:
    """Return the one address in a cell, or its text if that is a path."""
    if len(cell.links) > 1 and not cell.broken:
        message, remedy = "there are several links in a cell", "keep the one to the launch script"
    elif cell.broken or (not cell.links and not re.fullmatch(r"[\w.-]+(/[\w.-]+)+\.sh", cell.text)):
        message = f"the link {cell.text!r} leads nowhere" if cell.broken else f"{cell.text!r} is no link"
        remedy = "link the script at its commit, or remove the text"
        if re.search(r"<[^<>]+>$", cell.text):
            remedy = "end it with an underscore, as in `text <address>`_"
    else:
        return next(iter(cell.links), cell.text)
    raise NoAnswerError.because(message, remedy, code=Code.page_link)


def _in_repository(address: str) -> tuple[str | None, str] | None:
    """Return ref and path of an address in verl's repository; a relative one has no ref."""
    place = repository_place(address)
    if place and place.path:
        return place.ref, place.path
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    steps = [step for step in unquote(parts.path).split("/") if step not in ("", ".")]
    while steps and steps[0] == "..":
        steps.pop(0)
    return None if parts.scheme or parts.netloc or len(steps) < 2 else (None, "/".join(steps))


def _pinned(branch: str | None, address: str, known: Known, note: Note) -> str:
    """Return the ref of a link whose target can change."""
    link = f"names the branch {branch!r}" if branch else f"is relative ({address[:80]!r})"
    message = f"the link {link} and not a commit"
    remedy = "pin it, with --ref COMMIT for all such links"
    if known.ref:
        message += f"; it was pinned to {known.ref}"
        remedy = "see that the file there is the one that was run"
    elif branch:
        remedy = f"it is kept so; {remedy}"
    else:
        message += f"; it is taken for one to {_DEFAULT_REF!r}"
    note(Code.page_link, message, remedy)
    return known.ref or branch or _DEFAULT_REF


def _contributor(cell: Cell, known: Known, note: Note) -> dict[str, Any]:
    """Return the name, and a public profile; never an e-mail address."""
    name, mails = _EMAIL.subn("", cell.text)
    if mails:
        name = " ".join(re.sub(r"\(\s*\)", "", name).split()).strip(" ,;")
    if not name:
        message = "the contributor has no name but an e-mail address"
        raise NoAnswerError.because(message, "name the person", code=Code.email_address)
    links = [link for link in cell.links if not link.lower().startswith("mailto:")]
    if mails or len(links) < len(cell.links):
        remedy = "add a public profile to the run file if the person wants one"
        note(Code.email_address, "an e-mail address is left out, for it would be published", remedy)
    profiles = [link for link in links if is_address(link) and not _EMAIL.search(unquote(link))][:1]
    if len(links) > len(profiles) or cell.broken:
        remedy = "a profile is one address that begins with https://"
        note(Code.page_link, "a link of the contributor is left out", remedy)
    return {"contributor": {"name": name, **({"url": profiles[0]} if profiles else {})}}


#: The columns of the page by the field that they show.
COLUMNS: dict[str, Column] = {
    "tag": Column(_tag, lambda cell: cell.text.upper() in TAGS),
    "model": Column(
        _model, lambda cell: bool(re.search(r"\d\s*B\b", cell.text, re.IGNORECASE)) and not cell.links
    ),
    "task": Column(
        lambda cell, *_: {"task": cell.text},
        lambda cell: bool(re.match(r"(\w*PO|RLOO|REINFORCE|ReMax|SFT)\b", cell.text, re.IGNORECASE)),
    ),
    "gpus": Column(_gpus, lambda cell: bool(_RESOURCE.fullmatch(cell.text))),
    "max_batch": Column(_max_batch, lambda cell: cell.text.isdecimal(), needed=False),
    "train": Column(
        lambda cell, *_: {"train": _one_of(cell.text, TRAIN_BACKENDS)},
        lambda cell: cell.text.lower() in TRAIN_BACKENDS,
    ),
    "infer": Column(_infer, lambda cell: bool(_INFER.fullmatch(cell.text))),
    "script": Column(
        _script,
        lambda cell: cell.text.endswith(".sh") or any("://" in link for link in cell.links),
        needed=False,
    ),
    "contributor": Column(
        _contributor, lambda cell: any(link.startswith("mailto:") for link in cell.links), needed=False
    ),
}
#: What stands above each of them.
HEADINGS = {name: every_field()[name].heading for name in COLUMNS}
NEEDED = tuple(name for name, column in COLUMNS.items() if column.needed)


def aligned(cells: Sequence[Cell], columns: Sequence[str | None]) -> list[tuple[int, int]]:
    """Pair cells with columns, in the order of both, so that as many cells as possible are explained."""
    best: list[list[tuple[int, list[tuple[int, int]]]]] = [[(0, [])] * (len(columns) + 1)]
    for row, cell in enumerate(cells):
        line: list[tuple[int, list[tuple[int, int]]]] = [(0, [])]
        for column, name in enumerate(columns):
            fit = _fit(cell, name)
            score, pairs = best[row][column]
            paired = (score + fit, [*pairs, (row, column)]) if fit else (-1, [])
            line.append(max(best[row][column + 1], line[column], paired, key=itemgetter(0)))
        best.append(line)
    return best[-1][-1][1]


def _fit(cell: Cell, name: str | None) -> int:
    """Return how well a cell fits a column: 0 not at all, 1 it may, 3 it does."""
    if name is None:
        return 0
    if cell.is_empty:
        return int(not COLUMNS[name].needed)
    if COLUMNS[name].fits(cell):
        return 3
    return int(name == "contributor" and not any(column.fits(cell) for column in COLUMNS.values()))
