"""The memory analysis: one sum of terms, then a chain of optimisations. A rule of thumb, in GB.

verl itself works phase by phase. Remarks in ``analysis.yaml`` describe the differences from this rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .diagnostics import Code, NoAnswerError, did_you_mean
from .i18n import N_, _
from .records import fold
from .registries import LIMITS, TOTAL, Analysis, Assumptions, Step
from .selection import whole_number
from .units import GB, Breakdown, Category, Component, Factor, gb, gib, short_number

#: The numbers behind the figures of a model, and their displayed names.
NUMBERS = {
    "number-of-parameters": N_("Number of parameters"),
    "layers": N_("Layers"),
    "hidden-size": N_("Hidden size"),
    "ffn-dimension": N_("FFN dimension"),
    "attention-heads": N_("Attention heads"),
    "vocabulary-size": N_("Vocabulary size"),
    "batch-size": N_("Batch size"),
    "sequence-length": N_("Sequence length"),
    "gpus": N_("GPUs"),
}
#: Factors of several formulas.
_COUNT, _ELEMENTS = "number-of-parameters", ("batch-size", "sequence-length", "layers", "hidden-size")
#: The components: name, use, and the factors whose product is their bytes, see ``_factors``.
COMPONENTS = {
    "parameters": (N_("Parameters"), Category.WEIGHTS, (_COUNT, "parameter_bytes")),
    "gradients": (N_("Gradients"), Category.GRADIENTS, (_COUNT, "gradient_bytes")),
    "optimizer": (N_("Optimizer states"), Category.OPTIMIZER, (_COUNT, "moments", "optimizer_bytes")),
    "activations": (N_("Activations"), Category.ACTIVATIONS, (*_ELEMENTS, "activation_bytes")),
    "kv-cache": (N_("KV cache"), Category.ROLLOUT_ENGINE, (*_ELEMENTS, "key and value", "kv_cache_bytes")),
    "overhead": (N_("System overhead"), Category.RUNTIME_OVERHEAD, ("overhead",)),
}
#: The last line of a waterfall.
PER_GPU = "per-gpu"


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


class Outcome(NamedTuple):
    """The analysis of one model.

    Attributes:
        name: the name of the model on pages.
        checkpoint: the Hugging Face name of the model; empty if the analysis itself has its numbers.
        numbers: the numbers by their names in ``NUMBERS``; 0 if not recorded.
        start: all components on one GPU.
        end: the memory of one GPU after all steps.
        lines: the components, their total, the applied steps in order, and the memory of one GPU.
    """

    name: str
    checkpoint: str
    numbers: Mapping[str, int]
    start: Breakdown
    end: Breakdown
    lines: Sequence[Line]


def analyse(
    analysis: Analysis, name: str, limits: Mapping[str, int] | None = None, steps: Iterable[str] | None = None
) -> Outcome:
    """Compute the components and the chain of a model.

    Args:
        analysis: the recorded analysis.
        name: a specification of the analysis, or a model of the registry.
        limits: numbers by their names in ``LIMITS``, instead of the recorded ones.
        steps: the names of the optimisations, in order; None for all.

    Raises:
        NoAnswerError: the model or a step is unknown.
    """
    title, checkpoint, recorded = _model(analysis, name)
    numbers = {**recorded, **(limits or {})}
    factors, lines, now = _factors(analysis.assumptions, numbers), list[Line](), Breakdown(())
    for key, (label, category, names) in COMPONENTS.items():
        part = Component(key, label, category, tuple(factors[factor] for factor in names), "assumed")
        now = Breakdown((*now.components, part))
        lines.append(Line(key, _(label), part.size, now, (part,)))
    start = now
    lines.append(Line(TOTAL, _("Total"), 0, start))
    for step_name in analysis.steps if steps is None else steps:
        step = analysis.steps.get(step_name)
        if step is None:
            hint = did_you_mean(step_name, analysis.steps)
            raise NoAnswerError.because(f"there is no step {step_name!r}", hint, key=":steps")
        by = step.divide_by or step.multiply_by or 1
        symbol, value = ("GPUs", numbers["gpus"]) if by == "gpus" else (short_number(by), by)
        factor, before = Factor(symbol, value, "÷" if step.divide_by else "×"), now
        old = {part.key: part for part in now.components}
        new: dict[str, Component] = {key: old[key].changed(factor) for key in step.components}
        now = Breakdown((*(old | new).values(),))
        lines.append(Line(step.name, step.label, now.total - before.total, now, (*new.values(),), step))
    lines.append(Line(PER_GPU, _("Per GPU"), now.total - start.total, now))
    return Outcome(title, checkpoint, numbers, start, now, lines)


def _factors(assumed: Assumptions, numbers: Mapping[str, int]) -> dict[str, Factor]:
    """Return the factors of all formulas by the names in ``COMPONENTS``."""
    moments = assumed.optimizer_moments
    return {
        **{name: Factor(name.replace("-", " "), number) for name, number in numbers.items()},
        **{key: Factor(f"{short_number(size)} bytes", size) for key, size in assumed if "_bytes" in key},
        "moments": Factor(f"{moments} moments", moments),
        "key and value": Factor("2", 2),
        "overhead": Factor("bytes per GPU", assumed.overhead_gb * GB),
    }


def require_complete(analysis: Analysis) -> None:
    """Raise an error if an assumption or the commit of verl is missing, because of errors in the file."""
    if not (analysis.assumptions and analysis.verl):
        raise NoAnswerError.because(
            "analysis.yaml has errors in its assumptions or verl", "see the build log"
        )


def assumption_texts(analysis: Analysis) -> dict[str, str]:
    """Return the figures that need no model, among them each assumption by the name of its field."""
    assumed = analysis.assumptions
    return {
        **{name: value if isinstance(value, str) else short_number(value) for name, value in assumed},
        "system_overhead": gb(assumed.overhead_gb * GB),
        "memory_limit": f"{short_number(assumed.memory_limit * 100)} %",
        "model_names": ", ".join(analysis.specifications),
    }


def _model(analysis: Analysis, name: str) -> tuple[str, str, dict[str, int]]:
    """Find a specification, or a checkpoint by its full or short name; return name, checkpoint and numbers.

    Raises:
        NoAnswerError: there is none.
    """
    assumed, models = analysis.assumptions, analysis.architectures
    spec = next((spec for spec in analysis.specifications.values() if fold(spec.name) == fold(name)), None)
    if spec and spec.hidden_size:
        ffn, heads = round(assumed.ffn_ratio * spec.hidden_size), spec.attention_heads
        shape: tuple[int | None, ...] = (spec.parameters, spec.layers, spec.hidden_size, ffn, heads)
        checkpoint, vocabulary = "", assumed.vocabulary_size
    else:
        model = (spec and spec.model) or name
        entry = models.get(model) or next((item for item in models if fold(item.name) == fold(model)), None)
        if entry is None:
            hint = f"use one of {', '.join(analysis.specifications)}, or a checkpoint of architectures.yaml"
            hint = did_you_mean(model, [*analysis.specifications, *models.names], hint)
            code: Code = "unknown_model" if "/" in model else "unknown_size"
            raise NoAnswerError.because(f"unknown model {model!r}", hint, code=code)
        layers, heads = entry.num_hidden_layers, entry.num_attention_heads
        shape = (entry.parameters, layers, entry.hidden_size, entry.intermediate_size, heads)
        checkpoint, vocabulary = entry.hf_id, entry.vocab_size
    gpus = (spec and spec.gpus) or assumed.gpus
    counts = (*shape, vocabulary, assumed.batch_size, assumed.sequence_length, gpus)
    numbers = {name: number or 0 for name, number in zip(NUMBERS, counts, strict=True)}
    return spec.name if spec else name, checkpoint, numbers


# -- the original requirement lists

#: The numbers of GPUs that claims are compared with.
POWERS = tuple(1 << exponent for exponent in range(21))


def verdict(sizes: Mapping[int, float], count: int, limit: float) -> tuple[int, str]:
    """Judge a number of GPUs; return the smallest power of two that is enough, or 0, and the verdict.

    Args:
        sizes: the bytes per GPU, for each of ``POWERS`` and for ``count``.
        count: the number to judge.
        limit: the bytes that each GPU must stay below.
    """
    enough = next((power for power in POWERS if sizes[power] < limit), 0)
    if not enough:
        judgement, gpus = _("never fits"), POWERS[-1]
    elif sizes[count] >= limit:
        judgement, gpus = _("too few"), count
    elif count > enough:
        judgement, gpus = _("more than needed"), enough
    else:
        judgement, gpus = _("holds"), max(enough // 2, 1)
    reason = _("{verdict}: {gpus} would need {size} each")
    return enough, reason.format(verdict=judgement, gpus=short_number(gpus), size=gb(sizes[gpus]))


# -- figures by name

#: The spellings of the options between model and figure, with the names in ``LIMITS``.
_OPTIONS = {
    "gpus": r"\d+ GPUs?",
    "batch-size": r"batch size \d+",
    "sequence-length": r"sequence length \d+",
}


def value_text(analysis: Analysis, text: str) -> str:
    """Return a figure with its unit, for a text such as ``8B, after FSDP``.

    The text is an assumption, or a model and a figure, separated by a comma. Options go between the two
    (``8B, 16 GPUs, after FSDP``), and ``in GiB`` after them.

    Raises:
        NoAnswerError: the figure is unknown.
    """
    require_complete(analysis)
    name, *parts = (" ".join(part.split()) for part in text.split(","))
    limits, words, in_gib = dict[str, int](), list[str](), False
    for part in parts:
        option = next((key for key in _OPTIONS if re.fullmatch(_OPTIONS[key], part, re.IGNORECASE)), "")
        if option and option not in limits:
            limits[option] = whole_number(re.sub(r"\D", "", part), LIMITS[option])
        elif part.casefold() == "in gib":
            in_gib = True
        else:
            words.append(part)
    figure = ", ".join(words) if parts else name
    every = _figures(analyse(analysis, name, limits)) if parts else assumption_texts(analysis)
    # Only sizes have a unit.
    figures = {each: value for each, value in every.items() if not (in_gib and isinstance(value, str))}
    value = {fold(each): value for each, value in figures.items()}.get(fold(figure))
    if value is None:
        spelled = (re.sub("[-_]", " ", each) for each in figures)
        hint = did_you_mean(figure, spelled, "write for example '8B, after FSDP' or 'batch size'")
        raise NoAnswerError.because(f"there is no figure {figure!r}", hint)
    if isinstance(value, str):
        return value
    return gib(value) if in_gib else gb(value)


def _figures(one: Outcome) -> dict[str, str | float]:
    """Return all figures of a model, under each of their names: bytes, or text."""
    figures: dict[str, str | float] = {"checkpoint": one.checkpoint} if one.checkpoint else {}
    figures |= {name: short_number(number) for name, number in one.numbers.items() if number}
    sizes: dict[str, tuple[str, ...]] = {label: (key,) for key, (label, *_rest) in COMPONENTS.items()}
    sizes |= {"model states": ("parameters", "gradients", "optimizer"), TOTAL: tuple(COMPONENTS)}
    figures |= {"per GPU": one.end.total, **{name: one.start.of(keys) for name, keys in sizes.items()}}
    for line in one.lines:
        for step in (line.step.name, line.step.label) if line.step else ():
            figures |= {f"saved by {step}": abs(line.change), f"after {step}": line.now.total}
            figures |= {f"{name} after {step}": line.now.of(keys) for name, keys in sizes.items()}
    return figures
