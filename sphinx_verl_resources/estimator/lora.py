"""LoRA adapters: how many parameters they have, and what they read.

An adapter of rank r on a matrix from ``in`` to ``out`` has r × (in + out) parameters. Names of targets and
the meaning of ``all-linear`` are those of PEFT. Counts are elements, not bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .matrices import layer_kinds, layer_matrices
from .vision import vision_matrices

if TYPE_CHECKING:
    from ..catalog.models.architecture import Architecture
    from .matrices import Matrix

AllLinear = Literal["all-linear"]
#: What gets adapters: module names as PEFT matches them, or every linear map.
Targets = tuple[str, ...] | AllLinear

#: Outside the layers; ``all-linear`` leaves them out.
_ENDS = ("embed_tokens", "lm_head")


@dataclass(frozen=True)
class Adapters:
    """Parameters of the adapters, by what they are on.

    Attributes:
        layers: the decoder layers, without routed experts.
        experts: routed experts. Only where these are modules of their own: as bare tensors, which
            transformers 5 and a few models before it have, PEFT's ``target_modules`` does not reach them.
        vision: the vision tower. verl's ``model.exclude_modules`` can leave it out.
        ends: embedding and head, which only an explicit target reaches.
    """

    layers: int
    experts: int
    vision: int
    ends: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.layers + self.experts + self.vision + self.ends


def lora_parameters(architecture: Architecture, rank: int, targets: Targets = "all-linear") -> int:
    """Parameters of all adapters of a rank; see ``adapters`` for what they are on.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> qwen = load_paths([]).architectures.get("Qwen/Qwen2.5-7B")
    >>> lora_parameters(qwen, 32)
    80740352
    >>> lora_parameters(qwen, 16, ("q_proj", "v_proj"))
    5046272
    """
    return adapters(architecture, rank, targets).total


def adapters(architecture: Architecture, rank: int, targets: Targets = "all-linear") -> Adapters:
    """Parameters of the adapters of a rank, by what they are on.

    As in PEFT, ``all-linear`` takes the linear maps of the vision tower too, and not the output head.
    Routers, which are linear modules in some versions only, are left out: 0.2 % in the example.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> qwen = load_paths([]).architectures.get("Qwen/Qwen3-30B-A3B")
    >>> adapters(qwen, 32)
    Adapters(layers=26738688, experts=1660944384, vision=0, ends=0)
    """
    layers = experts = 0
    for kind, number in layer_kinds(architecture):
        for matrix in layer_matrices(architecture, kind):
            if _is_target(matrix, targets):
                size = (matrix.inputs + matrix.outputs) * matrix.copies * number
                if matrix.part == "experts":
                    experts += size
                else:
                    layers += size
    tower = vision_matrices(architecture.vision) if architecture.vision else ()
    vision = sum(
        (item.inputs + item.outputs) * item.copies
        for item in tower
        if targets == "all-linear" or item.name in targets
    )
    named = () if targets == "all-linear" else {name for name in _ENDS if name in targets}
    ends = len(named) * (architecture.hidden_size + architecture.vocab_size)
    return Adapters(*(rank * size for size in (layers, experts, vision, ends)))


def target_names(architecture: Architecture) -> tuple[str, ...]:
    """The module names that adapters can be put on, each once.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> target_names(load_paths([]).architectures.get("microsoft/phi-4"))
    ('qkv_proj', 'o_proj', 'gate_up_proj', 'down_proj', 'embed_tokens', 'lm_head')
    """
    kinds = (kind for kind, _ in layer_kinds(architecture))
    names = [matrix.name for kind in kinds for matrix in layer_matrices(architecture, kind)]
    tower = vision_matrices(architecture.vision) if architecture.vision else ()
    return tuple(dict.fromkeys([*names, *(item.name for item in tower), *_ENDS]))


def unknown_targets(architecture: Architecture, targets: Targets) -> tuple[str, ...]:
    """The targets that no module of the model is called by; ``lora_parameters`` passes over them.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> qwen = load_paths([]).architectures.get("Qwen/Qwen2.5-7B")
    >>> unknown_targets(qwen, ("q_proj", "query"))
    ('query',)
    """
    known = target_names(architecture)
    return () if targets == "all-linear" else tuple(name for name in targets if name not in known)


def linear_widths(architecture: Architecture, targets: Targets = "all-linear") -> tuple[int, int]:
    """Sums of the input widths and of the output widths of a layer's targets, per token.

    Of routed experts those count that a token passes through. Where a model has several kinds of layers, the
    one with the larger sum is taken: it sets the working set of memory.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> qwen = load_paths([]).architectures.get("Qwen/Qwen2.5-7B")
    >>> linear_widths(qwen)  # 6 × hidden + MLP in; 3 × hidden + 2 × key-value + 2 × MLP out
    (40448, 49664)
    """
    sums = [
        (sum(item.inputs * item.used for item in chosen), sum(item.outputs * item.used for item in chosen))
        for kind, _ in layer_kinds(architecture)
        if (chosen := [item for item in layer_matrices(architecture, kind) if _is_target(item, targets)])
    ]
    return max(sums, key=sum, default=(0, 0))


def lora_inputs(architecture: Architecture, targets: Targets = "all-linear") -> int:
    """Elements a token that a layer's adapters read: each makes a copy of its input in its own data type.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> qwen = load_paths([]).architectures.get("Qwen/Qwen2.5-7B")
    >>> lora_inputs(qwen, ("q_proj", "v_proj"))  # 2 × hidden
    7168
    """
    return linear_widths(architecture, targets)[0]


def _is_target(matrix: Matrix, targets: Targets) -> bool:
    if targets == "all-linear":
        return matrix.part != "router" and matrix.name != "shared_expert_gate"
    return matrix.name in targets
