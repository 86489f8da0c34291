"""Levers: the one list of settings that free memory, each with its cost and limits.

A comment names the place in verl's sources at 1dda039b9 that says what a lever does.

Costs in time follow verl's documents, which give few figures. *Little* is work that is done once per step or
recomputed once; *much* means that the GPU is idle while the host computes.

With FSDP there is no lever for the reference policy: verl always keeps it on the host, and ignores
``ref.fsdp_config.param_offload`` (workers/engine/fsdp/transformer_impl.py:413 at 1dda039b9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, product, takewhile
from typing import Any, Literal, NamedTuple, get_args

from ..i18n import N_
from ..memory.engine import cache_tokens
from ..memory.estimate import Estimate, attempt
from ..memory.phases import ENGINE_STATES, LABELS
from ..memory.reader import OF_ACTOR, OF_CRITIC, OF_REFERENCE, Sections
from ..memory.recorded import ENGINE_LENGTH, ENGINE_SHARE, ENGINE_TP
from ..memory.request import ACTOR, REFERENCE, ROLLOUT
from ..memory.roles import MicroBatch, Role
from ..memory.settings import Settings, gpu_of, micro_batches
from ..memory.versions import behaviour
from .search import CPU_ADAM, RECOMPUTE, in_sections

#: The cost of a lever in time.
Cost = Literal["none", "little", "much"]
COSTS: tuple[Cost, ...] = get_args(Cost)
#: The rank of a lever that can change results, after those of ``COSTS``.
CHANGES_RESULTS = 3
Overrides = dict[str, Any]
#: FSDP shards and updates the parameters in the data type in which ``from_pretrained`` loads them, without a
#: copy in fp32 (workers/engine/fsdp/transformer_impl.py:236 at 1dda039b9).
ROUNDS = N_(
    "Weights, gradients and Adam's moments are in bfloat16, without an fp32 copy: small updates may be "
    "lost to rounding. Compare the reward with an fp32 run."
)
UPDATES_ON_CPU = N_("Keeps states in host memory; the CPU computes the optimizer step.")
#: Phases: all of them, the updates, and those with micro-batches; with logits, and those of neither a GPU's
#: memory: the start of the rollout engine, and host memory.
_ALL = frozenset(LABELS)
_UPDATE = frozenset(name for name in LABELS if name.endswith(("-forward", "-backward")))
_BATCHES = _ALL - ENGINE_STATES.keys()
STARTUP, HOST = frozenset({"startup"}), frozenset({"host"})
#: The ends of keys that a partial source may leave out, by the name in ``Settings.unstated``.
_UNSTATED = {"padding": ("remove_padding",), "length": ("model_len",), "recompute": ("_granularity",),
             "offload": (".param_offload", ".optimizer_offload")}  # fmt: skip


class Lever(NamedTuple):
    """A setting that frees memory.

    Attributes:
        steps: its overrides, or a function that returns several for a role, the weakest first. Keys contain
            names of ``Sections``; ``{backend}`` is the section of the training backend.
        cost: its cost in time.
        phases: the phases that it can lower; a lever of one role may lower those in which the other works.
        sentence: what it does, and when not to use it, to be translated.
        cuda_only: whether verl does not use it on NPUs.
    """

    steps: Overrides | Callable[[Estimate, Role], Iterable[Overrides]]
    cost: Cost
    phases: frozenset[str] = frozenset()
    sentence: str = ""
    cuda_only: bool = False

    @property
    def rank(self) -> int:
        """The rank of its cost; a lever that can change results comes last."""
        return CHANGES_RESULTS if self.sentence == ROUNDS else COSTS.index(self.cost)


class Option(NamedTuple):
    """A lever and its overrides for one role of an estimate, the weakest first."""

    lever: Lever
    steps: tuple[Overrides, ...]


def options_for(own: Estimate) -> Iterator[Option]:
    """Yield every lever that may help, in the order of ``LEVERS``; some have no effect on the estimate.

    Leaves out settings that the version of verl lacks, that are already set, or whose value is unknown.
    """
    registries, request, critic = own.registries, own.request, own.settings.critic
    values, defaults = registries.in_todays_names(request.config), registries.defaults(request.version)
    unread = {registries.renamed.get(key, key) for key in request.unread}
    ends = sum((_UNSTATED[name] for name in own.settings.unstated), ("_parallel_size",) * request.partial)
    gpu = gpu_of(request, registries)
    levers = (lever for lever in LEVERS if not (lever.cuda_only and gpu and gpu.vendor == "huawei"))

    def steps_of(lever: Lever, role: Role, of: Sections) -> Iterator[Overrides]:
        """Yield what each step changes, under the names of the version, where this is possible."""
        backend, other = (of.megatron, of.fsdp) if role.backend == "megatron" else (of.fsdp, of.megatron)
        present = {**defaults, **values, f"{of.role}.strategy": role.backend}
        for step in lever.steps(own, role) if callable(lever.steps) else (lever.steps,):
            own_keys = {key.format(**of._asdict(), backend=backend): value for key, value in step.items()}
            new = {key: value for key, value in own_keys.items() if present.get(key) != value}
            names = [key if key in values else registries.name_in(key, request.version) for key in new]
            unknown = [key for key in new if key in unread or (key not in values and key.endswith(ends))]
            if new and all(names) and not unknown and not any(key.startswith(other) for key in new):
                yield dict(zip(map(str, names), new.values(), strict=True))

    for lever in levers:
        of_actor = tuple(steps_of(lever, own.settings.actor, OF_ACTOR))
        of_critic = tuple(steps_of(lever, critic, OF_CRITIC)) if critic else ()
        different = (of_actor,) if of_critic == of_actor else (of_actor, of_critic)
        yield from (Option(lever, steps) for steps in different if steps)


# -- steps


def _doublings(size: int, most: int, *dividing: int) -> list[int]:
    """Return larger sizes, by doubling, that divide all given numbers.

    >>> _doublings(2, 16, 16, 24)
    [4, 8]
    """
    larger = [size << power for power in range(1, 12) if size << power <= most]
    return [size for size in larger if not any(number % size for number in dividing)]


def _halvings(size: int, least: int) -> list[int]:
    """Return smaller sizes by halving, with ``least`` at the end.

    >>> _halvings(16384, 3000), _halvings(8, 1), _halvings(5, 5)
    ([8192, 4096, 3000], [4, 2, 1], [])
    """
    return [] if size <= least else [max(size // 2, least), *_halvings(max(size // 2, least), least)]


def passes_of(settings: Settings) -> dict[str, MicroBatch]:
    """Return the micro-batches of every pass, by the beginning of their keys."""
    passes = {f"{ACTOR}.ppo_": settings.actor.micro_batch, f"{ROLLOUT}.log_prob_": settings.old_micro_batch}
    if settings.reference:
        passes[f"{REFERENCE}.log_prob_"] = settings.reference_micro_batch
    if settings.critic:
        passes["critic.ppo_"] = settings.critic.micro_batch
    return passes


def _sizes(own: Estimate, *, dynamic: bool) -> dict[str, int]:
    """Return the sizes of the micro-batches in tokens or sequences, by key; unset keys follow the actor's."""
    name = "max_token_len_per_gpu" if dynamic else "micro_batch_size_per_gpu"
    budget = "critic.ppo_infer_max" if behaviour(own.settings.version).one_critic_budget else "critic.ppo_max"
    return {
        f"{start}{name}".replace("critic.ppo_max", budget): micro.tokens if dynamic else micro.sequences or 1
        for start, micro in passes_of(own.settings).items()
        if micro.dynamic == dynamic and (".log_prob_" not in start or start + name in own.request.config)
    }


def _share(own: Estimate, gpus: int = 0) -> int:
    """Return one GPU's share of the longest sequence in tokens, if some GPUs share a sequence."""
    return -(-int(own.settings.lengths.limit) // (gpus or own.settings.actor.micro_batch.sharers))


def _smaller(own: Estimate, _: Role, *, dynamic: bool) -> Iterator[Overrides]:
    """Yield smaller micro-batches, halved from the largest pass down to one sequence."""
    sizes = _sizes(own, dynamic=dynamic)
    for most in _halvings(max(sizes.values(), default=1), _share(own) if dynamic else 1):
        yield {key: most for key, size in sizes.items() if size > most}


def _dynamic(own: Estimate, _: Role) -> Iterator[Overrides]:
    """Yield token budgets instead of numbers of sequences, from verl's default down to one sequence."""
    least = _share(own)
    for tokens in [] if own.settings.actor.micro_batch.dynamic else _halvings(2 * max(16384, least), least):
        yield {f"{ACTOR}.use_dynamic_bsz": True, f"{ACTOR}.ppo_max_token_len_per_gpu": tokens}


def _whole_mini_batch(own: Estimate, role: Role) -> Iterator[Overrides]:
    """Yield the token budget of a whole mini-batch, if every GPU keeps gradients between micro-batches."""
    if role.fsdp.defers_sync and role.fsdp.shard > 1 and micro_batches(own.settings, role) > 1:
        last, is_critic = [*_sizes(own, dynamic=True)][-1:], role is own.settings.critic
        budget = last[0] if last and is_critic else "{role}.ppo_max_token_len_per_gpu"
        tokens = -(-role.micro_batch.most * int(own.settings.lengths.limit) // role.micro_batch.sharers)
        yield {**({} if role.micro_batch.dynamic else {"{role}.use_dynamic_bsz": True}), budget: tokens}


def _ulysses(own: Estimate, _: Role) -> Iterator[Overrides]:
    """Yield larger Ulysses sizes, with token budgets of exactly one sequence.

    verl rejects Ulysses with padding (workers/engine/fsdp/transformer_impl.py:129 at 1dda039b9). Budgets are
    per GPU, so a larger size saves nothing unless they are lowered.
    """
    settings, sizes = own.settings, _sizes(own, dynamic=True)
    roles = {OF_ACTOR: True, OF_REFERENCE: settings.reference, OF_CRITIC: settings.critic is not None}
    keys = [f"{of.fsdp}.ulysses_sequence_parallel_size" for of, exists in roles.items() if exists]
    for size in _doublings(settings.actor.fsdp.ulysses, 8, settings.gpus, own.shape.heads):
        budgets = {key: _share(own, size) for key, tokens in sizes.items() if tokens > _share(own, size)}
        yield {**dict.fromkeys(keys, size), "{model}.use_remove_padding": True, **budgets}


def _divisions(own: Estimate, role: Role, *, name: str) -> Iterator[Overrides]:
    """Yield larger values of one of Megatron's sizes that divide the GPUs and the model.

    As in ``search``, there is tensor parallelism over fast links only.
    """
    of, gpus, moe = role.megatron, own.settings.gpus, own.shape.architecture.moe
    fast = not (gpu := gpu_of(own.request, own.registries)) or gpu.fast_link
    replicas = gpus // (of.tensor * of.pipeline * of.context)
    sizes = {
        "tensor": _doublings(of.tensor, 8 if fast else 0, replicas * of.tensor, own.shape.heads),
        "pipeline": _doublings(of.pipeline, own.shape.layers, replicas * of.pipeline, own.shape.layers),
        "expert": _doublings(of.expert, 16, gpus // of.pipeline, moe.num_experts if moe else 1),
    }
    whole = {"{megatron}.expert_tensor_parallel_size": 1} if name == "expert" else {}
    yield from ({f"{{megatron}}.{name}_model_parallel_size": size, **whole} for size in sizes[name])


def _holds_a_sequence(own: Estimate, **rollout: Any) -> bool:
    """Return whether the rollout engine's cache holds the longest sequence with other settings of its own."""
    settings = replace(own.settings, rollout=replace(own.settings.rollout, **rollout))
    return cache_tokens(own.shape, settings) >= settings.lengths.limit


def _lower(own: Estimate, _: Role) -> Iterator[Overrides]:
    """Yield smaller shares of the GPU for the rollout engine, as long as its cache holds a sequence."""
    lower = (round(own.settings.rollout.utilization - tenths / 10, 2) for tenths in range(1, 10))
    enough = takewhile(lambda share: share > 0.1 and _holds_a_sequence(own, utilization=share), lower)
    yield from ({ENGINE_SHARE: share} for share in enough)


def _wider(own: Estimate) -> list[int]:
    """Return larger tensor-parallel sizes of the rollout engine."""
    return _doublings(own.settings.rollout.tensor, 32, own.settings.gpus, own.shape.heads)


def _starting(own: Estimate, _: Role) -> Iterator[Overrides]:
    """Yield what lets the rollout engine start: shorter sequences, a larger share, then more GPUs."""
    rollout, limit = own.settings.rollout, int(own.settings.lengths.limit)
    length = min(limit, rollout.model_length or limit)
    larger = (tenths / 10 for tenths in range(1, 10) if tenths / 10 > rollout.utilization)
    for tensor, share in product((rollout.tensor, *_wider(own)), (rollout.utilization, *larger)):
        if _holds_a_sequence(own, utilization=share, tensor=tensor):
            yield {ENGINE_LENGTH: length, ENGINE_SHARE: share, ENGINE_TP: tensor}


def _higher(own: Estimate, _: Role) -> Iterator[Overrides]:
    """Yield larger shares of the GPU for the rollout engine; above 0.9 nothing else has room."""
    share = own.settings.rollout.utilization
    yield from ({ENGINE_SHARE: tenths / 10} for tenths in range(1, 10) if tenths / 10 > share)


def _fewer(own: Estimate, _: Role, *, key: str, least: int) -> Iterator[Overrides]:
    """Yield half of a number, if it is known and the half is not below ``least``."""
    value = own.request.config.get(key, own.registries.defaults(own.request.version).get(key))
    if type(value) is int and value >= 2 * least:
        yield {key: value // 2}


def _engine_length(own: Estimate, _: Role) -> Iterator[Overrides]:
    """Yield the length of prompt and response as the engine's limit, if it allows for longer sequences."""
    limit = int(own.settings.lengths.limit)
    if (own.settings.rollout.model_length or limit + 1) > limit:
        yield {ENGINE_LENGTH: limit}


# -- the levers

_RECOMPUTED = N_("Computes activations again in the backward pass.")
# workers/engine/fsdp/transformer_impl.py:842-844. FSDP on one GPU keeps views of the parameters, so
# offloading them frees nothing: measured, and so in the estimate.
OFFLOAD_OPTIMIZER = Lever({"{backend}.optimizer_offload": True}, "little", _ALL,
                          N_("Moves idle Adam states to the CPU."))  # fmt: skip
OFFLOAD_PARAMETERS = Lever({"{backend}.param_offload": True}, "little", _ALL,
                           N_("Moves idle weights to the CPU."))  # fmt: skip
# docs/perf/perf_tuning.rst:40
LOWER_SHARE = Lever(_lower, "little", _ALL,
                    N_("Gives the rollout engine less memory, so it holds fewer sequences."))  # fmt: skip
# trainer/config/rollout/rollout.yaml:61
SLEEP = Lever(
    {f"{ROLLOUT}.free_cache_engine": True}, "little", _ALL, N_("Lets the engine sleep in training.")
)
# docs/perf/best_practices.rst:135
WIDER_ENGINE = Lever(lambda own, _: ({ENGINE_TP: size} for size in _wider(own)), "little", _ALL,
                     N_("Spreads the rollout engine's weights over more GPUs."))  # fmt: skip
# docs/perf/best_practices.rst:208
EAGER = Lever({f"{ROLLOUT}.enforce_eager": True}, "little", _ALL, N_("Rollout runs without CUDA graphs."))
#: Levers without phases, which only a message calls for: the estimate does not show what they change.
RAISE_SHARE = Lever(
    _higher, "none", sentence="Gives the rollout engine more memory for weights and KV cache."
)
SHORTER_ENGINE = Lever(_engine_length, "none", sentence="Limits the rollout engine to prompt and response.")
FEWER_SEQUENCES = Lever(partial(_fewer, key=f"{ROLLOUT}.max_num_seqs", least=8), "little",
                        sentence="The rollout engine works on fewer sequences at once.")  # fmt: skip
FEWER_TOKENS = Lever(partial(_fewer, key=f"{ROLLOUT}.max_num_batched_tokens", least=1024), "little",
                     sentence="Smaller activations in the rollout engine's profiling run.")  # fmt: skip
#: All levers, the cheapest first; of those with equal costs, the first to try comes first. The last ones are
#: for engines that do not start, and for full hosts.
LEVERS = (
    # docs/perf/perf_tuning.rst:67
    Lever({"{model}.use_remove_padding": True}, "none", _BATCHES, N_("Removes padding.")),
    # docs/perf/perf_tuning.rst:126
    Lever(_dynamic, "none", _BATCHES, N_("Counts micro-batches in tokens, not in sequences.")),
    # Triton kernels with Megatron (utils/kernel/kernels.py:577); with FSDP verl's scripts for NPUs leave them
    # off.
    Lever({"{model}.use_fused_kernels": True}, "none", _BATCHES, N_("Never stores all logits."), True),
    # workers/engine/fsdp/transformer_impl.py:674
    Lever(_whole_mini_batch, "none", _BATCHES, N_("Updates in one micro-batch: no GPU has whole gradients.")),
    # docs/perf/perf_tuning.rst:109 and docs/perf/best_practices.rst:230
    Lever({"{model}.enable_gradient_checkpointing": True}, "little", _UPDATE, _RECOMPUTED),
    Lever(in_sections(["{megatron}"], RECOMPUTE), "little", _UPDATE, _RECOMPUTED),
    OFFLOAD_OPTIMIZER,
    OFFLOAD_PARAMETERS,
    # docs/perf/perf_tuning.rst:170
    *(Lever(partial(_smaller, dynamic=dynamic), "little", _BATCHES, N_("Uses smaller micro-batches."))
      for dynamic in (True, False)),
    LOWER_SHARE,
    SLEEP,
    # docs/advance/ppo_lora.rst:52
    Lever({f"{ROLLOUT}.layered_summon": True, f"{ROLLOUT}.load_format": "safetensors"}, "little", _ALL,
          N_("Sends adapters to the rollout engine layer by layer.")),
    WIDER_ENGINE,
    # trainer/config/engine/fsdp.yaml:23
    Lever({"{fsdp}.reshard_after_forward": True}, "little", _ALL, N_("Gathers layers again when needed.")),
    # trainer/config/engine/fsdp.yaml:26
    Lever({"{fsdp}.fsdp_size": -1}, "little", _ALL, N_("Spreads the states of training over all GPUs.")),
    # workers/engine/fsdp/transformer_impl.py:674
    Lever({"{fsdp}.use_no_sync_for_gradient_accumulation": False}, "little", _BATCHES,
          N_("Shards gradients after each micro-batch.")),
    # trainer/config/actor/dp_actor.yaml:37 and docs/perf/perf_tuning.rst:247
    Lever({f"{ACTOR}.entropy_from_logits_with_chunking": True}, "little", _BATCHES,
          N_("Computes the entropy in chunks.")),
    # docs/perf/perf_tuning.rst:163
    Lever(_ulysses, "little", _BATCHES,
          N_("Spreads each sequence over more GPUs; a micro-batch is one sequence.")),
    # docs/perf/best_practices.rst:155
    *(Lever(partial(_divisions, name=name), "little", _ALL, N_("Spreads the model over more GPUs."))
      for name in ("tensor", "pipeline", "expert")),
    EAGER,
    # workers/engine/fsdp/transformer_impl.py:440
    Lever({"{role}.strategy": "fsdp2", "{fsdp}.offload_policy": True}, "much", _ALL, UPDATES_ON_CPU),
    # docs/perf/best_practices.rst:222
    Lever(in_sections(["{role}.optim"], CPU_ADAM), "much", _ALL, UPDATES_ON_CPU),
    # workers/engine/fsdp/transformer_impl.py:239
    Lever({"{fsdp}.model_dtype": "bfloat16"}, "none", _ALL, ROUNDS),
    # docs/perf/best_practices.rst:133
    Lever(_starting, "none", STARTUP, N_("Makes room for the KV cache.")),
    *(Lever({f"{{backend}}.{part}_offload": False}, "none", HOST, N_("Keeps these states on the GPU."))
      for part in ("optimizer", "param")),
    RAISE_SHARE, SHORTER_ENGINE, FEWER_SEQUENCES, FEWER_TOKENS,
)  # fmt: skip


def best_suggestion(of: Estimate) -> str | None:
    """Return the single lever that lowers the peak most, at its weakest step that does; None below 1 %.

    Levers that replace FSDP by FSDP2 do not count.
    """
    best, least = None, 0.99 * of.peak
    steps = (steps for lever, steps in options_for(of) if of.peak_phase.name in lever.phases)
    for step in chain.from_iterable(steps):
        after = attempt(of.request.having(step), of.registries)
        setting = " ".join(f"{key}={value}" for key, value in step.items())
        if isinstance(after, Estimate) and after.peak < least and ".strategy=" not in setting:
            best, least = setting, after.peak
    return best
