"""Determine the task of a run: its algorithm by verl's name, and its variant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..memory.request import ACTOR, with_adapters
from ..records import ADAPTER_RANKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..scripts.settings import SettingsText

#: The keys that decide the algorithm.
ESTIMATOR = "algorithm.adv_estimator"
LOSS = f"{ACTOR}.policy_loss.loss_mode"
DISTILLS = "distillation.enabled"
_REWARDS = "distillation.distillation_loss.use_task_rewards"
_MANAGERS = ("reward_model.reward_manager", "reward.reward_manager.name", "reward_manager.name")
#: Names of algorithms that differ from their advantage estimator
#: (verl/trainer/ppo/core_algos.py and examples/*_trainer at 1dda039b9).
_ESTIMATORS = {
    "gae": "PPO",
    "grpo_passk": "GRPO (pass@k)",
    "grpo_vectorized": "GRPO",
    "optimal_token_baseline": "OTB",
    "reinforce_plus_plus": "REINFORCE++",
    "reinforce_plus_plus_baseline": "REINFORCE++ (baseline)",
    "remax": "ReMax",
    "rloo_vectorized": "RLOO",
    "tir_optimal_token_baseline": "OTB (TIR)",
}
#: Algorithms by policy loss, which verl combines with GRPO's advantage.
_LOSSES = {
    "cispo": "CISPO",
    "clip_cov": "Clip-Cov",
    "dppo_kl": "DPPO",
    "dppo_tv": "DPPO",
    "dro": "DRO",
    "geo_mean": "GMPO",
    "gpg": "GPG",
    "gspo": "GSPO",
    "kl_cov": "KL-Cov",
    "sapo": "SAPO",
}
#: Recipes whose program decides the algorithm (recipe/ at v0.7.0).
_RECIPES = {
    "dapo": "DAPO",
    "flowrl": "FlowRL",
    "gkd": "GKD",
    "prime": "PRIME",
    "spin": "SPIN",
    "sppo": "SPPO",
}
#: Programs that run an algorithm in another way, with the suffix of the task.
_VARIANTS = {"fully_async": " (fully async)", "one_step_off": " (one step off)"}


def program_of(script: SettingsText) -> str:
    """Return a script's module and configuration name, for ``task_of``."""
    return f"{script.program.module if script.program else ''} {script.config_name or ''}"


def task_of(
    settings: Mapping[str, Any], program: str = "", *, unknown: frozenset[str] = frozenset()
) -> str | None:
    """Return the task of a run; None if a setting that decides it is unknown.

    Args:
        settings: settings by dotted key.
        program: the module that trains; see ``program_of``.
        unknown: keys with unknown values.

    >>> task_of({"algorithm.adv_estimator": "grpo", "actor_rollout_ref.model.lora_rank": 32})
    'GRPO-LoRA'
    >>> task_of({"algorithm.adv_estimator": "grpo"}, "recipe.dapo.main_dapo")
    'DAPO'
    >>> task_of({})
    'PPO'
    """
    task = whole_task_of(settings, program)
    if unknown & {ESTIMATOR, LOSS, DISTILLS, *ADAPTER_RANKS} or task is None:
        return None
    ranks = [settings.get(key) for key in ADAPTER_RANKS]
    adapts = any(isinstance(rank, int) and rank > 0 for rank in ranks)
    return with_adapters(task) if adapts else task


def whole_task_of(settings: Mapping[str, Any], program: str = "") -> str | None:
    """Return the task as ``task_of`` does, ignoring adapters.

    >>> whole_task_of({"algorithm.adv_estimator": "grpo", "trainer.v1.trainer_mode": "separate_async"})
    'GRPO (separate async)'
    """
    algorithm = _algorithm_of(settings, program)
    variant = next((name for part, name in _VARIANTS.items() if part in program), "")
    if not variant and settings.get("trainer.v1.trainer_mode") == "separate_async":
        variant = " (separate async)"
    return algorithm and f"{algorithm}{variant}"


def _algorithm_of(settings: Mapping[str, Any], program: str = "") -> str | None:
    """Return the algorithm of a run; None if the name of the advantage estimator is invalid.

    The recipe's program decides first, then distillation, then the loss, then the advantage.

    >>> grpo = {"algorithm.adv_estimator": "grpo"}
    >>> _algorithm_of({**grpo, "actor_rollout_ref.actor.policy_loss.loss_mode": "gspo"})
    'GSPO'
    >>> _algorithm_of({**grpo, "distillation.enabled": True})
    'GRPO + OPD'
    >>> _algorithm_of({}, "recipe.sppo.main_sppo")
    'SPPO'
    """
    parts = {part.removeprefix("main_") for part in re.split(r"[.\s]+", program)}
    recipe = next((name for part, name in _RECIPES.items() if part in parts), "")
    if recipe and recipe != "DAPO":
        return recipe
    advantage = _of_advantage(settings)
    if advantage is None:
        return None
    if settings.get(DISTILLS) is True and settings.get(_REWARDS) is False:
        return "OPD"
    of_loss = _LOSSES.get(str(settings.get(LOSS)).lower().replace("-", "_"))
    algorithm = advantage
    if of_loss and of_loss != advantage:
        algorithm = of_loss if advantage == "GRPO" else f"{advantage} ({of_loss} loss)"
    elif advantage == "GRPO" and (recipe or _filters(settings)):
        algorithm = "DAPO"
    return f"{algorithm} + OPD" if settings.get(DISTILLS) is True else algorithm


def _of_advantage(settings: Mapping[str, Any]) -> str | None:
    """Return the algorithm of the advantage estimator; None if its name is invalid."""
    estimator = str(settings.get(ESTIMATOR, "gae")).strip().lower()
    if not re.fullmatch(r"[a-z0-9_]{1,40}", estimator):
        return None
    return _ESTIMATORS.get(estimator, estimator.upper().replace("_", "-"))


def _filters(settings: Mapping[str, Any]) -> bool:
    """Return whether a run uses DAPO's group filtering or reward manager."""
    if settings.get("algorithm.filter_groups.enable") is True:
        return True
    return "dapo" in {settings.get(key) for key in _MANAGERS}
