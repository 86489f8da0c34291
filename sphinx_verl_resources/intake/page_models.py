"""The checkpoint behind the label in a Model column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..catalog.names import fold
from ..diagnostics import Code, Severity, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..catalog.catalog import Registry
    from ..catalog.models.architecture import Architecture
    from .page_links import Remark

_VARIANT = "-Instruct"


def checkpoint_of(
    label: str, known: Registry[Architecture], stated: Mapping[str, str]
) -> tuple[str | None, Remark | None]:
    """The checkpoint that a label stands for, as far as that can be known.

    Args:
        label: the text of the Model column.
        known: the registry; only its checkpoints are named.
        stated: checkpoints by label, as the user has named them.

    Returns:
        The checkpoint, None where it would have to be guessed; and what there is to say about it.
    """
    if label in stated:
        return stated[label], None
    if label in known.names:
        return label, None
    short = {name: fold(name.rsplit("/", 1)[-1]) for name in known.names}
    for ending in ("", _VARIANT):
        found = list(dict.fromkeys(name for name, folded in short.items() if folded == fold(label + ending)))
        if len(found) > 1:
            message = f"{label!r} may stand for any of {', '.join(sorted(found))}"
            return None, _open(message, label)
        if found:
            return found[0], _assumed(label, found[0], known)
    near = nearest(label, [name.rsplit("/", 1)[-1] for name in known.names])
    full = next((name for name in known.names if near and name.endswith(f"/{near}")), near)
    message = f"there is no checkpoint called {label!r}" + (f"; the nearest is {full}" if full else "")
    return None, _open(message, label)


def _assumed(label: str, model: str, known: Registry[Architecture]) -> Remark:
    variant = f"{model}{_VARIANT}"
    other = f"; there is {variant} too" if variant in known else ""
    message = f"the model {label!r} is taken for the checkpoint {model}{other}"
    hint = f"see which one the script loads, and say so with --model {label}=CHECKPOINT if it is another"
    return Code.page_assumed, message, hint, Severity.WARNING


def _open(message: str, label: str) -> Remark:
    hint = f"'model' is left TODO; see which one the script loads, and say so with --model {label}=CHECKPOINT"
    return Code.unknown_model, message, hint, Severity.ERROR
