"""Figures of Qwen2.5-7B and of a model with experts, and settings and releases that tests of estimates share."""

from __future__ import annotations

#: Width of the residual stream, the MLP and all keys; layers, attention heads, size of the vocabulary.
H, F, KEYS, LAYERS, HEADS, V = 3584, 18_944, 4 * 128, 28, 28, 152_064
#: Parameters: in total, of a layer, of the head or the embedding, and outside the layers.
P, U, HEAD = 7_615_616_512, 233_057_792, V * H
R = 2 * HEAD + H
#: Parameters of adapters of rank 32: 32 × (in + out) over the seven matrices of 28 layers.
ADAPTERS = 80_740_352
#: Tokens of a micro-batch on every GPU.
T = 16_384
#: Tokens of a step with many full micro-batches.
FULL = {"actor.use_dynamic_bsz": True, "rollout.n": 8, "rollout.enforce_eager": True}
FSDP2 = {**FULL, "actor.strategy": "fsdp2"}
LORA = {**FULL, "model.lora_rank": 32}
KL, MERGE = {"actor.use_kl_loss": True}, {"model.lora.merge": True}
#: Rollout engines on other GPUs, and none at all.
APART, ALONE = {"actor_rollout_ref.hybrid_engine": False}, {"trainer.v1.trainer_mode": "separate_async"}
#: A model with experts, and its parameters with and without them.
EXPERTS = {"model": "Qwen/Qwen3-30B-A3B"}
ROUTED = 48 * 128 * 3 * 2048 * 768
OTHERS = 30_532_122_624 - ROUTED
#: Releases of verl.
OLD, V08, NEW, MAIN = (0, 4, 0), (0, 8, 0), (0, 9, 0), (0, 10, 0)
