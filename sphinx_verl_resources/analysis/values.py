"""A single figure of the analysis, asked for in words: ``8B, after FSDP``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ..catalog.names import COMPONENTS, SHAPE_FIGURES, STATES, TOTAL, fold
from ..diagnostics import did_you_mean, suggest_or
from ..units import GB, gb, gib, plain
from .analysis import LABELS, LIMITS, Outcome, analyse, figure_size
from .shapes import AnalysisError, assumptions_of, entry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..catalog.analysis import Analysis
    from ..catalog.models.analysis import Assumptions

#: Assumptions as prose shows them.
ASSUMPTIONS: dict[str, Callable[[Assumptions], str]] = {
    "batch size": lambda assumed: plain(assumed.batch_size),
    "sequence length": lambda assumed: plain(assumed.sequence_length),
    "vocabulary size": lambda assumed: plain(assumed.vocabulary_size),
    "system overhead": lambda assumed: gb(assumed.overhead_gb * GB),
    "FFN ratio": lambda assumed: plain(assumed.ffn_ratio),
    "memory limit": lambda assumed: f"{plain(assumed.memory_limit * 100)} %",
    "GPUs": lambda assumed: plain(assumed.gpus),
}
#: Properties of the model and of the outcome.
PROPERTIES: dict[str, Callable[[Outcome], str]] = {
    "number of parameters": lambda outcome: plain(outcome.shape.parameters),
    "hidden size": lambda outcome: plain(outcome.shape.hidden_size),
    "stated hidden size": lambda outcome: plain(round(outcome.shape.stated_hidden_size)),
    "layers": lambda outcome: plain(outcome.shape.layers),
    "FFN dimension": lambda outcome: plain(outcome.shape.ffn_dimension),
    "GPUs": lambda outcome: plain(outcome.gpus),
    "checkpoint": lambda outcome: outcome.shape.checkpoint,
}
#: Sizes, by what people call them; behind "after" and a step, the size after it.
SIZES = {
    **{LABELS[key]: key for key in COMPONENTS},
    "model states": STATES,
    TOTAL: TOTAL,
}
PER_GPU = "per GPU"
MODEL_NAMES = "model names"
#: Each option of an analysis as words, and its name.
OPTIONS = {
    "gpus": r"([0-9]+) GPUs?",
    "batch-size": r"batch(?: size)? ([0-9]+)",
    "sequence-length": r"sequence(?: length)? ([0-9]+)",
}
EXAMPLES = "for example '8B, after FSDP', '3B, KV cache' or 'batch size'"


class Figure(NamedTuple):
    """Which figure; ``name`` is a key of ``PROPERTIES``, a component, states, total or saved.

    ``step`` is the step it comes behind: None before all, empty after the last.
    """

    name: str
    step: str | None = None


@dataclass
class Request:
    """What the parts behind the model's name ask for."""

    figures: list[str] = field(default_factory=list)
    options: dict[str, int] = field(default_factory=dict)
    in_gib: bool = False
    printed: bool = False


def value_text(analysis: Analysis, text: str) -> str:
    """The figure that ``text`` names, with its unit.

    The text is a model and a figure, with commas between its parts, or an assumption alone. Between the two
    there can be numbers of GPUs and sequences (``8B, 16 GPUs, after FSDP``), behind them ``in GiB`` or
    ``printed``.

    Raises:
        AnalysisError: the text names nothing that is known.
    """
    name, *parts = (" ".join(part.split()) for part in text.split(","))
    if not parts:
        return _alone(analysis, name)
    request = _read(parts)
    if len(request.figures) != 1:
        listed = ", ".join(repr(figure) for figure in request.figures) or "none"
        raise AnalysisError(f"name one figure, got {listed}; {EXAMPLES}")
    figure = _find_figure(analysis, request.figures[0])
    _check(request, figure)
    if request.printed:
        return _printed(analysis, name, request.figures[0], figure)
    outcome = analyse(
        analysis,
        name,
        gpus=request.options.get("gpus"),
        batch_size=request.options.get("batch-size"),
        sequence_length=request.options.get("sequence-length"),
    )
    if figure.name in PROPERTIES:
        value = PROPERTIES[figure.name](outcome)
        if not value:
            raise AnalysisError(f"{figure.name!r} is not recorded for {name}; record it in analysis.yaml")
        return value
    return (gib if request.in_gib else gb)(_size(outcome, figure))


def _check(request: Request, figure: Figure) -> None:
    """Refuse what would have no effect."""
    if request.printed and (request.options or request.in_gib):
        raise AnalysisError("what was printed does not depend on options, and is in GB; leave them out")
    if request.in_gib and figure.name in PROPERTIES:
        raise AnalysisError(f"{figure.name!r} is no size, so it has no unit; leave the unit out")
    if "gpus" in request.options and figure.step is None and figure.name != "GPUs":
        raise AnalysisError(f"the number of GPUs does not change {request.figures[0]!r}; {EXAMPLES}")


def _alone(analysis: Analysis, text: str) -> str:
    """What needs no model to be named: an assumption, or the names of all models."""
    if fold(text) == fold(MODEL_NAMES):
        return ", ".join(analysis.specifications)
    for name, show in ASSUMPTIONS.items():
        if fold(name) == fold(text):
            return show(assumptions_of(analysis))
    hint = did_you_mean(text, [*ASSUMPTIONS, MODEL_NAMES])
    raise AnalysisError(f"{text!r} names no figure: a model and a figure, {EXAMPLES}; {hint}")


def _read(parts: list[str]) -> Request:
    request = Request()
    for part in parts:
        option = next(
            (
                (name, match[1])
                for name, form in OPTIONS.items()
                if (match := re.fullmatch(form, part, re.IGNORECASE))
            ),
            None,
        )
        if option:
            name, number = option
            if name in request.options:
                raise AnalysisError(f"{part!r}: said twice; keep one of the two")
            if len(number) > 20 or not 1 <= int(number) <= LIMITS[name]:
                raise AnalysisError(f"{part[:40]!r}: must be from 1 to {LIMITS[name]:,}")
            request.options[name] = int(number)
        elif fold(part) in {fold("in GiB"), fold("in GB")}:
            request.in_gib = fold(part) == fold("in GiB")
        elif fold(part) == "printed":
            request.printed = True
        else:
            request.figures.append(part)
    return request


def _find_figure(analysis: Analysis, text: str) -> Figure:
    """What a figure's name means."""
    folded = fold(text)
    for step in analysis.steps.values():
        for name in (step.label, step.name):
            if folded == fold(f"saved by {name}"):
                return Figure("saved", step.name)
            if folded.endswith(fold(f"after {name}")):
                size = folded.removesuffix(fold(f"after {name}"))
                return Figure(_find_size(size, SIZES) if size else TOTAL, step.name)
    unknown = re.search(r"\b(?:after|saved by) (.+)", text, re.IGNORECASE)
    if unknown:
        labels = [step.label for step in analysis.steps.values()]
        raise AnalysisError(f"there is no step {unknown[1]!r}; {did_you_mean(unknown[1], labels)}")
    if fold(text) == fold(PER_GPU):
        return Figure(TOTAL, "")
    for name in PROPERTIES:
        if fold(name) == fold(text):
            return Figure(name)
    return Figure(_find_size(text, [*SIZES, PER_GPU, *PROPERTIES]))


def _find_size(text: str, names: Iterable[str]) -> str:
    """The size that ``text`` names; ``names`` are what can stand in its place, for the hint."""
    for name, key in SIZES.items():
        if fold(text) in {fold(name), fold(key)}:
            return key
    if fold(text) in {fold(name) for name in ASSUMPTIONS}:
        raise AnalysisError(f"{text!r} stands alone, without a model; leave the model out")
    otherwise = f"write a part, total or per GPU, or 'after' or 'saved by' and a step, {EXAMPLES}"
    hint = suggest_or(text, names, otherwise)
    raise AnalysisError(f"there is no figure {text!r}; {hint}")


def _size(outcome: Outcome, figure: Figure) -> float:
    if figure.name == "saved":
        return next(taken.saved for taken in outcome.steps if taken.name == figure.step)
    if figure.step is None:
        return figure_size(outcome.start, figure.name)
    return figure_size(outcome.after(figure.step or None), figure.name)


def _printed(analysis: Analysis, name: str, text: str, figure: Figure) -> str:
    key = fold(f"{figure.step}.{figure.name}" if figure.step else figure.name)
    for item in entry_of(analysis, "printed", name).figures:
        if fold(item.figure) == key and figure.step != "":
            return plain(item.value) if item.figure in SHAPE_FIGURES else gb(item.value * GB)
    raise AnalysisError(f"{text!r} was not printed for {name}; leave 'printed' out")
