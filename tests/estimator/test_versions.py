"""Every change between releases of verl that affects memory, before and after its release."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from qwen_7b import H, P, T, V

from sphinx_verl_resources.estimator.constants import POOL_OFFSET, SECOND_CONTEXT
from sphinx_verl_resources.estimator.versions import (
    CURRENT,
    RELEASES,
    version_of,
    version_on,
    version_text,
)
from sphinx_verl_resources.units import GIB

FULL = {"actor.use_dynamic_bsz": True, "rollout.n": 8, "actor.use_kl_loss": True}


def before(version):
    known = [found for _, found in RELEASES]
    return known[known.index(version) - 1]


@pytest.fixture
def change(ask, sizes):
    """Return the bytes of a component in a phase just before a release and with it; None if it is missing."""

    def found(version, name, key, settings=None):
        return tuple(
            sizes(ask({**FULL, **(settings or {})}, version=each), name).get(key)
            for each in (before(version), version)
        )

    return found


@pytest.mark.parametrize(
    ("settings", "old", "new"),
    [
        # Padded logits are no view: there are the quotient and its gradient, and with entropy ten more fp32 copies.
        ({"model.use_remove_padding": False}, 26, 4),
        # For a division in place in a view, the backward pass has four copies of the gradient.
        ({"model.use_remove_padding": True, "actor.use_torch_compile": False}, 28, 8),
        ({"model.use_remove_padding": True}, 8, 8),
    ],
    ids=["padded", "eager", "compiled"],
)
def test_entropy_of_the_update(change, settings, old, new):
    """Until v0.4.0 the update computes the entropy even if nothing uses it."""
    found = change((0, 4, 0), "update-forward", "logits", {"actor.entropy_coeff": 0, **settings})
    assert found == (old * T * V, new * T * V)


def test_cache_awake_while_weights_are_handed_over(change):
    old, new = change((0, 4, 0), "weight-sync", "rollout-pool")
    assert old is not None
    assert new is None


@pytest.mark.parametrize(("staged", "since"), [(False, (0, 8, 0)), (True, (0, 4, 0))])
def test_sglang_wakes_up_in_stages_when_asked_or_later_always(ask, sizes, staged, since):
    settings = {**FULL, "rollout.name": "sglang", "rollout.multi_stage_wake_up": staged}
    for version in (before(since), since):
        found = sizes(ask(settings, version=version), "weight-sync")
        assert ("rollout-pool" in found) is (version < since)


def test_sleep_keeps_weights_on_the_host(ask):
    def kept(version, **settings):
        host = ask({**FULL, "rollout.name": "vllm", **settings}, version=version).host
        return {part.key: part.size for part in host.components}.get("sleeping-weights")

    whole = pytest.approx(8 * 2 * P / 2)
    assert kept((0, 5, 0)) == whole
    assert kept((0, 6, 0)) is None
    # Layer by layer until v0.7.0, adapters since v0.7.1.
    lora = {"model.lora_rank": 8}
    assert kept((0, 7, 0), **lora) is None
    assert kept((0, 7, 0), **lora, **{"rollout.layered_summon": True}) == whole
    assert kept((0, 7, 1), **lora) == whole
    assert kept(CURRENT, **lora, **{"model.lora.merge": True}) is None
    mtp = {"model.mtp.enable": True, "model.mtp.enable_rollout": True}
    assert kept((0, 8, 0), **mtp) is None
    assert kept((0, 9, 0), **mtp) == whole
    sglang = {"rollout.name": "sglang"}
    assert kept((0, 8, 0), **sglang) is None
    assert kept((0, 8, 0), **sglang, **lora, **{"model.lora.merge": True}) == whole
    assert kept((0, 8, 0), **sglang, **mtp) == whole
    assert kept((0, 9, 0), **sglang) == whole
    assert kept(CURRENT, **sglang, **lora) is None  # the weights stay on the GPU


@pytest.mark.parametrize(("version", "kept"), [((0, 7, 0), True), ((0, 7, 1), False), ((0, 8, 0), True)])
def test_an_npu_keeps_weights_on_the_host(ask, version, kept):
    host = ask({**FULL, "rollout.name": "vllm"}, version=version, gpu="Ascend-A2").host
    assert ("sleeping-weights" in {part.key for part in host.components}) is kept


def test_graphs_by_default(change):
    assert change((0, 6, 0), "rollout", "cuda-graphs") == (None, 2 * GIB)


def test_reference_on_the_host(ask):
    def size(version, **settings):
        return {part.key: part.size for part in ask({**FULL, **settings}, version=version).host.components}[
            "reference"
        ]

    assert (size((0, 5, 0)), size((0, 6, 0))) == (2 * P, 4 * P)
    assert size(CURRENT, **{"ref.fsdp_config.model_dtype": "bf16"}) == 2 * P


def test_padding_by_default(ask, sizes):
    settings = {**FULL, "actor.use_dynamic_bsz": False, "actor.ppo_micro_batch_size_per_gpu": 4}
    seen = {"prompt_length_mean": 100, "response_length_mean": 156}
    found = [
        sizes(ask(settings, version=v, observed=seen), "update-forward")["last-norm"]
        for v in ((0, 6, 0), (0, 7, 0))
    ]
    assert found[0] == pytest.approx(8 * H * 4 * 1024)
    assert found[1] == pytest.approx(8 * H * 4 * 256 * 1.5)


def test_engine_in_its_own_process(ask, sizes):
    old, new = (ask(FULL, version=version) for version in ((0, 7, 0), (0, 7, 1)))
    assert "engine-context" not in sizes(old, "rollout")
    assert sizes(new, "rollout")["engine-context"] == SECOND_CONTEXT.value
    pool = old.capacity / 2 - POOL_OFFSET.value
    assert old.torch_peak == pytest.approx(max(phase.counted for phase in old.phases) + pool)
    assert new.torch_peak == pytest.approx(max(phase.counted for phase in new.phases))
    assert ask({**FULL, "rollout.name": "sglang"}, version=(0, 7, 0)).torch_peak < old.torch_peak


def test_bucket_for_weights(change):
    """FSDP2 sends tensor by tensor; FSDP gathers more before the bucket exists."""
    fsdp2 = {"actor.strategy": "fsdp2"}
    assert change((0, 7, 1), "weight-sync", "bucket") == (None, None)
    assert change((0, 7, 1), "weight-sync", "bucket", fsdp2) == (None, 2 * GIB)
    sglang = {**fsdp2, "rollout.name": "sglang"}
    assert change((0, 5, 0), "weight-sync", "bucket", sglang) == (None, GIB / 2)
    assert change((0, 7, 1), "weight-sync", "bucket", sglang) == (GIB / 2, 2 * GIB)
    older = {**sglang, "rollout.update_weights_bucket_megabytes": 1024}
    assert change((0, 6, 0), "weight-sync", "bucket", older) == (GIB, GIB)
    newer = {**fsdp2, "rollout.checkpoint_engine.update_weights_bucket_megabytes": 4096}
    assert change((0, 7, 1), "weight-sync", "bucket", newer) == (None, 4 * GIB)


def test_micro_batches_of_the_critic(ask):
    settings = {**FULL, "algorithm.adv_estimator": "gae", "critic.ppo_micro_batch_size_per_gpu": 2}
    budgets = {"critic.ppo_max_token_len_per_gpu": 20_000, "critic.ppo_infer_max_token_len_per_gpu": 10_000}

    def cut(version, **more):
        return ask({**settings, **budgets, **more}, version=version).settings.critic.micro_batch

    assert (cut((0, 7, 1)).sequences, cut((0, 7, 1)).dynamic) == (2, False)
    assert (cut((0, 8, 0)).dynamic, cut((0, 8, 0)).tokens) == (True, 20_000)
    assert (cut((0, 9, 0)).dynamic, cut((0, 9, 0)).tokens) == (True, 10_000)
    assert cut((0, 9, 0), **{"trainer.use_v1": False}).tokens == 20_000


def test_ulysses_of_the_critic_under_its_older_name(ask):
    settings = {**FULL, "algorithm.adv_estimator": "gae", "critic.ulysses_sequence_parallel_size": 2}
    sizes = [ask(settings, version=v).settings.critic.fsdp.ulysses for v in ((0, 7, 1), (0, 8, 0))]
    assert sizes == [2, 1]


def test_defaults_that_changed(ask, registries):
    changed = {key.name: key.default_changes for key in registries.config_keys if key.default_changes}
    assert len(changed) > 10
    for name, changes in changed.items():
        for change in changes:
            since = version_of(change.since)
            assert registries.defaults(since)[name] == change.default, (name, change.since)
    assert registries.defaults((0, 3, 0))["actor_rollout_ref.actor.entropy_coeff"] == 0.001
    assert registries.defaults((0, 1, 0))["actor_rollout_ref.actor.entropy_coeff"] == 0.001
    assert registries.defaults(CURRENT)["actor_rollout_ref.actor.entropy_coeff"] == 0


def test_defaults_now_are_those_of_the_registry(registries):
    defaults = registries.defaults(CURRENT)
    assert {key.name for key in registries.config_keys if defaults[key.name] != key.default} == set()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v0.7.1", (0, 7, 1)),
        ("0.5", (0, 5, 0)),
        ("verl 0.6.1 with vllm 0.11.0", (0, 6, 1)),
        ("vllm 0.8.3", None),
        ("main of 2025-11-02", (0, 6, 0)),
        ("v0.9.0 (main of 2026-08-22)", (0, 9, 0)),
        ("v0.9.0 (main 662507f9 of 2026-08-27)", (0, 9, 0)),
        ("v0.9.0 (main 1252cc71 of 2026-09)", (0, 10, 0)),
        ("v0.8.0 (2026-09-01)", (0, 8, 0)),
        ("2025-07", (0, 4, 0)),
        ("", None),
        (None, None),
    ],
)
def test_versions_in_texts(text, version):
    assert version_of(text) == version


def test_releases_by_day():
    assert tuple(sorted(RELEASES)) == RELEASES
    for day, version in RELEASES:
        assert version_on(day) == version
    assert version_on("2020-01-01") < RELEASES[0][1]
    assert version_text(CURRENT) == "v0.9.0"


@pytest.mark.slow
@given(st.text(max_size=40))
def test_no_text_is_too_odd_for_a_version(text):
    found = version_of(text)
    assert found is None or len(found) == 3
