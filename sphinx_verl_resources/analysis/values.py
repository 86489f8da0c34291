"""A single figure of the analysis by its name, such as ``8B, after FSDP``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ..analysis_records import COMPONENTS, LIMITS, STATES, TOTAL
from ..diagnostics import NoAnswerError, did_you_mean, suggest_or
from ..records import fold
from ..units import GB, gb, gib, short_number
from .analysis import LABELS, Outcome, analyse, assumptions_of, figure_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..analysis_records import Analysis, Assumptions

#: Assumptions, formatted for text.
ASSUMPTIONS: dict[str, Callable[[Assumptions], str]] = {
    "batch size": lambda assumed: short_number(assumed.batch_size),
    "sequence length": lambda assumed: short_number(assumed.sequence_length),
    "vocabulary size": lambda assumed: short_number(assumed.vocabulary_size),
    "system overhead": lambda assumed: gb(assumed.overhead_gb * GB),
    "FFN ratio": lambda assumed: short_number(assumed.ffn_ratio),
    "memory limit": lambda assumed: f"{short_number(assumed.memory_limit * 100)} %",
    "GPUs": lambda assumed: short_number(assumed.gpus),
}
#: Properties of the model and of the outcome.
PROPERTIES: dict[str, Callable[[Outcome], str]] = {
    "number of parameters": lambda outcome: short_number(outcome.shape.parameters),
    "hidden size": lambda outcome: short_number(outcome.shape.hidden_size),
    "stated hidden size": lambda outcome: short_number(round(outcome.shape.stated_hidden_size)),
    "layers": lambda outcome: short_number(outcome.shape.layers),
    "FFN dimension": lambda outcome: short_number(outcome.shape.ffn_dimension),
    "GPUs": lambda outcome: short_number(outcome.gpus),
    "checkpoint": lambda outcome: outcome.shape.checkpoint,
}
#: Sizes by their names in text.
SIZES = {**{LABELS[key]: key for key in COMPONENTS}, "model states": STATES, TOTAL: TOTAL}
SAVED, PER_GPU, MODEL_NAMES = "saved", "per GPU", "model names"
#: The options of an analysis, each with its form between model and figure.
OPTIONS = {
    "gpus": r"([0-9]+) GPUs?",
    "batch-size": r"batch(?: size)? ([0-9]+)",
    "sequence-length": r"sequence(?: length)? ([0-9]+)",
}
#: Words after a figure: its unit.
IN_GIB, IN_GB = fold("in GiB"), fold("in GB")
EXAMPLES = "for example '8B, after FSDP', '3B, KV cache' or 'batch size'"


class Figure(NamedTuple):
    """A figure of one model.

    Attributes:
        name: a key of ``PROPERTIES``, a component, ``states``, ``total`` or ``saved``.
        step: the step before it: None for the start, empty for the last step.
    """

    name: str
    step: str | None = None


def value_text(analysis: Analysis, text: str) -> str:
    """Return a figure with its unit, for a text such as ``8B, after FSDP``.

    The text is an assumption, or a model and a figure, separated by a comma. Options go between the two
    (``8B, 16 GPUs, after FSDP``), and ``in GiB`` after them.

    Raises:
        NoAnswerError: the figure is unknown.
    """
    name, *parts = (" ".join(part.split()) for part in text.split(","))
    if not parts:
        return _assumption(analysis, name)
    options, rest = _options(parts)
    words = {fold(part) for part in rest}.intersection({IN_GIB, IN_GB})
    figures = [part for part in rest if fold(part) not in words]
    if len(figures) != 1:
        listed = ", ".join(map(repr, figures)) or "none"
        raise NoAnswerError.because(f"expected one figure, got {listed}", EXAMPLES)
    figure = _find_figure(analysis, figures[0])
    _check(figures[0], figure, options, words)
    outcome = analyse(
        analysis,
        name,
        gpus=options.get("gpus"),
        batch_size=options.get("batch-size"),
        sequence_length=options.get("sequence-length"),
    )
    if figure.name not in PROPERTIES:
        return (gib if IN_GIB in words else gb)(_size(outcome, figure))
    value = PROPERTIES[figure.name](outcome)
    if not value:
        message = f"{figure.name!r} is not recorded for {name}"
        raise NoAnswerError.because(message, "record it in analysis.yaml")
    return value


def _check(text: str, figure: Figure, options: Mapping[str, int], words: set[str]) -> None:
    """Reject options and words without an effect on the figure."""
    if figure.name in PROPERTIES and IN_GIB in words:
        raise NoAnswerError.because(f"{figure.name!r} is not a size and has no unit", "remove the unit")
    if "gpus" in options and figure.step is None and figure.name != "GPUs":
        raise NoAnswerError.because(f"the number of GPUs does not change {text!r}", EXAMPLES)


def _assumption(analysis: Analysis, text: str) -> str:
    """Return a value that needs no model: an assumption, or the names of all models."""
    if fold(text) == fold(MODEL_NAMES):
        return ", ".join(analysis.specifications)
    for name, show in ASSUMPTIONS.items():
        if fold(name) == fold(text):
            return show(assumptions_of(analysis))
    hint = did_you_mean(text, [*ASSUMPTIONS, MODEL_NAMES])
    raise NoAnswerError.because(f"unknown figure {text!r}: write a model and a figure, {EXAMPLES}", hint)


def _options(parts: list[str]) -> tuple[dict[str, int], list[str]]:
    """Split the parts into options and others."""
    options: dict[str, int] = {}
    rest = []
    for part in parts:
        forms = ((name, re.fullmatch(form, part, re.IGNORECASE)) for name, form in OPTIONS.items())
        name, match = next(((name, match) for name, match in forms if match), ("", None))
        if match is None:
            rest.append(part)
            continue
        if name in options:
            raise NoAnswerError.because(f"{part!r}: given twice", "keep one of the two")
        if len(match[1]) > 20 or not 1 <= int(match[1]) <= LIMITS[name]:
            raise NoAnswerError.because(f"{part[:40]!r}: must be from 1 to {LIMITS[name]:,}")
        options[name] = int(match[1])
    return options, rest


def _find_figure(analysis: Analysis, text: str) -> Figure:
    for name, figure in _figures(analysis).items():
        if fold(name) == fold(text):
            return figure
    if fold(text) in map(fold, ASSUMPTIONS):
        raise NoAnswerError.because(f"{text!r} is an assumption shared by all models", "remove the model")
    after = re.search(r"\b(?:after|saved by) (.+)", text, re.IGNORECASE)
    steps = {fold(name): step.label for step in analysis.steps.values() for name in (step.name, step.label)}
    if after and fold(after[1]) not in steps:
        raise NoAnswerError.because(f"there is no step {after[1]!r}", did_you_mean(after[1], steps.values()))
    otherwise = f"write a component, total, per GPU, or 'after' or 'saved by' with a step, {EXAMPLES}"
    hint = suggest_or(text, [*SIZES, PER_GPU, *PROPERTIES], otherwise)
    raise NoAnswerError.because(f"there is no figure {text!r}", hint)


def _figures(analysis: Analysis) -> dict[str, Figure]:
    """Return all figures of a model, under each of their names."""
    sizes = {**SIZES, **{key: key for key in SIZES.values()}}
    figures = {PER_GPU: Figure(TOTAL, ""), **{name: Figure(name) for name in PROPERTIES}}
    figures |= {name: Figure(key) for name, key in sizes.items()}
    for step in analysis.steps.values():
        for label in (step.label, step.name):
            figures[f"saved by {label}"] = Figure(SAVED, step.name)
            figures[f"after {label}"] = Figure(TOTAL, step.name)
            figures |= {f"{name} after {label}": Figure(key, step.name) for name, key in sizes.items()}
    return figures


def _size(outcome: Outcome, figure: Figure) -> float:
    if figure.step is None:
        return figure_size(outcome.start, figure.name)
    if not figure.step:
        return outcome.end.total
    step = outcome.step(figure.step)
    return step.saved if figure.name == SAVED else figure_size(step.after, figure.name)
