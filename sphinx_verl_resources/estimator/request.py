"""The question that an estimate answers, and the problems that are found in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..diagnostics import Code, Diagnostic, Location, Severity
from .versions import CURRENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .versions import Version


@dataclass(frozen=True)
class Request:
    """One question.

    Attributes:
        model: Hugging Face name of the checkpoint.
        config: verl's dotted keys; what is not set has verl's default.
        gpus: how many; None takes ``trainer.nnodes × trainer.n_gpus_per_node``.
        gpu: name of the card.
        memory_gb: what the card is sold by, where its name is not known.
        version: of verl.
        observed: token counts of a real step, named as in the case files: ``prompt_length_mean``,
            ``response_length_mean``, ``prompt_length_max``, ``response_length_max``, ``total_num_tokens``.
        backend: ``fsdp``, ``fsdp2`` or ``megatron`` where it is known from elsewhere.
        engine: the rollout engine where it is known from elsewhere.
        task: the algorithm, where ``algorithm.adv_estimator`` is not set.
        framework: verl or the fork of it that ran.
        partial: the settings are what a source quotes, and may leave out some that were set.
    """

    model: str
    config: Mapping[str, Any]
    gpus: int | None = None
    gpu: str | None = None
    memory_gb: float | None = None
    version: Version = CURRENT
    observed: Mapping[str, float] = field(default_factory=dict)
    backend: str | None = None
    engine: str | None = None
    task: str | None = None
    framework: str = "verl"
    partial: bool = False


def error_at(key: str, message: str, remedy: str = "", code: Code = Code.wrong_value) -> Diagnostic:
    """Return a problem that leaves no estimate.

    Args:
        key: the setting that is wrong, or ``model``, ``gpus`` or ``version``.
        message: what is wrong.
        remedy: what to do about it.
        code: the kind of problem.
    """
    return Diagnostic(Location("", key=key), code, message, remedy)


def warning_at(key: str, message: str, remedy: str = "", code: Code = Code.wrong_value) -> Diagnostic:
    """Return a problem that leaves an estimate; arguments as for ``error_at``."""
    return Diagnostic(Location("", key=key), code, message, remedy, Severity.WARNING)
