"""The shape of a model: its entry in the registry of models, and its config.json from Hugging Face.

Field names follow Hugging Face transformers. All sizes count elements, not bytes.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from .base import GitRef, NamedRecord, Prose, Record, Text, optional, problem
from .run import Script


def _size(description: str) -> int:
    """Return a required integer field of at least one."""
    field: int = Field(ge=1, le=10**9, description=description)
    return field


class Moe(Record):
    """Mixture of experts."""

    num_experts: int = _size("Routed experts per layer.")
    experts_per_token: int = _size("Routed experts that a token passes through.")
    moe_intermediate_size: int = _size("Width of one routed expert.")
    shared_experts: int = Field(ge=0, le=10_000, description="Experts that every token passes through.")
    shared_expert_intermediate_size: int | None = optional("Width of one shared expert.", ge=1)
    first_dense_layers: int = Field(
        ge=0, le=10_000, description="Leading layers with a dense MLP instead of experts."
    )
    shared_expert_gate: bool = Field(
        description="A gate for the shared experts; adds hidden_size parameters per layer."
    )
    router_bias: bool = Field(description="A bias in the router; adds num_experts parameters per layer.")


class Mla(Record):
    """Multi-head latent attention."""

    q_lora_rank: int | None = Field(description="Rank of the query projection; null: one full projection.")
    kv_lora_rank: int = _size("Rank of the compressed key and value.")
    qk_nope_head_dim: int = _size("Query-key width per head without rotary embedding.")
    qk_rope_head_dim: int = _size("Query-key width with rotary embedding, shared by the heads.")
    v_head_dim: int = _size("Value width per head.")


class LinearAttention(Record):
    """Gated DeltaNet layers between full-attention layers."""

    full_attention_interval: int = _size("Every n-th layer is full attention.")
    num_key_heads: int = _size("Key heads.")
    key_head_dim: int = _size("Width of a key head.")
    num_value_heads: int = _size("Value heads.")
    value_head_dim: int = _size("Width of a value head.")
    conv_kernel: int = _size("Width of the short convolution.")


class Vision(Record):
    """The vision tower; its parameters are part of the model's."""

    depth: int = _size("Blocks.")
    hidden_size: int = _size("Width.")
    intermediate_size: int = _size("Width of the MLP.")
    num_heads: int = _size("Attention heads.")
    patch_size: int = _size("Pixels per patch side.")
    temporal_patch_size: int = _size("Frames per patch.")
    spatial_merge_size: int = _size("Patches merged per side.")
    in_channels: int = _size("Colour channels.")
    out_hidden_size: int = _size("Width of the output to the language model.")
    num_position_embeddings: int | None = optional("Learned positions.", ge=1)
    deepstack_layers: int | None = optional("Intermediate outputs fed into the language model.", ge=0)
    parameters: int = Field(ge=0, le=10**15, description="Parameters of the tower.")


class Published(Record):
    """A published parameter count."""

    parameters: int = Field(ge=1, le=10**15, description="Published count.")
    exact: bool = Field(description="true: exact to the last digit; false: rounded.")
    counts: Literal["all", "without-embeddings", "with-mtp"] = Field(
        "all",
        description="all: every parameter. without-embeddings: without embedding and head. "
        "with-mtp: with the multi-token-prediction layers too.",
    )
    source: Prose = Field(description="Source of the published count.")


class ConfigSource(Record):
    """A source of the shape."""

    repo: Text = Field(description="Repository or paper.")
    path: Text = Field(description="File or table.")
    commit: GitRef | None = optional("Commit that was read.")
    note: Prose | None = optional("Remark on the source.")


class Architecture(NamedRecord):
    """A model shape, and the models that share it."""

    name_fields = ("hf_id", "aliases", "aliases_unverified")

    name: Text = Field(description="Short name.")
    hf_id: Text = Field(description="Hugging Face name of the model with this config.json.")
    model_type: Text = Field(description="Model type, as in config.json.")
    aliases: tuple[Text, ...] = Field((), description="Other models of the same shape.")
    aliases_unverified: tuple[Text, ...] = Field((), description="Models that probably have the same shape.")
    hidden_size: int = _size("Width of the residual stream.")
    num_hidden_layers: int = _size("Number of layers.")
    intermediate_size: int | None = Field(description="Width of the dense MLP; null: no dense MLP.")
    num_attention_heads: int = _size("Query heads.")
    num_key_value_heads: int = _size("Key and value heads.")
    head_dim: int = _size("Width of a head; for MLA the query-key width.")
    vocab_size: int = _size("Rows of the embedding.")
    tie_word_embeddings: bool = Field(description="The output head shares the embedding's weights.")
    qkv_bias: bool = Field(description="Biases on query, key and value.")
    qk_norm: bool = Field(description="RMSNorm on query and key.")
    norms_per_layer: int = Field(ge=0, le=100, description="RMSNorm vectors of hidden_size per layer.")
    attn_output_gate: bool = Field(False, description="The query projection also makes an output gate.")
    sliding_window: int | None = optional("Attention window in tokens; null: full.", ge=1)
    max_position_embeddings: int = _size("Longest sequence of hf_id, in tokens.")
    max_position_embeddings_of_aliases: Mapping[str, int] = Field(
        default_factory=dict, description="Longest sequence of each alias that differs."
    )
    moe: Moe | None = optional("Mixture of experts.")
    mla: Mla | None = optional("Multi-head latent attention.")
    linear_attention: LinearAttention | None = optional("Gated DeltaNet layers.")
    vision: Vision | None = optional("Vision tower.")
    parameters: int = Field(ge=1, le=10**15, description="Exact count without multi-token prediction.")
    parameters_active: int | None = optional("Parameters that a text token passes through.", ge=1)
    parameters_breakdown: Mapping[str, int] = Field(
        default_factory=dict,
        description="Parameters of each part: embedding, lm_head, final_norm and vision in total, others per "
        "layer.",
    )
    mtp_parameters: int | None = optional("Parameters of the multi-token-prediction layers.", ge=1)
    published: Published | None = optional("Published parameter count.")
    config_source: tuple[ConfigSource, ...] = Field((), description="Sources of the shape.")
    script: Script | None = optional("A script, test or page of verl that uses such a model.")
    verified: bool = Field(
        description="The shape is from the source; the count is within 0.1 % of the published one."
    )
    notes: tuple[Prose, ...] = Field((), description="Remarks on the shape.")

    def positions_of(self, name: str) -> int:
        """Return the longest sequence of a model, in tokens."""
        return self.max_position_embeddings_of_aliases.get(name, self.max_position_embeddings)


class ArchitectureFile(Record):
    """The file ``architectures.yaml``."""

    architectures: tuple[Architecture, ...] = Field(
        description="Model shapes; a later one replaces an earlier one of the same name."
    )


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
