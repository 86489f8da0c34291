"""Settings that an estimate ignores, and why that matters."""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

from .keys import known_key
from .roles import ACTOR, ADAMS, MODEL, REFERENCE, ROLLOUT
from .versions import CURRENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..catalog.models.config_key import ConfigKey
    from .facts import Registries
    from .request import Request
    from .settings import Settings
    from .versions import Version

#: Keys that are known not to change memory, as beginnings.
HARMLESS = tuple(
    re.escape(text)
    for text in (
        "data.train_files",
        "data.val_files",
        "data.val_batch_size",
        "data.filter",
        "data.truncation",
        "data.seed",
        "data.shuffle",
        "data.prompt_key",
        "data.reward_fn_key",
        "data.return_raw",
        "data.gen_batch_size",
        "data.image_key",
        "data.video_key",
        "data.custom_cls",
        "data.trust_remote_code",
        "data.tokenizer",
        "data.dataloader",
        "data.apply_chat_template",
        "data.tool_config_path",
        "data.return_full_prompt",
        "algorithm.gamma",
        "algorithm.lam",
        "algorithm.kl",
        "algorithm.norm",
        "algorithm.filter_groups",
        "trainer.logger",
        "trainer.project_name",
        "trainer.experiment_name",
        "trainer.save_freq",
        "trainer.test_freq",
        "trainer.total",
        "trainer.val",
        "trainer.critic_warmup",
        "trainer.default",
        "trainer.resume",
        "trainer.log",
        "trainer.rollout_data_dir",
        "trainer.device",
        "trainer.max",
        "trainer.del",
        "trainer.esi",
        "trainer.ray",
        "reward_model.reward_manager",
        "reward_manager",
        "custom_reward_function",
        "reward.custom",
        "reward.reward_manager",
        "actor_rollout_ref.hybrid_engine",
        "actor_rollout_ref.nccl_timeout",
        "ray_kwargs",
        "ray_init",
        "global_profiler",
        f"{ACTOR}.clip",
        f"{ACTOR}.kl_loss",
        f"{ACTOR}.loss",
        f"{ACTOR}.policy_loss",
        f"{ACTOR}.grad_clip",
        f"{ACTOR}.shuffle",
        f"{ACTOR}.optim.lr",
        f"{ACTOR}.optim.weight_decay",
        f"{ACTOR}.optim.warmup",
        f"{ACTOR}.optim.clip_grad",
        f"{ACTOR}.optim.total",
        f"{ACTOR}.optim.min_lr",
        f"{ACTOR}.optim.betas",
        f"{ACTOR}.optim.num_cycles",
        f"{ACTOR}.profiler",
        f"{ACTOR}.tis",
        f"{ACTOR}.data_loader_seed",
        f"{ROLLOUT}.temperature",
        f"{ROLLOUT}.top",
        f"{ROLLOUT}.do_sample",
        f"{ROLLOUT}.val_kwargs",
        f"{ROLLOUT}.ignore_eos",
        f"{ROLLOUT}.seed",
        f"{ROLLOUT}.multi_turn",
        f"{ROLLOUT}.agent",
        f"{ROLLOUT}.disable_log_stats",
        f"{ROLLOUT}.over_sample_rate",
        f"{ROLLOUT}.profiler",
        f"{ROLLOUT}.trace",
        f"{REFERENCE}.profiler",
        "critic.optim.lr",
        "critic.cliprange",
        "critic.grad_clip",
        "critic.model.tokenizer",
        "actor_rollout_ref.model.lora_alpha",
        "actor_rollout_ref.model.trust_remote_code",
        "actor_rollout_ref.model.custom_chat",
        "actor_rollout_ref.model.external_lib",
        "actor_rollout_ref.model.tokenizer",
        "actor_rollout_ref.model.hf_config_path",
    )
)
_HARMLESS = re.compile("|".join(HARMLESS))
_TRANSFORMER = "megatron.override_transformer_config"


#: Keys of which some values are modelled only: which, in small letters, and what is computed for the others.
_PARTLY: Mapping[str, tuple[tuple[str, ...], str]] = {
    **{
        f"{role}.{key}": (("none", *values), instead)
        for role in (ACTOR, "critic")
        for key, values, instead in (
            ("strategy", ("fsdp", "fsdp2", "megatron"), "computed as FSDP2"),
            ("optim.optimizer", ADAMS, "computed as Adam"),
            (f"{_TRANSFORMER}.recompute_granularity", ("full",), "computed as no recomputation"),
            (f"{_TRANSFORMER}.recompute_method", ("uniform",), "computed as no recomputation"),
        )
    },
    "model_engine": (("none", "dp", "megatron"), "computed as FSDP2"),
    "trainer.v1.trainer_mode": (("none", "sync", "separate_async"), "computed as sync"),
    f"{ROLLOUT}.name": (("none", "vllm", "sglang"), "computed as taking a share of the free memory"),
}
#: Ways of filling the engine with weights that lead to the same peaks.
_LOADING = frozenset({"auto", "dummy", "dummy_dtensor", "dummy_hf", "dummy_megatron", "hf", "safetensors"})
#: Older keys that change memory, and how.
_OLD: Mapping[str, str] = {"reward_model.enable": "the reward model comes on top"}
#: Keys that follow others: what they are set to beside those changes nothing.
_FOLLOWS: Mapping[str, str] = {
    f"{ROLLOUT}.prompt_length": "data.max_prompt_length",
    f"{ROLLOUT}.response_length": "data.max_response_length",
    f"{REFERENCE}.strategy": f"{ACTOR}.strategy",
    "critic.model.path": f"{MODEL}.path",
}


def is_harmless(key: str) -> bool:
    """Whether a key is known not to change memory."""
    return _HARMLESS.match(key) is not None


def unsupported_keys(request: Request, settings: Settings, facts: Registries) -> tuple[str, ...]:
    """Settings that may change memory and that no formula reads, each with what is known of it.

    A key that verl records as changing memory appears whenever it is set to anything but its default, unless
    the training backend does not read it.
    """
    modelled = modelled_keys(facts, request.version)
    found = []
    for key, value in request.config.items():
        if key in modelled:
            values, instead = _PARTLY.get(key, ((), ""))
            if values and str(value).lower() not in values:
                found.append(f"{key}: {str(value)[:80]!r} is not modelled; {instead}")
        elif not _HARMLESS.match(key):
            known = known_key(key, facts.config_keys)
            if known is None and key in _OLD:
                if value is not False:
                    found.append(f"{key}: not modelled; {_OLD[key]}")
            elif known is None:
                found.append(f"{key}: not a key that is known to change memory")
            elif known.status.startswith("no-op") and not _as_usual(key, value, request, facts):
                found.append(f"{key}: verl ignores it")
            elif _matters(known, settings) and not _as_usual(key, value, request, facts):
                found.append(f"{key}: not modelled")
    return tuple(found)


def _matters(key: ConfigKey, settings: Settings) -> bool:
    """Whether a key changes memory with the backend of its role."""
    role = settings.critic if key.name.startswith("critic.") else settings.actor
    if key.status.startswith("no-op") or not (key.phases or key.host_memory) or role is None:
        return False
    megatron = role.backend == "megatron"
    if (".fsdp_config." if megatron else ".megatron.") in key.name or (megatron and ".fsdp." in key.name):
        return False
    named = key.backends or (role.backend,)
    return role.backend in named or (role.backend == "fsdp2" and "fsdp" in named)


def _as_usual(key: str, value: Any, request: Request, facts: Registries) -> bool:
    """Whether a key is set to its default, or to what it follows."""
    defaults = facts.defaults(request.version)
    if key == f"{ROLLOUT}.load_format" and isinstance(value, str) and value in _LOADING:
        return True
    if value == defaults.get(key) or (key == "critic.model.path" and value == request.model):
        return True
    other = _FOLLOWS.get(key)
    if key.startswith(f"{REFERENCE}.megatron."):
        other = ACTOR + key.removeprefix(REFERENCE)
    if other is None:
        return False
    return bool(value == request.config.get(other, defaults.get(other)))


def misspelt_keys(request: Request, facts: Registries) -> tuple[tuple[str, str], ...]:
    """Keys that are not known, and the known ones beside them that they look like."""
    modelled = modelled_keys(facts, request.version)
    unknown = [
        key
        for key in request.config
        if key not in modelled and key not in facts.config_keys and not _HARMLESS.match(str(key))
    ]
    return tuple((key, near) for key in unknown if (near := _nearest_key(key, facts)))


@lru_cache(maxsize=4096)
def _nearest_key(key: str, facts: Registries) -> str | None:
    """A key of the same parent whose name nearly equals, or one of the same name under a similar parent."""
    parent, _, name = key.rpartition(".")
    known = [item.rpartition(".") for item in facts.config_keys.names]
    names = [other for above, _, other in known if above == parent]
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.85)
    if found:
        return f"{parent}.{found[0]}"
    if names:  # a parent that is known, with keys of which not all decide memory
        return None
    parents = [above for above, _, other in known if other == name]
    found = difflib.get_close_matches(parent, parents, n=1, cutoff=0.85)
    return f"{found[0]}.{name}" if found else None


class _Asked(dict[str, Any]):
    """Settings that note what they are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.keys_asked_for: set[str] = set()

    def __contains__(self, key: object) -> bool:
        self.keys_asked_for.add(str(key))
        return super().__contains__(key)


@lru_cache(maxsize=64)
def modelled_keys(facts: Registries, version: Version = CURRENT) -> frozenset[str]:
    """Every key that some formula of a version reads, found by reading them all."""
    from .reader import Reader
    from .request import Request
    from .resolve import read_settings

    asked = _Asked()
    for backend, trainer in product(("fsdp", "megatron"), (True, False)):
        config: dict[str, Any] = {
            "critic.enable": True,
            f"{ACTOR}.strategy": backend,
            "trainer.use_v1": trainer,
        }
        for role in (ACTOR, "critic"):
            config[f"{role}.optim.override_optimizer_config.optimizer_cpu_offload"] = True
            config[f"{role}.optim.use_precision_aware_optimizer"] = True
        asked.update(config)
        read = Reader(asked, facts.defaults(version))
        read_settings(Request("", config, gpus=8, memory_gb=80, version=version), facts, read)
    return frozenset(asked.keys_asked_for) | {
        "actor_rollout_ref.model.path",
        "algorithm.adv_estimator",  # read where critic.enable is not set
        "easyr1.dtype",
    }
