"""The memory analysis: one sum of terms, then a chain of optimisations. A rule of thumb, in GB.

verl itself works phase by phase. Remarks in ``analysis.yaml`` describe the differences from this rule.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .diagnostics import NoAnswerError, did_you_mean
from .i18n import N_, _, plural
from .records import fold
from .registries import LIMITS, STATE_COMPONENTS, TOTAL
from .selection import whole_number
from .units import GB, MIB, Breakdown, Category, Component, Factor, gb, gib, short_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .diagnostics import Code
    from .registries import Analysis, Assumptions, Claim, Requirement, Step

#: The components: name, name inside a sentence, and use.
COMPONENTS = {
    "parameters": (N_("Parameters"), N_("parameters"), Category.WEIGHTS),
    "gradients": (N_("Gradients"), N_("gradients"), Category.GRADIENTS),
    "optimizer": (N_("Optimizer states"), N_("optimizer states"), Category.OPTIMIZER),
    "activations": (N_("Activations"), N_("activations"), Category.ACTIVATIONS),
    "kv-cache": (N_("KV cache"), N_("KV cache"), Category.ROLLOUT_ENGINE),
    "overhead": (N_("System overhead"), N_("system overhead"), Category.RUNTIME_OVERHEAD),
}
#: The sum of the states of the model, as a figure.
STATES = "states"
#: The last line of a waterfall.
PER_GPU = "per-gpu"


class ModelShape(NamedTuple):
    """The numbers of a model. Counts, not bytes.

    Attributes:
        name: its name on pages.
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


class Line(NamedTuple):
    """A line of the analysis: a component, a step or a sum. Sizes are bytes.

    Attributes:
        subject: the component or step; ``total`` for the sum, ``per-gpu`` for the rest after all steps.
        label: its displayed name.
        change: the bytes that the line adds, negative if it subtracts.
        now: all components up to and including this line.
        parts: the components that the line adds or changes; none for a sum.
        step: the recorded step, if it is one.
    """

    subject: str
    label: str
    change: float
    now: Breakdown
    parts: tuple[Component, ...] = ()
    step: Step | None = None


@dataclass(frozen=True)
class Outcome:
    """The analysis of one model.

    Attributes:
        shape: the model.
        gpus: the number of GPUs that share it.
        batch_size: the number of sequences.
        sequence_length: the tokens of each sequence.
        start: all components on one GPU.
        lines: the components, their total, the applied steps in order, and the memory of one GPU.
    """

    shape: ModelShape
    gpus: int
    batch_size: int
    sequence_length: int
    start: Breakdown
    lines: tuple[Line, ...]

    @property
    def end(self) -> Breakdown:
        """The memory of one GPU after all steps."""
        return self.lines[-1].now

    @property
    def steps(self) -> tuple[Line, ...]:
        """The lines of the applied steps."""
        return tuple(line for line in self.lines if line.step)


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
    lines: list[Line] = []
    now = Breakdown(())
    for key, factors in _formulas(assumed, shape, batch_size, sequence_length).items():
        label, _inside, category = COMPONENTS[key]
        part = Component(key, label, category, factors, "assumed")
        now = Breakdown((*now.components, part))
        lines.append(Line(key, _(label), part.size, now, (part,)))
    start = now
    lines.append(Line(TOTAL, _("Total"), 0, start))
    for step_name in analysis.steps if steps is None else steps:
        step = analysis.steps.get(step_name)
        if step is None:
            hint = did_you_mean(step_name, analysis.steps)
            raise NoAnswerError.because(f"there is no step {step_name!r}", hint, key=":steps")
        label = step.label
        if step.divide_by == "gpus":
            factor = Factor("GPUs", gpus, "÷")
            over = plural("{step} over {count} GPU", "{step} over {count} GPUs", gpus)
            label = over.format(step=label, count=gpus)
        elif step.divide_by:
            factor = Factor(short_number(step.divide_by), step.divide_by, "÷")
        else:
            factor = Factor(short_number(step.multiply_by or 1), step.multiply_by or 1)
        before, keys = now, step.components
        now = Breakdown(tuple(part.changed(factor) if part.key in keys else part for part in now.components))
        parts = tuple(part for part in now.components if part.key in keys)
        lines.append(Line(step.name, label, now.total - before.total, now, parts, step))
    if now is not start:
        lines.append(Line(PER_GPU, _("Per GPU"), now.total - start.total, now))
    return Outcome(shape, gpus, batch_size, sequence_length, start, tuple(lines))


def _formulas(
    assumed: Assumptions, shape: ModelShape, batch_size: int, sequence_length: int
) -> dict[str, tuple[Factor, ...]]:
    """Return the formula of each component."""
    parameters, hidden = Factor("parameters", shape.parameters), Factor("hidden", shape.hidden_size)
    tokens = (Factor("batch", batch_size), Factor("sequence", sequence_length))
    layers, moments = Factor("layers", shape.layers), assumed.optimizer_moments

    def each(size: float, times: int = 1, unit: str = "") -> Factor:
        return Factor(f"{unit}{short_number(size)} bytes", times * size)

    return {
        "parameters": (parameters, each(assumed.parameter_bytes)),
        "gradients": (parameters, each(assumed.gradient_bytes)),
        "optimizer": (parameters, each(assumed.optimizer_bytes, moments, f"{moments} moments × ")),
        "activations": (*tokens, hidden, layers, each(assumed.activation_bytes)),
        "kv-cache": (*tokens, layers, hidden, each(assumed.kv_cache_bytes, 2, "2 × ")),  # keys and values
        "overhead": (Factor("bytes per GPU", assumed.overhead_gb * GB),),
    }


def assumptions_of(analysis: Analysis) -> Assumptions:
    """Return the assumptions behind all figures.

    Raises:
        NoAnswerError: an assumption is not recorded.
    """
    if analysis.assumptions is None:
        raise NoAnswerError.because("an assumption is missing in analysis.yaml", "see the build log")
    return analysis.assumptions


def find_shape(analysis: Analysis, name: str) -> ModelShape:
    """Find a specification of the analysis, or a checkpoint by its full or short name.

    Raises:
        NoAnswerError: there is none.
    """
    assumed, known = assumptions_of(analysis), analysis.architectures
    spec = next((spec for spec in analysis.specifications.values() if fold(spec.name) == fold(name)), None)
    gpus = (spec and spec.gpus) or assumed.gpus
    if spec and spec.model is None:
        hidden, heads = spec.hidden_size or 0, spec.attention_heads or 0
        numbers = (spec.parameters or 0, hidden, spec.layers or 0, round(assumed.ffn_ratio * hidden), heads)
        return ModelShape(spec.name, "", *numbers, assumed.vocabulary_size, gpus)
    wanted = spec.model if spec and spec.model else name
    entry = known.get(wanted) or next((entry for entry in known if fold(entry.name) == fold(wanted)), None)
    if entry is None:
        listed = f"use one of {', '.join(analysis.specifications)}, or a checkpoint from architectures.yaml"
        hint = did_you_mean(wanted, [*analysis.specifications, *known.names], listed)
        code: Code = "unknown_model" if "/" in wanted else "unknown_size"
        raise NoAnswerError.because(f"unknown model {wanted!r}", hint, code=code)
    of_layers = (entry.num_hidden_layers, entry.intermediate_size or 0, entry.num_attention_heads)
    names = (spec.name, wanted) if spec else (name, entry.hf_id)
    return ModelShape(*names, entry.parameters, entry.hidden_size, *of_layers, entry.vocab_size, gpus)


# -- the original requirement lists


class JudgedClaim(NamedTuple):
    """A claim about one GPU, and its judgement by the analysis. Sizes are bytes.

    Attributes:
        claim: the entry of the original list.
        gpu: the name of the GPU.
        limit: the part of its memory that may be used.
        per_gpu: the memory of a GPU with the claimed number, after all steps.
        chain: the smallest power of two with which each GPU stays below the limit; None if none is enough.
        pooled: the smallest power of two whose GPUs together can hold the total.
        same: the derivations that give the claimed number.
        judgement: ``holds``, ``too few``, ``more than needed`` or ``never fits``, by the chain.
        reason: why, with the two values below.
        gpus: a number of GPUs that shows why; 0 if one GPU is enough.
        size: the memory of each of these GPUs.
    """

    claim: Claim
    gpu: str
    limit: float
    per_gpu: float
    chain: int | None
    pooled: int | None
    same: list[str]
    judgement: str
    reason: str
    gpus: int
    size: float


def judge(analysis: Analysis, requirement: Requirement) -> list[JudgedClaim]:
    """Judge each claim about a model, for each GPU in it.

    Raises:
        NoAnswerError: the model or a GPU is unknown.
    """
    name, claims = requirement.name, requirement.claims
    minimum = {claim.gpus: claim.count for claim in claims if claim.level == "minimum"}
    powers = [1 << exponent for exponent in range(21)]
    numbers = (*powers, *(claim.count for claim in claims))
    sizes = {number: analyse(analysis, name, number).end.total for number in numbers}
    total, judged = analyse(analysis, name).start.total, []
    for claim, gpu_name in ((item, gpu_name) for item in claims for gpu_name in item.gpus):
        count, gpu = claim.count, analysis.gpus.get(gpu_name)
        if gpu is None:
            message = f"unknown GPU {gpu_name!r} in the requirements of {name!r}"
            raise NoAnswerError.because(message, "add it to gpus.yaml")
        limit = assumptions_of(analysis).memory_limit * gpu.memory_mib * MIB
        chain = next((number for number in powers if sizes[number] < limit), None)
        pooled = next((number for number in powers if number * limit >= total), None)
        doubled = None if claim.level == "minimum" else 2 * minimum.get(claim.gpus, 0)
        if chain is None:
            verdict, reason, gpus = N_("never fits"), N_("{verdict}: {size} stay on each GPU"), powers[-1]
        elif sizes[count] >= limit:
            verdict, reason, gpus = N_("too few"), N_("{verdict}: they need {size} each"), count
        else:
            reason = N_("{verdict}: {gpus} would need {size} each")
            verdict, gpus = (N_("more than needed"), chain) if count > chain else (N_("holds"), chain // 2)
        derived = {N_("the chain"): chain, N_("the pool"): pooled, N_("twice the minimum"): doubled}
        same = [way for way, number in derived.items() if number == count]
        why = (verdict, reason, gpus, sizes.get(gpus, 0.0))
        judged.append(JudgedClaim(claim, gpu.name, limit, sizes[count], chain, pooled, same, *why))
    return judged


# -- figures by name

#: Sizes by name, each with its components.
SIZES: Mapping[str, tuple[str, ...]] = {
    **{name: (key,) for key, (label, *_rest) in COMPONENTS.items() for name in (label, key)},
    "model states": STATE_COMPONENTS,
    STATES: STATE_COMPONENTS,
    TOTAL: tuple(COMPONENTS),
}
#: The options between model and figure, with the names in ``LIMITS``.
_OPTIONS = {
    "gpus": r"\d+ GPUs?",
    "batch-size": r"batch( size)? \d+",
    "sequence-length": r"sequence( length)? \d+",
}
EXAMPLES = "for example '8B, after FSDP', '3B, KV cache' or 'batch size'"


def value_text(analysis: Analysis, text: str) -> str:
    """Return a figure with its unit, for a text such as ``8B, after FSDP``.

    The text is an assumption, or a model and a figure, separated by a comma. Options go between the two
    (``8B, 16 GPUs, after FSDP``), and ``in GiB`` after them.

    Raises:
        NoAnswerError: the figure is unknown.
    """
    name, *parts = (" ".join(part.split()) for part in text.split(","))
    options: dict[str, int] = {}
    asked, write = [], gb
    for part in parts:
        forms = _OPTIONS.items()
        option = next((name for name, form in forms if re.fullmatch(form, part, re.IGNORECASE)), "")
        if option and option not in options:
            options[option] = whole_number(re.sub(r"\D", "", part), LIMITS[option])
        elif part.casefold() == "in gib":
            write = gib
        else:
            asked.append(part)
    if parts:
        gpus, batch_size, sequence_length = map(options.get, LIMITS)
        figures = _figures(analyse(analysis, name, gpus, batch_size, sequence_length))
        figure = ", ".join(asked)
    else:
        assumed, figure = assumptions_of(analysis), name
        figures = _numbers(dict(assumed)) | {
            "system overhead": assumed.overhead_gb * GB,
            "memory limit": f"{short_number(assumed.memory_limit * 100)} %",
            "model names": ", ".join(analysis.specifications),
        }
    value = {fold(known): value for known, value in figures.items()}.get(fold(figure))
    if value is None:
        hint = did_you_mean(figure, figures, f"write a model and a figure, {EXAMPLES}")
        raise NoAnswerError.because(f"there is no figure {figure!r}", hint)
    if isinstance(value, float):
        return write(value)
    if write is gib or not value:
        problem = f"is not recorded for {name}" if write is gb else "is not a size and has no unit"
        raise NoAnswerError.because(f"{figure!r} {problem}")
    return value


def _numbers(fields: Mapping[str, Any]) -> dict[str, str | float]:
    """Return fields as text, by names with spaces."""
    return {
        name.replace("_", " "): value if isinstance(value, str) else short_number(value)
        for name, value in fields.items()
    }


def _figures(outcome: Outcome) -> dict[str, str | float]:
    """Return all figures of a model, under each of their names: bytes, or text."""
    figures = _numbers({**outcome.shape._asdict(), "gpus": outcome.gpus})
    figures["number of parameters"] = short_number(outcome.shape.parameters)
    figures["per GPU"] = outcome.end.total
    figures |= {name: outcome.start.of(keys) for name, keys in SIZES.items()}
    for line in outcome.lines:
        for step in (line.step.name, line.step.label) if line.step else ():
            figures[f"saved by {step}"] = -line.change
            figures[f"after {step}"] = line.now.total
            figures |= {f"{name} after {step}": line.now.of(keys) for name, keys in SIZES.items()}
    return figures
