"""Exact parameter counts: of a model, of a critic, and of LoRA adapters.

Formulas: the shapes of the weight matrices in Hugging Face transformers. Counts are elements, not bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from .matrices import (
    LayerKind,
    has_learned_positions,
    layer_kinds,
    layer_matrices,
    model_matrices,
    vision_matrices,
)

if TYPE_CHECKING:
    from ..catalog.models.architecture import Architecture, Vision
    from .matrices import Matrix

#: The modules that get adapters: names as PEFT matches them, or every linear map.
Targets = tuple[str, ...] | Literal["all-linear"]
#: Outside the layers; ``all-linear`` leaves them out.
_ENDS = ("embed_tokens", "lm_head")


@dataclass(frozen=True)
class LayerCount:
    """Parameters of one decoder layer, by part.

    Attributes:
        attention: its matrices, biases, norms on query and key, and convolution.
        mlp: of a dense layer.
        experts: all routed experts.
        router: with its bias.
        shared_experts: with their gate.
        norms: vectors of the hidden size.
        experts_used: the routed experts that one token passes through.
    """

    attention: int
    mlp: int
    experts: int
    router: int
    shared_experts: int
    norms: int
    experts_used: int

    @property
    def total(self) -> int:
        """All parameters of the layer."""
        return self.active - self.experts_used + self.experts

    @property
    def active(self) -> int:
        """Parameters that one token passes through."""
        return self.attention + self.mlp + self.experts_used + self.router + self.shared_experts + self.norms


@dataclass(frozen=True)
class Counts:
    """Parameters of a model.

    Attributes:
        lm_head: 0 where it is the embedding.
        vision: the vision tower; 0 without one.
        layers: the kinds of layers and how many of each, in the order in which they first occur.
    """

    embedding: int
    lm_head: int
    final_norm: int
    vision: int
    layers: tuple[tuple[LayerCount, int], ...]

    @cached_property
    def total(self) -> int:
        """All parameters, without layers for multi-token prediction."""
        return self.root + sum(layer.total * number for layer, number in self.layers)

    @property
    def active(self) -> int:
        """Parameters that a text token passes through: without the vision tower and experts not chosen."""
        return self.root - self.vision + sum(layer.active * number for layer, number in self.layers)

    @property
    def largest_layer(self) -> int:
        """Parameters of the largest decoder layer, the largest unit that FSDP gathers."""
        return max((layer.total for layer, _ in self.layers), default=0)

    @property
    def root(self) -> int:
        """Parameters outside the decoder layers: embedding, head, last norm and vision tower."""
        return self.embedding + self.lm_head + self.final_norm + self.vision


def count_parameters(architecture: Architecture) -> Counts:
    """Count all parameters of a model, without layers for multi-token prediction.

    A vision tower counts with its recorded size.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> qwen = load_paths([]).architectures.get("Qwen/Qwen2.5-7B")
    >>> counts = count_parameters(qwen)
    >>> counts.total, counts.largest_layer, counts.lm_head
    (7615616512, 233057792, 544997376)
    """
    matrix = architecture.vocab_size * architecture.hidden_size
    return Counts(
        embedding=matrix,
        lm_head=0 if architecture.tie_word_embeddings else matrix,
        final_norm=architecture.hidden_size,
        vision=architecture.vision.parameters if architecture.vision else 0,
        layers=tuple(
            (_count_layer(architecture, kind), number) for kind, number in layer_kinds(architecture)
        ),
    )


def _count_layer(architecture: Architecture, kind: LayerKind) -> LayerCount:
    parts = {"attention": 0, "mlp": 0, "experts": 0, "router": 0, "shared_experts": 0}
    used = 0
    for matrix in layer_matrices(architecture, kind):
        parts[matrix.part] += matrix.size * matrix.copies
        if matrix.part == "experts":
            used += matrix.size * matrix.used
    parts["attention"] += _attention_vectors(architecture, kind)
    if kind.experts and architecture.moe and architecture.moe.router_bias:
        parts["router"] += architecture.moe.num_experts
    norms = architecture.norms_per_layer * architecture.hidden_size
    return LayerCount(**parts, norms=norms, experts_used=used)


def _attention_vectors(architecture: Architecture, kind: LayerKind) -> int:
    """Count what attention has besides matrices: biases, norms, and the short convolution."""
    linear, mla = architecture.linear_attention, architecture.mla
    if kind.linear_attention and linear:
        key, value = (
            linear.num_key_heads * linear.key_head_dim,
            linear.num_value_heads * linear.value_head_dim,
        )
        return (2 * key + value) * linear.conv_kernel + 2 * linear.num_value_heads + linear.value_head_dim
    if mla:
        return (mla.q_lora_rank or 0) + mla.kv_lora_rank
    heads = architecture.num_attention_heads * (2 if architecture.attn_output_gate else 1)
    bias = (heads + 2 * architecture.num_key_value_heads) * architecture.head_dim
    norms = 2 * architecture.head_dim
    return bias * architecture.qkv_bias + norms * architecture.qk_norm


def critic_parameters(architecture: Architecture) -> int:
    """Count the parameters of a critic, whose head gives one number instead of a vocabulary.

    The head's own bias, a single parameter, is left out.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> qwen = load_paths([]).architectures.get("Qwen/Qwen2.5-7B")
    >>> critic_parameters(qwen)
    7070622720
    """
    counts = count_parameters(architecture)
    return counts.total - counts.lm_head + architecture.hidden_size


def mtp_parameters(architecture: Architecture) -> int:
    """Count one layer for multi-token prediction: a last layer, a projection and three norms.

    verl loads it for training only where ``model.mtp.enable`` is set.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> deepseek = load_paths([]).architectures.get("deepseek-ai/DeepSeek-V3")
    >>> mtp_parameters(deepseek)
    11610068224
    """
    hidden = architecture.hidden_size
    layer = _count_layer(
        architecture, LayerKind(linear_attention=False, experts=architecture.moe is not None)
    )
    return layer.total + 2 * hidden * hidden + 3 * hidden


def vision_parameters(vision: Vision) -> int:
    """Count the parameters of a vision tower from its shape; ``vision.parameters`` is not used.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> model = load_paths([]).architectures.get("Qwen/Qwen2.5-VL-7B-Instruct")
    >>> vision_parameters(model.vision)
    676550144
    """
    width, depth, mlp = vision.hidden_size, vision.depth, vision.intermediate_size
    merged = width * vision.spatial_merge_size**2
    matrices = sum(matrix.size * matrix.copies for matrix in vision_matrices(vision))
    patch = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2 * width
    merger_biases = merged + vision.out_hidden_size
    if not has_learned_positions(vision):
        # Biases of query, key, value, output and the gated MLP, and two norms without bias.
        vectors = depth * (4 * width + 2 * mlp + width + 2 * width) + merger_biases + width
        return patch + matrices + vectors
    deepstack = vision.deepstack_layers or 0
    positions = (vision.num_position_embeddings or 0) * width
    # Norms have biases here; that of a deepstack merger works on merged patches.
    vectors = depth * (4 * width + mlp + width + 4 * width)
    vectors += merger_biases * (1 + deepstack) + 2 * width + 2 * merged * deepstack
    return patch + width + positions + matrices + vectors


def lora_parameters(architecture: Architecture, rank: int, targets: Targets = "all-linear") -> int:
    """Count the parameters of all adapters of a rank.

    An adapter of rank r on a matrix from ``in`` to ``out`` has r × (in + out) parameters. As in PEFT,
    ``all-linear`` takes the linear maps of the vision tower too, and not the output head. Routers, which are
    linear modules in some versions only, are left out. Experts count, although PEFT does not reach those that
    are bare tensors (transformers 5 and a few models before it).

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> qwen = load_paths([]).architectures.get("Qwen/Qwen2.5-7B")
    >>> lora_parameters(qwen, 32)
    80740352
    >>> lora_parameters(qwen, 16, ("q_proj", "v_proj"))
    5046272
    """
    size = sum(
        (matrix.inputs + matrix.outputs) * number
        for matrix, number in model_matrices(architecture)
        if _is_target(matrix, targets)
    )
    ends = 0 if targets == "all-linear" else len(set(targets).intersection(_ENDS))
    return rank * (size + ends * (architecture.hidden_size + architecture.vocab_size))


def target_names(architecture: Architecture) -> tuple[str, ...]:
    """Return the module names that adapters can be put on, each once.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> target_names(load_paths([]).architectures.get("microsoft/phi-4"))
    ('qkv_proj', 'o_proj', 'gate_up_proj', 'down_proj', 'embed_tokens', 'lm_head')
    """
    names = [matrix.name for matrix, _ in model_matrices(architecture)]
    return tuple(dict.fromkeys([*names, *_ENDS]))


def unknown_targets(architecture: Architecture, targets: Targets) -> tuple[str, ...]:
    """Return the targets that match no module of the model; ``lora_parameters`` ignores them.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> qwen = load_paths([]).architectures.get("Qwen/Qwen2.5-7B")
    >>> unknown_targets(qwen, ("q_proj", "query"))
    ('query',)
    """
    known = target_names(architecture)
    return () if targets == "all-linear" else tuple(name for name in targets if name not in known)


def _is_target(matrix: Matrix, targets: Targets) -> bool:
    if targets == "all-linear":
        return matrix.part != "router" and matrix.name != "shared_expert_gate"
    return matrix.name in targets
