"""What a run is called, and under which size class it stands, where nobody has said so."""

from __future__ import annotations

import re
from itertools import chain, count
from typing import TYPE_CHECKING

from .models.base import FORMS, SLUG, slug
from .models.run import MAX_ID_LENGTH
from .names import SIZES, nearest_size

if TYPE_CHECKING:
    from collections.abc import Container

#: What an id has, for people.
ID_FORM = f"{FORMS[SLUG]}, at most {MAX_ID_LENGTH}"


def is_id(text: str) -> bool:
    """Whether a run can have this id, and its file this name.

    >>> is_id("a-1"), is_id("../a"), is_id("a" * 81)
    (True, False, False)
    """
    return re.fullmatch(SLUG, text) is not None and len(text) <= MAX_ID_LENGTH


def suggested_id(
    model: str, task: str, gpus: int | None, card: str | None, more: str = "", taken: Container[str] = ()
) -> str:
    """The id of a run, made as those of the recorded ones are.

    Args:
        model: the checkpoint, with or without its owner; a variant such as ``-Instruct`` is left out.
        task: algorithm and variant.
        gpus: how many, None where that is not known.
        card: which, None where that is not known.
        more: what tells it from another run of the same kind, such as its backend.
        taken: ids that others have; ``more`` is used, and then a number, until the id is free.

    >>> suggested_id("Qwen/Qwen2.5-7B-Instruct", "GRPO-LoRA", 1, "H100")
    'qwen2-5-7b-grpo-lora-1xh100'
    >>> suggested_id("m", "GRPO", 8, None, "megatron", {"m-grpo-8-gpus", "m-grpo-8-gpus-megatron"})
    'm-grpo-8-gpus-megatron-2'
    >>> suggested_id("m", "GRPO", None, "H100"), suggested_id("m", "GRPO", None, None)
    ('m-grpo-h100', 'm-grpo')
    """
    name = slug(model.rsplit("/", 1)[-1].removesuffix("-Instruct"))
    kind = slug(card or "")
    known = f"{gpus}x{kind}" if kind else f"{gpus}-gpus"
    ending = slug(f"{task}-{kind if gpus is None else known}")
    most = MAX_ID_LENGTH
    first = f"{name[: most - 30 - len(ending)].strip('-') or 'run'}-{ending}"[:most].strip("-")
    longer = f"{first}-{slug(more)}"[:most].strip("-") if slug(more) else first
    numbered = (f"{longer[: most - 6].strip('-')}-{number}" for number in count(2))
    return next(name for name in chain((first, longer), numbered) if name not in taken)


def size_class(parameters: float) -> str:
    """The size class nearest to a number of parameters, on a scale of ratios.

    >>> size_class(8.2e9), size_class(72.7e9)
    ('7B', '70B')
    """
    found = nearest_size(f"{min(max(parameters / 1e9, 0.001), 9999):.3f}B", SIZES)
    return found or SIZES[0]
