"""The settings of a plain training case, under its key ``training``; unknown ones are ignored."""

from pydantic import Field

from sphinx_verl_resources.records import MOST_GPUS, Record, SettingValue, Text


class Lora(Record, extra="ignore"):
    """Low-rank adapters on a frozen base.

    Attributes:
        rank: Rank of the adapters.
        targets: Modules with adapters, or all-linear.
    """

    rank: int = Field(ge=1, le=1_000_000)
    targets: SettingValue = ()


class Sharding(Record, extra="ignore"):
    """The number of GPUs that share the states.

    Attributes:
        fsdp: GPUs that share one copy of the states.
    """

    fsdp: int | None = Field(None, ge=1, le=MOST_GPUS)


class Training(Record, extra="ignore"):
    """A plain training run, without reinforcement learning.

    Attributes:
        method: full or lora.
        lora: Adapters.
        parameter_dtype: Data type of the parameters, such as bfloat16.
        autocast: The compute runs under autocast.
        compute_dtype: Data type of the compute.
        optimizer: Optimizer and variant, such as adamw-foreach.
        sharding: Sharding of the states over the GPUs.
        micro_batch_per_gpu: Sequences per micro-batch on one GPU.
        sequence_length: Tokens per sequence.
        packed: Every sequence is filled to sequence_length.
        recompute: full: the backward pass recomputes each layer. none: no recomputation.
        loss: torch: upcast copies of the logits. fused: cross-entropy in one kernel. liger: fused with the
            output layer, without logits in memory. chunked: cross-entropy over parts of the sequence.
        kernels: Kernels that replace PyTorch's, or PyTorch's compiler.
    """

    method: Text | None = None
    lora: Lora | None = None
    parameter_dtype: Text | None = None
    autocast: bool | None = None
    compute_dtype: Text | None = None
    optimizer: Text | None = None
    sharding: Sharding | None = None
    micro_batch_per_gpu: int | None = Field(None, ge=1, le=100_000_000)
    sequence_length: int | None = Field(None, ge=1, le=100_000_000)
    packed: bool | None = None
    recompute: Text | None = None
    loss: Text | None = None
    kernels: Text | None = None
