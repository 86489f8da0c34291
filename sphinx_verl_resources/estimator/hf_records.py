"""The fields of a model's config.json from Hugging Face that the estimator reads."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from ..records import Record, problem

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
    """The ``vision_config`` of the Qwen models.

    Attributes:
        depth: Blocks.
        hidden_size: Width.
        intermediate_size: Width of the MLP.
        num_heads: Attention heads.
        patch_size: Pixels per patch side.
        temporal_patch_size: Frames per patch.
        spatial_merge_size: Patches merged per side.
        in_channels: Colour channels.
        out_hidden_size: Width of the output to the language model.
        num_position_embeddings: Learned positions.
        deepstack_visual_indexes: Blocks with a further output to the language model.
    """

    model_config = ConfigDict(extra="ignore")

    depth: Size | None = None
    hidden_size: Size | None = None
    intermediate_size: Size | None = None
    num_heads: Size | None = None
    patch_size: Size | None = None
    temporal_patch_size: Size | None = None
    spatial_merge_size: Size | None = None
    in_channels: Size | None = None
    out_hidden_size: Size | None = None
    num_position_embeddings: Size | None = None
    deepstack_visual_indexes: tuple[Any, ...] | None = None


class HfText(Record):
    """The language model: the top level of the file, or ``text_config``.

    Attributes:
        model_type: Model type.
        hidden_size: Width of the residual stream.
        num_hidden_layers: Number of layers.
        intermediate_size: Width of the dense MLP.
        num_attention_heads: Query heads.
        num_key_value_heads: Key and value heads.
        head_dim: Width of a head.
        vocab_size: Rows of the embedding.
        max_position_embeddings: Longest sequence.
        tie_word_embeddings: The output head shares the embedding's weights.
        attention_bias: Biases in attention.
        qkv_bias: Biases on query, key and value.
        mlp_bias: Biases in the MLP.
        attn_output_gate: The query projection also makes an output gate.
        sliding_window: Attention window in tokens.
        use_sliding_window: The attention window is used.
        num_experts: Routed experts per layer.
        num_local_experts: Routed experts per layer.
        n_routed_experts: Routed experts per layer.
        num_experts_per_tok: Routed experts that a token passes through.
        moe_intermediate_size: Width of one routed expert.
        n_shared_experts: Experts that every token passes through.
        shared_expert_intermediate_size: Width of the shared expert.
        first_k_dense_replace: Leading layers with a dense MLP instead of experts.
        mlp_only_layers: Layers with a dense MLP instead of experts.
        decoder_sparse_step: Every n-th layer has experts.
        moe_layer_freq: Every n-th layer has experts.
        q_lora_rank: Rank of the query projection; null: one full projection.
        kv_lora_rank: Rank of the compressed key and value.
        qk_nope_head_dim: Query-key width per head without rotary embedding.
        qk_rope_head_dim: Query-key width with rotary embedding.
        v_head_dim: Value width per head.
        full_attention_interval: Every n-th layer is full attention.
        layer_types: Kind of attention of each layer.
        linear_num_key_heads: Key heads of linear attention.
        linear_key_head_dim: Width of a key head of linear attention.
        linear_num_value_heads: Value heads of linear attention.
        linear_value_head_dim: Width of a value head of linear attention.
        linear_conv_kernel_dim: Width of the short convolution.
        num_nextn_predict_layers: Layers for multi-token prediction.
        mtp_num_hidden_layers: Layers for multi-token prediction.
    """

    model_config = ConfigDict(extra="ignore")

    model_type: str | None = Field(None, examples=["qwen2"])
    hidden_size: Size | None = None
    num_hidden_layers: Layers | None = None
    intermediate_size: Size | None = None
    num_attention_heads: Size | None = None
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    vocab_size: Size | None = None
    max_position_embeddings: Size | None = None
    tie_word_embeddings: bool | None = None
    attention_bias: bool | None = None
    qkv_bias: bool | None = None
    mlp_bias: bool | None = None
    attn_output_gate: bool | None = None
    sliding_window: Annotated[int, BeforeValidator(_not_huge), Field(ge=0, le=MOST)] | None = None
    use_sliding_window: bool | None = None

    num_experts: Size | None = None
    num_local_experts: Size | None = None
    n_routed_experts: Size | None = None
    num_experts_per_tok: Size | None = None
    moe_intermediate_size: Size | None = None
    n_shared_experts: Number | None = None
    shared_expert_intermediate_size: Size | None = None
    first_k_dense_replace: Number | None = None
    mlp_only_layers: tuple[int, ...] | None = None
    decoder_sparse_step: Size | None = None
    moe_layer_freq: Size | None = None

    q_lora_rank: Size | None = None
    kv_lora_rank: Size | None = None
    qk_nope_head_dim: Size | None = None
    qk_rope_head_dim: Size | None = None
    v_head_dim: Size | None = None

    full_attention_interval: Size | None = None
    layer_types: tuple[Any, ...] | None = None
    linear_num_key_heads: Size | None = None
    linear_key_head_dim: Size | None = None
    linear_num_value_heads: Size | None = None
    linear_value_head_dim: Size | None = None
    linear_conv_kernel_dim: Size | None = None

    num_nextn_predict_layers: Number | None = None
    mtp_num_hidden_layers: Number | None = None


class HfConfig(HfText):
    """A complete config.json.

    Attributes:
        name_or_path: Name or path of the model.
        text_config: The language model of a vision-language model.
        vision_config: The vision tower.
    """

    name_or_path: Any = Field(None, alias="_name_or_path")
    text_config: HfText | None = None
    vision_config: HfVision | None = None
