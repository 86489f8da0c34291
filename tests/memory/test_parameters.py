"""Exact counts from shapes are those of the registry."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.memory.config_json import MODEL_TYPES
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.shape import Counts, LayerCount, LayerKind, layer_kinds, vision_parameters

ARCHITECTURES = EstimatorContext().architectures
ENTRIES = pytest.mark.parametrize("entry", list(ARCHITECTURES), ids=lambda entry: entry.name)


@ENTRIES
def test_counts_are_those_of_the_registry(entry):
    counts, tower = Counts(entry), entry.vision.parameters if entry.vision else 0
    assert (counts.total, counts.vision) == (entry.parameters, tower)
    assert counts.active == (entry.parameters_active or entry.parameters - tower)
    # A last layer, a projection and three norms.
    hidden, last = entry.hidden_size, LayerCount(entry, LayerKind(False, entry.moe is not None))
    assert entry.mtp_parameters in {None, last.total + 2 * hidden * hidden + 3 * hidden}
    kind = MODEL_TYPES.get(entry.model_type)
    if entry.vision and kind and "vision" in kind:  # other towers are recorded as a number
        assert vision_parameters(entry.vision) == tower


@ENTRIES
def test_parts_are_those_of_the_registry(entry):
    counts = Counts(entry)
    ends = {"embedding": counts.embedding, "lm_head": counts.lm_head, "final_norm": entry.hidden_size}
    parts = {**ends, "vision": counts.vision} if entry.vision else ends
    assert counts.root == sum(parts.values())
    layers = {}
    for kind, (layer, number) in zip(layer_kinds(entry), counts.layers, strict=True):
        name = "moe_layer" if kind.experts else "dense_layer"
        if entry.linear_attention:
            name += "_linear_attention" if kind.linear_attention else "_full_attention"
        layers[name] = layer.total
        assert number == layer_kinds(entry)[kind]
    assert {**parts, **layers} == dict(entry.parameters_breakdown)
    assert counts.largest_layer == max(layers.values())


def test_experts_of_a_layer():
    (dense, three), (sparse, others) = Counts(ARCHITECTURES.get("deepseek-ai/DeepSeek-V3")).layers
    expert = 3 * 7168 * 2048
    assert (three, others) == (3, 58)
    assert (dense.experts, dense.active) == (0, dense.total)
    assert sparse.experts == 256 * expert
    assert sparse.total - sparse.active == (256 - 8) * expert
    # Beside its experts a layer has one shared expert and a router with a bias, instead of a dense MLP.
    others = sparse.total - sparse.experts - expert - 256 * 7169
    assert others == dense.total - 3 * 7168 * 18432


@pytest.mark.parametrize(
    ("layers", "interval", "dense", "expected"),
    [
        (4, 1, 4, {(False, False): 4}),
        (5, 1, 2, {(False, False): 2, (False, True): 3}),
        (8, 4, 0, {(True, True): 6, (False, True): 2}),
        (7, 4, 1, {(True, False): 1, (True, True): 5, (False, True): 1}),
        (3, 4, 9, {(True, False): 3}),
    ],
)
def test_kinds_of_layers_in_order(layers, interval, dense, expected):
    entry = ARCHITECTURES.get("Qwen/Qwen3.5-122B-A10B")
    linear = entry.linear_attention.model_copy(update={"full_attention_interval": interval})
    moe = entry.moe.model_copy(update={"first_dense_layers": dense})
    changes = {"num_hidden_layers": layers, "linear_attention": linear, "moe": moe}
    assert list(layer_kinds(entry.model_copy(update=changes)).items()) == list(expected.items())
