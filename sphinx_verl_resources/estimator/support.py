"""Settings that an estimate ignores, and why that matters."""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from .roles import ACTOR, REFERENCE, ROLLOUT

if TYPE_CHECKING:
    from .facts import Facts
    from .request import Request

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


def unsupported_keys(request: Request, facts: Facts) -> tuple[str, ...]:
    """Settings that may change memory and that no formula reads, each with what is known of it.

    A key that verl records as changing memory appears whenever it is set to anything but its default.
    """
    modelled = modelled_keys(facts)
    defaults = facts.defaults(request.version)
    found = []
    for key, value in request.config.items():
        if key in modelled or _HARMLESS.match(key):
            continue
        known = facts.config_keys.get(key)
        if known is None:
            found.append(f"{key}: not a key that is known to change memory")
        elif (known.phases or known.host_memory) and value != defaults.get(key):
            found.append(f"{key}: not modelled")
    return tuple(found)


def misspelt_keys(request: Request, facts: Facts) -> tuple[tuple[str, str], ...]:
    """Keys that are not known, and the known ones beside them that they look like."""
    unknown = [
        key for key in request.config if key not in facts.config_keys and not _HARMLESS.match(str(key))
    ]
    return tuple((key, near) for key in unknown if (near := _nearest_key(key, facts)))


def _nearest_key(key: str, facts: Facts) -> str | None:
    """A key under the same parent whose name nearly equals, or one of the same name under a similar parent."""
    parent, _, name = key.rpartition(".")
    known = [item.rpartition(".") for item in facts.config_keys.names]
    names = [other for above, _, other in known if above == parent]
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.85)
    if found:
        return f"{parent}.{found[0]}"
    parents = [above for above, _, other in known if other == name]
    found = difflib.get_close_matches(parent, parents, n=1, cutoff=0.85)
    return f"{found[0]}.{name}" if found else None


def modelled_keys(facts: Facts) -> frozenset[str]:
    """Every key that some formula reads, found by reading them all."""
    return _modelled(facts)


@lru_cache(maxsize=8)
def _modelled(facts: Facts) -> frozenset[str]:
    from .reader import Reader
    from .request import Request
    from .resolve import read_settings
    from .versions import CURRENT

    keys: set[str] = set()
    for backend in ("fsdp", "megatron"):
        config = {"critic.enable": True, f"{ACTOR}.strategy": backend}
        config[f"{ACTOR}.megatron.override_transformer_config.recompute_granularity"] = "full"
        config[f"{ACTOR}.optim.override_optimizer_config.optimizer_cpu_offload"] = True
        read = Reader(config, facts.defaults(CURRENT))
        read_settings(Request("", config, gpus=8, memory_gb=80), facts, read)
        keys |= read.read
    return frozenset(keys) | {"actor_rollout_ref.model.path", "easyr1.dtype"}
