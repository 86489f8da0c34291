"""The memory analysis: one sum of terms, then a chain of optimisations. A rule of thumb, in GB.

verl itself works phase by phase. Remarks in ``analysis.yaml`` describe the differences from this rule.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .analysis_records import LIMITS, STATE_COMPONENTS, STATES, TOTAL
from .breakdown import Breakdown, Category, Change, Component, Formula
from .diagnostics import NoAnswerError, did_you_mean, nearest, suggest_or
from .i18n import N_
from .records import fold, nearest_size
from .units import GB, MIB, gb, gib, short_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from .analysis_records import Analysis, Assumptions, Claim, Requirement, Step
    from .diagnostics import Code
    from .registries import Architecture

#: The names of the components for people.
LABELS = {
    "parameters": N_("Parameters"),
    "gradients": N_("Gradients"),
    "optimizer": N_("Optimizer states"),
    "activations": N_("Activations"),
    "kv-cache": N_("KV cache"),
    "overhead": N_("System overhead"),
}
#: The last line of a waterfall.
PER_GPU = "per-gpu"


@dataclass(frozen=True)
class ModelShape:
    """The numbers of a model that the formulas use. Counts, not bytes.

    Attributes:
        name: the model's name on pages.
        checkpoint: the Hugging Face name of the model with this shape; empty if given by numbers.
        attention_heads: the number of heads, 0 if not recorded; no formula uses it, nor the vocabulary.
        gpus: the default number of GPUs that share the model.
    """

    name: str
    checkpoint: str
    parameters: int
    hidden_size: int
    layers: int
    ffn_dimension: int
    attention_heads: int
    vocabulary_size: int
    gpus: int

    @property
    def implied_parameters(self) -> int:
        """The parameters of all layers: attention, and three matrices of the feed-forward part."""
        return self.layers * self.hidden_size * (4 * self.hidden_size + 3 * self.ffn_dimension)

    @property
    def stated_hidden_size(self) -> float:
        """The hidden size by the document's own rule, which its figures do not follow."""
        return math.sqrt(self.parameters / (12 * self.layers))


@dataclass(frozen=True)
class StepTaken:
    """One optimisation, and the memory of a GPU before and after it.

    Attributes:
        step: the recorded step.
        gpus: the number of GPUs, if it divides something among them.
    """

    step: Step
    gpus: int | None
    before: Breakdown
    after: Breakdown

    @property
    def saved(self) -> float:
        """The bytes that the step saves, never negative."""
        return self.before.total - self.after.total


@dataclass(frozen=True)
class Bar:
    """A line of the waterfall. Sizes are bytes.

    Attributes:
        label: its name for people; for a step, the recorded label.
        subject: the component or step; ``total`` for the sum, ``per-gpu`` for the rest after all steps.
        change: the bytes that the line adds, negative if it subtracts.
        running: the total up to and including this line.
        of: the component or the step; None for a sum.
    """

    label: str
    subject: str
    change: float
    running: float
    of: Component | StepTaken | None = None

    @property
    def shown(self) -> float:
        """The size that the line shows: a sum as a whole, anything else as a change."""
        return self.change if self.of else self.running


@dataclass(frozen=True)
class Outcome:
    """The analysis of one model.

    Attributes:
        shape: the model.
        gpus: the number of GPUs that share it.
        batch_size: the number of sequences.
        sequence_length: the tokens of each sequence.
        start: all components on one GPU.
        steps: the applied steps of the chain, in order.
    """

    shape: ModelShape
    gpus: int
    batch_size: int
    sequence_length: int
    start: Breakdown
    steps: tuple[StepTaken, ...]

    @property
    def end(self) -> Breakdown:
        """The memory of one GPU after all steps."""
        return self.steps[-1].after if self.steps else self.start

    def share_of_total(self, size: float) -> float:
        """Return bytes as a share of everything on one GPU; 0 if that is nothing."""
        return size / self.start.total if self.start.total else 0.0

    def waterfall(self) -> Iterator[Bar]:
        """Yield the lines, from the first component to the memory of one GPU."""
        running, total = 0.0, self.start.total
        for component in self.start.components:
            running += component.size
            yield Bar(component.label, component.key, component.size, running, component)
        yield Bar(N_("Total"), TOTAL, 0, total)
        for taken in self.steps:
            yield Bar(taken.step.label, taken.step.name, -taken.saved, taken.after.total, taken)
        if self.steps:
            yield Bar(N_("Per GPU"), PER_GPU, self.end.total - total, self.end.total)


def analyse(
    analysis: Analysis,
    name: str,
    gpus: int | None = None,
    batch_size: int | None = None,
    sequence_length: int | None = None,
    steps: Iterable[str] | None = None,
) -> Outcome:
    """Compute the components and the chain of a model.

    Args:
        analysis: the recorded analysis.
        name: a specification of the analysis, or a model of the registry.
        gpus: the number of GPUs that share the model; None for the recorded number.
        batch_size: the number of sequences; None for the assumed number.
        sequence_length: the tokens of each sequence; None for the assumed number.
        steps: the names of the optimisations, in order; None for all.

    Raises:
        NoAnswerError: the model or a step is unknown.
    """
    assumed, shape = assumptions_of(analysis), find_shape(analysis, name)
    gpus, batch_size = gpus or shape.gpus, batch_size or assumed.batch_size
    sequence_length = sequence_length or assumed.sequence_length
    start = Breakdown(tuple(_components(assumed, shape, batch_size, sequence_length)))
    taken: list[StepTaken] = []
    for step_name in analysis.steps if steps is None else steps:
        step = analysis.steps.get(step_name)
        if step is None:
            hint = did_you_mean(step_name, analysis.steps)
            raise NoAnswerError.because(f"there is no step {step_name!r}", hint)
        taken.append(_take(step, taken[-1].after if taken else start, gpus))
    return Outcome(shape, gpus, batch_size, sequence_length, start, tuple(taken))


def _components(assumed: Assumptions, shape: ModelShape, batch: int, sequence: int) -> Iterator[Component]:
    parameters = (("parameters", shape.parameters),)
    tokens = (("batch", batch), ("sequence", sequence))
    hidden, layers = ("hidden", shape.hidden_size), ("layers", shape.layers)
    # Category, variables, and constants; keys and values are the 2 of the KV cache.
    formulas: dict[str, tuple[Category, tuple[tuple[str, float], ...], list[tuple[float, str]]]] = {
        "parameters": (Category.WEIGHTS, parameters, [(assumed.parameter_bytes, "bytes")]),
        "gradients": (Category.GRADIENTS, parameters, [(assumed.gradient_bytes, "bytes")]),
        "optimizer": (
            Category.OPTIMIZER,
            parameters,
            [(assumed.optimizer_moments, "moments"), (assumed.optimizer_bytes, "bytes")],
        ),
        "activations": (
            Category.ACTIVATIONS,
            (*tokens, hidden, layers),
            [(assumed.activation_bytes, "bytes")],
        ),
        "kv-cache": (
            Category.ROLLOUT_ENGINE,
            (*tokens, layers, hidden),
            [(2, ""), (assumed.kv_cache_bytes, "bytes")],
        ),
        "overhead": (Category.RUNTIME_OVERHEAD, (("bytes per GPU", assumed.overhead_gb * GB),), []),
    }
    for key, (category, variables, constants) in formulas.items():
        yield Component(key, LABELS[key], category, Formula(variables, tuple(constants)), "assumed")


def _take(step: Step, before: Breakdown, gpus: int) -> StepTaken:
    if step.divide_by == "gpus":
        change = Change("÷", gpus, "GPUs")
    else:
        change = Change("÷", step.divide_by) if step.divide_by else Change("×", step.multiply_by or 1)
    after = Breakdown(
        tuple(item.changed(change) if item.key in step.components else item for item in before.components)
    )
    return StepTaken(step, gpus if change.symbol else None, before, after)


def assumptions_of(analysis: Analysis) -> Assumptions:
    """Return the assumptions behind all figures.

    Raises:
        NoAnswerError: an assumption is not recorded.
    """
    if analysis.assumptions is None:
        raise NoAnswerError.because("an assumption is missing in analysis.yaml", "see the build log")
    return analysis.assumptions


# -- models


def find_shape(analysis: Analysis, name: str) -> ModelShape:
    """Find a specification of the analysis, or a checkpoint by its full or short name.

    Raises:
        NoAnswerError: there is none.
    """
    assumed, known = assumptions_of(analysis), analysis.architectures
    spec = next((spec for spec in analysis.specifications.values() if fold(spec.name) == fold(name)), None)
    if spec and spec.model is None:
        return ModelShape(
            name=spec.name,
            checkpoint="",
            parameters=spec.parameters or 0,
            hidden_size=spec.hidden_size or 0,
            layers=spec.layers or 0,
            ffn_dimension=round(assumed.ffn_ratio * (spec.hidden_size or 0)),
            attention_heads=spec.attention_heads or 0,
            vocabulary_size=assumed.vocabulary_size,
            gpus=spec.gpus or assumed.gpus,
        )
    wanted = (spec and spec.model) or name
    entry: Architecture | None = known.get(wanted) or next(
        (entry for entry in known if fold(wanted) in {fold(entry.name), fold(entry.hf_id)}), None
    )
    if entry is None and spec:
        raise NoAnswerError.because(
            f"{wanted!r}, the model of {spec.name}, is not in architectures.yaml", "add it"
        )
    if entry is None:
        code: Code = "unknown_model" if "/" in name else "unknown_size"
        raise NoAnswerError.because(f"unknown model {name!r}", _other_model(analysis, name), code=code)
    own_name = name if name in entry.lookup_names else entry.name
    return ModelShape(
        name=spec.name if spec else own_name,
        checkpoint=wanted if spec else entry.hf_id,
        parameters=entry.parameters,
        hidden_size=entry.hidden_size,
        layers=entry.num_hidden_layers,
        ffn_dimension=entry.intermediate_size or 0,
        attention_heads=entry.num_attention_heads,
        vocabulary_size=entry.vocab_size,
        gpus=(spec and spec.gpus) or assumed.gpus,
    )


def _other_model(analysis: Analysis, name: str) -> str:
    listed = f"use one of {', '.join(analysis.specifications)}, or a checkpoint from architectures.yaml"
    if size := nearest_size(name, analysis.specifications):
        return f"the nearest is {size}; {listed}"
    near = nearest(name, [*analysis.specifications, *analysis.architectures.names])
    return f"did you mean {near!r}?" if near else listed


def own_models(analysis: Analysis) -> tuple[str, ...]:
    """Return the models with figures from the analysis itself, not from a checkpoint."""
    return tuple(name for name, entry in analysis.specifications.items() if entry.model is None)


def sharing_steps(analysis: Analysis) -> dict[str, Step]:
    """Return the steps that divide something among the GPUs."""
    return {name: step for name, step in analysis.steps.items() if step.divide_by == "gpus"}


def entry_of(entries: Mapping[str, Any], section: str, name: str) -> Any:
    """Return the entry of a section by its name, ignoring case.

    Raises:
        NoAnswerError: there is none.
    """
    for known, entry in entries.items():
        if known.casefold() == name.casefold():
            return entry
    message = f"{section!r} has no entry for {name!r}"
    raise NoAnswerError.because(message, did_you_mean(name, entries), code="unknown_size")


# -- the original requirement lists


@dataclass(frozen=True)
class JudgedClaim:
    """A claim about one GPU, and its judgement by the analysis. Sizes are bytes.

    Attributes:
        claim: the entry of the original list.
        gpu: the name of the GPU.
        limit: the part of its memory that may be used.
        per_gpu: the memory of a GPU with the claimed number, after all steps.
        counts: the number of GPUs by each derivation, None if no number is enough. ``chain``: the smallest
            power of two with which each GPU stays below the limit. ``pooled``: the smallest power of two
            whose GPUs together can hold the total. ``doubled``: twice the minimum in the lists.
        judgement: ``holds``, ``too few``, ``more than needed`` or ``never fits``, by the chain.
        deciding: a number of GPUs that shows why, and the memory of each GPU with it; None if one GPU is
            enough. ``holds``: half of the claimed number; ``more than needed``: the smallest sufficient
            number; otherwise the claimed number. For ``never fits``, the memory is the part that more GPUs do
            not reduce.
    """

    claim: Claim
    gpu: str
    limit: float
    per_gpu: float
    counts: Mapping[str, int | None]
    judgement: str
    deciding: tuple[int, float] | None

    @property
    def follows(self) -> tuple[str, ...]:
        """The derivations that give the claimed number of GPUs."""
        return tuple(name for name, number in self.counts.items() if number == self.claim.count)


def judge(analysis: Analysis, requirement: Requirement) -> list[JudgedClaim]:
    """Judge each claim about a model, for each GPU in it.

    Raises:
        NoAnswerError: the model or a GPU is unknown.
    """
    minimum = {claim.gpus: claim.count for claim in requirement.claims if claim.level == "minimum"}
    return [
        _judge(analysis, requirement.name, claim, gpu_name, minimum.get(claim.gpus))
        for claim in requirement.claims
        for gpu_name in claim.gpus
    ]


def _judge(analysis: Analysis, name: str, claim: Claim, gpu_name: str, minimum: int | None) -> JudgedClaim:
    def per_gpu(gpus: int) -> float:
        return analyse(analysis, name, gpus=gpus).end.total

    gpu, count = analysis.gpus.get(gpu_name), claim.count
    if gpu is None:
        message = f"unknown GPU {gpu_name!r} in the requirements of {name!r}"
        raise NoAnswerError.because(message, "add it to gpus.yaml")
    limit = assumptions_of(analysis).memory_limit * gpu.memory_mib * MIB
    smallest = smallest_count(analysis, name, limit)
    deciding: tuple[int, float] | None
    if smallest is None:
        judgement, deciding = "never fits", (count, _undivided(analysis, name))
    else:
        if per_gpu(count) >= limit:
            judgement, shown = "too few", count
        elif count > smallest:
            judgement, shown = "more than needed", smallest
        else:
            judgement, shown = "holds", smallest // 2
        deciding = (shown, per_gpu(shown)) if shown else None
    counts = {
        "chain": smallest,
        "pooled": power_of_two(analyse(analysis, name).start.total / limit),
        "doubled": 2 * minimum if minimum and claim.level != "minimum" else None,
    }
    return JudgedClaim(claim, gpu.name, limit, per_gpu(count), counts, judgement, deciding)


def _undivided(analysis: Analysis, name: str) -> float:
    """Return the bytes per GPU that more GPUs do not reduce, after all steps."""
    divided = {key for step in sharing_steps(analysis).values() for key in step.components}
    end = analyse(analysis, name).end
    return end.of(component.key for component in end.components if component.key not in divided)


def smallest_count(analysis: Analysis, name: str, limit: float) -> int | None:
    """Return the smallest power of two with which each GPU stays below ``limit`` bytes, after all steps.

    Return None if none up to 2^20 is enough.
    """
    counts = (1 << exponent for exponent in range(21))
    return next((count for count in counts if analyse(analysis, name, count).end.total < limit), None)


def power_of_two(number: float) -> int:
    """Return the smallest power of two that is at least ``number``, and at least 1."""
    return 1 << max(0, math.ceil(number) - 1).bit_length()


# -- figures by name

#: Assumptions, as text.
ASSUMPTIONS: dict[str, Callable[[Assumptions], str]] = {
    "batch size": lambda assumed: short_number(assumed.batch_size),
    "sequence length": lambda assumed: short_number(assumed.sequence_length),
    "vocabulary size": lambda assumed: short_number(assumed.vocabulary_size),
    "system overhead": lambda assumed: gb(assumed.overhead_gb * GB),
    "FFN ratio": lambda assumed: short_number(assumed.ffn_ratio),
    "memory limit": lambda assumed: f"{short_number(assumed.memory_limit * 100)} %",
    "GPUs": lambda assumed: short_number(assumed.gpus),
}
#: Properties of the model and of the outcome, as text.
PROPERTIES: dict[str, Callable[[Outcome], str]] = {
    "number of parameters": lambda outcome: short_number(outcome.shape.parameters),
    "hidden size": lambda outcome: short_number(outcome.shape.hidden_size),
    "stated hidden size": lambda outcome: short_number(round(outcome.shape.stated_hidden_size)),
    "layers": lambda outcome: short_number(outcome.shape.layers),
    "FFN dimension": lambda outcome: short_number(outcome.shape.ffn_dimension),
    "GPUs": lambda outcome: short_number(outcome.gpus),
    "checkpoint": lambda outcome: outcome.shape.checkpoint,
}
#: Sizes by name, each with its components.
SIZES: dict[str, tuple[str, ...]] = {
    **{name: (key,) for key, label in LABELS.items() for name in (label, key)},
    "model states": STATE_COMPONENTS,
    STATES: STATE_COMPONENTS,
    TOTAL: tuple(LABELS),
}
MODEL_NAMES = "model names"
#: The options of a figure, each with its form between model and figure.
OPTIONS = {
    "gpus": r"([0-9]+) GPUs?",
    "batch-size": r"batch(?: size)? ([0-9]+)",
    "sequence-length": r"sequence(?: length)? ([0-9]+)",
}
_UNITS = {fold("in GB"): gb, fold("in GiB"): gib}
EXAMPLES = "for example '8B, after FSDP', '3B, KV cache' or 'batch size'"


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
    units = [_UNITS[fold(part)] for part in rest if fold(part) in _UNITS]
    asked = [part for part in rest if fold(part) not in _UNITS]
    if len(asked) != 1:
        listed = ", ".join(map(repr, asked)) or "none"
        raise NoAnswerError.because(f"expected one figure, got {listed}", EXAMPLES)
    figures = _figures(analysis)
    known = {fold(figure): figure for figure in figures}.get(fold(asked[0]), "")
    if not known:
        _refuse(analysis, asked[0], figures)
    if "gpus" in options and known in {*PROPERTIES, *SIZES} - {"GPUs"}:
        raise NoAnswerError.because(f"the number of GPUs does not change {asked[0]!r}", EXAMPLES)
    gpus, batch_size, sequence_length = map(options.get, OPTIONS)
    outcome = analyse(analysis, name, gpus, batch_size, sequence_length)
    value = figures[known](outcome)
    if isinstance(value, float):
        return units[-1](value) if units else gb(value)
    if gib in units:
        raise NoAnswerError.because(f"{known!r} is not a size and has no unit", "remove the unit")
    if not value:
        message = f"{known!r} is not recorded for {name}"
        raise NoAnswerError.because(message, "record it in analysis.yaml")
    return value


def _figures(analysis: Analysis) -> dict[str, Callable[[Outcome], str | float]]:
    """Return all figures of a model, under each of their names: bytes, or text."""
    figures: dict[str, Callable[[Outcome], str | float]] = {
        **{name: lambda outcome, keys=keys: outcome.start.of(keys) for name, keys in SIZES.items()},  # type: ignore[misc]
        "per GPU": lambda outcome: outcome.end.total,
        **PROPERTIES,
    }

    def add(label: str, place: int) -> None:
        figures[f"saved by {label}"] = lambda outcome: outcome.steps[place].saved
        figures[f"after {label}"] = lambda outcome: outcome.steps[place].after.total
        for name, keys in SIZES.items():
            figures[f"{name} after {label}"] = lambda outcome, keys=keys: outcome.steps[place].after.of(keys)  # type: ignore[misc]

    for place, step in enumerate(analysis.steps.values()):
        add(step.label, place)
        add(step.name, place)
    return figures


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


def _refuse(analysis: Analysis, text: str, figures: Iterable[str]) -> None:
    """Raise the error about an unknown figure of a model."""
    if fold(text) in map(fold, ASSUMPTIONS):
        raise NoAnswerError.because(f"{text!r} is an assumption shared by all models", "remove the model")
    after = re.search(r"\b(?:after|saved by) (.+)", text, re.IGNORECASE)
    steps = {fold(name): step.label for step in analysis.steps.values() for name in (step.name, step.label)}
    if after and fold(after[1]) not in steps:
        raise NoAnswerError.because(f"there is no step {after[1]!r}", did_you_mean(after[1], steps.values()))
    otherwise = f"write a component, total, per GPU, or 'after' or 'saved by' with a step, {EXAMPLES}"
    names = [name for name in figures if not re.search(r"after |saved by ", name)]
    raise NoAnswerError.because(f"there is no figure {text!r}", suggest_or(text, names, otherwise))
