"""Ids of run files."""

from __future__ import annotations

import re
from itertools import chain, count
from typing import TYPE_CHECKING

from ..records import FORMS, SLUG, slug

if TYPE_CHECKING:
    from collections.abc import Container

#: Characters of an id.
MAX_ID_LENGTH = 80
#: The form of an id, in words.
ID_FORM = f"{FORMS[SLUG]}, at most {MAX_ID_LENGTH} characters"


def is_id(text: str) -> bool:
    """Return whether a text is a valid id, and so a valid name for a run file.

    >>> is_id("a-1"), is_id("../a"), is_id("a" * 81)
    (True, False, False)
    """
    return re.fullmatch(SLUG, text) is not None and len(text) <= MAX_ID_LENGTH


def suggested_id(
    model: str, task: str, gpus: int | None, gpu: str | None, more: str = "", taken: Container[str] = ()
) -> str:
    """Return an id for a run, built like the ids of the recorded runs.

    Args:
        model: the model, with or without its owner; the suffix ``-Instruct`` is omitted.
        task: the algorithm and variant.
        gpus: the number of GPUs; None if unknown.
        gpu: the type of the GPUs; None if unknown.
        more: a distinction from similar runs, such as the backend.
        taken: the existing ids; ``more``, and then a number, is added until the id is free.

    >>> suggested_id("Qwen/Qwen2.5-7B-Instruct", "GRPO-LoRA", 1, "H100")
    'qwen2-5-7b-grpo-lora-1xh100'
    >>> suggested_id("m", "GRPO", 8, None, "megatron", {"m-grpo-8-gpus", "m-grpo-8-gpus-megatron"})
    'm-grpo-8-gpus-megatron-2'
    >>> suggested_id("m", "GRPO", None, "H100"), suggested_id("m", "GRPO", None, None)
    ('m-grpo-h100', 'm-grpo')
    """
    name = _model_slug(model)
    kind = slug(gpu or "")
    known = f"{gpus}x{kind}" if kind else f"{gpus}-gpus"
    ending = slug(f"{task}-{kind if gpus is None else known}")
    most = MAX_ID_LENGTH
    first = f"{name[: most - 30 - len(ending)].strip('-') or 'run'}-{ending}"[:most].strip("-")
    longer = f"{first}-{slug(more)}"[:most].strip("-") if slug(more) else first
    numbered = (f"{longer[: most - 6].strip('-')}-{number}" for number in count(2))
    return next(name for name in chain((first, longer), numbered) if name not in taken)


def _model_slug(name: str) -> str:
    """Return the beginning of the ids of a model's runs."""
    return slug(name.rsplit("/", 1)[-1].removesuffix("-Instruct"))
