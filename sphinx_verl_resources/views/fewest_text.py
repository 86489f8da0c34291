"""The fewest GPUs for a model, and the models that fit on GPUs, as text for terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..answer.question import task_text
from ..units import crossed, gib_number, short_number
from .plain_text import plain_table, wrapped
from .verdicts import label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..answer.answer import Answer
    from ..answer.fewest import Fewest
    from ..answer.question import Question

_FEWEST = "GB> | GPU | Fewest> | Best with | GiB per GPU | Host GiB/node> | Recorded on"
_FIRST = "Each line is for its first GPU, which has the least memory."
_FITS = "Model | Verdict | Best with | GiB per GPU | Host GiB/node> | Recorded on"


def fewest_text(question: Question, found: Sequence[Fewest], assumed: Sequence[str], width: int = 100) -> str:
    """Return the fewest GPUs of each memory size.

    Args:
        question: the model and the task.
        found: the result for each memory size.
        assumed: the assumptions, in words.
        width: characters per line.
    """
    counts = [f"{item.found.gpus}×{short_number(item.memory_gb)} GB" for item in found if item.found]
    fewest = ", ".join(dict.fromkeys(counts)) or "none of the tried numbers fits"
    head = f"Fewest GPUs for {question.model}, {task_text(question)}: {fewest}."
    recorded = [item.ran for item in found if item.ran]
    smallest = min(recorded, key=lambda run: run.gpus.count, default=None)
    reason = "The figures are estimated; no run of this model is recorded on these GPUs."
    if smallest:
        runs = "it ran" if smallest.word == "ran" else "it is reported to run"
        reason = f"The figures are estimated; {runs} on {crossed(smallest.gpus)}: {smallest.id}."
    lines = [head, reason, f"Assumed: {', '.join(assumed)}."]
    table = plain_table(_FEWEST, map(_fewest_row, found), width)
    return "\n\n".join(["\n".join(wrapped(lines, width)), table, *wrapped([_FIRST], width)])


def fitting_text(
    question: Question, found: Sequence[Answer], assumed: Sequence[str], width: int = 100
) -> str:
    """Return the models that fit on the GPUs, one per line; arguments as for ``fewest_text``."""
    gpus = f"{question.gpus}×{question.gpu}"
    models = f"{len(found)} recorded models" if len(found) != 1 else "1 recorded model"
    head = f"Fits on {gpus}, {task_text(question)}: {models}, the largest first."
    if not found:
        head = f"None of the recorded models fits on {gpus}, {task_text(question)}."
    recorded = sum(_recorded(item) != "" for item in found) or "none"
    lines = [
        head,
        f"Models with a recorded run on as little memory: {recorded}. The figures are estimated.",
        f"Assumed: {', '.join(assumed)}.",
    ]
    parts = ["\n".join(wrapped(lines, width))]
    if found:
        parts.append(plain_table(_FITS, map(_fitting_row, found), width))
    return "\n\n".join(parts)


def _fewest_row(item: Fewest) -> tuple[str, ...]:
    names = ", ".join(gpu.name for gpu in item.gpus)
    ran = crossed(item.ran.gpus) if item.ran else ""
    if item.found is None:
        return (short_number(item.memory_gb), names, "none fits", "", "", "", ran)
    count = short_number(item.found.gpus)
    return (short_number(item.memory_gb), names, count, *_figures(item.found), ran)


def _fitting_row(found: Answer) -> tuple[str, ...]:
    return (found.asked.model, label(found.verdict), *_figures(found), _recorded(found))


def _figures(found: Answer) -> tuple[str, str, str]:
    best = found.best.estimate
    span = f"{gib_number(best.peak)} ({gib_number(best.low)} to {gib_number(best.high)})"
    return (found.best.name, span, gib_number(best.host.total))


def _recorded(found: Answer) -> str:
    return next((crossed(run.gpus) for run in found.evidence if run.was_seen_to_run), "")
