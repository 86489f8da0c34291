"""What an estimate is asked for, and what is wrong with a question."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..diagnostics import Code, Severity
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


@dataclass(frozen=True)
class Issue:
    """What is wrong with a question.

    Attributes:
        key: the setting, or ``model`` or ``gpus``.
        code: the kind of problem.
        message: what is wrong.
        hint: what to do about it.
        severity: an error leaves no estimate.
    """

    key: str
    code: Code
    message: str
    remedy: str = ""
    severity: Severity = Severity.ERROR


class EstimateError(Exception):
    """There is no estimate; ``issues`` say why."""

    def __init__(self, issues: tuple[Issue, ...]) -> None:
        super().__init__("; ".join(issue.message for issue in issues if issue.severity is Severity.ERROR))
        self.issues = issues


def warning(key: str, message: str, remedy: str = "", code: Code = Code.wrong_value) -> Issue:
    """An issue that leaves an estimate."""
    return Issue(key, code, message, remedy, Severity.WARNING)
