"""Check a request for one estimate: conflicts with the model, and settings that are not modelled."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..diagnostics import Diagnostic, NoAnswerError
from .keys import FOREIGN, Problems, is_harmless, key_warnings
from .megatron import stage_sizes
from .reader import OF_ACTOR, OF_CRITIC, OF_REFERENCE, Reader
from .registries import EstimatorContext
from .request import ACTOR, MODEL, REFERENCE, ROLLOUT, Request, error_at, warning_at
from .roles import ADAMS, BACKENDS, CRITIC_SIZES
from .settings import ENGINES, MODELLED, TRAINER_GPUS, Settings, settings_of
from .shape import Shape
from .versions import CURRENT, LAST, version_text

#: Ways to load the engine's weights that lead to the same peaks.
_LOADING = ("auto", "dummy", "dummy_dtensor", "dummy_hf", "dummy_megatron", "hf", "safetensors")
_TRANSFORMER = f"{ACTOR}.megatron.override_transformer_config"
#: Keys of which only some values are modelled: these, as verl spells them (optimizers and booleans in lower
#: case), and what happens with others. Where this is empty, the key decides memory: no figure is valid.
_VALUES: dict[str, tuple[tuple[str, ...], str]] = {
    f"{ACTOR}.strategy": (BACKENDS, ""),
    "model_engine": (("dp", "megatron"), ""),
    f"{ROLLOUT}.name": (ENGINES, ""),
    f"{ACTOR}.megatron.use_megatron_fsdp": (("false",), ""),
    f"{ACTOR}.optim.optimizer": (ADAMS, "computed as Adam"),
    f"{_TRANSFORMER}.recompute_granularity": (("full",), "computed as no recomputation"),
    f"{_TRANSFORMER}.recompute_method": (("uniform",), "computed as no recomputation"),
    f"{_TRANSFORMER}.recompute_num_layers": (("1",), "computed as 1"),
    f"{MODEL}.mtp.enable": (("false",), "computed without the additional layers"),
    "trainer.v1.trainer_mode": (("sync", "separate_async"), "computed as sync"),
    f"{ROLLOUT}.load_format": (_LOADING, "computed as auto"),
    "reward_model.enable": (("false",), "the reward model's memory comes on top"),
    "reward.reward_model.enable": (("false",), "it alternates with other phases, or has separate GPUs"),
    "distillation.enabled": (("false",), "a top-k loss needs more memory in the update"),
}
_VALUES |= {f"critic{key.removeprefix(ACTOR)}": row for key, row in _VALUES.items() if key.startswith(ACTOR)}


def resolve(
    request: Request, registries: EstimatorContext
) -> tuple[Shape, Settings, tuple[Diagnostic, ...], tuple[str, ...]]:
    """Return the shape and the settings of a request, warnings about it, and the ignored settings.

    The warnings do not include those about keys, see ``key_warnings``.

    Raises:
        NoAnswerError: the request cannot be estimated.
    """
    shape = registries.known_shape(request.model)
    reader = Reader(request, registries)
    settings = settings_of(reader, registries)
    reader.diagnostics += problems_of(shape, settings, request.model)
    if request.version > LAST:
        newest = version_text(CURRENT)
        message = f"{version_text(request.version)} is newer than {newest}, the newest supported release"
        reader.warning(
            "version", message, f"the estimate is for {newest} and later changes on the main branch"
        )
    undecided, ignored = _not_modelled(reader, settings, registries)
    if any(problem.is_error for problem in reader.diagnostics):
        raise NoAnswerError(*reader.diagnostics, *key_warnings(request, registries, reader.diagnostics))
    # Keys that are read twice warn once.
    return shape, replace(settings, undecided=undecided), tuple(dict.fromkeys(reader.diagnostics)), ignored


# -- conflicts


def problems_of(shape: Shape, settings: Settings, model: str = "") -> Problems:
    """Yield conflicts between a model, by its shape and name, and its settings."""
    actor = settings.actor
    heads, moe = (shape.heads, "attention heads"), shape.architecture.moe
    experts = (moe.num_experts if moe else 0, "experts")
    ulysses = settings.reference_fsdp.ulysses if settings.reference else 1
    divided = [
        (f"{ROLLOUT}.tensor_model_parallel_size", settings.rollout.tensor, heads),
        (f"{OF_REFERENCE.fsdp}.ulysses_sequence_parallel_size", ulysses, heads),
    ]
    for of, role in ((OF_ACTOR, actor), (OF_CRITIC, settings.critic)):
        if role:
            section, megatron = f"{of.role}.megatron", role.megatron
            divided += [
                (f"{section}.tensor_model_parallel_size", megatron.tensor, heads),
                (f"{of.fsdp}.ulysses_sequence_parallel_size", role.fsdp.ulysses, heads),
                (f"{section}.expert_model_parallel_size", megatron.expert, experts),
            ]
            for target in role.targets if role.lora_rank and role.targets != "all-linear" else ():
                if target not in shape.modules:
                    message = f"the model has no module {target[:80]!r}: no adapter is added"
                    remedy = f"its modules are {', '.join(shape.modules)}"
                    yield warning_at(f"{of.model}.target_modules", message, remedy)
            sizes = stage_sizes(shape.layers, megatron)
            if min(sizes) < 1 or sum(sizes) != shape.layers:
                message = f"{shape.layers} layers cannot be divided this way among {megatron.pipeline} stages"
                yield error_at(f"{section}.pipeline_model_parallel_size", message, "use fewer stages")
    for key, size, (whole, parts) in divided:
        if whole % size:
            message = f"{size} does not divide the model's {whole} {parts}"
            yield error_at(key, message, "choose a divisor")
    key, micro = f"{ACTOR}.ppo_micro_batch_size_per_gpu", actor.micro_batch
    sequences = 0 if micro.dynamic else micro.sequences
    if sequences is None:
        message = "no micro-batch size is set: one sequence is assumed"
        yield warning_at(key, message, "set it, or actor.use_dynamic_bsz", "missing_key")
    elif sequences > micro.most:
        what = f"the micro-batch of {sequences} sequences"
        message = f"{what} is larger than a GPU's mini-batch of {micro.most}, which is used"
        yield warning_at(key, message, "lower it")
    # verl rejects a longer max_model_len: verl/workers/rollout/vllm_rollout/vllm_async_server.py:998 at
    # 1dda039b9.
    length = settings.rollout.model_length or int(settings.lengths.limit)
    most = settings.positions or shape.architecture.positions_of(model)
    if length > most:
        message = f"sequences have up to {length:,} tokens, but the model only has {most:,} positions"
        yield warning_at("data.max_response_length", f"{message}: verl rejects them", "shorten them")


# -- settings that no formula reads


def _not_modelled(
    reader: Reader, settings: Settings, registries: EstimatorContext
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the settings that leave memory undecided, and the ignored ones that may change it.

    Each has a reason. A key that is recorded as changing memory is ignored if its value differs from the
    default and the training backend reads it.
    """
    request, undecided, ignored = reader.request, dict[str, str](), dict[str, str]()
    for key, value in reader.config.items():
        section = key.partition(".")[0]
        modelled, instead = _VALUES.get(key, ((), ""))
        if section in FOREIGN:
            undecided[section] = f"settings of {FOREIGN[section]}, which are not modelled"
        elif modelled:
            is_exact = isinstance(value, str) and not key.endswith(".optimizer")
            text = value if is_exact else str(value).lower()
            if text not in ("none", *modelled) and _is_read(key, settings):
                what = "not modelled" if value is True else f"{str(value)[:80]!r} is not modelled"
                ignored[key] = what + (instead and f"; {instead}")
                undecided |= {} if instead else {key: ignored[key]}
        elif key in CRITIC_SIZES and not reader.traits.critic_reads_own_keys:
            ignored[key] = "verl ignores it"
        elif key not in MODELLED and not is_harmless(key):
            ignored[key] = _why_ignored(key, value, reader, settings, registries)
    if request.task == "PRIME":
        undecided["reward_model"] = "PRIME also trains a reward model, which is not modelled"
    unresolved = [problem for problem in reader.diagnostics if problem.code == "unresolved"]
    undecided |= {problem.place.key: problem.message for problem in unresolved}
    unread = {registries.renamed.get(key, key) for key in request.unread} & MODELLED - {f"{MODEL}.path"}
    undecided |= dict.fromkeys(sorted(unread), "its value is unknown")
    keys = TRAINER_GPUS if request.gpus is not None else ()
    reasons = [f"{key}: {reason}" for key, reason in undecided.items() if key not in keys]
    return (*reasons, *request.incomplete), tuple(f"{key}: {why}" for key, why in ignored.items() if why)


def _why_ignored(
    key: str, value: Any, reader: Reader, settings: Settings, registries: EstimatorContext
) -> str:
    """Return why a key that no formula reads may change memory; empty if it does not."""
    twin = re.sub(rf"^(critic|{REFERENCE})\.", f"{ACTOR}.", key)  # their sections are those of the actor
    recorded = registries.known_key(key) or registries.known_key(twin)
    if recorded is None:
        return "its effect on memory is unknown"
    same = (f"{REFERENCE}.megatron.", f"{REFERENCE}.strategy")
    other = key.replace("critic.model.path", f"{MODEL}.path").replace(f"{ROLLOUT}.", "data.max_")
    others = {twin if key.startswith(same) else other} - {key}  # keys that it follows
    usual = [reader.request.model, reader.defaults.get(key)]
    usual += [reader.config.get(name, reader.defaults.get(name, usual[0])) for name in others]
    if value in usual:
        return ""
    if recorded.status.startswith("no-op"):
        return "verl ignores it"
    changes = recorded.phases or recorded.host_memory
    return "not modelled" if changes and _is_read(key, settings, recorded.backends) else ""


def _is_read(key: str, settings: Settings, backends: Iterable[str] = ()) -> bool:
    """Return whether the role of a key exists, and its backend reads the key."""
    role = settings.critic if key.startswith("critic.") else settings.actor
    if role is None or (".fsdp" if role.backend == "megatron" else ".megatron.") in key:
        return False
    return not backends or role.backend in backends or role.backend.removesuffix("2") in backends
