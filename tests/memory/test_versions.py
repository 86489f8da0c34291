"""Versions in texts and by date, and every change between releases of verl that affects memory."""

from __future__ import annotations

import pytest
from qwen_7b import HEAD, KEYS, H, P, R, T, U, V

from sphinx_verl_resources.memory.allocations import CUDA_GRAPHS
from sphinx_verl_resources.memory.versions import CURRENT, EARLY, RELEASES, version_of, version_on
from sphinx_verl_resources.units import GIB

TEXTS = [
    ("v0.7.1", (0, 7, 1)), ("0.5", (0, 5, 0)), ("verl 0.6.1 with vllm 0.11.0", (0, 6, 1)), ("torch 2.7, verl=0.6.1", (0, 6, 1)),
    ("main of 2025-11-02", (0, 6, 0)), ("2025-07", (0, 4, 0)), ("commit 9f4161e (2025-08-12)", (0, 5, 0)), ("torch 2.7", None), (None, None),
    # A date counts only without a number, except on the main branch.
    ("v0.8.0 (2026-09-01)", (0, 8, 0)), ("v0.9.0 (main 662507f9 of 2026-08-27)", (0, 9, 0)), ("v0.9.0 (main 1252cc71 of 2026-09)", (0, 10, 0)),
    # The release of verl at the time of a release of vLLM.
    ("vllm 0.7.3", (0, 3, 0)), ("vLLM v0.8.3", (0, 3, 0)), ("vllm==0.9.1", (0, 5, 0)), ("vllm 0.10, torch 2.7", (0, 6, 0)), ("vllm=0.11.0", (0, 6, 0)), *((f"vllm 0.{minor}", (0, 7, minor == 15)) for minor in (12, 13, 14, 15)), ("vllm 0.17", CURRENT),
    ("vllm 0.8.3 in 2025-08", (0, 5, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "version"), TEXTS)
def test_versions_in_texts(text, version):
    assert version_of(text) == version


def test_releases_by_day():
    assert tuple(sorted(RELEASES)) == RELEASES
    assert [version_on(day) for day, _ in RELEASES] == [version for _, version in RELEASES]
    assert (version_on("2025-03-31"), version_on("2025-10-14")) == (EARLY, (0, 5, 0))


POOL = 79.146 * GIB / 2
FSDP2, SGLANG = {"actor.strategy": "fsdp2"}, {"actor.strategy": "fsdp2", "rollout.name": "sglang"}
LORA, WHOLE = {"model.lora_rank": 8}, 8 * 2 * P / 2  # eight GPUs with half a copy of the weights each
MEGATRON = {"actor.strategy": "megatron", "optim.use_precision_aware_optimizer": True}
#: Release, phase and component, further settings, bytes before the release and with it.
CHANGES = [
    ("0.3.0", "rollout", "reference", {}, 2 * P / 8, 0), ("0.3.0", "host", "reference", {}, 0, 2 * P), ("0.6.0", "host", "reference", {}, 2 * P, 4 * P),
    # vLLM took a share of the memory left by weights, Adam and the reference policy.
    ("0.3.0", "rollout", "rollout-pool", {}, POOL - 14 * P / 8 / 2, POOL),
    ("0.4.0", "update-forward", "logits", {"model.use_remove_padding": False, "actor.entropy_coeff": 0}, 26 * T * V, 4 * T * V),
    ("0.4.0", "weight-sync", "rollout-pool", {}, POOL, 0),
    ("0.8.0", "weight-sync", "rollout-pool", SGLANG, POOL, 0), ("0.5.0", "weight-sync", "bucket", SGLANG, 0, GIB / 2),
    ("0.7.1", "weight-sync", "bucket", SGLANG, GIB / 2, 2 * GIB), ("0.7.1", "weight-sync", "bucket", FSDP2, 0, 2 * GIB),
    # Megatron's offloading allocated the new copy before it freed the old one.
    ("0.8.0", "host", "weights", {**MEGATRON, "megatron.param_offload": True}, 2 * 8 * 2 * P, 8 * 2 * P),
    ("0.6.0", "host", "sleeping-weights", {}, WHOLE, 0), ("0.7.1", "host", "sleeping-weights", LORA, 0, WHOLE), ("0.9.0", "host", "sleeping-weights", SGLANG, 0, WHOLE),
    ("0.6.0", "rollout", "cuda-graphs", {}, 0, CUDA_GRAPHS.value), ("0.9.0", "rollout", "cuda-graphs", {}, CUDA_GRAPHS.value, 0),
    ("0.6.0", "rollout", "optimizer-states", MEGATRON, 12 * P / 8, 10 * P / 8),
    # FSDP completed its copy of the shard before the engine woke up; then it also gathers the root.
    ("0.7.1", "weight-sync", "weight-copies", {}, 4 * P / 8 + 4 * HEAD, 4 * P / 8 + 4 * HEAD + 4 * R), ("0.7.1", "update-backward", "gathered-root", FSDP2, 2 * HEAD, 0),
    ("0.8.0", "rollout", "reference-root", {}, 0, 2 * R), ("0.9.0", "old-log-prob", "logits", {}, 2 * T * V, 4 * T * V),
    ("0.9.0", "update-forward", "unsharded-gradients", {}, 0, 2 * P), ("0.10.0", "update-forward", "unsharded-gradients", {}, 2 * P, 0),
    ("0.9.0", "rollout", "dummy-gradients", {"actor.strategy": "megatron"}, 0, 2 * (U - 2 * H - (H + 2 * KEYS) + HEAD)),
    ("0.9.0", "weight-sync", "weights", {**FSDP2, "fsdp.param_offload": True}, 4 * P / 8, 0),
]  # fmt: skip


@pytest.mark.parametrize(("release", "phase", "key", "settings", "old", "new"), CHANGES)
def test_changes_of_memory_between_releases(ask, sizes, release, phase, key, settings, old, new):
    versions, version = [EARLY, *(each for _, each in RELEASES)], tuple(map(int, release.split(".")))
    config = {"actor.use_dynamic_bsz": True, "rollout.n": 8, "actor.use_kl_loss": True, **settings}
    for each, expected in ((versions[versions.index(version) - 1], old), (version, new)):
        result = ask(config, version=each)
        size = result.host.of({key}) if phase == "host" else sizes(result, phase).get(key, 0)
        assert size == pytest.approx(expected, rel=1e-3), each


#: Version, whether the V1 trainer runs, the critic's sequences and tokens in a micro-batch, and its Ulysses size.
OF_CRITIC = [
    ((0, 7, 1), True, (2, 20_000, 2)), ((0, 8, 0), True, (None, 20_000, 1)), ((0, 9, 0), True, (None, 10_000, 1)), ((0, 9, 0), False, (None, 20_000, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("version", "v1", "expected"), OF_CRITIC)
def test_the_critic_reads_other_keys(ask, version, v1, expected):
    budgets = {"critic.ppo_max_token_len_per_gpu": 20_000, "critic.ppo_infer_max_token_len_per_gpu": 10_000}
    sizes = {"critic.ppo_micro_batch_size_per_gpu": 2, "critic.ulysses_sequence_parallel_size": 2}
    config = {"actor.use_dynamic_bsz": True, "critic.enable": True, "trainer.use_v1": v1, **budgets, **sizes}
    critic = ask(config, version=version).settings.critic
    assert (critic.micro_batch.sequences, critic.micro_batch.tokens, critic.fsdp.ulysses) == expected


def test_defaults_that_changed(registries):
    changed = {key.name: key.default_changes for key in registries.config_keys if key.default_changes}
    assert len(changed) > 10
    for name, changes in changed.items():
        for change in changes:
            assert registries.defaults(version_of(change.since))[name] == change.default, (name, change.since)
        assert registries.defaults((0, 1, 0))[name] == changes[0].default
    now = registries.defaults(CURRENT)
    assert {key.name for key in registries.config_keys if now[key.name] != key.default} == set()
