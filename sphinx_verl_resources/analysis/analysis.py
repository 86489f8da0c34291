"""The memory analysis: one sum of terms, then a chain of optimisations. A rule of thumb, in GB.

verl itself works phase by phase. Remarks in ``analysis.yaml`` describe the differences from this rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..analysis_records import STATE_COMPONENTS, STATES, TOTAL
from ..breakdown import Breakdown, Category, Change, Component, Formula
from ..diagnostics import Code, NoAnswerError, did_you_mean, nearest
from ..i18n import N_
from ..records import fold, nearest_size
from ..units import GB

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..analysis_records import Analysis, Assumptions, Specification, Step
    from ..registries import Architecture

#: The names of the components for people.
LABELS = {
    "parameters": N_("Parameters"),
    "gradients": N_("Gradients"),
    "optimizer": N_("Optimizer states"),
    "activations": N_("Activations"),
    "kv-cache": N_("KV cache"),
    "overhead": N_("System overhead"),
}


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
    def hidden_size_share(self) -> float:
        """The hidden size as a share of ``stated_hidden_size``."""
        return self.hidden_size / self.stated_hidden_size

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
        name: its name for programs.
        label: its name for people.
        gpus: the number of GPUs, if it divides something among them.
        text: its effect, in a sentence.
        changed: the components that it reduces.
    """

    name: str
    label: str
    gpus: int | None
    text: str
    changed: tuple[str, ...]
    before: Breakdown
    after: Breakdown

    @property
    def saved(self) -> float:
        """The bytes that the step saves, never negative."""
        return self.before.total - self.after.total


#: The last line of a waterfall.
PER_GPU = "per-gpu"


@dataclass(frozen=True)
class Bar:
    """A line of the waterfall. Sizes are bytes.

    Attributes:
        label: its name for people; for a step, the recorded label.
        subject: the component or step; ``total`` for the sum, ``per-gpu`` for the rest after all steps.
        change: the bytes that the line adds, negative if it subtracts.
        running: the total up to and including this line.
        share: the component's share of the total, or the share that all steps save.
        category: the category of the component, if it is one.
        step: the step, if it is one.
    """

    label: str
    subject: str
    change: float
    running: float
    share: float = 0.0
    category: Category | None = None
    step: StepTaken | None = None

    @property
    def is_sum(self) -> bool:
        """True for a total, False for a change."""
        return self.subject in {TOTAL, PER_GPU}

    @property
    def shown(self) -> float:
        """The size that the line shows."""
        return self.running if self.is_sum else self.change


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
    def saved_share(self) -> float:
        """The share of the total that all steps save."""
        return 1 - self.end.total / self.start.total if self.start.total else 0.0

    @property
    def end(self) -> Breakdown:
        """The memory of one GPU after all steps."""
        return self.steps[-1].after if self.steps else self.start

    def step(self, name: str) -> StepTaken:
        """Return a step of the chain by its name.

        Raises:
            NoAnswerError: the step is not applied.
        """
        for step in self.steps:
            if step.name == name:
                return step
        raise NoAnswerError.because(f"the step {name!r} is not applied", "apply it, or choose another step")

    def waterfall(self) -> list[Bar]:
        """Return the lines, from the first component to the memory of one GPU."""
        bars: list[Bar] = []
        running, total = 0.0, self.start.total
        for component in self.start.components:
            running += component.size
            share = component.size / total if total else 0.0
            bars.append(
                Bar(component.label, component.key, component.size, running, share, component.category)
            )
        bars.append(Bar(N_("Total"), TOTAL, 0, total))
        bars.extend(
            Bar(step.label, step.name, -step.saved, step.after.total, step=step) for step in self.steps
        )
        if self.steps:
            end = self.end.total
            bars.append(Bar(N_("Per GPU"), PER_GPU, end - total, end, self.saved_share))
        return bars


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
        name: a specification of the analysis, or a model of the catalog.
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


def _components(assumed: Assumptions, shape: ModelShape, batch: int, sequence: int) -> Iterable[Component]:
    parameters = ("parameters", shape.parameters)
    moments = (assumed.optimizer_moments, "moments")
    tokens = (("batch", batch), ("sequence", sequence))
    hidden, layers = ("hidden", shape.hidden_size), ("layers", shape.layers)
    yield _component("parameters", Category.WEIGHTS, (parameters,), (assumed.parameter_bytes, "bytes"))
    yield _component("gradients", Category.GRADIENTS, (parameters,), (assumed.gradient_bytes, "bytes"))
    yield _component(
        "optimizer", Category.OPTIMIZER, (parameters,), moments, (assumed.optimizer_bytes, "bytes")
    )
    yield _component(
        "activations", Category.ACTIVATIONS, (*tokens, hidden, layers), (assumed.activation_bytes, "bytes")
    )
    # The factor 2: keys and values.
    yield _component(
        "kv-cache",
        Category.ROLLOUT_ENGINE,
        (*tokens, layers, hidden),
        (2, ""),
        (assumed.kv_cache_bytes, "bytes"),
    )
    yield _component("overhead", Category.RUNTIME_OVERHEAD, (("bytes per GPU", assumed.overhead_gb * GB),))


def _component(
    key: str, category: Category, variables: tuple[tuple[str, float], ...], *constants: tuple[float, str]
) -> Component:
    return Component(key, LABELS[key], category, Formula(variables, constants), "assumed")


def _take(step: Step, before: Breakdown, gpus: int) -> StepTaken:
    shared = step.divide_by == "gpus"
    if shared:
        change = Change("÷", gpus, "GPUs")
    elif step.divide_by is not None:
        change = Change("÷", float(step.divide_by))
    else:
        change = Change("×", step.multiply_by or 1)
    after = Breakdown(
        tuple(
            component.changed(change) if component.key in step.components else component
            for component in before.components
        )
    )
    return StepTaken(
        step.name, step.label, gpus if shared else None, step.text, tuple(step.components), before, after
    )


def figure_size(breakdown: Breakdown, figure: str) -> float:
    """Return the bytes of a component, of all model states, or of the total."""
    if figure == TOTAL:
        return breakdown.total
    return breakdown.of(STATE_COMPONENTS if figure == STATES else (figure,))


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
    assumed = assumptions_of(analysis)
    for spec in analysis.specifications.values():
        if spec.name.casefold() == name.casefold():
            return _of_specification(analysis, spec, assumed)
    entry = analysis.architectures.get(name) or next(
        (entry for entry in analysis.architectures if fold(name) in {fold(entry.name), fold(entry.hf_id)}),
        None,
    )
    if entry is None:
        code = Code.unknown_model if "/" in name else Code.unknown_size
        raise NoAnswerError.because(f"unknown model {name!r}", _hint(analysis, name), code=code)
    return _of_architecture(entry, name if name in entry.lookup_names else entry.name, assumed.gpus)


def entry_of(analysis: Analysis, section: str, name: str) -> Any:
    """Return the entry of a section by its name, ignoring case.

    Raises:
        NoAnswerError: there is none.
    """
    entries = getattr(analysis, section)
    for known, entry in entries.items():
        if known.casefold() == name.casefold():
            return entry
    message = f"{section!r} has no entry for {name!r}"
    raise NoAnswerError.because(message, did_you_mean(name, entries), code=Code.unknown_size)


def _of_specification(analysis: Analysis, spec: Specification, assumed: Assumptions) -> ModelShape:
    gpus = spec.gpus or assumed.gpus
    if spec.model:
        entry = analysis.architectures.get(spec.model)
        if entry is None:
            raise NoAnswerError.because(
                f"{spec.model!r}, the model of {spec.name}, is not in architectures.yaml", "add it"
            )
        return _of_architecture(entry, spec.name, gpus, spec.model)
    hidden_size = spec.hidden_size or 0
    return ModelShape(
        name=spec.name,
        checkpoint="",
        parameters=spec.parameters or 0,
        hidden_size=hidden_size,
        layers=spec.layers or 0,
        ffn_dimension=round(assumed.ffn_ratio * hidden_size),
        attention_heads=spec.attention_heads or 0,
        vocabulary_size=assumed.vocabulary_size,
        gpus=gpus,
    )


def _of_architecture(entry: Architecture, name: str, gpus: int, checkpoint: str = "") -> ModelShape:
    return ModelShape(
        name=name,
        checkpoint=checkpoint or entry.hf_id,
        parameters=entry.parameters,
        hidden_size=entry.hidden_size,
        layers=entry.num_hidden_layers,
        ffn_dimension=entry.intermediate_size or 0,
        attention_heads=entry.num_attention_heads,
        vocabulary_size=entry.vocab_size,
        gpus=gpus,
    )


def _hint(analysis: Analysis, name: str) -> str:
    listed = f"use one of {', '.join(analysis.specifications)}, or a checkpoint from architectures.yaml"
    size = nearest_size(name, analysis.specifications)
    if size:
        return f"the nearest is {size}; {listed}"
    near = nearest(name, [*analysis.specifications, *analysis.architectures.names])
    return f"did you mean {near!r}?" if near else listed
