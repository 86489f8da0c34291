"""The vision tower of Qwen's vision-language models: its matrices and its parameters.

Two forms are known: Qwen2.5-VL (no learned positions, gated MLP) and Qwen3-VL (learned positions, plain MLP,
intermediate outputs called deepstack). Shapes are those of Hugging Face transformers; counts are elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..catalog.models.architecture import Vision


class VisionMatrix(NamedTuple):
    """One linear map of the tower, and how many of them the tower has."""

    name: str
    inputs: int
    outputs: int
    copies: int


def vision_matrices(vision: Vision) -> tuple[VisionMatrix, ...]:
    """Every linear map of a tower; the patch embedding is a convolution and not among them."""
    width, depth, mlp = vision.hidden_size, vision.depth, vision.intermediate_size
    merged = width * vision.spatial_merge_size**2
    block = (VisionMatrix("qkv", width, 3 * width, depth), VisionMatrix("proj", width, width, depth))
    if has_learned_positions(vision):
        mergers = 1 + (vision.deepstack_layers or 0)
        return (
            *block,
            VisionMatrix("linear_fc1", width, mlp, depth),
            VisionMatrix("linear_fc2", mlp, width, depth),
            VisionMatrix("linear_fc1", merged, merged, mergers),
            VisionMatrix("linear_fc2", merged, vision.out_hidden_size, mergers),
        )
    return (
        *block,
        VisionMatrix("gate_proj", width, mlp, depth),
        VisionMatrix("up_proj", width, mlp, depth),
        VisionMatrix("down_proj", mlp, width, depth),
        VisionMatrix("mlp.0", merged, merged, 1),
        VisionMatrix("mlp.2", merged, vision.out_hidden_size, 1),
    )


def has_learned_positions(vision: Vision) -> bool:
    """Whether the tower is of the form of Qwen3-VL."""
    return vision.num_position_embeddings is not None


def vision_parameters(vision: Vision) -> int:
    """Parameters of a tower from its shape; ``vision.parameters`` is not used.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> model = load_paths([]).architectures.get("Qwen/Qwen2.5-VL-7B-Instruct")
    >>> vision_parameters(model.vision)
    676550144
    """
    width, depth, mlp = vision.hidden_size, vision.depth, vision.intermediate_size
    merged = width * vision.spatial_merge_size**2
    matrices = sum(item.inputs * item.outputs * item.copies for item in vision_matrices(vision))
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
