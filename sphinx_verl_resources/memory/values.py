"""A single figure of the analysis, asked for in words: ``8B, after FSDP``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..catalog.names import COMPONENTS, STATES, TOTAL, fold
from ..diagnostics import did_you_mean
from ..units import GB, gb, gib, plain
from .analysis import LABELS, Outcome, analyse, figure_size
from .shapes import AnalysisError, assumptions_of, entry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..catalog.analysis import Analysis
    from ..catalog.models.analysis import Assumptions

#: Assumptions as prose shows them.
ASSUMPTIONS: dict[str, Callable[[Assumptions], str]] = {
    "batch size": lambda assumed: plain(assumed.batch_size),
    "sequence length": lambda assumed: plain(assumed.sequence_length),
    "vocabulary size": lambda assumed: plain(assumed.vocabulary_size),
    "system overhead": lambda assumed: gb(assumed.overhead_gb * GB),
    "ffn ratio": lambda assumed: plain(assumed.ffn_ratio),
    "memory limit": lambda assumed: f"{plain(assumed.memory_limit * 100)} %",
}
#: Properties of the model and of the outcome.
PROPERTIES: dict[str, Callable[[Outcome], str]] = {
    "number of parameters": lambda outcome: plain(outcome.shape.parameters),
    "hidden size": lambda outcome: plain(outcome.shape.hidden_size),
    "stated hidden size": lambda outcome: plain(round(outcome.shape.stated_hidden_size)),
    "layers": lambda outcome: plain(outcome.shape.layers),
    "ffn dimension": lambda outcome: plain(outcome.shape.ffn_dimension),
    "gpus": lambda outcome: plain(outcome.gpus),
}
#: Sizes, by what people call them; behind "after" and a step, the size after it.
FIGURES = {
    **{fold(LABELS[key]): key for key in COMPONENTS},
    **{fold(key): key for key in COMPONENTS},
    fold("model states"): STATES,
    STATES: STATES,
    TOTAL: TOTAL,
}
EXAMPLES = "for example '8B, after FSDP', '3B, KV cache' or 'batch size'"


@dataclass(frozen=True)
class _Words:
    """What the parts behind the model's name say."""

    options: Mapping[str, int]
    figure: str
    in_gib: bool
    printed: bool


def value_text(analysis: Analysis, text: str) -> str:
    """The figure that ``text`` names, with its unit.

    The text is a model and a figure, with commas between its parts, or an assumption alone. Between the two
    there can be numbers of GPUs and sequences (``8B, 16 GPUs, after FSDP``), behind them ``in GiB`` or
    ``printed``.

    Raises:
        AnalysisError: the text names nothing that is known.
    """
    parts = [" ".join(part.split()) for part in text.split(",")]
    if len(parts) == 1:
        known = {fold(name): show for name, show in ASSUMPTIONS.items()}
        if fold(parts[0]) in known:
            return known[fold(parts[0])](assumptions_of(analysis))
        near = did_you_mean(parts[0], ASSUMPTIONS)
        raise AnalysisError(f"{text!r} names no figure: a model and a figure, {EXAMPLES}; {near}")
    name, words = parts[0], _read(parts[1:])
    if words.printed:
        return _printed(analysis, name, words)
    options = words.options
    outcome = analyse(
        analysis,
        name,
        gpus=options.get("gpus"),
        batch_size=options.get("batch_size"),
        sequence_length=options.get("sequence_length"),
    )
    known_properties = {fold(key): show for key, show in PROPERTIES.items()}
    if fold(words.figure) in known_properties:
        return known_properties[fold(words.figure)](outcome)
    return (gib if words.in_gib else gb)(_size(analysis, outcome, words.figure))


def _read(parts: list[str]) -> _Words:
    options: dict[str, int] = {}
    figures: list[str] = []
    flags: set[str] = set()
    patterns = {
        "gpus": r"(\d{1,9}) GPUs?",
        "batch_size": r"batch(?: size)? (\d{1,9})",
        "sequence_length": r"sequence(?: length)? (\d{1,9})",
    }
    for part in parts:
        found = {
            name: match[1]
            for name, pattern in patterns.items()
            if (match := re.fullmatch(pattern, part, re.IGNORECASE))
        }
        if found:
            ((name, number),) = found.items()
            if name in options:
                raise AnalysisError(f"{part!r}: said twice")
            if int(number) == 0:
                raise AnalysisError(f"{part!r}: must be at least 1")
            options[name] = int(number)
        elif part.casefold() in {"in gib", "printed"}:
            flags.add(part.casefold())
        else:
            figures.append(part)
    if len(figures) != 1:
        listed = ", ".join(repr(figure) for figure in figures) or "none"
        raise AnalysisError(f"name one figure, got {listed}; {EXAMPLES}")
    if "printed" in flags and (options or "in gib" in flags):
        raise AnalysisError("what was printed does not depend on options, and is in GB")
    return _Words(options, figures[0], "in gib" in flags, "printed" in flags)


def _size(analysis: Analysis, outcome: Outcome, figure: str) -> float:
    saved = re.fullmatch(r"saved by (.+)", figure, re.IGNORECASE)
    if saved:
        step = _step(analysis, saved[1])
        return next(taken.saved for taken in outcome.steps if taken.name == step)
    name, after, step_name = figure.rpartition("after ")
    if after:
        return figure_size(outcome.after(_step(analysis, step_name)), _figure(name.strip() or TOTAL))
    if fold(figure) == fold("per GPU"):
        return outcome.end.total
    return figure_size(outcome.start, _figure(figure))


def _figure(text: str) -> str:
    if fold(text) not in FIGURES:
        names = [*(label.lower() for label in LABELS.values()), "model states", TOTAL, "per GPU", *PROPERTIES]
        steps = "or a figure 'after' a step, or 'saved by' one"
        raise AnalysisError(f"there is no figure {text!r}; {did_you_mean(text, names)}, {steps}")
    return FIGURES[fold(text)]


def _step(analysis: Analysis, text: str) -> str:
    for step in analysis.steps.values():
        if fold(text) in {fold(step.name), fold(step.label)}:
            return step.name
    labels = [step.label for step in analysis.steps.values()]
    raise AnalysisError(f"there is no step {text!r}; {did_you_mean(text, labels)}")


def _printed(analysis: Analysis, name: str, words: _Words) -> str:
    printed = entry_of(analysis, "printed", name)
    figure, after, step_name = words.figure.rpartition("after ")
    if fold(words.figure) in {fold("hidden size"), fold("ffn dimension")}:
        wanted = fold(words.figure)
    else:
        step = f"{_step(analysis, step_name)}." if after else ""
        wanted = fold(step + _figure((figure if after else words.figure).strip() or TOTAL))
    for item in printed.figures:
        if fold(item.figure) == wanted:
            is_count = wanted in {fold("hidden size"), fold("ffn dimension")}
            return plain(item.value) if is_count else gb(item.value * GB)
    raise AnalysisError(f"{words.figure!r} was not printed for {name}")
