"""The records of ``architectures.yaml``, the shapes of models.

Field names follow Hugging Face transformers; sizes count elements, not bytes.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import ConfigDict, Field

from .. import registries
from ..records import GitRef, Prose, Record, Script, Text
from ..registries import Dimension


class Moe(Record):
    """Mixture of experts.

    Attributes:
        num_experts: Routed experts per layer.
        experts_per_token: Routed experts that a token passes through.
        moe_intermediate_size: Width of one routed expert.
        shared_experts: Experts that every token passes through.
        shared_expert_intermediate_size: Width of one shared expert.
        first_dense_layers: Leading layers with a dense MLP instead of experts.
        shared_expert_gate: A gate for the shared experts; adds hidden_size parameters per layer.
        router_bias: A bias in the router; adds num_experts parameters per layer.
    """

    num_experts: Dimension
    experts_per_token: Dimension
    moe_intermediate_size: Dimension
    shared_experts: int = Field(ge=0, le=10_000)
    shared_expert_intermediate_size: int | None = Field(None, ge=1)
    first_dense_layers: int = Field(ge=0, le=10_000)
    shared_expert_gate: bool
    router_bias: bool

    @property
    def shared_width(self) -> int:
        """The total width of the shared experts, which are one MLP in the modelling code."""
        return self.shared_experts * (self.shared_expert_intermediate_size or self.moe_intermediate_size)


class Mla(Record):
    """Multi-head latent attention.

    Attributes:
        q_lora_rank: Rank of the query projection; null: one full projection.
        kv_lora_rank: Rank of the compressed key and value.
        qk_nope_head_dim: Query-key width per head without rotary embedding.
        qk_rope_head_dim: Query-key width with rotary embedding, shared by the heads.
        v_head_dim: Value width per head.
    """

    q_lora_rank: int | None
    kv_lora_rank: Dimension
    qk_nope_head_dim: Dimension
    qk_rope_head_dim: Dimension
    v_head_dim: Dimension


class LinearAttention(Record):
    """Gated DeltaNet layers between full-attention layers.

    Attributes:
        full_attention_interval: Every n-th layer is full attention.
        num_key_heads: Key heads.
        key_head_dim: Width of a key head.
        num_value_heads: Value heads.
        value_head_dim: Width of a value head.
        conv_kernel: Width of the short convolution.
    """

    full_attention_interval: Dimension
    num_key_heads: Dimension
    key_head_dim: Dimension
    num_value_heads: Dimension
    value_head_dim: Dimension
    conv_kernel: Dimension


class Vision(Record):
    """The vision tower; its parameters are part of the model's.

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
        deepstack_layers: Intermediate outputs fed into the language model.
        parameters: Parameters of the tower.
    """

    depth: Dimension
    hidden_size: Dimension
    intermediate_size: Dimension
    num_heads: Dimension
    patch_size: Dimension
    temporal_patch_size: Dimension
    spatial_merge_size: Dimension
    in_channels: Dimension
    out_hidden_size: Dimension
    num_position_embeddings: int | None = Field(None, ge=1)
    deepstack_layers: int | None = Field(None, ge=0)
    parameters: int = Field(ge=0, le=10**15)


class Published(Record):
    """A published parameter count.

    Attributes:
        parameters: Published count.
        exact: true: exact to the last digit; false: rounded.
        counts: all: every parameter. without-embeddings: without embedding and head. with-mtp: with the
            multi-token-prediction layers too.
        source: Source of the published count.
    """

    parameters: int = Field(ge=1, le=10**15)
    exact: bool
    counts: Literal["all", "without-embeddings", "with-mtp"] = "all"
    source: Prose


class ConfigSource(Record):
    """A source of the shape.

    Attributes:
        repo: Repository or paper.
        path: File or table.
        commit: Commit that was read.
        note: Remark on the source.
    """

    repo: Text
    path: Text
    commit: GitRef | None = None
    note: Prose | None = None


class Architecture(registries.Architecture):
    """A model shape, and the models that share it.

    Attributes:
        model_type: Model type, as in config.json.
        head_dim: Width of a head; for MLA the query-key width.
        tie_word_embeddings: The output head shares the embedding's weights.
        qkv_bias: Biases on query, key and value.
        qk_norm: RMSNorm on query and key.
        norms_per_layer: RMSNorm vectors of hidden_size per layer.
        attn_output_gate: The query projection also makes an output gate.
        sliding_window: Attention window in tokens; null: full.
        max_position_embeddings: Longest sequence of hf_id, in tokens.
        max_position_embeddings_of_aliases: Longest sequence of each alias that differs.
        moe: Mixture of experts.
        mla: Multi-head latent attention.
        linear_attention: Gated DeltaNet layers.
        vision: Vision tower.
        parameters_breakdown: Parameters of each part: embedding, lm_head, final_norm and vision in total,
            others per layer.
        mtp_parameters: Parameters of the multi-token-prediction layers.
        published: Published parameter count.
        config_source: Sources of the shape.
        script: A script, test or page of verl that uses such a model.
        verified: The shape is from the source; the count is within 0.1 % of the published one.
        notes: Remarks on the shape.
    """

    model_config = ConfigDict(extra="forbid")

    model_type: Text
    head_dim: Dimension
    tie_word_embeddings: bool
    qkv_bias: bool
    qk_norm: bool
    norms_per_layer: int = Field(ge=0, le=100)
    attn_output_gate: bool = False
    sliding_window: int | None = Field(None, ge=1)
    max_position_embeddings: Dimension
    max_position_embeddings_of_aliases: Mapping[str, int] = Field(default_factory=dict)
    moe: Moe | None = None
    mla: Mla | None = None
    linear_attention: LinearAttention | None = None
    vision: Vision | None = None
    parameters_breakdown: Mapping[str, int] = Field(default_factory=dict)
    mtp_parameters: int | None = Field(None, ge=1)
    published: Published | None = None
    config_source: tuple[ConfigSource, ...] = ()
    script: Script | None = None
    verified: bool
    notes: tuple[Prose, ...] = ()

    def positions_of(self, name: str) -> int:
        """Return the longest sequence of a model, in tokens."""
        return self.max_position_embeddings_of_aliases.get(name, self.max_position_embeddings)


class ArchitectureFile(Record):
    """The file ``architectures.yaml``.

    Attributes:
        architectures: Model shapes; a later one replaces an earlier one of the same name.
    """

    architectures: tuple[Architecture, ...]
