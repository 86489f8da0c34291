"""The fields of a model's config.json that its shape follows from; all others are passed over.

Which of them a model has depends on its type, so none is required here. Names are those of Hugging Face
transformers. All sizes count elements.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from .base import Record, problem

#: Far above any model; keeps all sums and products of the fields in the range of whole numbers.
MOST = 10**8


def _not_huge(value: Any) -> Any:
    """Refuse a whole number with more digits than YAML numbers may have, which is read as text."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]{19,}", value):
        raise problem("wrong_value", f"must be between 1 and {MOST}, got a number of {len(value)} digits")
    return value


Size = Annotated[int, BeforeValidator(_not_huge), Field(ge=1, le=MOST)]
#: A number of parts that a model may be without.
Number = Annotated[int, BeforeValidator(_not_huge), Field(ge=0, le=10_000)]
Layers = Annotated[int, BeforeValidator(_not_huge), Field(ge=1, le=10_000)]


class HfVision(Record):
    """``vision_config``, as the Qwen models have it."""

    model_config = ConfigDict(extra="ignore")

    depth: Size | None = Field(None, description="Blocks.")
    hidden_size: Size | None = Field(None, description="Width.")
    intermediate_size: Size | None = Field(None, description="Width of the MLP.")
    num_heads: Size | None = Field(None, description="Attention heads.")
    patch_size: Size | None = Field(None, description="Pixels per patch side.")
    temporal_patch_size: Size | None = Field(None, description="Frames per patch.")
    spatial_merge_size: Size | None = Field(None, description="Patches merged per side.")
    in_channels: Size | None = Field(None, description="Colour channels.")
    out_hidden_size: Size | None = Field(None, description="Width handed to the language model.")
    num_position_embeddings: Size | None = Field(None, description="Learned positions.")
    deepstack_visual_indexes: tuple[Any, ...] | None = Field(
        None, description="Blocks whose outputs the language model gets too."
    )


class HfText(Record):
    """The language model: the top of the file, or ``text_config``."""

    model_config = ConfigDict(extra="ignore")

    model_type: str | None = Field(None, description="The type of the model.", examples=["qwen2"])
    hidden_size: Size | None = Field(None, description="Width of the residual stream.")
    num_hidden_layers: Layers | None = Field(None, description="Layers.")
    intermediate_size: Size | None = Field(None, description="Width of the dense MLP.")
    num_attention_heads: Size | None = Field(None, description="Query heads.")
    num_key_value_heads: Size | None = Field(None, description="Key and value heads.")
    head_dim: Size | None = Field(None, description="Width of a head.")
    vocab_size: Size | None = Field(None, description="Rows of the embedding.")
    max_position_embeddings: Size | None = Field(None, description="Longest sequence.")
    tie_word_embeddings: bool | None = Field(None, description="The output head is the embedding.")
    attention_bias: bool | None = Field(None, description="Biases in attention.")
    qkv_bias: bool | None = Field(None, description="Biases on query, key and value.")
    mlp_bias: bool | None = Field(None, description="Biases in the MLP.")
    attn_output_gate: bool | None = Field(None, description="The query projection also makes an output gate.")
    sliding_window: Annotated[int, BeforeValidator(_not_huge), Field(ge=0, le=MOST)] | None = Field(
        None, description="Attention window in tokens."
    )
    use_sliding_window: bool | None = Field(None, description="Whether the window is used.")

    num_experts: Size | None = Field(None, description="Routed experts per layer.")
    num_local_experts: Size | None = Field(None, description="Routed experts per layer.")
    n_routed_experts: Size | None = Field(None, description="Routed experts per layer.")
    num_experts_per_tok: Size | None = Field(None, description="Routed experts that a token passes through.")
    moe_intermediate_size: Size | None = Field(None, description="Width of one routed expert.")
    n_shared_experts: Number | None = Field(None, description="Experts that every token passes through.")
    shared_expert_intermediate_size: Size | None = Field(None, description="Width of the shared expert.")
    first_k_dense_replace: Number | None = Field(
        None, description="Leading layers with a dense MLP instead of experts."
    )
    mlp_only_layers: tuple[int, ...] | None = Field(
        None, description="Layers with a dense MLP instead of experts."
    )
    decoder_sparse_step: Size | None = Field(None, description="Every n-th layer has experts.")
    moe_layer_freq: Size | None = Field(None, description="Every n-th layer has experts.")

    q_lora_rank: Size | None = Field(
        None, description="Rank of the query projection; null: one full projection."
    )
    kv_lora_rank: Size | None = Field(None, description="Rank of the compressed key and value.")
    qk_nope_head_dim: Size | None = Field(
        None, description="Query-key width per head without rotary embedding."
    )
    qk_rope_head_dim: Size | None = Field(None, description="Query-key width with rotary embedding.")
    v_head_dim: Size | None = Field(None, description="Value width per head.")

    full_attention_interval: Size | None = Field(None, description="Every n-th layer is full attention.")
    layer_types: tuple[Any, ...] | None = Field(None, description="The kind of attention of each layer.")
    linear_num_key_heads: Size | None = Field(None, description="Key heads of linear attention.")
    linear_key_head_dim: Size | None = Field(None, description="Width of a key head of linear attention.")
    linear_num_value_heads: Size | None = Field(None, description="Value heads of linear attention.")
    linear_value_head_dim: Size | None = Field(None, description="Width of a value head of linear attention.")
    linear_conv_kernel_dim: Size | None = Field(None, description="Width of the short convolution.")

    num_nextn_predict_layers: Number | None = Field(None, description="Layers for multi-token prediction.")
    mtp_num_hidden_layers: Number | None = Field(None, description="Layers for multi-token prediction.")


class HfConfig(HfText):
    """A whole config.json."""

    name_or_path: Any = Field(None, alias="_name_or_path", description="The checkpoint.")
    text_config: HfText | None = Field(None, description="The language model of a vision-language model.")
    vision_config: HfVision | None = Field(None, description="The vision tower.")
