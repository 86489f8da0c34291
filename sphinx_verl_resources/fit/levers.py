"""Levers: the one list of settings that free memory, each with its cost, evidence and limits.

Costs in time follow verl's documents, which give few figures. *Little* is work that is done once per step or
recomputed once; *much* means that the GPU is idle while the host computes.

With FSDP there is no lever for the reference policy: verl always keeps it on the host, and ignores
``ref.fsdp_config.param_offload`` (workers/engine/fsdp/transformer_impl.py:413 at 1dda039b9).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..diagnostics import NoAnswerError
from ..i18n import N_
from ..memory.engine import cache_tokens
from ..memory.estimate import Estimate, attempt
from ..memory.phases import LABELS, phases_of
from ..memory.reader import OF_ACTOR, OF_CRITIC
from ..memory.recorded import ENGINE_LENGTH, ENGINE_SHARE, ENGINE_TP
from ..memory.request import ACTOR, REFERENCE, ROLLOUT
from ..memory.settings import gpu_of, micro_batches
from ..memory.versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..memory.estimate import AnyEstimate
    from ..memory.reader import Sections
    from ..memory.roles import Role
    from ..memory.settings import Settings
    from ..memory.shape import Shape

#: The cost of a lever in time.
Cost = Literal["none", "little", "much"]
Overrides = dict[str, Any]
#: FSDP shards and updates the parameters in the data type in which ``from_pretrained`` loads them, without a
#: copy in fp32 (workers/engine/fsdp/transformer_impl.py:236 at 1dda039b9).
ROUNDS = N_(
    "Weights, gradients and Adam's moments are then in bfloat16, without an fp32 copy: small updates may be "
    "lost to rounding. Compare the reward with an fp32 run."
)
FILLS_HOST = N_("Offloaded state uses host memory.")
#: Phases: all of them, the updates, and those with micro-batches; with logits, and those of neither a GPU's
#: memory: the start of the rollout engine, and host memory.
_ALL = frozenset(LABELS)
_UPDATE = frozenset(name for name in LABELS if name.endswith(("-forward", "-backward")))
_BATCHES = _ALL - {"loading", "rollout", "weight-sync"}
STARTUP, HOST = frozenset({"startup"}), frozenset({"host"})
#: The ends of keys that a partial source may leave out, by the name in ``Settings.unstated``.
_UNSTATED = {
    "padding": ("remove_padding",), "length": ("model_len",), "recompute": ("recompute_granularity",),
    "offload": (".param_offload", ".optimizer_offload"),
}  # fmt: skip


@dataclass(frozen=True)
class Lever:
    """A setting that frees memory.

    Attributes:
        steps: its overrides, or a function that returns several for a role, the weakest first. Keys contain
            names of ``Sections``; ``{backend}`` is the section of the training backend.
        cost: its cost in time.
        phases: the phases that it can lower; a lever of one role may lower those in which the other works.
        text: what it does, as a translatable sentence.
        evidence: a place in verl's sources at 1dda039b9.
        caveat: when not to use it, as a translatable sentence; empty if it has no other cost.
        messages: the forms of messages that call for it, see ``intake.failure_forms``.
        device: ``cuda`` if verl does not use it on NPUs.
    """

    steps: Overrides | Callable[[Estimate, Role], Iterable[Overrides]]
    cost: Cost
    phases: frozenset[str]
    text: str
    evidence: str
    caveat: str = ""
    messages: tuple[str, ...] = ()
    device: Literal["any", "cuda"] = "any"

    @property
    def rank(self) -> int:
        """The rank of its cost; a lever that can change results comes last."""
        return 3 if self.caveat == ROUNDS else ("none", "little", "much").index(self.cost)


class Option(NamedTuple):
    """A lever and its overrides for one role of an estimate, the weakest first."""

    lever: Lever
    steps: tuple[Overrides, ...]


def options_for(found: Estimate) -> Iterator[Option]:
    """Yield every lever that may help, in the order of ``LEVERS``; some have no effect on the estimate.

    Leaves out settings that the version of verl lacks, that are already set, or whose value is unknown.
    """
    registries, request, settings = found.registries, found.request, found.settings
    given, defaults = registries.in_todays_names(request.config), registries.defaults(request.version)
    unread = {registries.renamed.get(key, key) for key in request.unread}
    ends = sum((_UNSTATED[name] for name in settings.unstated), ("_parallel_size",) * request.partial)
    gpu = gpu_of(request, registries)
    devices = ("any",) if gpu and gpu.vendor == "huawei" else ("any", "cuda")

    def changed(step: Overrides, role: Role, of: Sections) -> Overrides:
        """Return what a step changes, under the names of the version; nothing if it is impossible."""
        backend, other = (of.megatron, of.fsdp) if role.backend == "megatron" else (of.fsdp, of.megatron)
        own = {key.format(**of._asdict(), backend=backend): value for key, value in step.items()}
        present = {key: given.get(key, defaults.get(key)) for key in own}
        present[f"{of.role}.strategy"] = role.backend
        own = {key: value for key, value in own.items() if present[key] != value}
        names = {key: key if key in given else registries.name_in(key, settings.version) for key in own}
        unknown = any(key in unread or (key not in given and key.endswith(ends)) for key in own)
        if unknown or None in names.values() or any(key.startswith(other) for key in own):
            return {}
        return {str(names[key]): value for key, value in own.items()}

    for lever in LEVERS:
        known: list[tuple[Overrides, ...]] = [()]
        for role, of in (settings.actor, OF_ACTOR), (settings.critic, OF_CRITIC):
            if role and lever.device in devices:
                steps = lever.steps(found, role) if callable(lever.steps) else (lever.steps,)
                known.append(tuple(filter(None, (changed(step, role, of) for step in steps))))
                if known[-1] not in known[:-1]:
                    yield Option(lever, known[-1])


# -- steps


def _doubled(size: int, most: int, *dividing: int) -> list[int]:
    """Return larger sizes, by doubling, that divide all given numbers.

    >>> _doubled(2, 16, 16, 24)
    [4, 8]
    """
    larger = [size << power for power in range(1, 12) if size << power <= most]
    return [size for size in larger if not any(number % size for number in dividing)]


def _halved(size: int, least: int) -> list[int]:
    """Return smaller sizes by halving, with ``least`` at the end.

    >>> _halved(16384, 3000), _halved(8, 1), _halved(5, 5)
    ([8192, 4096, 3000], [4, 2, 1], [])
    """
    return [] if size <= least else [max(size // 2, least), *_halved(max(size // 2, least), least)]


def _sizes(found: Estimate, *, dynamic: bool) -> dict[str, int]:
    """Return the sizes of the micro-batches in tokens or sequences, by key; unset keys follow the actor's."""
    settings, name = found.settings, "max_token_len_per_gpu" if dynamic else "micro_batch_size_per_gpu"
    passes = {f"{ACTOR}.ppo_": settings.actor.micro_batch, f"{ROLLOUT}.log_prob_": settings.old_micro_batch}
    if settings.reference:
        passes[f"{REFERENCE}.log_prob_"] = settings.reference_micro_batch
    if settings.critic:
        infers = behaviour(settings.version).one_critic_budget and dynamic
        passes["critic.ppo_infer_" if infers else "critic.ppo_"] = settings.critic.micro_batch
    return {
        start + name: micro.tokens if dynamic else micro.sequences or 1
        for start, micro in passes.items()
        if micro.dynamic == dynamic and (".log_prob_" not in start or start + name in found.request.config)
    }


def _share(found: Estimate, gpus: int = 0) -> int:
    """Return one GPU's share of the longest sequence in tokens, if some GPUs share a sequence."""
    return -(-int(found.settings.lengths.limit) // (gpus or found.settings.actor.micro_batch.sharers))


def _smaller(found: Estimate, _: Role, *, dynamic: bool) -> Iterator[Overrides]:
    """Yield smaller micro-batches, halved from the largest pass down to one sequence."""
    sizes = _sizes(found, dynamic=dynamic)
    for most in _halved(max(sizes.values(), default=1), _share(found) if dynamic else 1):
        yield {key: most for key, size in sizes.items() if size > most}


def _dynamic(found: Estimate, _: Role) -> Iterator[Overrides]:
    """Yield token budgets instead of numbers of sequences, from verl's default down to one sequence."""
    least = _share(found)
    for tokens in [] if found.settings.actor.micro_batch.dynamic else _halved(2 * max(16384, least), least):
        yield {f"{ACTOR}.use_dynamic_bsz": True, f"{ACTOR}.ppo_max_token_len_per_gpu": tokens}


def _whole_mini_batch(found: Estimate, role: Role) -> Iterator[Overrides]:
    """Yield the token budget of a whole mini-batch, if every GPU keeps gradients between micro-batches."""
    if role.fsdp.defers_sync and role.fsdp.shard > 1 and micro_batches(found.settings, role) > 1:
        last, is_critic = [*_sizes(found, dynamic=True)][-1:], role is found.settings.critic
        budget = last[0] if last and is_critic else "{role}.ppo_max_token_len_per_gpu"
        tokens = -(-role.micro_batch.most * int(found.settings.lengths.limit) // role.micro_batch.sharers)
        yield {**({} if role.micro_batch.dynamic else {"{role}.use_dynamic_bsz": True}), budget: tokens}


def _ulysses(found: Estimate, _: Role) -> Iterator[Overrides]:
    """Yield larger Ulysses sizes, with token budgets of exactly one sequence.

    verl rejects Ulysses with padding (workers/engine/fsdp/transformer_impl.py:129 at 1dda039b9). Budgets are
    per GPU, so a larger size saves nothing unless they are lowered.
    """
    settings, sizes = found.settings, _sizes(found, dynamic=True)
    sections = [OF_ACTOR.fsdp, *[f"{REFERENCE}.fsdp_config"] * settings.reference]
    sections += [OF_CRITIC.fsdp] if settings.critic else []
    for size in _doubled(settings.actor.fsdp.ulysses, 8, settings.gpus, found.shape.heads):
        keys = {f"{section}.ulysses_sequence_parallel_size": size for section in sections}
        budgets = {key: _share(found, size) for key, tokens in sizes.items() if tokens > _share(found, size)}
        yield {**keys, "{model}.use_remove_padding": True, **budgets}


def _divided(found: Estimate, role: Role, *, name: str) -> Iterator[Overrides]:
    """Yield larger values of one of Megatron's sizes that divide the GPUs and the model."""
    own, gpus, moe = role.megatron, found.settings.gpus, found.shape.architecture.moe
    replicas = gpus // (own.tensor * own.pipeline * own.context)
    sizes = {
        "tensor": _doubled(own.tensor, 8, replicas * own.tensor, found.shape.heads),
        "pipeline": _doubled(own.pipeline, found.shape.layers, replicas * own.pipeline),
        "expert": _doubled(own.expert, 16, gpus // own.pipeline, moe.num_experts if moe else 1),
    }
    whole = {"{megatron}.expert_tensor_parallel_size": 1} if name == "expert" else {}
    yield from ({f"{{megatron}}.{name}_model_parallel_size": size, **whole} for size in sizes[name])


def lower_utilizations(shape: Shape, settings: Settings) -> Iterator[float]:
    """Yield smaller shares of the GPU for the rollout engine, as long as its cache holds a sequence."""
    share = settings.rollout.utilization
    while (share := round(share - 0.1, 2)) > 0.1:
        smaller = replace(settings, rollout=replace(settings.rollout, utilization=share))
        if cache_tokens(shape, smaller) < settings.lengths.limit:
            return
        yield share


def _lower_share(found: Estimate, _: Role) -> Iterator[Overrides]:
    yield from ({ENGINE_SHARE: share} for share in lower_utilizations(found.shape, found.settings))


def _wider(found: Estimate) -> list[int]:
    """Return larger tensor-parallel sizes of the rollout engine."""
    return _doubled(found.settings.rollout.tensor, 32, found.settings.gpus, found.shape.heads)


def _starting(found: Estimate, _: Role) -> Iterator[Overrides]:
    """Yield what lets the rollout engine start: shorter sequences, a larger share, then more GPUs."""
    rollout, limit = found.settings.rollout, int(found.settings.lengths.limit)
    length = {} if rollout.model_length and rollout.model_length <= limit else {ENGINE_LENGTH: limit}
    larger = (tenths / 10 for tenths in range(1, 10) if tenths / 10 > rollout.utilization)
    for tensor, share in product((rollout.tensor, *_wider(found)), (rollout.utilization, *larger)):
        engine = replace(rollout, utilization=share, tensor=tensor)
        if cache_tokens(found.shape, replace(found.settings, rollout=engine)) >= limit:
            yield {**length, ENGINE_SHARE: share, ENGINE_TP: tensor}


# -- the levers

_CPU = "{role}.optim.override_optimizer_config"
_CORE = "{megatron}.override_transformer_config.recompute"
_FSDP, _CONFIG = "verl/workers/engine/fsdp/transformer_impl.py", "verl/trainer/config"
_PERF, _BEST = "docs/perf/perf_tuning.rst", "docs/perf/best_practices.rst"
#: Forms of messages of an engine that finds too little free memory, and of one without room for its cache.
_CROWDED = ("not-enough-free-at-start", "wake-up", "cumem", "memory-saver")
_NO_CACHE = ("no-room-for-cache", "sequence-too-long-for-cache", "sglang-pool")
#: All levers; of those with equal costs, the first to try comes first.
LEVERS = (
    Lever({"{model}.use_remove_padding": True}, "none", _BATCHES, N_("Nothing is padded."), f"{_PERF}:67"),
    Lever(_dynamic, "none", _BATCHES, N_("Micro-batches hold tokens instead of sequences."), f"{_PERF}:126"),
    # Triton kernels with Megatron; with FSDP verl's scripts for NPUs leave them off.
    Lever({"{model}.use_fused_kernels": True}, "none", _BATCHES, N_("Logits are never in memory as a whole."),
          "verl/utils/kernel/kernels.py:577", device="cuda"),
    Lever(_whole_mini_batch, "none", _BATCHES,
          N_("A mini-batch has one micro-batch, so no GPU keeps unsharded gradients."), f"{_FSDP}:674"),
    Lever({"{model}.enable_gradient_checkpointing": True}, "little", _UPDATE,
          N_("The backward pass recomputes every layer."), f"{_PERF}:109"),
    Lever({f"{_CORE}_granularity": "full", f"{_CORE}_method": "uniform", f"{_CORE}_num_layers": 1}, "little",
          _UPDATE, N_("The backward pass recomputes every layer."), f"{_BEST}:230"),
    Lever({"{backend}.optimizer_offload": True}, "little", _ALL,
          N_("Unused optimizer states move to host memory."), f"{_FSDP}:844", FILLS_HOST, _CROWDED),
    # FSDP on one GPU keeps views of the parameters, so it frees nothing: measured, and so in the estimate.
    Lever({"{backend}.param_offload": True}, "little", _ALL,
          N_("Unused weights move to host memory."), f"{_FSDP}:842", FILLS_HOST, _CROWDED),
    Lever({f"{REFERENCE}.megatron.param_offload": True}, "little", _ALL,
          N_("The reference policy moves to host memory."), f"{_BEST}:188", FILLS_HOST, _CROWDED),
    *(Lever(partial(_smaller, dynamic=dynamic), "little", _BATCHES, N_("Micro-batches are smaller."),
            f"{_PERF}:170") for dynamic in (True, False)),
    Lever(_lower_share, "little", _ALL, N_("The rollout engine leaves more memory."), f"{_PERF}:40",
          messages=(*_CROWDED, "warm-up", "sglang-graph", "nccl")),
    Lever({f"{ROLLOUT}.free_cache_engine": True}, "little", _ALL,
          N_("The rollout engine frees its memory during training."), f"{_CONFIG}/rollout/rollout.yaml:61"),
    Lever({f"{ROLLOUT}.layered_summon": True, f"{ROLLOUT}.load_format": "safetensors"}, "little", _ALL,
          N_("The weight sync gathers one layer at a time."), "docs/advance/ppo_lora.rst:52"),
    Lever(lambda found, _: ({ENGINE_TP: size} for size in _wider(found)), "little", _ALL,
          N_("More GPUs share the rollout engine's weights."), f"{_BEST}:135", messages=_NO_CACHE),
    Lever({"{fsdp}.reshard_after_forward": True}, "little", _ALL,
          N_("Gathered weights are freed after each pass."), f"{_CONFIG}/engine/fsdp.yaml:23"),
    Lever({"{fsdp}.fsdp_size": -1}, "little", _ALL,
          N_("All GPUs share one copy of the states."), f"{_CONFIG}/engine/fsdp.yaml:26"),
    Lever({"{fsdp}.use_no_sync_for_gradient_accumulation": False}, "little", _BATCHES,
          N_("Gradients are sharded after every micro-batch."), f"{_FSDP}:674"),
    Lever({f"{ACTOR}.entropy_from_logits_with_chunking": True}, "little", _BATCHES,
          N_("The entropy is computed in chunks."), f"{_CONFIG}/actor/dp_actor.yaml:37"),
    Lever({f"{ACTOR}.entropy_checkpointing": True}, "little", _UPDATE,
          N_("The backward pass recomputes the entropy."), f"{_PERF}:247"),
    Lever(_ulysses, "little", _BATCHES, N_("Several GPUs share each sequence."), f"{_PERF}:163"),
    *(Lever(partial(_divided, name=name), "little", _ALL, N_("More GPUs share the model."), f"{_BEST}:155")
      for name in ("tensor", "pipeline", "expert")),
    Lever({f"{ROLLOUT}.enforce_eager": True}, "little", _ALL, N_("The rollout engine has no CUDA graphs."),
          f"{_BEST}:208", messages=("no-room-for-cache", "sglang-graph")),
    Lever({"{role}.strategy": "fsdp2", "{fsdp}.offload_policy": True}, "much", _ALL,
          N_("All states stay on the host; the CPU computes the step."), f"{_FSDP}:440", FILLS_HOST),
    Lever({f"{_CPU}.optimizer_cpu_offload": True, f"{_CPU}.optimizer_offload_fraction": 1,
           f"{_CPU}.use_precision_aware_optimizer": True}, "much", _ALL,
          N_("The CPU keeps the optimizer states and computes the step."), f"{_BEST}:222", FILLS_HOST),
    Lever({"{fsdp}.model_dtype": "bfloat16"}, "none", _ALL,
          N_("Weights, gradients and optimizer states take half the memory."), f"{_FSDP}:239", ROUNDS),
    Lever(_starting, "none", STARTUP,
          N_("The rollout engine has room for one sequence."), f"{_BEST}:133", messages=_NO_CACHE),
    Lever({"{backend}.optimizer_offload": False}, "none", HOST,
          N_("The optimizer states stay on the GPU."), f"{_FSDP}:844"),
    Lever({"{backend}.param_offload": False}, "none", HOST,
          N_("The weights stay on the GPU."), f"{_FSDP}:842"),
)  # fmt: skip


class Suggestion(NamedTuple):
    """A lever as ``key=value``, the bytes that it takes off the peak, and the peak that remains."""

    setting: str
    saves: float
    peak: float


def best_suggestion(of: AnyEstimate) -> Suggestion | None:
    """Return the single lever that lowers the peak most, at its weakest step that does; None below 1 %.

    Levers that replace FSDP by FSDP2 do not count.
    """
    if not isinstance(of, Estimate):
        return None
    phase, least = of.peak_phase.name, 0.99 * of.peak
    best: tuple[Overrides, ...] = ()
    for lever, steps in options_for(of):
        if phase in lever.phases and not any(key.endswith(".strategy") for key in steps[0]):
            peak = next(filter(math.isfinite, (_peak_after(of, step) for step in reversed(steps))), of.peak)
            if peak < least:
                least, best = peak, steps
    for step in best:
        if _peak_after(of, step) <= least:
            return Suggestion(
                " ".join(f"{key}={value}" for key, value in step.items()), of.peak - least, least
            )
    return None


def _peak_after(of: Estimate, overrides: Overrides) -> float:
    """Return the peak with other settings and the same lengths; infinite if these settings cannot run."""
    after = attempt(of.request.having(overrides), of.registries)
    if isinstance(after, NoAnswerError):
        return math.inf
    if after.settings.lengths != of.settings.lengths:
        after = replace(
            after, phases=phases_of(after.shape, replace(after.settings, lengths=of.settings.lengths))
        )
    return after.peak
