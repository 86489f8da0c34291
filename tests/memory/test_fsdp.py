"""FSDP and FSDP2 compared with sums by hand; Qwen2.5-7B on eight GPUs, with micro-batches of 16,384 tokens."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from qwen_7b import ADAPTERS, FULL, HEAD, HEADS, KEYS, LAYERS, LORA, NEW, OLD, V08, F, H, P, R, T, U, V

from sphinx_verl_resources.memory.cases import Case
from sphinx_verl_resources.memory.phases import roles_of
from sphinx_verl_resources.units import GIB

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
from training import estimate_any

#: Bytes per token of a layer: in its backward pass, with adapters, saved without recomputation, without gradients.
ATTENTION = 4 * KEYS + 4 * HEADS
WORKING, ADAPTED = 22 * H + 12 * F + ATTENTION, 34 * H + 14 * F + ATTENTION
SAVED, FORWARD = 20 * H + 8 * F + ATTENTION, 8 * H + 6 * F
#: A smaller model, whose head is its embedding.
SMALL, P_SMALL, E_SMALL = {"model": "Qwen/Qwen2.5-0.5B"}, 494_032_768, 151_936 * 896
R_SMALL, U_SMALL = E_SMALL + 896, (P_SMALL - E_SMALL - 896) // 24
INPUTS_SMALL = {"layer-inputs": 2 * 896 * 24 * T}
#: States, the inputs of all layers, gathered parameters, and what the old log-prob pass has at its head.
IDLE = {"weights": 4 * P / 8, "optimizer-states": 8 * P / 8}
STATES = {**IDLE, "gradients": 4 * P / 8}
LORA_STATES = {"weights": 4 * (P + ADAPTERS) / 8, "optimizer-states": ADAPTERS, "gradients": 4 * ADAPTERS / 8}
INPUTS, ROOT = {"layer-inputs": 2 * H * LAYERS * T}, {"gathered-root": 2 * R}
AT_HEAD, COPIES = {**ROOT, "logits": 2 * T * V}, 4 * P / 8 + 4 * V * H
#: An update of one micro-batch, and other settings.
ONE = {"actor.ppo_mini_batch_size": 16, "actor.use_dynamic_bsz": False}
ONE |= {"actor.ppo_micro_batch_size_per_gpu": 16}
TWO = {"actor.strategy": "fsdp2"}
FUSED, KL, BF16 = {"model.use_fused_kernels": True}, {"actor.use_kl_loss": True}, {"fsdp.model_dtype": "bf16"}
PARAM, POLICY = {"fsdp.param_offload": True}, {"fsdp.offload_policy": True}
BOTH = {**PARAM, "fsdp.optimizer_offload": True}
BUCKET = {"rollout.checkpoint_engine.update_weights_bucket_megabytes": 8192}
SUMMON, MERGE = {"rollout.layered_summon": True}, {"model.lora.merge": True}
BARE, WHOLE = {"model.enable_gradient_checkpointing": False}, {"fsdp.reshard_after_forward": False}
PAIRS = {"fsdp.fsdp_size": 2}
#: A critic beside an actor that leaves it the GPU; its head has one output.
CRITIC = {**FULL, **BOTH, "fsdp.fsdp_size": 8, "algorithm.adv_estimator": "gae"}
CRITIC |= {f"critic.ppo_{name}max_token_len_per_gpu": T for name in ("", "infer_")}
PC = P - HEAD + H
CRITICS_STATES = {"critic-weights": 4 * PC / 8, "critic-optimizer-states": 8 * PC / 8}
CRITICS_STEP = {**CRITICS_STATES, "critic-gradients": 4 * PC / 8, "critic-step-buffer": 4 * PC / 8}
OF_CRITIC = {
    **CRITICS_STATES,
    "critic-layer-inputs": 2 * H * LAYERS * T,
    "critic-unsharded-gradients": 2 * PC,
}
OF_CRITIC |= {"critic-gathered-root": 2 * (R - HEAD + H), "critic-gathered-layers": 4 * U}
OF_CRITIC |= {"critic-working-set": WORKING * T}
AT_LOSS = {**STATES, **INPUTS, "activations": 8 * H * T, "logits": 8 * T * V}
AT_LAYER = {"gathered-layers": 2 * U, "working-set": FORWARD * T}
SYNC = {"rollout-weights": P, "bucket": 2 * GIB}
LORA_SYNC = {**SYNC, "weights": 4 * (P + ADAPTERS) / 8, "optimizer-states": ADAPTERS}
SMALL_STATES = {"weights": P_SMALL / 2, "optimizer-states": P_SMALL, "gradients": P_SMALL / 2, **INPUTS_SMALL}
SMALL_LAYER = {"gathered-root": 2 * R_SMALL, "gathered-layers": 4 * U_SMALL, "root-gradient": 2 * E_SMALL}
PHASES = {
    # At the head; at a layer if no logits are stored, which FSDP2 has in two buffers.
    "old-log-prob": [
        ({}, V08, {**IDLE, **AT_HEAD}), (FUSED, NEW, {**IDLE, **ROOT, **AT_LAYER}),
        ({**FUSED, **WHOLE}, V08, {**IDLE, **AT_LAYER, "gathered-layers": 2 * P}),
        ({**TWO, **FUSED}, NEW, {**IDLE, **AT_LAYER, "gathered-layers": 4 * U}),
    ],
    # The reference policy comes from the host; its root, and the actor's, stay since v0.8.0.
    "ref-log-prob": [
        ({**KL, **PARAM}, OLD, {"optimizer-states": P, **AT_HEAD}), ({**TWO, **KL, **BOTH}, OLD, {"logits": 2 * T * V}),
        ({**FUSED, **KL, **BOTH}, OLD, {**ROOT, **AT_LAYER}), (KL, V08, {**IDLE, **AT_HEAD, "reference-root": 2 * R}),
    ],
    # FSDP keeps the root gathered at the loss, FSDP2 nothing. The last hidden states have 8 bytes.
    "update-forward": [({}, V08, {**AT_LOSS, **ROOT}), (TWO, V08, AT_LOSS)],
    # A small model is widest at its head: the gradients of logits and of the head. A frozen base has none to reduce.
    "update-backward": [
        (SMALL, V08, {**SMALL_STATES, **SMALL_LAYER, "logits": 2 * T * 151_936}),
        (LORA, OLD, {**LORA_STATES, **INPUTS, **ROOT, **AT_LAYER, "working-set": ADAPTED * T}),
    ],
    # FSDP2's policy keeps the states on the host; FSDP has no such switch.
    "optimizer-step": [
        (KL, (0, 2, 0), {**STATES, "step-buffer": P / 2, "reference": 2 * P / 8}), ({**TWO, **POLICY}, OLD, {}),
        (LORA, OLD, {**LORA_STATES, "step-buffer": ADAPTERS / 2}), (POLICY, OLD, {**STATES, "step-buffer": P / 2}),
    ],
    "critic-backward": [(CRITIC, NEW, OF_CRITIC)],
    "critic-optimizer-step": [(CRITIC, NEW, CRITICS_STEP)],
    # FSDP gathers the root before it sends, unless it does so before the engine wakes up. Adapters need the whole model
    # for a moment, or a layer, or with FSDP2 a tensor.
    "weight-sync": [
        (PARAM, NEW, {**IDLE, "weight-copies": COPIES + 4 * R, "rollout-weights": P}),
        ({**BOTH, **BUCKET}, NEW, {**SYNC, "weight-copies": COPIES, "bucket": 8 * GIB}),
        (BOTH, (0, 7, 0), {"weight-copies": COPIES, "rollout-weights": P}),
        ({**TWO, **BOTH}, NEW, {**SYNC, "weight-copies": 4 * V * H}),
        ({**TWO, **BOTH}, V08, {**SYNC, "weights": 4 * P / 8, "weight-copies": 4 * V * H}),
        (LORA, NEW, {**LORA_SYNC, "weight-copies": 4 * P}),
        ({**LORA, **SUMMON}, NEW, {**LORA_SYNC, "weight-copies": 4 * U}),
        ({**LORA, **SUMMON, **MERGE}, NEW, {**LORA_SYNC, "weight-copies": 4 * P}),
        ({**LORA, **PARAM, **TWO}, NEW, {**LORA_SYNC, "weight-copies": 4 * V * H}),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "row"), [(name, row) for name, rows in PHASES.items() for row in rows])
def test_phase(ask, sizes, name, row):
    settings, version, expected = row
    assert sizes(ask({**FULL, **settings}, version=version), name) == pytest.approx(expected)


G = {"gradients": 4 * P / 8}
FEW, NEAR_HEAD = 12_000, {"layer-inputs": 0, **G, "gathered-layers": 2 * U}
LAYER = {**ROOT, **G, "gathered-layers": 4 * U, "root-gradient": 2 * HEAD, "working-set": WORKING * T}
FIRST, IN_ROOT = {"layer-inputs": 0, "activations": 0, **ROOT}, {**NEAR_HEAD, "gathered-layers": 4 * U}
#: Pieces besides weights and optimizer at a moment of an update; the traces of the oracle check more of them.
MOMENTS = [
    # A layer with the next one, and the head's gradient; with FSDP2 the gradient of the last layer in 32 bits.
    ({}, V08, "backward", T, {**INPUTS, **LAYER}),
    (TWO, V08, "backward", T, {**INPUTS, **G, "gathered-layers": 8 * U, "working-set": WORKING * T}),
    ({**SMALL, "gpus": 1}, V08, "at_head", T, {**INPUTS_SMALL, "gradients": 4 * P_SMALL}),  # nothing to gather
    # An untied head is a unit of FSDP2 only since v0.7.1.
    (TWO, (0, 7, 0), "at_head", 0, {**IN_ROOT, "gathered-root": 2 * HEAD, "root-gradient": 2 * HEAD}),
    # With one micro-batch the gradients of layers come while inputs go; they are larger if there are few tokens.
    (ONE, NEW, "backward", FEW, {**LAYER, "gradients": 4 * (P - R) / 8, "working-set": WORKING * FEW}),
    # The end: the root's gradient in 16 and 32 bits, with its shard in 32 if it is kept in 16.
    ({**ONE, **BF16, **PAIRS}, NEW, "backward", 0, {"gradients": 2 * P / 2, "root-gradient": (6 + 4 / 2) * R}),
    (LORA, V08, "backward", 0, {**NEAR_HEAD, **ROOT, "gradients": 4 * ADAPTERS / 8, "working-set": 0}),
    # Gradients of earlier micro-batches, which are whole on every GPU if their sharding is deferred.
    ({}, (0, 10, 0), "loss", 0, {**FIRST, **G}),
    ({"fsdp.fsdp_size": 1}, NEW, "loss", 0, {"layer-inputs": 0, "activations": 0, "gradients": 4 * P}),
    (LORA, NEW, "loss", 0, {**FIRST, "unsharded-gradients": 2 * ADAPTERS}),
    # Without checkpointing every layer keeps its tensors; the working set includes those of the last one.
    (BARE, V08, "loss", T, {**ROOT, **G, "activations": (LAYERS * SAVED + 8 * H) * T}),
    (BARE, V08, "backward", T, {**LAYER, "activations": (LAYERS - 1) * SAVED * T}),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "version", "name", "tokens", "expected"), MOMENTS)
def test_moment(ask, settings, version, name, tokens, expected):
    result = ask({**FULL, **settings}, version=version)
    ((actor,), _) = roles_of(result.shape, result.settings)
    pieces = getattr(actor.update(tokens), name)
    sizes = Counter()
    for part in pieces:
        sizes[part.key] += part.size
    assert {key: size for key, size in sizes.items() if key not in IDLE} == pytest.approx(expected)


SIZED = {f"{role}.fsdp_size": 8 for role in ("fsdp", "ref.fsdp_config")}
ROOTS = [({}, (0, 7, 1), None), ({}, V08, 2 * R), (BOTH, (0, 10, 0), 2 * R), (SIZED, V08, None)]
ROOTS += [(TWO, V08, None), ({**SMALL, "gpus": 1}, V08, None)]


@pytest.mark.parametrize(("settings", "version", "size"), ROOTS)
def test_the_root_stays_gathered_after_a_pass_without_gradients(ask, sizes, settings, version, size):
    """The reference policy's in all phases, the actor's from the old log-probs to its own update."""
    result = ask({**FULL, **KL, "algorithm.adv_estimator": "gae", **settings}, version=version)
    for name in ("rollout", "critic-backward", "update-backward", "optimizer-step", "weight-sync"):
        assert sizes(result, name).get("reference-root") == size, name
    for name in ("critic-values", "critic-backward", "critic-optimizer-step"):
        assert sizes(result, name).get("gathered-root") == size, name
    assert "gathered-root" not in sizes(result, "rollout")


FROZEN = [(4, {}, 2 * (LAYERS - 2) * H), (1, {}, 0), (4, {"recompute": "none"}, 0)]
FROZEN += [(4, {"method": "full"}, WORKING - ADAPTED)]


@pytest.mark.parametrize(("gpus", "changes", "more"), FROZEN)
def test_frozen_base_with_reentrant_checkpointing(registries, gpus, changes, more):
    """Plain training keeps inputs of all layers but two in the backward pass, on several GPUs; verl does not."""
    run = {"lora": {"rank": 16}, "micro_batch_per_gpu": 1, "sequence_length": T, **changes}
    fields = {"id": "a", "model": "Qwen/Qwen2.5-7B", "gpus": {"count": gpus, "type": "A100"}, "training": run}
    phases = {phase.name: phase for phase in estimate_any(Case.model_validate(fields), registries).phases}
    (working,) = [part.size for part in phases["update-backward"].trainer if part.key == "working-set"]
    assert working == pytest.approx((ADAPTED + more) * T)
