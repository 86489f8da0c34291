"""LoRA adapters: the linear layers that get them, and their parameters.

Names follow the modelling code of Hugging Face transformers. Counts are elements, not bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .parameters import model_matrices

if TYPE_CHECKING:
    from ..catalog.models.architecture import Architecture
    from .parameters import Matrix

#: The modules that get adapters: names as PEFT matches them, or every linear layer.
Targets = tuple[str, ...] | Literal["all-linear"]

#: Modules outside the decoder layers; ``all-linear`` excludes them.
_ENDS = ("embed_tokens", "lm_head")


def lora_parameters(architecture: Architecture, rank: int, targets: Targets = "all-linear") -> int:
    """Count the parameters of all adapters of a rank.

    An adapter of rank r on a matrix from ``in`` to ``out`` has r × (in + out) parameters. As in PEFT,
    ``all-linear`` includes the vision tower and excludes the output head. Routers are left out, since only
    some versions have them as linear modules. Experts count, although PEFT cannot adapt those stored as bare
    tensors (transformers 5 and a few earlier models).

    >>> from sphinx_verl_resources.cli.data import read_data
    >>> qwen = read_data([]).catalog.architectures.get("Qwen/Qwen2.5-7B")
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
    """Return the names of the modules that can get adapters, without duplicates.

    >>> from sphinx_verl_resources.cli.data import read_data
    >>> target_names(read_data([]).catalog.architectures.get("microsoft/phi-4"))
    ('qkv_proj', 'o_proj', 'gate_up_proj', 'down_proj', 'embed_tokens', 'lm_head')
    """
    names = [matrix.name for matrix, _ in model_matrices(architecture)]
    return tuple(dict.fromkeys([*names, *_ENDS]))


def unknown_targets(architecture: Architecture, targets: Targets) -> tuple[str, ...]:
    """Return the targets that match no module of the model; ``lora_parameters`` ignores them."""
    if targets == "all-linear":
        return ()
    return tuple(name for name in targets if name not in target_names(architecture))


def _is_target(matrix: Matrix, targets: Targets) -> bool:
    if targets == "all-linear":
        return matrix.part != "router" and matrix.name != "shared_expert_gate"
    return matrix.name in targets
