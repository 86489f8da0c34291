"""What a sequence keeps in the rollout engine: keys and values of each token, and fixed states."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..catalog.models.architecture import Architecture


def kv_cache_bytes_per_token(
    architecture: Architecture, tensor_parallel: int = 1, element_bytes: int = 2
) -> int:
    """Bytes that one more token takes in the KV cache of one GPU, over all layers.

    Key-value heads are shared out over ``tensor_parallel`` GPUs, and replicated once there are more GPUs than
    heads. The compressed cache of multi-head latent attention is not shared out. Layers with linear attention
    have none, see ``state_bytes_per_sequence``. A sliding window limits how many tokens are kept, not this.

    Source: shapes; vLLM ``vllm/v1/kv_cache_interface.py``.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> qwen = load_paths([]).architectures.get("Qwen/Qwen2.5-7B")
    >>> [kv_cache_bytes_per_token(qwen, gpus) for gpus in (1, 2, 4, 8)]
    [57344, 28672, 14336, 14336]
    """
    layers = full_attention_layers(architecture)
    mla = architecture.mla
    if mla:
        return layers * (mla.kv_lora_rank + mla.qk_rope_head_dim) * element_bytes
    heads = _share(architecture.num_key_value_heads, tensor_parallel)
    return 2 * layers * heads * architecture.head_dim * element_bytes


def full_attention_layers(architecture: Architecture) -> int:
    """How many layers keep keys and values."""
    linear = architecture.linear_attention
    return architecture.num_hidden_layers // (linear.full_attention_interval if linear else 1)


def state_bytes_per_sequence(architecture: Architecture, tensor_parallel: int = 1) -> int:
    """Bytes that a sequence of any length keeps on one GPU for its layers with linear attention.

    A state in fp32 and the inputs of the short convolution in 16 bits; 0 for models without such layers. From
    the shapes of the layer; no measurement confirms it.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> qwen = load_paths([]).architectures.get("Qwen/Qwen3.5-122B-A10B")
    >>> state_bytes_per_sequence(qwen)
    153649152
    """
    linear = architecture.linear_attention
    if not linear:
        return 0
    key_heads = _share(linear.num_key_heads, tensor_parallel)
    value_heads = _share(linear.num_value_heads, tensor_parallel)
    state = value_heads * linear.key_head_dim * linear.value_head_dim * 4
    width = 2 * key_heads * linear.key_head_dim + value_heads * linear.value_head_dim
    convolution = width * (linear.conv_kernel - 1) * 2
    layers = architecture.num_hidden_layers - full_attention_layers(architecture)
    return layers * (state + convolution)


def _share(heads: int, gpus: int) -> int:
    """Heads of the GPU that has most of them; at least one, however many GPUs there are."""
    return -(-heads // max(1, gpus))
