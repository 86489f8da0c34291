"""Bytes per token and vocabulary entry in every pass, as traced in verl's own order of operations.

The model is Qwen2.5-7B on eight GPUs; a micro-batch has 16384 tokens on every GPU.
"""

from __future__ import annotations

import pytest
from qwen_7b import MAIN, NEW, OLD, V08, H, T, V

#: A step long enough for many full micro-batches, with all passes.
FULL = {
    "actor.use_dynamic_bsz": True,
    "rollout.n": 8,
    "rollout.enforce_eager": True,
    "actor.use_kl_loss": True,
    "model.use_remove_padding": True,
}
BONUS = {"actor.entropy_coeff": 0.01}
EAGER = {"actor.use_torch_compile": False}
CHUNKED = {"actor.entropy_from_logits_with_chunking": True}
RECOMPUTED = {"actor.entropy_checkpointing": True}
#: Small enough for logits to be wider than a layer with any engine.
MEGATRON = {"actor.strategy": "megatron", "megatron.tensor_model_parallel_size": 2}
PASSES = ("old-log-prob", "ref-log-prob", "update-forward")


@pytest.fixture(scope="module")
def per_logit(ask, sizes):
    """Return the bytes per token and vocabulary entry of a pass: for all tokens, and for those of a chunk."""

    def found(settings, version, sharers=1, chunk=2048):
        estimate = ask({**FULL, **settings}, version=version)
        for name in PASSES:
            parts = sizes(estimate, name)
            whole = parts.get("logits", 0) * sharers / (T * V)
            yield whole, parts.get("entropy-chunk", 0) * sharers / (chunk * V)

    def rounded(*arguments, **others):
        return [(round(whole, 3), round(chunk, 3)) for whole, chunk in found(*arguments, **others)]

    return rounded


@pytest.mark.parametrize(
    ("settings", "old", "update"),
    [
        ({}, 2, 8),
        (BONUS, 2, 8),
        ({"actor.calculate_entropy": True}, 2, 8),
        ({**BONUS, **RECOMPUTED}, 2, 8),
        (EAGER, 14, 8),
        ({**BONUS, **EAGER}, 14, 28),
        ({**BONUS, **EAGER, **RECOMPUTED}, 14, 28),
    ],
)
@pytest.mark.parametrize("version", [OLD, (0, 7, 1), V08])
def test_divided_in_place_until_v08(per_logit, settings, old, update, version):
    """The division is in a view, and its backward pass has four copies of the gradient."""
    assert per_logit(settings, version) == [(old, 0), (2, 0), (update, 0)]


@pytest.mark.parametrize(
    ("settings", "old", "update"),
    [
        ({}, 4, 4),
        (BONUS, 4, 6),
        ({"actor.calculate_entropy": True}, 4, 6),
        ({**BONUS, **RECOMPUTED}, 4, 6),
        (EAGER, 16, 4),
        ({**BONUS, **EAGER}, 16, 26),
        ({**BONUS, **EAGER, **RECOMPUTED}, 16, 30),
    ],
)
@pytest.mark.parametrize("version", [NEW, MAIN])
def test_divided_into_a_copy_since_v09(per_logit, settings, old, update, version):
    assert per_logit(settings, version) == [(old, 0), (4, 0), (update, 0)]


@pytest.mark.parametrize(
    ("settings", "version", "old", "update"),
    [
        (CHUNKED, V08, (2, 12), (8, 0)),
        ({**BONUS, **CHUNKED}, V08, (2, 12), (12, 12)),
        ({**BONUS, **CHUNKED, **RECOMPUTED}, V08, (2, 12), (12, 12)),
        (CHUNKED, NEW, (4, 12), (4, 0)),
        ({**BONUS, **CHUNKED}, NEW, (4, 12), (10, 20)),
        ({**BONUS, **CHUNKED, **RECOMPUTED}, NEW, (4, 12), (14, 12)),
        # After a few different numbers of tokens, torch.compile gives up on the loop.
        ({**BONUS, **CHUNKED, **EAGER}, NEW, (4, 12), (10, 20)),
    ],
)
def test_entropy_in_chunks(per_logit, settings, version, old, update):
    """An update keeps copies of all chunks in 32 bits, so chunks cost more than one compiled kernel."""
    reference = (4 if version == NEW else 2, 0)
    assert per_logit(settings, version) == [old, reference, update]


def test_size_of_a_chunk(per_logit, ask, sizes):
    smaller = {**CHUNKED, "actor.entropy_from_logits_chunk_size": 512}
    assert per_logit(smaller, NEW, chunk=512)[0] == (4, 12)
    budget = {"actor.ppo_max_token_len_per_gpu": 1024, "rollout.log_prob_max_token_len_per_gpu": 1024}
    found = sizes(ask({**FULL, **CHUNKED, **EAGER, **budget}, version=NEW), "old-log-prob")
    assert found["entropy-chunk"] == pytest.approx(12 * 1024 * V)  # at most all tokens


def test_forward_pass_of_long_micro_batches_is_wider_than_the_backward_pass(ask, sizes):
    """12 + 4 bytes of a chunk compared with 10 + 20, from eight chunks on."""
    budget = {"actor.ppo_max_token_len_per_gpu": 2 * T}
    found = sizes(ask({**FULL, **BONUS, **CHUNKED, **budget}, version=NEW), "update-forward")
    assert found["logits"] == pytest.approx(12 * 2 * T * V)
    assert found["entropy-chunk"] == pytest.approx(4 * 2048 * V)


@pytest.mark.parametrize("version", [OLD, V08, NEW])
@pytest.mark.parametrize(("settings", "update"), [({}, 4), (BONUS, 26)])
def test_padded_logits_are_no_view(per_logit, settings, update, version):
    """And their entropy is never compiled."""
    padded = {"model.use_remove_padding": False}
    copy = 2 if version == NEW else 0
    assert per_logit({**padded, **settings}, version) == [(14 + copy, 0), (2 + copy, 0), (update, 0)]


@pytest.mark.parametrize(
    ("settings", "old", "update"),
    [
        ({}, (12, 0), (8, 0)),
        (BONUS, (12, 0), (12, 0)),
        ({**BONUS, **EAGER}, (12, 0), (12, 0)),
        ({**BONUS, **RECOMPUTED}, (12, 0), (12, 0)),
        ({**BONUS, **CHUNKED}, (8, 4), (12, 0)),
    ],
)
@pytest.mark.parametrize("version", [(0, 6, 0), V08, NEW])
def test_logits_of_megatron_are_in_32_bits(per_logit, settings, old, update, version):
    """A tensor-parallel group divides them; FSDP's copies do not apply."""
    assert per_logit({**MEGATRON, **settings}, version, sharers=2) == [old, (6, 0), update]


@pytest.mark.parametrize(("settings", "each"), [({}, 6), (BONUS, 8)])
def test_megatron_until_v05(per_logit, settings, each):
    """Entropy and log-probs share one softmax."""
    found = per_logit({**MEGATRON, **settings}, (0, 5, 0), sharers=2)
    assert found == [(8, 0), (6, 0), (each, 0)]


def test_without_entropy(ask, sizes):
    """EasyR1 never computes it."""
    found = sizes(ask({**FULL, **BONUS, **EAGER}, framework="EasyR1", version=V08), "old-log-prob")
    assert found["logits"] == pytest.approx(2 * T * V)


def test_gradient_of_the_logits_in_the_backward_pass_of_the_head(ask, sizes):
    """This is the widest moment of the small model, whose vocabulary is equally large."""
    small = "Qwen/Qwen2.5-0.5B"
    assert sizes(ask(FULL, model=small), "update-backward")["logits"] == pytest.approx(2 * T * 151_936)
    fused = {**FULL, "model.use_fused_kernels": True}
    assert "logits" not in sizes(ask(fused, model=small), "update-backward")


@pytest.mark.parametrize(
    ("model", "hidden", "vocabulary", "settings", "chunk", "copies"),
    [
        ("Qwen/Qwen2.5-7B", H, V, {}, 14, 2),
        ("Qwen/Qwen2.5-7B", H, V, BONUS, 18, 2),
        # With few hidden units a chunk is wider at the gradient of its logits than at the gradient of the head.
        ("Qwen/Qwen2.5-0.5B", 896, 151_936, {}, 20, 1),
        ("Qwen/Qwen2.5-0.5B", 896, 151_936, BONUS, 28, 1),
    ],
)
def test_fused_kernels_in_an_update(ask, sizes, model, hidden, vocabulary, settings, chunk, copies):
    found = sizes(ask({**FULL, "model.use_fused_kernels": True, **settings}, model=model), "update-forward")
    assert found["logits"] == pytest.approx(chunk * 512 * vocabulary)
    assert found["fused-head-gradient"] == pytest.approx(copies * 2 * hidden * vocabulary)


@pytest.mark.parametrize("name", ["old-log-prob", "ref-log-prob"])
def test_fused_kernels_in_passes_without_gradients(ask, sizes, name):
    budget = {f"{role}.log_prob_max_token_len_per_gpu": 1024 for role in ("rollout", "ref")}
    found = sizes(ask({**FULL, **budget, "model.use_fused_kernels": True}), name)
    assert found["logits"] == pytest.approx(12 * 512 * V)
    assert "fused-head-gradient" not in found


@pytest.mark.parametrize(("settings", "each"), [({}, 8), ({**MEGATRON}, 4 / 2)])
def test_last_hidden_states(ask, sizes, settings, each):
    found = sizes(ask({**FULL, **settings}), "update-forward")
    assert found["last-norm"] == pytest.approx(each * T * H)
    assert "last-norm" not in sizes(ask({**FULL, **settings}), "old-log-prob")


SEEN = {"prompt_length_mean": 200, "response_length_mean": 400}


@pytest.mark.parametrize(
    ("version", "observed", "each", "range_"),
    [
        ((0, 7, 1), SEEN, 10, (0.9, 1.1)),  # fitted to logs of runs with known lengths
        ((0, 7, 1), {}, 8, (1, 1.25)),
        (V08, SEEN, 8, (1, 1.25)),
    ],
)
def test_figure_of_logs(ask, phase, version, observed, each, range_):
    found = phase(ask({**FULL, **BONUS}, version=version, observed=observed), "update-forward")
    (logits,) = [part for part in found.trainer if part.key == "logits"]
    assert logits.each == each
    assert logits.spread == pytest.approx(range_)


def test_liger_stores_logits(ask, sizes):
    found = ask({**FULL, "model.use_liger": True})
    assert sizes(found, "update-forward")["logits"] == sizes(ask(FULL), "update-forward")["logits"]
    assert any(text.startswith("actor_rollout_ref.model.use_liger") for text in found.unsupported)
