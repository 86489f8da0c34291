"""The bytes per token of Megatron's layers, which keep fewer tensors than those of transformers.

Counted, not measured: the tensors that the autograd functions of Megatron-Core (core_v0.15.0) and
TransformerEngine (v2.8) save for the backward pass, and those that variables of a forward pass keep alive.

- ``LayerNormLinear`` (queries, keys and values; first matrix of a dense MLP) saves its input and the output
  of the norm: ``transformer_engine/pytorch/module/layernorm_linear.py``. Norms are fused, nothing is in fp32.
- ``get_qkv_layout`` copies the values, so the joint output of the projection can be freed:
  ``transformer_engine/pytorch/attention/dot_product_attention/utils.py``.
- Norms of queries and keys save copies of their inputs. Flash attention saves queries, keys, values, 4 bytes
  per head, and its output (the output matrix's input).
- A fused activation saves its input; the next matrix saves its output. An unfused one also saves both factors
  of the gate and, in an expert, their product, which is multiplied by the router's probability in fp32:
  ``megatron/core/transformer/mlp.py``, ``moe/experts.py``.
- Experts save the received tokens, sorted: ``moe/token_dispatcher.py``. Until it returns,
  ``MoELayer.forward`` keeps the permuted and the received tokens, and those before and after the last two
  steps.
- The router saves probabilities in fp32 and maps: 13 bytes per expert.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from .constants import EXPERT_IMBALANCE
from .shape import bytes_of, layer_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .megatron_settings import Megatron
    from .shape import Shape

#: Model types for which Megatron-Bridge fuses the activation; Megatron-Core does so only on request.
_FUSED = frozenset({"llama", "deepseek_v2", "deepseek_v3", "glm4_moe", "gpt_oss", "kimi_k2"})

Moments = tuple[str, ...]

_ATTENTION = "8h + 4q + 4k + 4a"
_QK_NORM = "2q + 2k + 4a + 4g"
#: Tensors that a layer keeps of its MLP and of its experts, with a fused activation and without.
_MLP = {True: "6f", False: "10f"}
_EXPERTS = {True: "2x + 6e + 13n", False: "2x + 12e + 13n"}
#: Tensors no longer kept if one module alone is recomputed; for other modules, almost none.
_RECOMPUTED = {
    "core_attn": {True: "2k + 4a", False: "2k + 4a"},
    "mlp": {True: "2h + 6f", False: "2h + 10f"},
    "moe": {True: "6f + 2x + 6e + 13n", False: "10f + 2x + 12e + 13n"},
    "shared_experts": _MLP,
    "moe_act": {True: "2e", False: "8e"},
    "layernorm": {True: "2h", False: "2h"},
}
#: Recomputed attention keeps its inputs instead of copies: the values are part of the projection's output.
_INSTEAD = {"core_attn": "2q + 4k"}
#: Modules that can be recomputed, in dense layers and in layers with experts (whose norm is not fused).
_MODULES = {False: ("core_attn", "mlp"), True: ("core_attn", "moe", "shared_experts", "moe_act", "layernorm")}
#: The moments of the backward pass: bytes on top of the kept ones. ``t``: hidden size of gathered tokens.
_DENSE_BACKWARD: Moments = ("2h + 2t + 2f", "2h + 4f")
_EXPERTS_BACKWARD: Moments = ("2h + 4x", "2h + 2x + 2e", "2h + 10e", "2h + 2t + 4f")
#: The moments of a pass without gradients.
_DENSE_FORWARD: Mapping[bool, Moments] = {True: ("4h + 6f",), False: ("4h + 10f",)}
_BEFORE_ATTENTION: Moments = ("6h + 2t + 4f", "4h + 6q + 8k")
_EXPERTS_FORWARD: Mapping[bool, Moments] = {True: ("6h + 6x + 6e",), False: ("6h + 6x + 14e",)}


class LayerBytes(NamedTuple):
    """Bytes per token of one GPU's part of the widest layer.

    Attributes:
        saved: bytes kept for the backward pass.
        dropped: bytes not kept because modules are recomputed.
        backward: bytes needed on top of both in the layer's backward pass.
        forward: bytes in a pass without gradients.
    """

    saved: float
    dropped: float
    backward: float
    forward: float


@lru_cache(maxsize=256)
def layer_bytes(shape: Shape, megatron: Megatron) -> LayerBytes:
    """Return the bytes per token of the widest layer on one GPU.

    Tensor parallelism divides matrices, and sequence parallelism divides tokens. Experts receive as many
    tokens from other GPUs as their GPU sends, times the imbalance.
    """
    architecture = shape.architecture
    fused = megatron.fused_activation
    if fused is None:
        fused = architecture.model_type in _FUSED
    imbalance = EXPERT_IMBALANCE.value if megatron.expert > 1 else 1.0
    return LayerBytes(*(max(found) for found in zip(*(
        _of_layer(with_experts, _divided(sizes, megatron), megatron, fused, qk_norm=architecture.qk_norm)
        for with_experts, sizes in layer_sizes(architecture, imbalance)
    ), strict=True)))  # fmt: skip


def _divided(sizes: Mapping[str, float], megatron: Megatron) -> dict[str, float]:
    """Return the sizes on one GPU, with ``t`` for tokens gathered from the GPUs that share a sequence."""
    tensor, sequence = megatron.tensor, megatron.tensor if megatron.sequence_parallel else 1
    shares = {"h": sequence, "n": sequence, "e": sequence}
    found = {symbol: size / shares.get(symbol, tensor) for symbol, size in sizes.items()}
    found["x"] = sizes["x"] / sequence * (megatron.expert_tensor or 1) if "x" in sizes else 0.0
    found["t"] = sizes["h"] if sequence > 1 else 0.0
    return found


def _of_layer(
    with_experts: bool, sizes: Mapping[str, float], megatron: Megatron, fused: bool, *, qk_norm: bool
) -> LayerBytes:
    """Return the bytes per token of a dense layer or of one with experts; shared experts are its MLP."""

    def largest(moments: Moments) -> float:
        return max(bytes_of(moment, sizes) for moment in moments)

    kept = f"{_ATTENTION} + {_MLP[fused]}" + (f" + {_QK_NORM}" if qk_norm else "")
    backward, forward = _DENSE_BACKWARD, _DENSE_FORWARD[fused]
    if with_experts:
        kept += f" + {_EXPERTS[fused]}"
        # On one GPU no tokens are sent: the received tokens are the permuted ones.
        sent = megatron.expert > 1
        backward = (*_EXPERTS_BACKWARD, "8x" if sent else "6x")
        forward = (*_EXPERTS_FORWARD[fused], "6h + 10x" if sent else "6h + 8x")
    saved, dropped = bytes_of(kept, sizes), 0.0
    modules = set(_MODULES[with_experts]).intersection(megatron.recompute_modules)
    if "moe" in modules:  # includes all parts of the experts
        modules -= {"shared_experts", "moe_act"}
    for module in modules:
        saved += bytes_of(_INSTEAD.get(module, ""), sizes)
        dropped += bytes_of(_RECOMPUTED[module][fused], sizes)
    return LayerBytes(saved - dropped, dropped, largest(backward), largest(forward + _BEFORE_ATTENTION))
