"""What a model takes per token and per copy, from its shape alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .parameters import count_parameters, critic_parameters
from .widths import layer_widths

if TYPE_CHECKING:
    from ..breakdown import Evidence
    from ..catalog.models.architecture import Architecture
    from .lora import Targets
    from .parameters import Counts

#: The matrices of attention, as PEFT names them.
_ATTENTION = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj"})


@dataclass(frozen=True, eq=False)
class Shape:
    """Counts are parameters, widths are bytes a token with 16-bit activations.

    Attributes:
        architecture: what it was made from.
        counts: its parameters by part.
        parameters: all of them.
        critic_parameters: of the same model with a value head.
        unit: of the largest decoder layer, the largest unit that FSDP gathers.
        root: outside the decoder layers: embedding, head, last norm, vision tower.
        head: of the output head, or of the embedding that stands for it.
        expert_parameters: all routed experts of all layers.
        layers, hidden, heads, vocabulary: as in config.json.
        working: live while one layer is recomputed and differentiated.
        saved: kept by a layer that is not recomputed.
        lora_working: live likewise with adapters in fp32 on every matrix.
        lora_saved: kept likewise.
        lora_attention_working, lora_attention_saved: with adapters on the matrices of attention alone.
        forward: live in a layer without gradients.
        evidence: of these widths: dense layers were measured, of others they are assumed.
    """

    architecture: Architecture
    counts: Counts
    parameters: int
    critic_parameters: int
    unit: int
    root: int
    head: int
    expert_parameters: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    vocabulary: int
    working: float
    saved: float
    lora_working: float
    lora_saved: float
    lora_attention_working: float
    lora_attention_saved: float
    forward: float
    evidence: Evidence

    def adapted(self, targets: Targets) -> tuple[float, float]:
        """Working and kept widths with adapters on some matrices: on attention alone, or on the MLP too."""
        if targets == "all-linear" or not _ATTENTION.issuperset(targets):
            return self.lora_working, self.lora_saved
        return self.lora_attention_working, self.lora_attention_saved


def shape_of(architecture: Architecture, imbalance: float = 1.0) -> Shape:
    """The shape of a model.

    Args:
        architecture: its facts.
        imbalance: tokens of the fullest group of experts over the mean.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> shape_of(load_paths([]).architectures.get("Qwen/Qwen2.5-7B")).unit
    233057792
    """
    counts = count_parameters(architecture)
    widths = layer_widths(architecture, imbalance)
    unusual = architecture.moe or architecture.mla or architecture.linear_attention or architecture.vision
    return Shape(
        architecture=architecture,
        counts=counts,
        parameters=counts.total,
        critic_parameters=critic_parameters(architecture),
        unit=counts.largest_layer,
        root=counts.root,
        head=counts.lm_head or counts.embedding,
        expert_parameters=sum(layer.experts * number for layer, number in counts.layers),
        layers=architecture.num_hidden_layers,
        hidden=architecture.hidden_size,
        heads=architecture.num_attention_heads,
        kv_heads=architecture.num_key_value_heads,
        vocabulary=architecture.vocab_size,
        working=widths["working"],
        saved=widths["saved"],
        lora_working=widths["lora_working"],
        lora_saved=widths["lora_saved"],
        lora_attention_working=widths["lora_attention_working"],
        lora_attention_saved=widths["lora_attention_saved"],
        forward=widths["forward"],
        evidence="assumed" if unusual else "measured",
    )
