"""The request that an estimate answers, and the verdicts that it can give."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from ..diagnostics import Code, Diagnostic, Location, NoAnswerError, Severity
from ..records import MOST_GPUS
from ..selection import whole_number
from .versions import CURRENT, Version

ROOT = "actor_rollout_ref"
ACTOR = f"{ROOT}.actor"
REFERENCE = f"{ROOT}.ref"
ROLLOUT = f"{ROOT}.rollout"
MODEL = f"{ROOT}.model"

Verdict = Literal["fits", "borderline", "depends-on-lengths", "does-not-fit", "unknown"]
#: The verdicts on a run, from the best to the worst, then the undecided one.
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
#: The default task of questions.
DEFAULT_TASK = "GRPO"
Backend = Literal["fsdp", "fsdp2", "megatron"]


@dataclass(frozen=True)
class Request:
    """A request for one estimate.

    Attributes:
        model: the Hugging Face name of the checkpoint.
        model_note: how the model's name was taken, see ``registries.Model``.
        config: the settings by dotted key; unset keys have verl's defaults.
        gpus: the number of GPUs; None means ``trainer.nnodes × trainer.n_gpus_per_node``.
        gpu: the name of the GPU.
        memory_gb: the nominal memory of a GPU, if its name is unknown.
        version: the version of verl.
        observed: token counts of a real step, named as in the case files: ``prompt_length_mean``,
            ``response_length_mean``, ``prompt_length_max``, ``response_length_max``, ``total_num_tokens``.
        backend: ``fsdp``, ``fsdp2`` or ``megatron``, if known from another source than the settings.
        engine: the rollout engine, if known from another source than the settings.
        task: the algorithm, if ``algorithm.adv_estimator`` is unset.
        framework: verl, or the fork of it that ran.
        partial: whether the source quotes only some of the settings.
        unread: settings with values that are missing in the source.
        incomplete: places that may contain further settings, each with the reason.
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
    model_note: str = ""
    framework: str = "verl"
    partial: bool = False
    unread: frozenset[str] = frozenset()
    incomplete: tuple[str, ...] = ()

    def having(self, settings: Mapping[str, Any]) -> Request:
        """Return the request with further settings, which override its own."""
        return replace(self, config={**self.config, **settings})


def parse_gpus(text: str) -> tuple[int | None, str | None]:
    """Parse a text such as ``8*H100`` into a number and a GPU; None for a missing part.

    Raises:
        NoAnswerError: the text has neither, or a number that is out of range.

    >>> parse_gpus("8*H100"), parse_gpus("2 x 4090"), parse_gpus("A100 40GB"), parse_gpus("16")
    ((8, 'H100'), (2, '4090'), (None, 'A100 40GB'), (16, None))
    """
    text, count = text.strip(), "[0-9][0-9,_]*"
    # Text before * is always the number; an x may belong to the name of a GPU.
    if both := re.fullmatch(rf"(\S+?\s*[*×]|{count}\s*x)\s*([^\s*×].*)", text):
        return whole_number(both[1][:-1].rstrip(), MOST_GPUS), both[2]
    if re.fullmatch(count, text):
        return whole_number(text, MOST_GPUS), None
    if re.fullmatch(r"[^*×]*[A-Za-z][^*×]*", text):
        return None, text
    raise NoAnswerError.because(f"expected a number and a GPU, as in 8*H100, got {text[:80]!r}")


def error_at(key: str, message: str, remedy: str = "", code: Code = "wrong_value") -> Diagnostic:
    """Return a problem that prevents an estimate.

    Args:
        key: the wrong setting, or ``model``, ``gpus`` or ``version``.
        message: the description of the problem.
        remedy: the way to fix it.
        code: the kind of problem.
    """
    return Diagnostic(Location("", key=key), code, message, remedy)


def warning_at(key: str, message: str, remedy: str = "", code: Code = "wrong_value") -> Diagnostic:
    """Return a problem that does not prevent an estimate; arguments as for ``error_at``."""
    return Diagnostic(Location("", key=key), code, message, remedy, Severity.WARNING)


def with_adapters(task: str) -> str:
    """Return the LoRA variant of a task.

    >>> with_adapters("GRPO"), with_adapters("DAPO (fully async)")
    ('GRPO-LoRA', 'DAPO-LoRA (fully async)')
    """
    name, blank, variant = task.partition(" ")
    return f"{name}-LoRA{blank}{variant}"


def dotted_leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings with dotted keys, in order; a key may occur twice.

    >>> list(dotted_leaves({"a": {"b": 1}, "a.b": 2}))
    [('a.b', 1), ('a.b', 2)]
    """
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from dotted_leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
