"""What a run trains with: the algorithm and its variant, as recorded runs call them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The key that decides most of it.
ESTIMATOR = "algorithm.adv_estimator"
_NAMES = {"gae": "PPO", "remax": "ReMax", "reinforce_plus_plus": "REINFORCE++"}
_RANKS = ("actor_rollout_ref.model.lora_rank", "actor_rollout_ref.model.lora.rank")
#: Recipes with a program of their own, and how the rows of their runs say so.
_VARIANTS = {"fully_async": " (fully async)", "one_step_off": " (one step off)"}
_MODULE = re.compile(r"-m\s+(?P<module>[\w.]{1,200})|(?P<file>[\w./-]{1,200})\.py\b")


def task_of(
    settings: Mapping[str, Any], program: str = "", *, unknown: frozenset[str] = frozenset()
) -> str | None:
    """The task of a run; None where what decides it is set to something that is not known.

    Args:
        settings: by dotted key.
        program: the script, in which the program that trains is looked for.
        unknown: keys that are set to what is not known.

    >>> task_of({"algorithm.adv_estimator": "grpo", "actor_rollout_ref.model.lora_rank": 32})
    'GRPO-LoRA'
    >>> task_of({"algorithm.adv_estimator": "grpo"}, "python3 -m recipe.dapo.main_dapo")
    'DAPO'
    >>> task_of({})
    'PPO'
    """
    if unknown & {ESTIMATOR, *_RANKS}:
        return None
    modules = " ".join(
        (match["module"] or match["file"]).replace("/", ".") for match in _MODULE.finditer(program)
    )
    estimator = str(settings.get(ESTIMATOR, "gae")).strip().lower()
    if not re.fullmatch(r"[a-z0-9_]{1,40}", estimator):
        return None
    name = _NAMES.get(estimator, estimator.upper().replace("_", "-"))
    if "dapo" in modules.split(".") or "main_dapo" in modules or _is_dapo(settings):
        name = "DAPO"
    if any(_is_positive(settings.get(key)) for key in _RANKS):
        name += "-LoRA"
    return name + next((text for recipe, text in _VARIANTS.items() if recipe in modules), "")


def _is_dapo(settings: Mapping[str, Any]) -> bool:
    """Whether groups of equal rewards are filtered out and a reward manager of DAPO counts."""
    managers = ("reward_model.reward_manager", "reward.reward_manager.name", "reward_manager.name")
    return settings.get("algorithm.filter_groups.enable") is True or "dapo" in {
        settings.get(key) for key in managers
    }


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and value > 0
