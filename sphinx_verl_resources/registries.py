"""Named entries of data files, merged by name; and the GPUs, models and keys of verl's configuration."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field, WithJsonSchema

from .diagnostics import Diagnostic
from .records import GitRef, Name, NamedRecord, Prose, Record, Script, Text, fold
from .strict_yaml import Document
from .validation import entries_in, models_in, valid_entries, validated, value_at

Entry = TypeVar("Entry", bound=NamedRecord)


class Registry(Generic[Entry]):
    """Entries by any of their names, compared after ``fold``; a name resolves to the last entry that has it.

    An entry replaces an earlier one of the same name and inherits its other names, so that older data stay
    valid.

    Attributes:
        written: the names of all entries, also with errors, so that using one is not a second error.
    """

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._by_name: dict[str, Entry] = {}
        self.written: set[str] = set()

    def add(self, entry: Entry) -> None:
        """Add an entry, or put it in the place of the one with its name."""
        replaced = self._entries.get(fold(entry.name))
        owners = self._by_name.items() if replaced else ()
        inherited = [name for name, owner in owners if owner is replaced]
        self._entries[fold(entry.name)] = entry
        self._by_name |= dict.fromkeys((*inherited, *map(fold, entry.lookup_names)), entry)

    def __contains__(self, name: str) -> bool:
        """Return whether any entry, with or without errors, has the name."""
        return fold(name) in self._by_name or fold(name) in self.written

    def __iter__(self) -> Iterator[Entry]:
        return iter({id(entry): entry for entry in self._by_name.values()}.values())

    def get(self, name: str) -> Entry | None:
        """Return the entry with this name, or None."""
        return self._by_name.get(fold(name))

    @property
    def names(self) -> list[str]:
        """All names and aliases as written, for hints."""
        return [name for entry in self for name in entry.lookup_names]


def sections_of(file_model: type[Record]) -> dict[str, type[NamedRecord]]:
    """Return the keys of a file whose values are lists of named entries, and the model of an entry."""
    models = {key: next(models_in(field.annotation)) for key, field in file_model.model_fields.items()}
    return {key: model for key, model in models.items() if issubclass(model, NamedRecord)}


def written_names(data: Any, section: str, model: type[NamedRecord]) -> list[str]:
    """Return the names of all entries under a key of unchecked data, with and without errors."""
    fields = dict.fromkeys(("name", *model.name_fields))
    values = [value_at(entry, field) for entry in entries_in(data, section) for field in fields]
    words = (word for value in values for word in (value if isinstance(value, tuple) else (value,)))
    return [word for word in words if isinstance(word, str)]


def merge(
    document: Document, file_model: type[Record], registries: Mapping[str, Registry[Any]], context: Any = None
) -> list[Diagnostic]:
    """Add the valid entries under each key of a file to its registry, and return the problems."""
    record, problems = validated(document, file_model, context)
    for section, model in sections_of(file_model).items():
        registry, first = registries[section], dict[str, tuple[int, str]]()
        registry.written |= {*map(fold, written_names(document.data, section, model))}
        entries = getattr(record, section, None) or valid_entries(document.data, section, model, context)
        for index, entry in enumerate(entries):
            for name in dict.fromkeys((entry.name, *entry.lookup_names)) if entry else ():
                other, of_other = first.setdefault(fold(name), (index, entry.name))
                if other != index:
                    message = f"{name!r} is also a name of entry {other + 1} of {section!r}, {of_other!r}"
                    remedy = "keep it in one of the two"
                    problems.append(document.diagnostic((section, index), "duplicate_name", message, remedy))
            if entry:
                registry.add(entry)
    return problems


class OtherReading(Record):
    """Another memory total seen for the same GPU.

    Attributes:
        memory_mib: Memory total in MiB (2^20 bytes).
        note: Source or date of the reading.
    """

    memory_mib: int = Field(ge=1, le=100_000_000)
    note: Prose | None = None


class Gpu(NamedRecord):
    """One GPU.

    Attributes:
        name: Name on pages.
        vendor: Maker of the GPU.
        memory_gb: Nominal memory of the product, in GB.
        memory_mib: Memory in MiB (2^20 bytes), as the driver reports it.
        kind: reading: from a driver's output. derived: from a GPU with the same memory. nominal: the
            product's figure, without a reading.
        cuda_total_gib: Memory that CUDA offers a process, in GiB (2^30 bytes).
        aliases: Other spellings; case, spaces and hyphens are ignored.
        other_readings: Other memory totals seen for the same GPU.
        note: Remark on the figures.
    """

    name_fields = ("name", "aliases")

    name: Name
    vendor: Literal["nvidia", "amd", "huawei", "intel"]
    memory_gb: int = Field(ge=1, le=100_000)
    memory_mib: int = Field(ge=1, le=100_000_000)
    kind: Literal["reading", "derived", "nominal"]
    cuda_total_gib: float | None = Field(None, gt=0, le=100_000)
    aliases: tuple[Name, ...] = ()
    other_readings: tuple[OtherReading, ...] = ()
    note: Prose | None = None


class GpuFile(Record):
    """The file ``gpus.yaml``.

    Attributes:
        gpus: GPUs; a later one replaces an earlier one of the same name.
    """

    gpus: tuple[Gpu, ...]


#: A default: any YAML value.
Default = Annotated[Any, WithJsonSchema({})]


class DefaultChange(Record):
    """A default since a release.

    Attributes:
        since: Release, or month of the first rows on verl's page.
        default: Default from then on.
    """

    since: Text
    default: Default


class ConfigKey(NamedRecord):
    """A key of verl's configuration.

    Attributes:
        name: Dotted name of the key.
        group: Part of the configuration that the key belongs to.
        type: Type of the value.
        default: Default in the composed configuration.
        in_yaml: false: only a dataclass has the key; set it with a plus before the key.
        phases: Phases whose peak the key can change; may be none.
        effect: Effect of the key on memory.
        backends: Training backends that read the key; empty: all.
        host_memory: The key costs or saves host memory.
        status: deprecated: still accepted. moved: an old name. no-op: accepted, without effect.
        moved_to: Name to use instead.
        moved_from: Former name.
        since: First release with the key; unset: older than v0.4.0.
        note: Remark on the key.
        default_changes: Defaults over time, oldest first.
    """

    name: Name
    group: Literal["scale", "model", "actor", "fsdp", "megatron", "ref", "rollout", "critic"]
    type: Literal["bool", "int", "float", "str", "list", "dict", "str or list"]
    default: Default
    in_yaml: bool = True
    phases: tuple[Text, ...]
    effect: Prose
    backends: tuple[Text, ...] = ()
    host_memory: bool = False
    status: Literal["active", "deprecated", "moved", "no-op", "no-op with trainer.use_v1"]
    moved_to: Text | None = None
    moved_from: Text | None = None
    since: Text | None = None
    note: Prose | None = None
    default_changes: tuple[DefaultChange, ...] = ()


class ConfigKeyFile(Record):
    """The file ``config_keys.yaml``.

    Attributes:
        config_keys: Keys; a later one replaces an earlier one of the same name.
    """

    config_keys: tuple[ConfigKey, ...]


# -- models; field names follow Hugging Face transformers, and sizes count elements, not bytes


#: A size, and a number of parameters.
Size = Annotated[int, Field(ge=1, le=10**9)]
Parameters = Annotated[int, Field(ge=1, le=10**15)]


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

    num_experts: Size
    experts_per_token: Size
    moe_intermediate_size: Size
    shared_experts: int = Field(ge=0, le=10_000)
    shared_expert_intermediate_size: int | None = Field(None, ge=1)
    first_dense_layers: int = Field(ge=0, le=10_000)
    shared_expert_gate: bool
    router_bias: bool


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
    kv_lora_rank: Size
    qk_nope_head_dim: Size
    qk_rope_head_dim: Size
    v_head_dim: Size


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

    full_attention_interval: Size
    num_key_heads: Size
    key_head_dim: Size
    num_value_heads: Size
    value_head_dim: Size
    conv_kernel: Size


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

    depth: Size
    hidden_size: Size
    intermediate_size: Size
    num_heads: Size
    patch_size: Size
    temporal_patch_size: Size
    spatial_merge_size: Size
    in_channels: Size
    out_hidden_size: Size
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


class Architecture(NamedRecord):
    """A model shape, and the models that share it.

    Attributes:
        name: Short name.
        hf_id: Hugging Face name of the model with this config.json.
        model_type: Model type, as in config.json.
        aliases: Other models of the same shape.
        aliases_unverified: Models that probably have the same shape.
        hidden_size: Width of the residual stream.
        num_hidden_layers: Number of layers.
        intermediate_size: Width of the dense MLP; null: no dense MLP.
        num_attention_heads: Query heads.
        num_key_value_heads: Key and value heads.
        head_dim: Width of a head; for MLA the query-key width.
        vocab_size: Rows of the embedding.
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
        parameters: Exact count without multi-token prediction.
        parameters_active: Parameters that a text token passes through.
        parameters_breakdown: Parameters of each part: embedding, lm_head, final_norm and vision in total,
            others per layer.
        mtp_parameters: Parameters of the multi-token-prediction layers.
        published: Published parameter count.
        config_source: Sources of the shape.
        script: A script, test or page of verl that uses such a model.
        verified: The shape is from the source; the count is within 0.1 % of the published one.
        notes: Remarks on the shape.
    """

    name_fields = ("hf_id", "aliases", "aliases_unverified")

    name: Name
    hf_id: Name
    model_type: Text
    aliases: tuple[Name, ...] = ()
    aliases_unverified: tuple[Name, ...] = ()
    hidden_size: Size
    num_hidden_layers: Size
    intermediate_size: int | None
    num_attention_heads: Size
    num_key_value_heads: Size
    head_dim: Size
    vocab_size: Size
    tie_word_embeddings: bool
    qkv_bias: bool
    qk_norm: bool
    norms_per_layer: int = Field(ge=0, le=100)
    attn_output_gate: bool = False
    sliding_window: int | None = Field(None, ge=1)
    max_position_embeddings: Size
    max_position_embeddings_of_aliases: Mapping[str, int] = Field(default_factory=dict)
    moe: Moe | None = None
    mla: Mla | None = None
    linear_attention: LinearAttention | None = None
    vision: Vision | None = None
    parameters: int = Field(ge=1, le=10**15)
    parameters_active: int | None = Field(None, ge=1)
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
