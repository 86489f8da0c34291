"""The task, the model and the GPU that verl's settings and logs name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..diagnostics import Code
from ..memory.architectures import Architecture
from ..memory.registries import Model, gpu_named, model_hint, model_named
from ..memory.request import ACTOR, ROOT, with_adapters
from ..memory.settings import TRAINER_MODE
from ..records import ADAPTER_RANKS, ALGORITHMS, TRAINERS
from ..registries import Gpu, Registry
from ..scripts.settings import SettingsText
from .question import ESTIMATOR

# -- tasks

#: The settings that decide the algorithm, besides ``ESTIMATOR``.
LOSS, DISTILLS = f"{ACTOR}.policy_loss.loss_mode", "distillation.enabled"
_TASK_REWARDS = "distillation.distillation_loss.use_task_rewards"
_REWARD_MANAGERS = ("reward_model.reward_manager", "reward.reward_manager.name", "reward_manager.name")
#: Advantage estimators and policy losses (verl/trainer/ppo/core_algos.py at 1dda039b9) whose algorithm has
#: another name than theirs.
_ESTIMATORS = {
    "gae": "PPO", "grpo_passk": "GRPO (pass@k)", "grpo_vectorized": "GRPO", "rloo_vectorized": "RLOO",
    "optimal_token_baseline": "OTB", "tir_optimal_token_baseline": "OTB (TIR)",
    "reinforce_plus_plus": "REINFORCE++", "reinforce_plus_plus_baseline": "REINFORCE++ (baseline)",
}  # fmt: skip
_LOSSES = {"dppo_kl": "DPPO", "dppo_tv": "DPPO", "geo_mean": "GMPO"}
#: The algorithms by their names in settings.
_BY_SETTING = {name.casefold().replace("-", "_"): name for name in ALGORITHMS}
#: Programs that decide the algorithm (recipe/ at v0.7.0), or how it runs.
_RECIPES = ("flowrl", "gkd", "prime", "spin", "sppo")
_MODES = {"fully_async": " (fully async)", "one_step_off": " (one step off)"}


def program_of(script: SettingsText) -> str:
    """Return the module that a script runs and the configuration that it selects, for ``algorithm_of``."""
    return f"{script.program.module if script.program else ''} {script.config_name or ''}"


def task_in(settings: Mapping[str, Any], program: str, unknown: frozenset[str] = frozenset()) -> str | None:
    """Return the task of a run; None if a setting that decides it is unknown.

    Args:
        settings: settings by dotted key.
        program: see ``program_of``.
        unknown: keys with unknown values.

    >>> task_in({"algorithm.adv_estimator": "grpo", "actor_rollout_ref.model.lora_rank": 32}, "")
    'GRPO-LoRA'
    """
    task = algorithm_of(settings, program)
    if unknown & {ESTIMATOR, LOSS, DISTILLS, *ADAPTER_RANKS} or task is None:
        return None
    ranks = (settings.get(key) for key in ADAPTER_RANKS)
    return with_adapters(task) if any(isinstance(rank, int) and rank > 0 for rank in ranks) else task


def algorithm_of(settings: Mapping[str, Any], program: str) -> str | None:
    """Return the task of a run without adapters; None if its advantage estimator is not one of verl's.

    The recipe decides first, then the policy loss, then the advantage estimator.

    >>> algorithm_of({}, ""), algorithm_of({}, "recipe.sppo.main_sppo")
    ('PPO', 'SPPO')
    >>> grpo = {"algorithm.adv_estimator": "grpo"}
    >>> algorithm_of({**grpo, "distillation.enabled": True}, ""), algorithm_of(grpo, "recipe.dapo.main_dapo")
    ('GRPO + OPD', 'DAPO')
    """
    words = {word.removeprefix("main_") for word in re.split(r"[.\s]+", program)}
    for recipe in words.intersection(_RECIPES):
        return _BY_SETTING[recipe]
    estimator = str(settings.get(ESTIMATOR, "gae")).lower()
    algorithm = _ESTIMATORS.get(estimator) or _BY_SETTING.get(estimator)
    loss = str(settings.get(LOSS)).lower().replace("-", "_")
    by_loss = _LOSSES.get(loss) or _BY_SETTING.get(loss) or algorithm
    managers = {settings.get(key) for key in _REWARD_MANAGERS}
    is_dapo = "dapo" in words | managers or settings.get("algorithm.filter_groups.enable") is True
    of_setting = " (separate async)" if settings.get(TRAINER_MODE) == "separate_async" else ""
    mode = next((suffix for name, suffix in _MODES.items() if name in program), of_setting)
    if algorithm is None or (settings.get(DISTILLS) is True and settings.get(_TASK_REWARDS) is False):
        return algorithm and f"OPD{mode}"
    if algorithm != by_loss:
        algorithm = by_loss if algorithm == "GRPO" else f"{algorithm} ({by_loss} loss)"
    elif algorithm == "GRPO" and is_dapo:
        algorithm = "DAPO"
    return f"{algorithm}{' + OPD' if settings.get(DISTILLS) is True else ''}{mode}"


def trainer_of(settings: Mapping[str, Any], program: str) -> str | None:
    """Return the mode of the trainer, as ``trainer.v1.trainer_mode`` names it; None for verl's default.

    >>> trainer_of({}, "recipe.one_step_off_policy.main_ppo"), trainer_of({}, "")
    ('separate_async', None)
    """
    mode = str(settings.get(TRAINER_MODE))
    apart = any(name in program for name in _MODES) or settings.get(f"{ROOT}.hybrid_engine") is False
    apart = apart or any(key.startswith(("async_training.", "rollout.")) for key in settings)
    return "separate_async" if apart else mode if mode in TRAINERS[1:] else None


# -- models and GPUs

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
#: A shell variable at the end of a model's name.
_VARIABLE = re.compile(r"\$\{?(?P<name>[A-Za-z_]\w*)(?::?[?=-][^}]*)?\}?[/\"']*\Z")


class NamedModel(NamedTuple):
    """The model that the texts about one run name.

    Attributes:
        text: the first text that names a recorded model, otherwise the first text; empty without one.
        model: the recorded model; None if there is none.
    """

    text: str = ""
    model: Model | None = None

    @property
    def is_hub_name(self) -> bool:
        """True for a Hugging Face name, ``owner/name``, that is not recorded."""
        return not self.model and _HUB_NAME.fullmatch(self.text) is not None

    def why_none(self, registry: Registry[Architecture], how: str, forms: str = "") -> tuple[Code, str, str]:
        """Return why no recorded model matches: code, message and remedy.

        Args:
            registry: the recorded models.
            how: how the user gives a model, for example ``with --model``.
            forms: possible forms of the model there.
        """
        text, remedy = self.text[-80:], f"give it {how}{forms}"
        if not text:
            return "missing_key", "no model given", remedy
        if not self.is_hub_name and (variable := _VARIABLE.search(text)):
            remedy = f"set it with --env {variable['name']}=…, or give the model {how}{forms}"
            return "unknown_model", f"the model {text!r} contains a variable with an unknown value", remedy
        message = "unknown model" if self.is_hub_name else "no recorded model matches the end of the path"
        return "unknown_model", f"{message} {text!r}", model_hint(self.text, registry, remedy)


def model_of(registry: Registry[Architecture], *texts: object, left_open: str | None = None) -> NamedModel:
    """Return the model that texts about one run name: the first recorded one.

    Args:
        registry: the recorded models.
        texts: values from the user, a script or a log; only strings are used.
        left_open: a value in a script that contains an unknown variable.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> model_of(EstimatorContext().architectures, None, left_open="$HOME/models/Qwen3-8B").model.name
    'Qwen/Qwen3-8B'
    """
    names = [text for text in (*texts, left_open) if isinstance(text, str) and text]
    matches = ((text, model_named(text, registry)) for text in names)
    models = (NamedModel(text, model) for text, model in matches if model)
    return next(models, NamedModel(names[0] if names else ""))


def recorded_gpu(text: str, gpus: Registry[Gpu]) -> str | None:
    """Return the short name of the recorded GPU that a text begins with.

    If a GPU is sold with several memory sizes, the text must contain the size.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> gpus = EstimatorContext().gpus
    >>> recorded_gpu("H100 80GB HBM3 On", gpus), recorded_gpu("A100", gpus)
    ('H100', None)
    """
    words = text.split()
    for end in range(len(words), 0, -1):
        if gpu := gpu_named(" ".join(words[:end]), gpus):
            variants = sum(other.name.upper().startswith(f"{words[0].upper()}-") for other in gpus)
            short = gpu.name.removesuffix(f"-{gpu.memory_gb}GB")
            return None if end == 1 and variants > 1 else short if gpus.get(short) is gpu else gpu.name
    return None
