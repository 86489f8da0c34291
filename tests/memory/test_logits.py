"""Bytes per token and vocabulary entry in every pass, as traced in verl's own order of operations; Qwen2.5-7B."""

from __future__ import annotations

import pytest
from qwen_7b import ALONE, KL, MAIN, NEW, OLD, V08, T, V

from sphinx_verl_resources.memory.phases import logits

FULL = {"actor.use_dynamic_bsz": True, "rollout.n": 8, **KL}
BONUS, EAGER = {"actor.entropy_coeff": 0.01}, {"actor.use_torch_compile": False}
CHUNKED = {"actor.entropy_from_logits_with_chunking": True}
RECOMPUTED, PADDED = {"actor.entropy_checkpointing": True}, {"model.use_remove_padding": False}
FUSED, MEGATRON = {"model.use_fused_kernels": True}, {"actor.strategy": "megatron", "megatron.tp": 2}
SEEN = {"observed": {"prompt_length_mean": 200, "response_length_mean": 400}}

#: Bytes of the old log-prob pass, the reference pass and the update: for all tokens, and for those of a chunk.
PASSES = [
    # Until v0.8.0 logits are divided in a view, whose backward pass has four copies of the gradient.
    *((settings, version, [(old, 0), (2, 0), (update, 0)])
      for version in ((0, 7, 1), V08) for settings, old, update in (
        ({}, 2, 8), (BONUS, 2, 8), ({"actor.calculate_entropy": True}, 2, 8), (EAGER, 14, 8),
        ({**BONUS, **EAGER}, 14, 28), ({**BONUS, **EAGER, **RECOMPUTED}, 14, 28),
    )),
    # Since v0.9.0 the quotient is a copy.
    *((settings, version, [(old, 0), (4, 0), (update, 0)])
      for version in (NEW, MAIN) for settings, old, update in (
        ({}, 4, 4), (BONUS, 4, 6), ({"actor.calculate_entropy": True}, 4, 6), ({**BONUS, **RECOMPUTED}, 4, 6),
        (EAGER, 16, 4), ({**BONUS, **EAGER}, 16, 26), ({**BONUS, **EAGER, **RECOMPUTED}, 16, 30),
    )),
    # An update keeps copies of all chunks in 32 bits, so chunks cost more than one compiled kernel.
    (CHUNKED, V08, [(2, 12), (2, 0), (8, 0)]), ({**BONUS, **CHUNKED}, V08, [(2, 12), (2, 0), (12, 12)]),
    ({**BONUS, **CHUNKED}, NEW, [(4, 12), (4, 0), (10, 20)]),
    ({**BONUS, **CHUNKED, **RECOMPUTED}, NEW, [(4, 12), (4, 0), (14, 12)]),
    # Long micro-batches are wider in the forward pass: 12 + 4 bytes rather than 10 + 20, from eight chunks on.
    ({**BONUS, **CHUNKED, "tokens": 2 * T}, NEW, [(4, 12), (4, 0), (12, 4)]),
    # Padded logits are no view, and their entropy is never compiled.
    (PADDED, V08, [(14, 0), (2, 0), (4, 0)]), ({**PADDED, **BONUS}, V08, [(14, 0), (2, 0), (26, 0)]),
    # The first versions compute the entropy in every update; EasyR1 never does.
    ({**BONUS, **EAGER, "framework": "EasyR1"}, V08, [(2, 0), (2, 0), (8, 0)]),
    ({**EAGER, "model.use_remove_padding": True}, (0, 3, 0), [(14, 0), (2, 0), (28, 0)]),
    # Logs with known lengths show more until v0.7.1.
    ({**BONUS, **SEEN}, (0, 7, 1), [(2, 0), (2, 0), (10, 0)]), ({**BONUS, **SEEN}, V08, [(2, 0), (2, 0), (8, 0)]),
    ({**BONUS, **EAGER, **SEEN}, (0, 7, 1), [(14, 0), (2, 0), (28, 0)]),
    # Megatron's logits are in 32 bits and divided by TP; entropy and log-probs share a softmax until v0.5.0.
    *((MEGATRON, version, [(12, 0), (6, 0), (8, 0)]) for version in ((0, 6, 0), NEW)),
    ({**MEGATRON, **BONUS, **EAGER, **RECOMPUTED}, V08, [(12, 0), (6, 0), (12, 0)]),
    ({**MEGATRON, **BONUS, **CHUNKED}, V08, [(8, 4), (6, 0), (12, 0)]),
    (MEGATRON, (0, 5, 0), [(8, 0), (6, 0), (6, 0)]), ({**MEGATRON, **BONUS}, (0, 5, 0), [(8, 0), (6, 0), (8, 0)]),
    # The fused kernel has chunks of 512 tokens in 32 bits.
    (FUSED, NEW, [(0, 12), (0, 12), (0, 20)]), ({**FUSED, **BONUS}, V08, [(0, 12), (0, 12), (0, 28)]),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "version", "expected"), PASSES)
def test_bytes_of_each_pass(ask, settings, version, expected):
    settings = {**FULL, **settings}
    tokens = settings.pop("tokens", T)
    result = ask(settings, version=version)
    sharers = 2 if result.settings.actor.backend == "megatron" else 1
    for name, (whole, chunk) in zip(("old", "reference", "update"), expected, strict=True):
        parts = logits(name, result.shape, result.settings, tokens)
        rows = 512 if result.settings.fused_kernels else 2048
        each = {part.component.factors[0].symbol: part.size * sharers / V for part in parts}
        per_chunk = each.get("tokens of a chunk", 0) / rows
        assert (each.get("tokens", 0) / tokens, per_chunk) == pytest.approx((whole, chunk)), name


def test_chunks_have_a_size_and_at_most_all_tokens(ask):
    result = ask({**FULL, **BONUS, **CHUNKED, "actor.entropy_from_logits_chunk_size": 512}, version=V08)
    assert [part.size / V for part in logits("old", result.shape, result.settings, T)] == [2 * T, 12 * 512]
    assert [part.size / V for part in logits("old", result.shape, result.settings, 100)] == [200, 1200]


SWIGLU, LOSS = ({f"transformer.{name}_fusion": True} for name in ("bias_activation", "cross_entropy_loss"))
#: A source that says nothing of its loss is read as verl, which has its own.
LOSSES = [({**ALONE, **SWIGLU}, 2), ({**ALONE, **LOSS}, 2), (ALONE, 8), (LOSS, 8)]


@pytest.mark.parametrize(("settings", "each"), LOSSES)
def test_fused_loss_of_plain_training(ask, sizes, settings, each):
    result = ask({**FULL, **MEGATRON, **settings}, version=V08)
    assert sizes(result, "update-forward")["logits"] == pytest.approx(each * T * V / 2)


@pytest.mark.parametrize(("settings", "each"), [({}, 2), (MEGATRON, 4 / 2), (FUSED, 0)])
def test_gradient_of_the_logits(ask, settings, each):
    result = ask({**FULL, **settings}, version=OLD)
    parts = logits("gradient", result.shape, result.settings, T)
    assert sum(part.size for part in parts) == each * T * V
