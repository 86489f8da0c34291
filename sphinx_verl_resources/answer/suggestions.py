"""Suggestions: verl's settings that save memory, their cost, and the one that saves most.

Costs in time follow verl's own documents at 1dda039b9: docs/perf/perf_tuning.rst (padding, micro-batches,
offloaded activations, entropy, Ulysses), docs/perf/best_practices.rst (Megatron), and comments in
trainer/config/engine/fsdp.yaml and trainer/config/rollout/rollout.yaml. These give few figures. *Little*
means work that is done once per step or recomputed once; *much* means that the GPU is idle while the host
computes or sends.

With FSDP there is no switch for the reference policy: verl always keeps it on the host
(workers/engine/fsdp/transformer_impl.py:404) and ignores ``ref.fsdp_config.param_offload``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ..diagnostics import NoAnswerError
from ..i18n import N_
from ..memory.engine import cache_tokens
from ..memory.estimate import Estimate, attempt
from ..memory.phases import phases_of
from ..memory.reader import OF_ACTOR, OF_CRITIC
from ..memory.request import ACTOR, MODEL, REFERENCE, ROLLOUT
from ..memory.settings import micro_batches
from ..memory.versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..memory.estimate import AnyEstimate
    from ..memory.phases import Phase
    from ..memory.reader import Sections
    from ..memory.registries import EstimatorContext
    from ..memory.roles import MicroBatch, Role
    from ..memory.settings import Settings
    from ..memory.shape import Shape
    from ..memory.versions import Version

#: The cost of a setting in time.
Cost = Literal["none", "little", "much"]
Overrides = dict[str, Any]

#: FSDP shards and updates the parameters in the data type in which ``from_pretrained`` loads them, without a
#: copy in fp32 (workers/engine/fsdp/transformer_impl.py:239-314 and :376 at 1dda039b9).
ROUNDS = N_(
    "Weights, gradients and Adam's moments are then in bfloat16, without an fp32 copy: small updates may be "
    "lost to rounding. Compare the reward with an fp32 run."
)
FILLS_HOST = N_("Offloaded state uses host memory.")


@dataclass(frozen=True)
class Relief:
    """A setting that saves memory.

    Attributes:
        steps: its overrides by verl's dotted keys, from the one that saves least to the one that saves most.
        cost: its cost in time.
        caveat: other costs, as a translatable sentence; empty if there are none.
    """

    steps: tuple[Overrides, ...]
    cost: Cost
    caveat: str = ""


@dataclass(frozen=True)
class Suggestion:
    """A change of one setting.

    Attributes:
        setting: the override for verl, ``key=value``, or several that only work together.
        saves: the bytes that it takes off the peak.
        peak: the remaining peak in bytes.
        peak_phase: the name of the phase with the remaining peak.
    """

    setting: str
    saves: float
    peak: float
    peak_phase: str


def reliefs(of: Estimate) -> tuple[Relief, ...]:
    """Return every setting that may save memory: switches that are off, and sizes that can change.

    Includes only settings that the version of verl has, under their names in this version.
    """
    registries, settings = of.registries, of.settings
    given = registries.in_todays_names(of.request.config)
    found = []
    for relief in _all(of.shape, settings, given):
        named = (_named(step, settings.version, given, registries) for step in relief.steps)
        if steps := tuple(step for step in named if step):
            found.append(Relief(steps, relief.cost, relief.caveat))
    return tuple(found)


def suggestions(of: Estimate) -> tuple[Suggestion, ...]:
    """Return every setting that alone lowers the peak by more than 1 %, at the step that saves most."""
    found = []
    for relief in reliefs(of):
        steps = ((_phases_after(of, step), step) for step in relief.steps)
        peaks = [(max(phases, key=lambda phase: phase.total), step) for phases, step in steps if phases]
        if peaks:
            phase, step = min(peaks, key=lambda pair: pair[0].total)
            saves = of.peak - phase.total
            found.append(Suggestion(override_text(step), saves, phase.total, phase.name))
    return tuple(suggestion for suggestion in found if suggestion.saves > 0.01 * of.peak)


def best_suggestion(of: AnyEstimate) -> Suggestion | None:
    """Return the single setting that lowers the peak most; None if no setting does."""
    found = suggestions(of) if isinstance(of, Estimate) else ()
    return max(found, key=lambda suggestion: suggestion.saves, default=None)


def _phases_after(of: Estimate, overrides: Mapping[str, Any]) -> tuple[Phase, ...]:
    """Return the phases with other settings and the same lengths; none if these settings cannot run."""
    after = attempt(of.request.having(overrides), of.registries)
    if isinstance(after, NoAnswerError):
        return ()
    return phases_of(after.shape, replace(after.settings, lengths=of.settings.lengths))


def _named(
    step: Overrides, version: Version, given: Mapping[str, Any], registries: EstimatorContext
) -> Overrides | None:
    """Return overrides under their names in a version of verl; None if the version lacks one.

    Keys that are already set are kept: between two releases verl has keys of the next one.
    """
    named = {key if key in given else registries.name_in(key, version): step[key] for key in step}
    return None if None in named else {str(key): value for key, value in named.items()}


def _all(shape: Shape, settings: Settings, given: Mapping[str, Any]) -> Iterator[Relief]:
    roles = [(OF_ACTOR, settings.actor), *([(OF_CRITIC, settings.critic)] if settings.critic else [])]
    for of, role in roles:
        if not role.remove_padding:
            yield _on("none", f"{of.model}.use_remove_padding")
        yield from (_of_megatron if role.backend == "megatron" else _of_fsdp)(of, role)
    yield from _of_logits(settings)
    if settings.reference and settings.actor.backend == "megatron" and not settings.reference_offload:
        yield _on("little", f"{REFERENCE}.megatron.param_offload", caveat=FILLS_HOST)
    if settings.actor.backend == "megatron":
        if any(key.endswith("_parallel_size") and ".megatron." in key for key in given):
            yield from _divided(shape, settings)
    else:
        yield from _of_ulysses(shape, settings, given)
    yield from _micro_batches(settings, given)
    if not settings.rollout.separate:
        yield from _of_rollout(shape, settings)


def _on(cost: Cost, *keys: str, caveat: str = "") -> Relief:
    return Relief((dict.fromkeys(keys, True),), cost, caveat)


def _of_fsdp(of: Sections, role: Role) -> Iterator[Relief]:
    """Yield the switches for a role trained with FSDP."""
    fsdp = role.fsdp
    if not role.checkpointing:
        yield _on("little", f"{of.model}.enable_gradient_checkpointing")
    on_host = fsdp.offload_policy and role.backend == "fsdp2"
    if not (fsdp.optimizer_offload or on_host):
        yield _on("little", f"{of.fsdp}.optimizer_offload", caveat=FILLS_HOST)
    if not (fsdp.param_offload or on_host):
        yield _on("little", f"{of.fsdp}.param_offload", caveat=FILLS_HOST)
    if not fsdp.reshard:
        yield _on("little", f"{of.fsdp}.reshard_after_forward")
    if fsdp.reshards_root:  # there are several copies of the states, each on some of the GPUs
        yield Relief(({f"{of.fsdp}.fsdp_size": -1},), "little")
    if fsdp.defers_sync:
        yield Relief(({f"{of.fsdp}.use_no_sync_for_gradient_accumulation": False},), "little")
    if fsdp.parameter_bytes > 2:
        yield Relief(({f"{of.fsdp}.model_dtype": "bfloat16"},), "none", ROUNDS)
    if role.backend == "fsdp2" and not on_host:
        yield _on("much", f"{of.fsdp}.offload_policy", caveat=FILLS_HOST)


def _of_megatron(of: Sections, role: Role) -> Iterator[Relief]:
    """Yield the switches for a role trained with Megatron."""
    megatron, prefix = role.megatron, f"{of.role}.megatron"
    for name in ("optimizer_offload", "param_offload"):
        if not getattr(megatron, name):
            yield _on("little", f"{prefix}.{name}", caveat=FILLS_HOST)
    if not megatron.distributed_optimizer:
        yield _on("little", f"{prefix}.use_distributed_optimizer")
    if megatron.tensor > 1 and not megatron.sequence_parallel:
        yield _on("none", f"{prefix}.sequence_parallel")
    if not megatron.recompute:
        # Megatron rejects full recomputation without a method and a number of layers.
        together = {"granularity": "full", "method": "uniform", "num_layers": 1}
        transformer = f"{prefix}.override_transformer_config.recompute_"
        yield Relief(({transformer + name: value for name, value in together.items()},), "little")
    if megatron.cpu_optimizer < 1:
        config = f"{of.role}.optim.override_optimizer_config"
        step = {f"{config}.optimizer_cpu_offload": True, f"{config}.optimizer_offload_fraction": 1}
        yield Relief(({**step, f"{config}.use_precision_aware_optimizer": True},), "much", FILLS_HOST)


def _of_logits(settings: Settings) -> Iterator[Relief]:
    if settings.fused_kernels:
        return
    yield _on("none", f"{MODEL}.use_fused_kernels")
    if not settings.entropy_chunk:
        yield _on("little", f"{ACTOR}.entropy_from_logits_with_chunking")
    if settings.actor.backend != "megatron" and not settings.entropy_recomputed:
        yield _on("little", f"{ACTOR}.entropy_checkpointing")


def _divided(shape: Shape, settings: Settings) -> Iterator[Relief]:
    """Yield larger parallel sizes for Megatron that divide the GPUs and the model."""
    megatron, gpus, moe = settings.actor.megatron, settings.gpus, shape.architecture.moe
    roles = [ACTOR, *(["critic"] if settings.critic and settings.critic.backend == "megatron" else [])]
    replicas = gpus // (megatron.tensor * megatron.pipeline * megatron.context)
    sizes = {
        "tensor_model": _doubled(megatron.tensor, 8, replicas * megatron.tensor, shape.heads),
        "pipeline_model": _doubled(megatron.pipeline, shape.layers, replicas * megatron.pipeline),
        "context": _doubled(megatron.context, 8, replicas * megatron.context),
    }
    whole_experts: Overrides = {}
    if moe:
        most = gpus // megatron.pipeline
        sizes["expert_model"] = _doubled(megatron.expert, most, most, moe.num_experts)
        whole_experts = {f"{role}.megatron.expert_tensor_parallel_size": 1 for role in roles}
    for name, larger in sizes.items():
        keys = [f"{role}.megatron.{name}_parallel_size" for role in roles]
        more = whole_experts if name == "expert_model" else {}
        if larger:
            yield Relief(tuple({**dict.fromkeys(keys, size), **more} for size in larger), "little")


def _doubled(size: int, most: int, *dividing: int) -> list[int]:
    """Return larger sizes, by doubling, that divide all given numbers.

    >>> _doubled(2, 16, 16, 24)
    [4, 8]
    """
    found = []
    while (size := 2 * size) <= most and not any(number % size for number in dividing):
        found.append(size)
    return found


def _of_ulysses(shape: Shape, settings: Settings, given: Mapping[str, Any]) -> Iterator[Relief]:
    """Yield larger Ulysses sizes, with token budgets lowered to exactly one sequence.

    verl rejects Ulysses with padding (workers/engine/fsdp/transformer_impl.py:129 at 1dda039b9). Budgets are
    per GPU, so a larger size saves nothing unless they are lowered.
    """
    actor, name = settings.actor, "ulysses_sequence_parallel_size"
    steps = []
    for size in _doubled(actor.fsdp.ulysses, 8, settings.gpus, shape.heads):
        step: Overrides = {f"{OF_ACTOR.fsdp}.{name}": size}
        if settings.reference:
            step[f"{REFERENCE}.fsdp_config.{name}"] = size
        if not actor.remove_padding:
            step[f"{MODEL}.use_remove_padding"] = True
        share = -(-int(settings.lengths.limit) // size)
        for micro, prefix, start in _passes(settings):
            key = f"{prefix}.{start}max_token_len_per_gpu"
            own = prefix == ACTOR or (prefix != "critic" and key in given)
            if own and micro.dynamic and micro.tokens > share:
                step[key] = share
        steps.append(step)
    if steps:
        yield Relief(tuple(steps), "little")


def _passes(settings: Settings) -> Iterator[tuple[MicroBatch, str, str]]:
    """Yield the passes, each with its micro-batch and the section and prefix of its keys."""
    yield settings.actor.micro_batch, ACTOR, "ppo_"
    yield settings.old_micro_batch, ROLLOUT, "log_prob_"
    if settings.reference:
        yield settings.reference_micro_batch, REFERENCE, "log_prob_"
    if settings.critic:
        infers = behaviour(settings.version).one_critic_budget and settings.critic.micro_batch.dynamic
        yield settings.critic.micro_batch, "critic", "ppo_infer_" if infers else "ppo_"


def _micro_batches(settings: Settings, given: Mapping[str, Any]) -> Iterator[Relief]:
    """Yield smaller micro-batches, halved down to one sequence.

    Log-prob passes with the same micro-batches as the update change with it; if their own key is unset, verl
    does this by default.
    """
    first = settings.actor.micro_batch
    least = -(-int(settings.lengths.limit) // first.sharers)  # one GPU's share of a sequence
    if not first.dynamic:
        budget = {f"{ACTOR}.use_dynamic_bsz": True, f"{ACTOR}.ppo_max_token_len_per_gpu": least}
        yield Relief((budget,), "none")
    name = {True: "max_token_len_per_gpu", False: "micro_batch_size_per_gpu"}
    of_update = [f"{ACTOR}.ppo_{name[first.dynamic]}"]
    for micro, prefix, start in _passes(settings):
        key = f"{prefix}.{start}{name[micro.dynamic]}"
        if prefix in (ROLLOUT, REFERENCE) and micro == first:
            of_update += [key] if key in given else []
        elif prefix != ACTOR and (sizes := _sizes(micro, least)):
            yield Relief(tuple({key: size} for size in sizes), "little")
    if sizes := _sizes(first, least):
        yield Relief(tuple(dict.fromkeys(of_update, size) for size in sizes), "little")
    if whole := _whole_mini_batch(settings, settings.actor):
        counted = {} if first.dynamic else {f"{ACTOR}.use_dynamic_bsz": True}
        yield Relief(({**counted, f"{ACTOR}.ppo_max_token_len_per_gpu": whole},), "none")
    *_, (micro, prefix, start) = _passes(settings)
    of_critic = settings.critic and micro.dynamic and _whole_mini_batch(settings, settings.critic)
    if of_critic:
        yield Relief(({f"{prefix}.{start}{name[True]}": of_critic},), "none")


def _whole_mini_batch(settings: Settings, role: Role) -> int | None:
    """Return the token budget of a whole mini-batch; None if this saves nothing.

    It saves memory if every GPU keeps the gradients of the whole model between micro-batches.
    """
    deferred = role.backend != "megatron" and role.fsdp.defers_sync and role.fsdp.shard > 1
    if not deferred or micro_batches(settings, role) < 2:
        return None
    return -(-role.micro_batch.most * int(settings.lengths.limit) // role.micro_batch.sharers)


def _sizes(micro: MicroBatch, least: int) -> list[int]:
    """Return smaller sizes of micro-batches, in tokens or sequences."""
    return _halved(micro.tokens, least) if micro.dynamic else _halved(micro.sequences or 1, 1)


def _halved(size: int, least: int) -> list[int]:
    """Return smaller sizes by halving, with ``least`` at the end.

    >>> _halved(16384, 3000), _halved(8, 1), _halved(5, 5)
    ([8192, 4096, 3000], [4, 2, 1], [])
    """
    found = []
    while size > least:
        size = max(size // 2, least)
        found.append(size)
    return found


def _of_rollout(shape: Shape, settings: Settings) -> Iterator[Relief]:
    """Yield settings that reduce the rollout engine's memory."""
    rollout = settings.rollout
    if lower := tuple(lower_utilizations(shape, settings)):
        steps = ({f"{ROLLOUT}.gpu_memory_utilization": share} for share in lower)
        yield Relief(tuple(steps), "little")
    if not rollout.eager:
        yield _on("little", f"{ROLLOUT}.enforce_eager")
    if not rollout.frees_cache:
        yield _on("little", f"{ROLLOUT}.free_cache_engine")
    if larger := _doubled(rollout.tensor, 32, settings.gpus, shape.heads):
        yield Relief(tuple({f"{ROLLOUT}.tensor_model_parallel_size": size} for size in larger), "little")
    fsdp = settings.actor.backend != "megatron"
    if settings.actor.lora_rank and fsdp and not (rollout.layered_summon or rollout.merge_lora):
        step = {f"{ROLLOUT}.layered_summon": True, f"{ROLLOUT}.load_format": "safetensors"}
        yield Relief((step,), "little")


def lower_utilizations(shape: Shape, settings: Settings) -> Iterator[float]:
    """Yield smaller shares of the GPU for the rollout engine, as long as its cache holds a sequence.

    If the cache cannot hold a sequence, the engine does not start.
    """
    share = settings.rollout.utilization
    while (share := round(share - 0.1, 2)) > 0.1:
        smaller = replace(settings, rollout=replace(settings.rollout, utilization=share))
        if cache_tokens(shape, smaller) < settings.lengths.limit:
            return
        yield share


def override_text(overrides: Mapping[str, Any]) -> str:
    """Write overrides as arguments of verl's launcher.

    >>> override_text({"actor_rollout_ref.model.use_fused_kernels": True})
    'actor_rollout_ref.model.use_fused_kernels=True'
    """
    return " ".join(f"{key}={value}" for key, value in overrides.items())
