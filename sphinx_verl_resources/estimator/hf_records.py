"""The fields of a model's config.json from Hugging Face that the estimator reads."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from ..records import Record, optional, problem

#: Far above any real model; keeps sums and products of the fields within the range of integers.
MOST = 10**8


def _not_huge(value: Any) -> Any:
    """Reject an integer that has too many digits for a number in YAML and was therefore read as text."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]{19,}", value):
        raise problem("wrong_value", f"must be between 1 and {MOST}, got a number of {len(value)} digits")
    return value


Size = Annotated[int, BeforeValidator(_not_huge), Field(ge=1, le=MOST)]
#: A count that may be zero.
Number = Annotated[int, BeforeValidator(_not_huge), Field(ge=0, le=10_000)]
Layers = Annotated[int, BeforeValidator(_not_huge), Field(ge=1, le=10_000)]


class HfVision(Record):
    """The ``vision_config`` of the Qwen models."""

    model_config = ConfigDict(extra="ignore")

    depth: Size | None = optional("Blocks.")
    hidden_size: Size | None = optional("Width.")
    intermediate_size: Size | None = optional("Width of the MLP.")
    num_heads: Size | None = optional("Attention heads.")
    patch_size: Size | None = optional("Pixels per patch side.")
    temporal_patch_size: Size | None = optional("Frames per patch.")
    spatial_merge_size: Size | None = optional("Patches merged per side.")
    in_channels: Size | None = optional("Colour channels.")
    out_hidden_size: Size | None = optional("Width of the output to the language model.")
    num_position_embeddings: Size | None = optional("Learned positions.")
    deepstack_visual_indexes: tuple[Any, ...] | None = optional(
        "Blocks with a further output to the language model."
    )


class HfText(Record):
    """The language model: the top level of the file, or ``text_config``."""

    model_config = ConfigDict(extra="ignore")

    model_type: str | None = optional("Model type.", examples=["qwen2"])
    hidden_size: Size | None = optional("Width of the residual stream.")
    num_hidden_layers: Layers | None = optional("Number of layers.")
    intermediate_size: Size | None = optional("Width of the dense MLP.")
    num_attention_heads: Size | None = optional("Query heads.")
    num_key_value_heads: Size | None = optional("Key and value heads.")
    head_dim: Size | None = optional("Width of a head.")
    vocab_size: Size | None = optional("Rows of the embedding.")
    max_position_embeddings: Size | None = optional("Longest sequence.")
    tie_word_embeddings: bool | None = optional("The output head shares the embedding's weights.")
    attention_bias: bool | None = optional("Biases in attention.")
    qkv_bias: bool | None = optional("Biases on query, key and value.")
    mlp_bias: bool | None = optional("Biases in the MLP.")
    attn_output_gate: bool | None = optional("The query projection also makes an output gate.")
    sliding_window: Annotated[int, BeforeValidator(_not_huge), Field(ge=0, le=MOST)] | None = optional(
        "Attention window in tokens."
    )
    use_sliding_window: bool | None = optional("The attention window is used.")

    num_experts: Size | None = optional("Routed experts per layer.")
    num_local_experts: Size | None = optional("Routed experts per layer.")
    n_routed_experts: Size | None = optional("Routed experts per layer.")
    num_experts_per_tok: Size | None = optional("Routed experts that a token passes through.")
    moe_intermediate_size: Size | None = optional("Width of one routed expert.")
    n_shared_experts: Number | None = optional("Experts that every token passes through.")
    shared_expert_intermediate_size: Size | None = optional("Width of the shared expert.")
    first_k_dense_replace: Number | None = optional("Leading layers with a dense MLP instead of experts.")
    mlp_only_layers: tuple[int, ...] | None = optional("Layers with a dense MLP instead of experts.")
    decoder_sparse_step: Size | None = optional("Every n-th layer has experts.")
    moe_layer_freq: Size | None = optional("Every n-th layer has experts.")

    q_lora_rank: Size | None = optional("Rank of the query projection; null: one full projection.")
    kv_lora_rank: Size | None = optional("Rank of the compressed key and value.")
    qk_nope_head_dim: Size | None = optional("Query-key width per head without rotary embedding.")
    qk_rope_head_dim: Size | None = optional("Query-key width with rotary embedding.")
    v_head_dim: Size | None = optional("Value width per head.")

    full_attention_interval: Size | None = optional("Every n-th layer is full attention.")
    layer_types: tuple[Any, ...] | None = optional("Kind of attention of each layer.")
    linear_num_key_heads: Size | None = optional("Key heads of linear attention.")
    linear_key_head_dim: Size | None = optional("Width of a key head of linear attention.")
    linear_num_value_heads: Size | None = optional("Value heads of linear attention.")
    linear_value_head_dim: Size | None = optional("Width of a value head of linear attention.")
    linear_conv_kernel_dim: Size | None = optional("Width of the short convolution.")

    num_nextn_predict_layers: Number | None = optional("Layers for multi-token prediction.")
    mtp_num_hidden_layers: Number | None = optional("Layers for multi-token prediction.")


class HfConfig(HfText):
    """A complete config.json."""

    name_or_path: Any = optional("Name or path of the model.", alias="_name_or_path")
    text_config: HfText | None = optional("The language model of a vision-language model.")
    vision_config: HfVision | None = optional("The vision tower.")
