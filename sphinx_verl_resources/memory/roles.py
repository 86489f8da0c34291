"""The settings of a trained role and of its training backend: each field with verl's keys for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import tokens
from .reader import OF_ACTOR, OF_CRITIC, Reader, read_fields, setting
from .request import ACTOR, MODEL, REFERENCE

if TYPE_CHECKING:
    from .reader import Sections
    from .request import Backend
    from .shape import Targets
    from .tokens import MicroBatch

#: Optimizers with two moments, in lower case: with 8-bit moments, and with a Kahan summation buffer.
EIGHT_BIT = ("adam8bit", "adamw8bit", "pagedadamw8bit")
KAHAN = ("adamw_bf16", "anyprecisionadamw")
ADAMS = ("adam", "adamw", *EIGHT_BIT, *KAHAN)


#: The training backends that are modelled.
BACKENDS = ("fsdp", "fsdp2", "megatron")


def actor_backend(reader: Reader) -> Backend:
    """Return the training backend, from the strategy, the engine, the source, or keys of Megatron."""
    named, engine = strategy(reader, f"{ACTOR}.strategy"), reader.any("model_engine")
    if engine not in (None, "dp", "megatron"):
        return _other_backend(reader, "model_engine")
    if named:
        return named
    if engine != "megatron" and reader.request.backend in BACKENDS:
        return reader.request.backend  # type: ignore[return-value]
    of_megatron = any(key.startswith(f"{ACTOR}.megatron.") for key in reader.config)
    return "megatron" if engine == "megatron" or of_megatron else "fsdp"


def strategy(reader: Reader, key: str) -> Backend | None:
    """Return the backend that a key selects; None if unset."""
    if not reader.is_set(key):
        return None
    if reader.any(key) in ("automodel", "fsdp_turbo", "torchtitan", "veomni"):
        return _other_backend(reader, key)
    return reader.choice(key, BACKENDS)  # type: ignore[return-value]


def _other_backend(reader: Reader, key: str) -> Backend:
    """Warn that the backend is not modelled, and return the most similar one."""
    message = f"the training backend {str(reader.any(key))[:80]!r} is not modelled: its memory is unknown"
    reader.warning(key, message, f"use one of {', '.join(BACKENDS)}")
    return "fsdp2"


# -- FSDP


def _shard_size(reader: Reader, key: str) -> int:
    """Return the number of GPUs that share one copy of FSDP's states; all GPUs if no size is set."""
    size = reader.optional(key, -1)
    if not size or not 0 < size < reader.gpus:
        return reader.gpus
    return size if reader.divisor(key, size) == size else reader.gpus


def _ulysses_size(reader: Reader, key: str, older: str) -> int:
    """Return the Ulysses size; the older key wins if above 1, for the critic only before v0.8.0."""
    if older.startswith(REFERENCE):
        older = reader.first_set(older, f"{ACTOR}.ulysses_sequence_parallel_size")
    has_effect = reader.traits.critic_reads_own_keys or not older.startswith(OF_CRITIC.role)
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
        ulysses: the number of GPUs that share a sequence.
        reshards_root: whether a pass without gradients reshards the root at its end.
    """

    shard: int = setting(_shard_size, "{fsdp}.fsdp_size")
    reshards_root: bool = setting(
        lambda reader, key: (reader.optional(key, -1) or -1) > 1, "{fsdp}.fsdp_size"
    )
    ulysses: int = setting(
        _ulysses_size,
        "{fsdp}.ulysses_sequence_parallel_size",
        "{role}.ulysses_sequence_parallel_size",
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
    reshard: bool = setting(lambda reader, key: reader.any(key) is not False, "{fsdp}.reshard_after_forward")
    defers_sync: bool = setting(_defers_sync, "{fsdp}.use_no_sync_for_gradient_accumulation")


# -- Megatron

_TRANSFORMER = "{megatron}.override_transformer_config"
_OPTIMIZER = "{role}.optim.override_optimizer_config"


def _gradient_bytes(reader: Reader, data_type: str, precision_aware: str, in_fp32: str) -> int:
    """Return the bytes of a gradient in Megatron's buffer (megatron/transformer_impl.py:456 at 1dda039b9)."""
    if reader.is_set(in_fp32):
        return 4 if reader.flag(in_fp32) else 2
    return reader.data_type(data_type) if reader.flag(precision_aware) else 4


def _share_on_host(reader: Reader, offloads: str, fraction: str) -> float:
    """Return the share of the optimizer states on the host; Megatron's default is 0."""
    if not reader.flag(offloads) or not reader.is_set(fraction):
        return 0.0
    return max(0.0, reader.number(fraction, -1, 1))


def _optimizer_bytes(
    reader: Reader, offloads: str, fraction: str, overridden: str, precision_aware: str, *moments: str
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


def _recomputes(reader: Reader, granularity: str, method: str) -> bool:
    """Return whether Megatron recomputes every layer in the backward pass."""
    block = reader.choice(method, ("uniform", "block")) == "block"
    return reader.choice(granularity, ("full", "selective")) == "full" and not block


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
        recompute: whether whole layers are recomputed in the backward pass.
        fused_activation: whether an MLP fuses activation and gate, as it does by default.
        fused_gradients: whether gradients are accumulated by the kernels; None if this depends on verl.
        fused_loss: whether Megatron computes its own loss in one kernel; verl computes another one.
        all_to_all_attention: whether context parallelism exchanges heads instead of keys and values.
        first_layers, last_layers: the layers of the first and last pipeline stage, if set.
        gradient_bytes: bytes per parameter in the gradient buffer.
    """

    tensor: int = setting(Reader.whole, "{megatron}.tensor_model_parallel_size")
    pipeline: int = setting(Reader.whole, "{megatron}.pipeline_model_parallel_size")
    context: int = setting(Reader.whole, "{megatron}.context_parallel_size")
    expert: int = setting(Reader.whole, "{megatron}.expert_model_parallel_size")
    expert_tensor: int = setting(Reader.optional, "{megatron}.expert_tensor_parallel_size")
    distributed_optimizer: bool = setting(Reader.flag, "{megatron}.use_distributed_optimizer")
    param_offload: bool = setting(Reader.flag, "{megatron}.param_offload")
    optimizer_offload: bool = setting(Reader.flag, "{megatron}.optimizer_offload")
    cpu_optimizer: float = setting(
        _share_on_host, f"{_OPTIMIZER}.optimizer_cpu_offload", f"{_OPTIMIZER}.optimizer_offload_fraction"
    )
    optimizer_bytes: float = setting(
        _optimizer_bytes,
        f"{_OPTIMIZER}.optimizer_cpu_offload",
        f"{_OPTIMIZER}.optimizer_offload_fraction",
        f"{_OPTIMIZER}.use_precision_aware_optimizer",
        "{role}.optim.use_precision_aware_optimizer",
        "{role}.optim.exp_avg_dtype",
        "{role}.optim.exp_avg_sq_dtype",
    )
    recompute: bool = setting(
        _recomputes, f"{_TRANSFORMER}.recompute_granularity", f"{_TRANSFORMER}.recompute_method"
    )
    fused_activation: bool | None = setting(_optional_flag, f"{_TRANSFORMER}.bias_activation_fusion")
    fused_gradients: bool | None = setting(_optional_flag, f"{_TRANSFORMER}.gradient_accumulation_fusion")
    fused_loss: bool | None = setting(_optional_flag, f"{_TRANSFORMER}.cross_entropy_loss_fusion")
    all_to_all_attention: bool = setting(
        lambda reader, key: reader.any(key) == "a2a", f"{_TRANSFORMER}.cp_comm_type"
    )
    first_layers: int | None = setting(Reader.optional, f"{_TRANSFORMER}.num_layers_in_first_pipeline_stage")
    last_layers: int | None = setting(Reader.optional, f"{_TRANSFORMER}.num_layers_in_last_pipeline_stage")
    sequence_parallel: bool = setting(Reader.flag, "{megatron}.sequence_parallel")
    gradient_bytes: int = setting(
        _gradient_bytes,
        "{role}.optim.main_grads_dtype",
        "{role}.optim.use_precision_aware_optimizer",
        "{megatron}.override_ddp_config.grad_reduce_in_fp32",
    )


#: The settings for other backends.
NO_MEGATRON = Megatron(
    tensor=1, pipeline=1, context=1, expert=1, expert_tensor=1, sequence_parallel=True,
    distributed_optimizer=True, param_offload=False, optimizer_offload=False, cpu_optimizer=0.0,
    optimizer_bytes=12.0, gradient_bytes=4, recompute=False, fused_activation=None,
    fused_gradients=None, fused_loss=None, all_to_all_attention=False,
    first_layers=None, last_layers=None,
)  # fmt: skip


def _checked_megatron(megatron: Megatron, reader: Reader, of: Sections) -> Megatron:
    """Return Megatron's settings with the TP of experts filled in; check that the sizes divide the GPUs."""
    tensor, pipeline, expert = megatron.tensor, megatron.pipeline, megatron.expert
    prefix, whole = f"{of.role}.megatron", tensor * pipeline * megatron.context
    reader.divisor(f"{prefix}.tensor_model_parallel_size", whole, "TP × PP × CP")
    if megatron.expert_tensor is None:  # Megatron uses TP; if that is impossible, the run must have set 1
        possible = not reader.gpus % (expert * tensor * pipeline)
        megatron = replace(megatron, expert_tensor=tensor if possible else 1)
    of_experts = expert * megatron.expert_tensor * pipeline
    reader.divisor(f"{prefix}.expert_model_parallel_size", of_experts, "EP × ETP × PP")
    return megatron


# -- a trained role


@dataclass(frozen=True)
class Role:
    """A trained model: the actor or the critic.

    Attributes:
        backend: the backend, which decides whether ``fsdp`` or ``megatron`` applies.
        mini_batch: the sequences of a mini-batch, over all ranks.
        remove_padding: whether padding is removed before the computation.
        checkpointing: whether every layer is recomputed in the backward pass (FSDP).
        lora_rank: the rank of the adapters; 0 for full fine-tuning.
        step_copies: the number of parameter-sized buffers in the optimizer step.
        moments: bytes of the optimizer's states per trained parameter.
    """

    backend: Backend
    fsdp: Fsdp
    megatron: Megatron
    micro_batch: MicroBatch
    lora_rank: int
    targets: Targets
    step_copies: int
    moments: float
    mini_batch: int = setting(tokens.mini_batch, "{role}.ppo_mini_batch_size", "{actor}.ppo_mini_batch_size")
    remove_padding: bool = setting(Reader.flag, "{model}.use_remove_padding")
    checkpointing: bool = setting(Reader.flag, "{model}.enable_gradient_checkpointing")
    activation_offload: bool = setting(Reader.flag, "{model}.enable_activation_offload")

    def ranks(self, gpus: int) -> int:
        """Return the number of data-parallel ranks."""
        return _ranks(self.backend, self.fsdp, self.megatron, gpus)

    @property
    def sequence_sharers(self) -> int:
        """The number of GPUs that share a sequence, by Ulysses or context parallelism."""
        return self.megatron.context if self.backend == "megatron" else self.fsdp.ulysses


def _ranks(backend: Backend, fsdp: Sharding, megatron: Megatron, gpus: int) -> int:
    sharers = (
        megatron.tensor * megatron.pipeline * megatron.context if backend == "megatron" else fsdp.ulysses
    )
    return max(1, gpus // sharers)


def read_role(reader: Reader, of: Sections, backend: Backend) -> Role:
    """Read the settings of the actor or the critic."""
    fsdp, megatron = read_fields(Fsdp, reader, of), NO_MEGATRON
    if backend == "megatron":
        megatron = _checked_megatron(read_fields(Megatron, reader, of), reader, of)
    rank, targets = _adapters(reader, backend) if of is OF_ACTOR else (
        reader.whole("critic.model.lora_rank", 0), "all-linear")  # fmt: skip
    copies, moments = _optimizer(reader, f"{of.role}.optim", backend, fsdp.parameter_bytes)
    ranks = _ranks(backend, fsdp, megatron, reader.gpus)
    return read_fields(
        Role,
        reader,
        of,
        backend=backend,
        fsdp=fsdp,
        megatron=megatron,
        micro_batch=tokens.update_micro_batch(reader, of, ranks),
        lora_rank=rank,
        targets=targets,
        step_copies=copies,
        moments=moments,
    )


def _adapters(reader: Reader, backend: Backend) -> tuple[int, Targets]:
    """Return the actor's LoRA rank, for which Megatron has a separate key, and the modules with adapters."""
    rank_key, key = f"{MODEL}.lora_rank", f"{MODEL}.target_modules"
    rank = reader.whole(rank_key, 0)
    if backend == "megatron":
        others, own = rank, f"{MODEL}.lora.rank"
        rank = reader.whole(own, 0)
        if others and not rank:
            reader.warning(rank_key, "Megatron ignores this key and trains the whole model", f"set {own}")
        rank_key = own
    if not rank and reader.is_set(key):
        message = "the LoRA rank is 0: there are no adapters"
        reader.warning(key, message, f"set {rank_key}, or remove the targets")
    value: Any = reader.any(key)
    if value in (None, "all-linear"):
        return rank, "all-linear"
    names = (value,) if isinstance(value, str) else value
    if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
        return rank, tuple(names)
    reader.error(key, "expected 'all-linear' or a list of module names", code="wrong_type")
    return rank, "all-linear"


def _optimizer(reader: Reader, prefix: str, backend: Backend, parameter_bytes: int) -> tuple[int, float]:
    """Return the number of parameter-sized buffers in the step, and the bytes of states per parameter."""
    name = str(reader.any(f"{prefix}.optimizer") or "AdamW").lower()
    fused = reader.flag(f"{prefix}.override_optimizer_config.fused")
    one_by_one = reader.any(f"{prefix}.override_optimizer_config.foreach") is False
    copies = 0 if fused or one_by_one or backend != "fsdp" else 1
    if name in EIGHT_BIT:
        return copies, 2.0
    return copies, parameter_bytes * (3.0 if name in KAHAN else 2.0)
