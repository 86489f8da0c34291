"""A plan as text: sentences, and a table by phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..estimator.planner import layout_of
from ..units import gib, gib_number, plain
from .estimate_text import phases_text
from .settings import overrides

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..estimator.estimate import Estimate
    from ..estimator.planner import Plan


def plan_text(plan: Plan, model: str, task: str, settings: Mapping[str, Any]) -> str:
    """Return a plan as text.

    Args:
        plan: the plan.
        model: Hugging Face name.
        task: the algorithm.
        settings: those of the computed figures, by dotted key.
    """
    found = plan.estimate
    host = f"Each node needs {gib(found.host.total)} of host memory."
    sentences = [_fits(plan, model, task), _peak(found), host, *_micro_batch(plan), *_relief(plan)]
    parts = [
        "\n".join(sentences),
        phases_text(found),
        "Computed with:\n" + "\n".join(f"  {line}" for line in overrides(settings)),
    ]
    ignored = "\n".join(f"Ignored: {text}" for text in found.unsupported)
    return "\n\n".join([*parts, *([ignored] if ignored else [])])


def _fits(plan: Plan, model: str, task: str) -> str:
    count = plan.estimate.settings.gpus
    gpus = f"{plain(count)} GPU{'' if count == 1 else 's'}"
    if plan.gpus:
        layout = layout_of(plan.estimate)
        also = f" With FSDP it takes {plain(plan.with_fsdp)}." if plan.with_fsdp else ""
        return f"{model} with {task} fits on {gpus} with {layout}.{also}"
    if plan.estimate.verdict == "tight":
        return f"{model} with {task} may fit on {gpus}, or may not: the upper end of the range is too large."
    return f"{model} with {task} does not fit on {gpus}."


def _peak(found: Estimate) -> str:
    range_ = f"{gib_number(found.low)} and {gib(found.high)}"
    offer = f" of {gib(found.capacity)}" if found.capacity is not None else ""
    return f"The peak of a GPU is {gib(found.peak)}{offer}, between {range_}: {found.peak_phase.label}."


def _micro_batch(plan: Plan) -> Iterator[str]:
    if plan.micro_batch is None:
        return
    what = "token budget" if plan.unit == "tokens" else "micro-batch"
    yield f"The largest {what} of a GPU that fits there is {plain(plan.micro_batch)} {plan.unit}."


def _relief(plan: Plan) -> Iterator[str]:
    suggestion = plan.estimate.suggestion
    if plan.gpus is None and suggestion is None:
        yield "No other value of a single setting lowers the peak noticeably."
    elif suggestion is not None:
        first = "Change first" if plan.gpus is None else "What would lower the peak most"
        yield f"{first}: {suggestion.setting}, which saves {gib(suggestion.saves)}."
