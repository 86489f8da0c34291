"""What a cell of a hand-typed row says, column by column."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..catalog.names import ENGINES, KINDS, TAGS, TRAIN_BACKENDS, fold
from ..diagnostics import Code, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from .page_tables import Cell

#: As in ``4*H800``, ``4 x H800`` and ``8*GPU 80 GB``.
RESOURCE = re.compile(r"(?P<count>[0-9]{1,6})\s*[*x×]\s*(?P<card>[A-Za-z][^*]*)", re.IGNORECASE)
#: As in ``vllm0.8.3``, ``vLLM 0.8.3`` and ``sglang==0.4.6.post5``.
INFER = re.compile(
    rf"(?P<engine>{'|'.join(ENGINES)})(?:[\s=:_-]*v?(?P<version>[0-9][\w.+-]*))?", re.IGNORECASE
)
_UNNAMED_CARD = re.compile(r"GPUs?(?:\s+(?P<memory>[0-9]{1,5}(?:\.[0-9]{1,3})?)\s*GB)?", re.IGNORECASE)
#: How a page marks rows that nobody tested.
_WITH_KIND = re.compile(
    r"(?P<tag>.*?)\s*\(?(?P<kind>tested|measured|stated|script[ -]default)\)?", re.IGNORECASE
)


class CellError(ValueError):
    """A cell that is not understood."""

    def __init__(self, message: str, remedy: str = "", code: Code = Code.page_cell) -> None:
        super().__init__(message)
        self.remedy, self.code = remedy, code


def _tag(text: str) -> dict[str, Any]:
    """The tag, and the kind where the page names one."""
    found: dict[str, Any] = {}
    match = _WITH_KIND.fullmatch(text)
    if match:
        found["kind"] = next(kind for kind in KINDS if fold(kind) == fold(match["kind"]))
        text = match["tag"]
    if match and not text:
        return {**found, "tag": None}
    return {**found, "tag": _one_of(text, TAGS)}


def _gpus(text: str) -> dict[str, Any]:
    match = RESOURCE.fullmatch(text)
    if not match:
        raise CellError(f"{text!r} is no number of GPUs and their type", "write it as 4*H800")
    unnamed = _UNNAMED_CARD.fullmatch(match["card"].strip())
    gpus: dict[str, Any] = {"count": int(match["count"]), "type": None if unnamed else match["card"].strip()}
    if unnamed and unnamed["memory"]:
        gpus["memory_gb"] = float(unnamed["memory"])
    return {"gpus": gpus}


def _max_batch(text: str) -> dict[str, Any]:
    if not re.fullmatch(r"[0-9]{1,8}", text):
        raise CellError(f"{text!r} is no whole number", "write the largest batch that fits, in prompts")
    return {"max_batch": int(text)}


def _infer(text: str) -> dict[str, Any]:
    match = INFER.fullmatch(text)
    if not match:
        raise CellError(f"{text!r} is no rollout engine", did_you_mean(text, ENGINES))
    infer = {"engine": match["engine"].lower()}
    return {"infer": {**infer, "version": match["version"]} if match["version"] else infer}


def _one_of(text: str, allowed: tuple[str, ...]) -> str:
    """The word of a vocabulary, whatever its case and separators."""
    for word in allowed:
        if fold(word) == fold(text):
            return word
    raise CellError(f"unknown value {text!r}", did_you_mean(text, allowed))


_READERS: dict[str, Callable[[str], dict[str, Any]]] = {
    "tag": _tag,
    "task": lambda text: {"task": text},
    "gpus": _gpus,
    "max_batch": _max_batch,
    "train": lambda text: {"train": _one_of(text, TRAIN_BACKENDS)},
    "infer": _infer,
}


def fields_of(name: str, cell: Cell) -> dict[str, Any]:
    """The fields of a run file that a cell of the column ``name`` fills.

    Raises:
        CellError: it says something else.
    """
    return _READERS[name](cell.text)
