"""The entries of the registries: GPUs, models, and keys of verl's configuration."""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field, WithJsonSchema

from .records import GitRef, Name, NamedRecord, Prose, Record, Script, Text, fold, optional

Entry = TypeVar("Entry", bound=NamedRecord)


class Registry(Generic[Entry]):
    """Entries by any of their names, compared after ``fold``; a name resolves to the last entry that has it.

    An entry replaces an earlier one of the same name and inherits its other names, so that older data stay
    valid.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._listed: dict[str, tuple[tuple[str, ...], Entry]] = {}
        self._by_name: dict[str, Entry] = {}
        #: The names of entries with errors, so that using one is not a second error.
        self.broken: set[str] = set()
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Add an entry after all others."""
        inherited, _ = self._listed.pop(fold(entry.name), ((), None))
        names = tuple(dict.fromkeys((*inherited, *entry.lookup_names)))
        self._listed[fold(entry.name)] = names, entry
        for name in map(fold, names):
            self._by_name.pop(name, None)  # keeps the names in the order of the entries
            self._by_name[name] = entry

    def with_entry(self, entry: Entry) -> "Registry[Entry]":
        """Return a registry with a further entry."""
        registry = copy(self)
        registry._listed, registry._by_name = dict(self._listed), dict(self._by_name)
        registry.add(entry)
        return registry

    def __contains__(self, name: str) -> bool:
        """Return whether any entry, with or without errors, has the name."""
        return fold(name) in self._by_name or fold(name) in self.broken

    def __iter__(self) -> Iterator[Entry]:
        return iter({id(entry): entry for entry in self._by_name.values()}.values())

    def get(self, name: str) -> Entry | None:
        """Return the entry with this name, or None."""
        return self._by_name.get(fold(name))

    @property
    def names(self) -> list[str]:
        """All names and aliases as written, for hints."""
        return [name for names, _ in self._listed.values() for name in names]


class OtherReading(Record):
    """Another memory total seen for the same GPU."""

    memory_mib: int = Field(ge=1, le=100_000_000, description="Memory total in MiB (2^20 bytes).")
    note: Prose | None = optional("Source or date of the reading.")


class Gpu(NamedRecord):
    """One GPU."""

    name_fields = ("name", "aliases")

    name: Name = Field(description="Name on pages.")
    vendor: Literal["nvidia", "amd", "huawei", "intel"] = Field(description="Maker of the GPU.")
    memory_gb: int = Field(ge=1, le=100_000, description="Nominal memory of the product, in GB.")
    memory_mib: int = Field(
        ge=1, le=100_000_000, description="Memory in MiB (2^20 bytes), as the driver reports it."
    )
    kind: Literal["reading", "derived", "nominal"] = Field(
        description="reading: from a driver's output. derived: from a GPU with the same memory. nominal: the "
        "product's figure, without a reading."
    )
    cuda_total_gib: float | None = optional(
        "Memory that CUDA offers a process, in GiB (2^30 bytes).", gt=0, le=100_000
    )
    aliases: tuple[Name, ...] = Field(
        (), description="Other spellings; case, spaces and hyphens are ignored."
    )
    other_readings: tuple[OtherReading, ...] = Field(
        (), description="Other memory totals seen for the same GPU."
    )
    note: Prose | None = optional("Remark on the figures.")


class GpuFile(Record):
    """The file ``gpus.yaml``."""

    gpus: tuple[Gpu, ...] = Field(description="GPUs; a later one replaces an earlier one of the same name.")


#: A default: any YAML value.
Default = Annotated[Any, WithJsonSchema({})]


class DefaultChange(Record):
    """A default since a release."""

    since: Text = Field(description="Release, or month of the first rows on verl's page.")
    default: Default = Field(description="Default from then on.")


class ConfigKey(NamedRecord):
    """A key of verl's configuration."""

    name: Name = Field(description="Dotted name of the key.")
    group: Literal["scale", "model", "actor", "fsdp", "megatron", "ref", "rollout", "critic"] = Field(
        description="Part of the configuration that the key belongs to."
    )
    type: Literal["bool", "int", "float", "str", "list", "dict", "str or list"] = Field(
        description="Type of the value."
    )
    default: Default = Field(description="Default in the composed configuration.")
    in_yaml: bool = Field(
        True, description="false: only a dataclass has the key; set it with a plus before the key."
    )
    phases: tuple[
        Literal[
            "rollout", "weight-sync", "old-log-prob", "ref-log-prob", "update", "optimizer-step", "checkpoint"
        ],
        ...,
    ] = Field(description="Phases whose peak the key can change; may be none.")
    effect: Prose = Field(description="Effect of the key on memory.")
    backends: tuple[Text, ...] = Field((), description="Training backends that read the key; empty: all.")
    host_memory: bool = Field(False, description="The key costs or saves host memory.")
    status: Literal["active", "deprecated", "moved", "no-op", "no-op with trainer.use_v1"] = Field(
        description="deprecated: still accepted. moved: an old name. no-op: accepted, without effect."
    )
    moved_to: Text | None = optional("Name to use instead.")
    moved_from: Text | None = optional("Former name.")
    since: Text | None = optional("First release with the key; unset: older than v0.4.0.")
    note: Prose | None = optional("Remark on the key.")
    default_changes: tuple[DefaultChange, ...] = Field((), description="Defaults over time, oldest first.")


class ConfigKeyFile(Record):
    """The file ``config_keys.yaml``."""

    config_keys: tuple[ConfigKey, ...] = Field(
        description="Keys; a later one replaces an earlier one of the same name."
    )


# -- models; field names follow Hugging Face transformers, and sizes count elements, not bytes


def _count(description: str) -> Any:
    """Return a required integer field of at least one."""
    return Field(ge=1, le=10**9, description=description)


class Moe(Record):
    """Mixture of experts."""

    num_experts: int = _count("Routed experts per layer.")
    experts_per_token: int = _count("Routed experts that a token passes through.")
    moe_intermediate_size: int = _count("Width of one routed expert.")
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
    kv_lora_rank: int = _count("Rank of the compressed key and value.")
    qk_nope_head_dim: int = _count("Query-key width per head without rotary embedding.")
    qk_rope_head_dim: int = _count("Query-key width with rotary embedding, shared by the heads.")
    v_head_dim: int = _count("Value width per head.")


class LinearAttention(Record):
    """Gated DeltaNet layers between full-attention layers."""

    full_attention_interval: int = _count("Every n-th layer is full attention.")
    num_key_heads: int = _count("Key heads.")
    key_head_dim: int = _count("Width of a key head.")
    num_value_heads: int = _count("Value heads.")
    value_head_dim: int = _count("Width of a value head.")
    conv_kernel: int = _count("Width of the short convolution.")


class Vision(Record):
    """The vision tower; its parameters are part of the model's."""

    depth: int = _count("Blocks.")
    hidden_size: int = _count("Width.")
    intermediate_size: int = _count("Width of the MLP.")
    num_heads: int = _count("Attention heads.")
    patch_size: int = _count("Pixels per patch side.")
    temporal_patch_size: int = _count("Frames per patch.")
    spatial_merge_size: int = _count("Patches merged per side.")
    in_channels: int = _count("Colour channels.")
    out_hidden_size: int = _count("Width of the output to the language model.")
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

    name: Name = Field(description="Short name.")
    hf_id: Name = Field(description="Hugging Face name of the model with this config.json.")
    model_type: Text = Field(description="Model type, as in config.json.")
    aliases: tuple[Name, ...] = Field((), description="Other models of the same shape.")
    aliases_unverified: tuple[Name, ...] = Field((), description="Models that probably have the same shape.")
    hidden_size: int = _count("Width of the residual stream.")
    num_hidden_layers: int = _count("Number of layers.")
    intermediate_size: int | None = Field(description="Width of the dense MLP; null: no dense MLP.")
    num_attention_heads: int = _count("Query heads.")
    num_key_value_heads: int = _count("Key and value heads.")
    head_dim: int = _count("Width of a head; for MLA the query-key width.")
    vocab_size: int = _count("Rows of the embedding.")
    tie_word_embeddings: bool = Field(description="The output head shares the embedding's weights.")
    qkv_bias: bool = Field(description="Biases on query, key and value.")
    qk_norm: bool = Field(description="RMSNorm on query and key.")
    norms_per_layer: int = Field(ge=0, le=100, description="RMSNorm vectors of hidden_size per layer.")
    attn_output_gate: bool = Field(False, description="The query projection also makes an output gate.")
    sliding_window: int | None = optional("Attention window in tokens; null: full.", ge=1)
    max_position_embeddings: int = _count("Longest sequence of hf_id, in tokens.")
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
