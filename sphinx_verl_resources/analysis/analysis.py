"""The memory analysis: one sum of terms, then a chain of optimisations. A rule of thumb, in GB.

Nothing here is how verl works phase by phase; what it leaves out, ``analysis.yaml`` records as remarks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..breakdown import Breakdown, Category, Change, Component, Formula
from ..catalog.names import STATE_COMPONENTS, STATES, TOTAL
from ..diagnostics import did_you_mean
from ..i18n import N_
from ..units import GB
from .shapes import AnalysisError, assumptions_of, find_shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..catalog.analysis import Analysis
    from ..catalog.models.analysis import Assumptions, Step
    from .shapes import Shape

#: The names of the components for people.
LABELS = {
    "parameters": N_("Parameters"),
    "gradients": N_("Gradients"),
    "optimizer": N_("Optimizer states"),
    "activations": N_("Activations"),
    "kv-cache": N_("KV cache"),
    "overhead": N_("System overhead"),
}
#: Largest values of what can be asked for; more is a slip of the finger.
LIMITS = {"gpus": 100_000, "batch-size": 1_000_000, "sequence-length": 10_000_000}


@dataclass(frozen=True)
class StepTaken:
    """One optimisation, and the memory of a GPU before and after it.

    Attributes:
        name: its name for programs.
        label: its name for people.
        gpus: the number of GPUs, if it shares something among them.
        text: what it does, in a sentence.
        changed: the components that it makes smaller.
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
        """Bytes; never negative."""
        return self.before.total - self.after.total


@dataclass(frozen=True)
class Outcome:
    """The analysis of one model.

    Attributes:
        shape: the model.
        gpus: GPUs that share it.
        batch_size: sequences.
        sequence_length: tokens of each.
        start: everything on one GPU.
        steps: the chain, in the order taken.
    """

    shape: Shape
    gpus: int
    batch_size: int
    sequence_length: int
    start: Breakdown
    steps: tuple[StepTaken, ...]

    @property
    def saved_share(self) -> float:
        """How much less a GPU holds after all steps than the total, as a share of it; never negative."""
        return 1 - self.end.total / self.start.total if self.start.total else 0.0

    @property
    def end(self) -> Breakdown:
        """The memory of one GPU when all steps are taken."""
        return self.after(None)

    def after(self, step: str | None) -> Breakdown:
        """The memory of one GPU after a step, by its name; None: after the last.

        Raises:
            AnalysisError: the chain does not hold the step.
        """
        if step is None:
            return self.steps[-1].after if self.steps else self.start
        for taken in self.steps:
            if taken.name == step:
                return taken.after
        raise AnalysisError(f"the step {step!r} is not taken; take it, or name another one")


def analyse(
    analysis: Analysis,
    name: str,
    *,
    gpus: int | None = None,
    batch_size: int | None = None,
    sequence_length: int | None = None,
    steps: Iterable[str] | None = None,
) -> Outcome:
    """Components and chain for the model called ``name``.

    Args:
        analysis: what is recorded.
        name: a specification of the analysis or a model of the catalog.
        gpus: GPUs that share the model; None: as recorded for it.
        batch_size: sequences; None: as assumed.
        sequence_length: tokens of each; None: as assumed.
        steps: names of the optimisations, in the order in which they are taken; None: all.

    Raises:
        AnalysisError: the model or a step is not known.
    """
    assumed, shape = assumptions_of(analysis), find_shape(analysis, name)
    gpus, batch_size = gpus or shape.gpus, batch_size or assumed.batch_size
    sequence_length = sequence_length or assumed.sequence_length
    start = Breakdown(tuple(_components(assumed, shape, batch_size, sequence_length)))
    taken: list[StepTaken] = []
    for step_name in analysis.steps if steps is None else steps:
        step = analysis.steps.get(step_name)
        if step is None:
            raise AnalysisError(f"there is no step {step_name!r}; {did_you_mean(step_name, analysis.steps)}")
        taken.append(_take(step, taken[-1].after if taken else start, gpus))
    return Outcome(shape, gpus, batch_size, sequence_length, start, tuple(taken))


def _components(assumed: Assumptions, shape: Shape, batch: int, sequence: int) -> Iterable[Component]:
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
    # A key and a value for each.
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
    """Bytes of a component, of the states of the model together, or of everything."""
    if figure == TOTAL:
        return breakdown.total
    return breakdown.of(STATE_COMPONENTS if figure == STATES else (figure,))
