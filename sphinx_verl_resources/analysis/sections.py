"""The entries of the analysis, and what follows from them, by section and name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .analysis import entry_of
from .requirements import judge

if TYPE_CHECKING:
    from ..analysis_records import Analysis, Configuration, Remark, VerlState
    from ..registries import ConfigKey
    from .requirements import JudgedClaim


def names(analysis: Analysis, section: str) -> tuple[str, ...]:
    """Return the names in a section: of steps, or of models."""
    return tuple(getattr(analysis, section))


def entries(analysis: Analysis, section: str) -> tuple[Any, ...]:
    """Return all entries of a section."""
    return tuple(getattr(analysis, section).values())


def own_models(analysis: Analysis) -> tuple[str, ...]:
    """Return the models with figures from the analysis itself, not from a checkpoint."""
    return tuple(name for name, entry in analysis.specifications.items() if entry.model is None)


def sharing_steps(analysis: Analysis) -> tuple[str, ...]:
    """Return the steps that divide something among the GPUs."""
    return tuple(name for name, step in analysis.steps.items() if step.divide_by == "gpus")


def required(analysis: Analysis, name: str) -> tuple[JudgedClaim, ...]:
    """Return the judged claims about one model in the requirement lists."""
    return judge(analysis, entry_of(analysis, "requirements", name))


def configured(
    analysis: Analysis, name: str
) -> tuple[Configuration, tuple[ConfigKey | None, ...], tuple[tuple[str, str], ...]]:
    """Return the recommended settings for one model, the registry's entry for each key, and problems of keys.

    A problem is a message and a remedy.
    """
    from ..analysis_records import key_problem

    record, known = entry_of(analysis, "configurations", name), analysis.config_keys
    problems = (key_problem(known, key) for key in record.settings)
    return record, tuple(known.get(key) for key in record.settings), tuple(filter(None, problems))


def remarks_about(analysis: Analysis, subject: str) -> tuple[str, ...]:
    """Return the names of the remarks about a subject."""
    return tuple(remark.name for remark in analysis.remarks.values() if subject in remark.about)


def remarks_named(analysis: Analysis, *chosen: str) -> tuple[tuple[Remark, ...], VerlState | None]:
    """Return remarks in recorded order, and the state of verl that they describe."""
    return tuple(item for name, item in analysis.remarks.items() if name in chosen), analysis.verl
