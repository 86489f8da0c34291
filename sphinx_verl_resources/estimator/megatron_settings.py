"""The settings of a role trained with Megatron, and the rules behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import reading
from .reader import Reader, setting

_TRANSFORMER = "{megatron}.override_transformer_config"
_OPTIMIZER = "{role}.optim.override_optimizer_config"


def gradient_bytes(reader: Reader, data_type: str, precision_aware: str, in_fp32: str) -> int:
    """Return the bytes of a gradient in Megatron's buffer (megatron/transformer_impl.py:456 at 1dda039b9)."""
    if reader.is_set(in_fp32):
        return 4 if reader.flag(in_fp32) else 2
    return reader.data_type(data_type) if reader.flag(precision_aware) else 4


def on_host(reader: Reader, offloads: str, fraction: str) -> float:
    """Return the share of the optimizer states on the host; Megatron's default is 0."""
    if not reader.flag(offloads) or not reader.is_set(fraction):
        return 0.0
    return max(0.0, reader.number(fraction, -1, 1))


def moment_bytes(
    reader: Reader, offloads: str, overridden: str, precision_aware: str, *moments: str
) -> float:
    """Return the bytes of a main parameter and both moments.

    TransformerEngine's precision-aware optimizer stores only the half of a main parameter that is not in the
    weight (Megatron-Core's ``store_param_remainders``, which verl leaves on:
    verl/utils/megatron/optimizer.py:182 at 1dda039b9). The host uses a different optimizer.
    """
    chosen = sum(map(reader.data_type, moments))
    aware = reader.flag(precision_aware)
    if reader.flag(offloads) or not (aware or reader.flag(overridden)):
        return 12.0
    main = 2.0 if reader.traits.parameter_remainders else 4.0
    return main + (chosen if aware else 8)


def is_muon(reader: Reader, key: str) -> bool:
    """Return whether Megatron's optimizer is Muon."""
    return str(reader.any(key)).lower() == "muon"


def recomputed_modules(reader: Reader, key: str, granularity: str) -> tuple[str, ...]:
    """Return the modules of a layer that are recomputed selectively."""
    if reader.any(granularity) != "selective":
        return ()
    value: Any = reader.any(key)
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


def is_given(reader: Reader, key: str) -> bool:
    """Return whether a key has a value."""
    return reader.any(key) is not None


def optional_flag(reader: Reader, key: str) -> bool | None:
    """Return a boolean; None if unset."""
    return reader.flag(key) if reader.is_set(key) else None


def recomputes(reader: Reader, granularity: str, method: str) -> bool:
    """Return whether Megatron recomputes layers in the backward pass."""
    block = reader.choice(method, ("uniform", "block")) == "block"
    return reader.choice(granularity, ("full", "selective")) == "full" and not block


def unless_any(reader: Reader, *keys: str) -> bool:
    """Return whether all switches are off."""
    return not any(reader.flags(*keys))


@dataclass(frozen=True)
class Megatron:
    """Megatron's settings for a role.

    Attributes:
        tensor, pipeline, context, expert: parallel sizes.
        expert_tensor: the tensor-parallel size of experts.
        cpu_optimizer: the share of the optimizer states that is kept and updated on the host.
        muon: whether Muon trains the layers' matrices, and Adam the rest.
        layer_wise: whether replicas divide Muon's states, by whole matrices; otherwise each has all states.
        main_on_gpu: whether the GPU also keeps the main parameters of the host's optimizer.
        moment_bytes: Adam's bytes per parameter: main parameter and both moments.
        granularity: the configured granularity of recomputation: ``full``, ``selective`` or None.
        recompute: whether whole layers are recomputed in the backward pass.
        recompute_modules: the modules of a layer that are recomputed selectively.
        fp8: whether matrices are multiplied in FP8.
        fused_activation: whether an MLP fuses activation and gate; None if this depends on the model.
        first_layers, last_layers: the layers of the first and last pipeline stage, if set.
        pad_bucket: see ``Sharding``.
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
        on_host, f"{_OPTIMIZER}.optimizer_cpu_offload", f"{_OPTIMIZER}.optimizer_offload_fraction"
    )
    main_on_gpu: bool = setting(
        unless_any,
        f"{_OPTIMIZER}.use_precision_aware_optimizer",
        "{role}.optim.use_precision_aware_optimizer",
    )
    moment_bytes: float = setting(
        moment_bytes,
        f"{_OPTIMIZER}.optimizer_cpu_offload",
        f"{_OPTIMIZER}.use_precision_aware_optimizer",
        "{role}.optim.use_precision_aware_optimizer",
        "{role}.optim.exp_avg_dtype",
        "{role}.optim.exp_avg_sq_dtype",
    )
    muon: bool = setting(is_muon, "{role}.optim.optimizer")
    layer_wise: bool = setting(Reader.flag, "{role}.optim.use_layer_wise_distributed_optimizer")
    granularity: str | None = setting(
        Reader.choice, f"{_TRANSFORMER}.recompute_granularity", choices=("full", "selective")
    )
    recompute: bool = setting(
        recomputes, f"{_TRANSFORMER}.recompute_granularity", f"{_TRANSFORMER}.recompute_method"
    )
    recompute_layers: int = setting(Reader.whole, f"{_TRANSFORMER}.recompute_num_layers")
    recompute_modules: tuple[str, ...] = setting(
        recomputed_modules,
        f"{_TRANSFORMER}.recompute_modules",
        f"{_TRANSFORMER}.recompute_granularity",
    )
    fp8: bool = setting(is_given, f"{_TRANSFORMER}.fp8")
    fused_activation: bool | None = setting(optional_flag, f"{_TRANSFORMER}.bias_activation_fusion")
    first_layers: int | None = setting(Reader.optional, f"{_TRANSFORMER}.num_layers_in_first_pipeline_stage")
    last_layers: int | None = setting(Reader.optional, f"{_TRANSFORMER}.num_layers_in_last_pipeline_stage")
    sequence_parallel: bool = setting(Reader.flag, "{megatron}.sequence_parallel")
    pad_bucket: int = setting(
        reading.pad_bucket, "{megatron}.pad_to_length_bucket", "{megatron}.pad_to_length"
    )
    gradient_bytes: int = setting(
        gradient_bytes,
        "{role}.optim.main_grads_dtype",
        "{role}.optim.use_precision_aware_optimizer",
        "{megatron}.override_ddp_config.grad_reduce_in_fp32",
    )


#: The settings for other backends.
NO_MEGATRON = Megatron(
    tensor=1, pipeline=1, context=1, expert=1, expert_tensor=1, sequence_parallel=True,
    distributed_optimizer=True, param_offload=False, optimizer_offload=False, cpu_optimizer=0.0,
    main_on_gpu=False, moment_bytes=12.0, muon=False, layer_wise=False, gradient_bytes=4,
    granularity=None, recompute=False, recompute_layers=1, recompute_modules=(), fused_activation=None,
    fp8=False,    first_layers=None, last_layers=None, pad_bucket=1,
)  # fmt: skip
