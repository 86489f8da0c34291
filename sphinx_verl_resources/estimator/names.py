"""Words of estimates and of questions about them."""

from __future__ import annotations

from typing import Literal, get_args

Verdict = Literal["fits", "borderline", "depends-on-lengths", "does-not-fit", "unknown"]
#: The verdicts on a run, from the best to the worst, then the undecided one.
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
#: The default task of questions.
DEFAULT_TASK = "GRPO"


def with_adapters(task: str) -> str:
    """Return the LoRA variant of a task.

    >>> with_adapters("GRPO"), with_adapters("DAPO (fully async)")
    ('GRPO-LoRA', 'DAPO-LoRA (fully async)')
    """
    name, blank, variant = task.partition(" ")
    return f"{name}-LoRA{blank}{variant}"
