"""The settings of a trained role and of its training backend: each field with verl's keys for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from .allocations import LENGTH_SPREAD
from .reader import OF_ACTOR, OF_CRITIC, OF_REFERENCE, Reader, Sections, keys_of, read_fields, setting
from .request import ACTOR, REFERENCE, ROLLOUT, Backend
from .shape import Targets

#: The training backends that are modelled.
BACKENDS: tuple[Backend, ...] = ("fsdp", "fsdp2", "megatron")
#: Optimizers with two moments, in lower case; the first two also have a Kahan summation buffer.
_KAHAN = ("adamw_bf16", "anyprecisionadamw")
ADAMS = (*_KAHAN, "adam", "adamw")

# -- lengths and micro-batches

#: The longest prompt and response.
LIMITS = ("data.max_prompt_length", "data.max_response_length")
#: The critic's sizes, which it ignores since v0.8.0.
CRITIC_SIZES = ("critic.ppo_micro_batch_size", "critic.ppo_micro_batch_size_per_gpu")


@dataclass(frozen=True)
class Lengths:
    """Tokens of a sequence, with prompt and response.

    Attributes:
        mean: the tokens of a typical sequence.
        longest: the tokens of the longest sequence.
        limit: the configured limit of prompt and response; padding fills up to it.
        observed: whether mean and longest are those of a logged step.
    """

    mean: float
    longest: float
    limit: float
    observed: bool

    @property
    def known(self) -> bool:
        """True if there is a mean, observed or assumed; otherwise all lengths are at their limits."""
        return self.observed or self.mean < self.longest


@dataclass(frozen=True)
class MicroBatch:
    """The micro-batches of a pass.

    Attributes:
        sequences: sequences per micro-batch and data-parallel rank; None if unset.
        dynamic: whether the size is a number of tokens instead.
        tokens: the token budget of one GPU if dynamic.
        most: the sequences of a rank in one mini-batch, or in one step for passes without gradients.
        sharers: the number of GPUs that share a sequence, by Ulysses or context parallelism.
    """

    sequences: int | None
    dynamic: bool
    tokens: int
    # Equal sizes are equal, whatever they are divided by.
    most: int = field(compare=False)
    sharers: int = field(compare=False)


def step_sequences(reader: Reader) -> int:
    """Return the sequences of one step, which is several mini-batches in the fully asynchronous trainer.

    Source: fully_async_policy/fully_async_trainer.py:159 at 1dda039b9.
    """
    if not reader.fully_async:
        return reader.whole("data.train_batch_size") * reader.whole(f"{ROLLOUT}.n")
    batches = reader.whole("async_training.require_batches")
    return reader.whole(f"{ACTOR}.ppo_mini_batch_size") * batches * reader.whole(f"{ROLLOUT}.n")


def read_lengths(reader: Reader, *limits: str) -> Lengths:
    """Return the lengths of prompt and response, observed or at their limits."""
    limit, observed = float(sum(map(reader.whole, limits))), reader.request.observed
    means = [observed[name] for name in ("prompt_length_mean", "response_length_mean") if name in observed]
    # If the two means disagree with the total, it is for another number of sequences than in the settings.
    mean = sum(means) if len(means) == 2 else observed.get("total_num_tokens", 0.0) / step_sequences(reader)
    if not 0 < mean < math.inf:
        return Lengths(limit, limit, limit, observed=False)
    longest = sum(observed.get(name, limit) for name in ("prompt_length_max", "response_length_max"))
    return Lengths(mean, max(mean, min(longest, limit)), limit, observed=True)


def _keys_of_pass(section: str) -> list[str]:
    """Return the keys for a dynamic size, sequences per GPU, sequences over all ranks, and a token budget."""
    of_flag, of_size = ("log_prob_", "log_prob_") if section in (ROLLOUT, REFERENCE) else ("", "ppo_")
    sizes = ("micro_batch_size_per_gpu", "micro_batch_size", "max_token_len_per_gpu")
    return [f"{section}.{of_flag}use_dynamic_bsz", *(f"{section}.{of_size}{name}" for name in sizes)]


def read_micro_batch(reader: Reader, section: str, fsdp: Sharding, megatron: Megatron) -> MicroBatch:
    """Read the micro-batches of a role's update, or of a log-prob pass, whose unset keys follow the actor.

    Since v0.8.0 the critic ignores sizes and uses only a budget.

    Args:
        reader: the reader, with the role's backend.
        section: the section with the keys: of the actor, the critic, the rollout engine or the reference.
        fsdp: FSDP's settings for the pass.
        megatron: Megatron's settings for the pass.
    """
    sharers = megatron.context if reader.backend == "megatron" else fsdp.ulysses
    ranks = max(1, reader.gpus // (megatron.tensor * megatron.pipeline * sharers))
    most, is_critic = step_sequences(reader), section == "critic"
    if is_critic or section == ACTOR:
        prompts = reader.whole(f"{section}.ppo_mini_batch_size", f"{ACTOR}.ppo_mini_batch_size")
        most = min(most, prompts * reader.whole(f"{ROLLOUT}.n"))
    own, other = map(_keys_of_pass, (section, "critic" if is_critic else ACTOR))
    size_key, budget = reader.first_set(*own[1:3], *other[1:3]), reader.first_set(own[-1], other[-1])
    if is_critic and reader.traits.one_critic_budget and reader.flag("trainer.use_v1"):
        budget = "critic.ppo_infer_max_token_len_per_gpu"
    reads_size = not is_critic or reader.traits.critic_reads_own_keys
    size, tokens = reader.optional(size_key) if reads_size else None, reader.whole(budget)
    if size and size_key.endswith("_size"):  # it counts the sequences of all ranks
        if size < ranks:
            message = f"{size} sequences over all ranks are fewer than one for each of {ranks}"
            reader.error(size_key, message, f"set {size_key}_per_gpu")
        size = max(1, size // ranks)
    if reader.is_easyr1 and not reader.is_set(budget):
        # Its budget is a micro-batch of padded sequences (verl/workers/actor/dp_actor.py of EasyR1).
        tokens = (size or 1) * sum(map(reader.whole, LIMITS))
    dynamic = reader.flag(own[0], other[0]) or (is_critic and not size)
    return MicroBatch(size, dynamic, tokens, max(1, most // ranks), sharers)


def tokens_of(lengths: Lengths, micro: MicroBatch, unpadded: bool) -> float:
    """Return the tokens on one GPU in the fullest micro-batch.

    A number of sequences has 1 + spread ÷ √sequences times the mean in the fullest micro-batch: small ones
    vary more in length. A dynamic size is a token budget, but at least one sequence: verl makes as few
    micro-batches as the budget allows, and fills them evenly. If the mini-batches vary around a multiple of
    the budget, or their lengths are unknown, some micro-batch is full.

    Source: ``rearrange_micro_batches`` in verl/utils/seqlen_balancing.py:308 at 1dda039b9.

    Args:
        lengths: the lengths of the sequences.
        micro: the micro-batches of the pass.
        unpadded: whether padding is removed; otherwise every sequence has its configured limit.

    >>> from sphinx_verl_resources.memory.roles import Lengths, MicroBatch
    >>> lengths = Lengths(512, 512, 512, observed=False)
    >>> tokens_of(lengths, MicroBatch(8, False, 0, most=64, sharers=2), unpadded=True)
    2048.0
    >>> tokens_of(lengths, MicroBatch(None, True, 5000, most=64, sharers=1), unpadded=True)
    5000.0
    """
    sequences = micro.most if micro.dynamic else min(micro.sequences or 1, micro.most)
    each = longest = lengths.limit
    if unpadded:
        longest = lengths.longest
        each = min(lengths.mean * (1 + LENGTH_SPREAD.value / math.sqrt(sequences)), longest)
    everything = sequences * each / micro.sharers
    if not micro.dynamic:
        return everything
    budget = max(float(micro.tokens), longest / micro.sharers)
    micro_batches = math.ceil(everything / budget)
    mean = lengths.mean if unpadded else lengths.limit
    fewest = sequences * mean / micro.sharers if lengths.observed or mean == longest < lengths.limit else 0.0
    return everything / micro_batches if fewest > (micro_batches - 1) * budget else min(everything, budget)


# -- FSDP


def _shard_size(reader: Reader, key: str) -> int:
    """Return the number of GPUs that share one copy of FSDP's states; all GPUs if no size is set."""
    size = reader.whole(key, least=-1)
    return reader.divisor(key, size) if 0 < size < reader.gpus else reader.gpus


def _ulysses_size(reader: Reader, key: str, older: str) -> int:
    """Return the Ulysses size; the older key wins if above 1, for the critic only before v0.8.0."""
    if older.startswith(REFERENCE):
        older = reader.first_set(older, f"{ACTOR}.ulysses_sequence_parallel_size")
    has_effect = reader.traits.critic_reads_own_keys or not older.startswith("critic.")
    if has_effect and reader.whole(older) > 1:
        key = older
    return reader.divisor(key, reader.whole(key))


def _defers_sync(reader: Reader, key: str) -> bool:
    """Return whether gradients are sharded only after the last micro-batch; the default is the version's."""
    return reader.flag(key) if reader.is_set(key) else reader.traits.unsharded_gradients


@dataclass(frozen=True)
class Sharding:
    """FSDP's settings for any model, including the reference policy.

    Attributes:
        shard: the number of GPUs that share one copy of the states.
        reshards_root: whether a pass without gradients reshards the root at its end.
        ulysses: the number of GPUs that share a sequence.
    """

    shard: int = setting(_shard_size, "{fsdp}.fsdp_size")
    reshards_root: bool = setting(lambda reader, key: reader.whole(key, least=-1) > 1, "{fsdp}.fsdp_size")
    ulysses: int = setting(
        _ulysses_size, "{fsdp}.ulysses_sequence_parallel_size", "{role}.ulysses_sequence_parallel_size"
    )


@dataclass(frozen=True)
class Fsdp(Sharding):
    """FSDP's settings for a role.

    Attributes:
        parameter_bytes: bytes per stored parameter, gradient and moment.
        defers_sync: whether gradients are sharded only after the last micro-batch.
    """

    parameter_bytes: int = setting(Reader.data_type, "{fsdp}.model_dtype")
    param_offload: bool = setting(Reader.flag, "{fsdp}.param_offload")
    optimizer_offload: bool = setting(Reader.flag, "{fsdp}.optimizer_offload")
    offload_policy: bool = setting(Reader.flag, "{fsdp}.offload_policy")
    reshard: bool = setting(Reader.is_not_off, "{fsdp}.reshard_after_forward")
    defers_sync: bool = setting(_defers_sync, "{fsdp}.use_no_sync_for_gradient_accumulation")


# -- Megatron

_CORE = "{megatron}.override_transformer_config"
_RECOMPUTE = f"{_CORE}.recompute"
_OPTIMIZER = "{role}.optim.override_optimizer_config"
#: Keys: for a precision-aware optimizer, the types of its moments, the type of gradients, and a share of the
#: optimizer on the host.
_AWARE = ("{role}.optim.use_precision_aware_optimizer", f"{_OPTIMIZER}.use_precision_aware_optimizer")
_MOMENTS = ("{role}.optim.exp_avg_dtype", "{role}.optim.exp_avg_sq_dtype")
_GRADIENTS = ("{megatron}.override_ddp_config.grad_reduce_in_fp32", "{role}.optim.main_grads_dtype")
_ON_HOST = (f"{_OPTIMIZER}.optimizer_cpu_offload", f"{_OPTIMIZER}.optimizer_offload_fraction")


def _share_on_host(reader: Reader, offloads: str, fraction: str) -> float:
    """Return the share of the optimizer states on the host; Megatron's default is 0."""
    return reader.share(fraction) if reader.flag(offloads) else 0.0


def _optimizer_bytes(
    reader: Reader, offloads: str, fraction: str, precision_aware: str, overridden: str, *moments: str
) -> float:
    """Return the bytes per parameter of main parameters and moments that are on the GPU.

    TransformerEngine's precision-aware optimizer stores only the half of a main parameter that is not in the
    weight (Megatron-Core's ``store_param_remainders``, which verl leaves on:
    verl/utils/megatron/optimizer.py:182 at 1dda039b9). With a share on the host, another optimizer is used,
    which keeps all main parameters on the GPU unless it is precision-aware.
    """
    aware, other = reader.flag(precision_aware), reader.flag(overridden)
    if reader.flag(offloads):
        share = _share_on_host(reader, offloads, fraction)
        return 12 * (1 - share) + (0 if aware or other else 4 * share)
    if not (aware or other):
        return 12.0
    main = 2.0 if reader.traits.parameter_remainders else 4.0
    return main + (sum(map(reader.data_type, moments)) if aware else 8)


def _gradient_bytes(reader: Reader, precision_aware: str, in_fp32: str, data_type: str) -> int:
    """Return the bytes of a gradient in Megatron's buffer (megatron/transformer_impl.py:456 at 1dda039b9)."""
    if reader.is_set(in_fp32):
        return 4 if reader.flag(in_fp32) else 2
    return reader.data_type(data_type) if reader.flag(precision_aware) else 4


def _recomputes(reader: Reader, granularity: str, method: str) -> bool:
    """Return whether Megatron recomputes every layer in the backward pass."""
    return reader.any(granularity) == "full" and reader.any(method) in (None, "uniform")


def _optional_flag(reader: Reader, key: str) -> bool | None:
    """Return a boolean; None if unset."""
    return reader.flag(key) if reader.is_set(key) else None


@dataclass(frozen=True)
class Megatron:
    """Megatron's settings for a role.

    Attributes:
        tensor, pipeline, context, expert: parallel sizes.
        expert_tensor: the tensor-parallel size of experts.
        cpu_optimizer: the share of the optimizer states that is kept and updated on the host.
        optimizer_bytes: bytes per parameter of the optimizer states on the GPU: main parameter, both moments.
        gradient_bytes: bytes per parameter in the gradient buffer.
        recompute: whether whole layers are recomputed in the backward pass.
        fused_activation: whether an MLP fuses activation and gate, as it does by default.
        fused_gradients: whether gradients are accumulated by the kernels; None if this depends on verl.
        fused_loss: whether Megatron computes its own loss in one kernel; verl computes another one.
        all_to_all_attention: whether context parallelism exchanges heads instead of keys and values.
        first_layers, last_layers: the layers of the first and last pipeline stage, if set.
    """

    tensor: int = setting(Reader.whole, "{megatron}.tensor_model_parallel_size", default=1)
    pipeline: int = setting(Reader.whole, "{megatron}.pipeline_model_parallel_size", default=1)
    context: int = setting(Reader.whole, "{megatron}.context_parallel_size", default=1)
    expert: int = setting(Reader.whole, "{megatron}.expert_model_parallel_size", default=1)
    expert_tensor: int = setting(Reader.optional, "{megatron}.expert_tensor_parallel_size", default=1)
    sequence_parallel: bool = setting(Reader.flag, "{megatron}.sequence_parallel", default=True)
    distributed_optimizer: bool = setting(Reader.flag, "{megatron}.use_distributed_optimizer", default=True)
    param_offload: bool = setting(Reader.flag, "{megatron}.param_offload", default=False)
    optimizer_offload: bool = setting(Reader.flag, "{megatron}.optimizer_offload", default=False)
    cpu_optimizer: float = setting(_share_on_host, *_ON_HOST, default=0.0)
    optimizer_bytes: float = setting(_optimizer_bytes, *_ON_HOST, *_AWARE, *_MOMENTS, default=12.0)
    gradient_bytes: int = setting(_gradient_bytes, _AWARE[0], *_GRADIENTS, default=4)
    recompute: bool = setting(_recomputes, f"{_RECOMPUTE}_granularity", f"{_RECOMPUTE}_method", default=False)
    fused_activation: bool | None = setting(_optional_flag, f"{_CORE}.bias_activation_fusion")
    fused_gradients: bool | None = setting(_optional_flag, f"{_CORE}.gradient_accumulation_fusion")
    fused_loss: bool | None = setting(_optional_flag, f"{_CORE}.cross_entropy_loss_fusion")
    all_to_all_attention: bool = setting(
        lambda reader, key: reader.any(key) == "a2a", f"{_CORE}.cp_comm_type"
    )
    first_layers: int | None = setting(Reader.optional, f"{_CORE}.num_layers_in_first_pipeline_stage")
    last_layers: int | None = setting(Reader.optional, f"{_CORE}.num_layers_in_last_pipeline_stage")


#: The settings for other backends.
NO_MEGATRON = Megatron()


def _read_megatron(reader: Reader, of: Sections) -> Megatron:
    """Read Megatron's settings, and check that the sizes divide the GPUs."""
    own = read_fields(Megatron, reader, of)
    model = own.tensor * own.pipeline
    reader.divisor(f"{of.megatron}.tensor_model_parallel_size", model * own.context, "TP × PP × CP = ")
    if own.expert_tensor is None:  # Megatron uses TP; if that is impossible, the run must have set 1
        own = replace(own, expert_tensor=1 if reader.gpus % (own.expert * model) else own.tensor)
    of_experts = own.expert * own.expert_tensor * own.pipeline
    reader.divisor(f"{of.megatron}.expert_model_parallel_size", of_experts, "EP × ETP × PP = ")
    return own


# -- a trained role


def _lora_rank(reader: Reader, key: str, of_megatron: str) -> int:
    """Return the rank of the adapters, for which Megatron has a separate key."""
    rank = reader.whole(key, least=0)
    if reader.backend != "megatron":
        return rank
    if rank and not reader.is_set(of_megatron):
        reader.warning(key, "Megatron ignores this key and trains the whole model", f"set {of_megatron}")
    return reader.whole(of_megatron, least=0)


def _targets(reader: Reader, key: str) -> Targets:
    """Return the modules with adapters."""
    names = reader.any(key)
    if not isinstance(names, str | list | tuple | None):
        names = reader.instead_of(names, "'all-linear' or a list of module names", key)
    if names in (None, "all-linear"):
        return "all-linear"
    return (names,) if isinstance(names, str) else tuple(map(str, names))


def _step_copies(reader: Reader, fused: str, multi_tensor: str) -> int:
    """Return the number of parameter-sized buffers of torch's multi-tensor Adam."""
    return int(reader.backend == "fsdp" and not reader.flag(fused) and reader.is_not_off(multi_tensor))


def _moments(reader: Reader, optimizer: str, data_type: str) -> int:
    """Return the bytes of two moments, and of the Kahan summation buffer if there is one."""
    return reader.data_type(data_type) * (3 if str(reader.any(optimizer)).lower() in _KAHAN else 2)


@dataclass(frozen=True)
class Role:
    """A trained model: the actor or the critic.

    Attributes:
        backend: the backend, which decides whether ``fsdp`` or ``megatron`` applies.
        micro_batch: the micro-batches of the update.
        lora_rank: the rank of the adapters; 0 for full fine-tuning.
        step_copies: the number of parameter-sized buffers in the optimizer step.
        moments: bytes of the optimizer's states per trained parameter.
        remove_padding: whether padding is removed before the computation.
        checkpointing: whether every layer is recomputed in the backward pass (FSDP).
    """

    backend: Backend
    fsdp: Fsdp
    megatron: Megatron
    micro_batch: MicroBatch
    lora_rank: int = setting(_lora_rank, "{model}.lora_rank", "{model}.lora.rank")
    targets: Targets = setting(_targets, "{model}.target_modules")
    step_copies: int = setting(_step_copies, f"{_OPTIMIZER}.fused", f"{_OPTIMIZER}.foreach")
    moments: int = setting(_moments, "{role}.optim.optimizer", "{fsdp}.model_dtype")
    remove_padding: bool = setting(Reader.flag, "{model}.use_remove_padding")
    checkpointing: bool = setting(Reader.flag, "{model}.enable_gradient_checkpointing")


def _read_role(reader: Reader, of: Sections, backend: Backend) -> Role:
    """Read the settings of the actor or the critic."""
    reader.backend, fsdp = backend, read_fields(Fsdp, reader, of)
    megatron = _read_megatron(reader, of) if backend == "megatron" else NO_MEGATRON
    micro = read_micro_batch(reader, of.role, fsdp, megatron)
    return read_fields(Role, reader, of, backend=backend, fsdp=fsdp, megatron=megatron, micro_batch=micro)


def _actor_backend(reader: Reader) -> Backend:
    """Return the training backend, from the strategy, the engine, the source, or keys of Megatron."""
    stated = reader.config.get(f"{ACTOR}.strategy"), reader.config.get("model_engine"), reader.request.backend
    of_megatron = any(key.startswith(f"{ACTOR}.megatron.") for key in reader.config)
    return next((name for name in stated if name in BACKENDS), "megatron" if of_megatron else "fsdp")


def has_critic(reader: Reader) -> bool:
    """Return whether there is a critic, from its own key, the task, or the advantage estimator.

    Source: ``need_critic`` in verl/trainer/ppo/utils.py at 1dda039b9.
    """
    if reader.is_set("critic.enable"):
        return reader.flag("critic.enable")
    key, task = "algorithm.adv_estimator", reader.request.task
    if task and not reader.is_set(key):
        return task.lower().startswith("ppo")
    return bool(reader.any(key) == "gae")


def read_roles(reader: Reader) -> tuple[Role, Role | None]:
    """Read the settings of the actor, and of the critic if there is one."""
    critic, backend, of_critic = None, _actor_backend(reader), reader.config.get("critic.strategy")
    if has_critic(reader):
        critic = _read_role(reader, OF_CRITIC, of_critic if of_critic in BACKENDS else backend)
    return _read_role(reader, OF_ACTOR, backend), critic


#: The keys of roles, of the reference policy and of micro-batches.
ROLE_KEYS = frozenset({
    *keys_of(OF_ACTOR, Fsdp, Megatron, Role), *keys_of(OF_CRITIC, Fsdp, Megatron, Role),
    *keys_of(OF_REFERENCE, Sharding),
    *(key for section in (ACTOR, "critic", ROLLOUT, REFERENCE) for key in _keys_of_pass(section)),
    "critic.ppo_infer_max_token_len_per_gpu", "trainer.use_v1", "async_training.require_batches",
    "data.train_batch_size", f"{ROLLOUT}.n", f"{ACTOR}.ppo_mini_batch_size", "critic.ppo_mini_batch_size",
    f"{ACTOR}.strategy", "critic.strategy", "critic.enable", "model_engine", "algorithm.adv_estimator",
    # With FSDP the reference policy is always on the host; its key has no effect.
    f"{REFERENCE}.fsdp_config.param_offload",
})  # fmt: skip
