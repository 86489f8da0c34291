"""FSDP and FSDP2 compared with hand-computed numbers: states, gathered parameters and gradients.

The model is Qwen2.5-7B on eight GPUs unless stated otherwise. It has separate embedding and head; in Qwen2.5-0.5B
they are tied.
"""

from __future__ import annotations

import pytest
from qwen_7b import (
    ADAPTERS,
    FSDP2,
    FULL,
    HEAD,
    HEADS,
    KEYS,
    LAYERS,
    LORA,
    MAIN,
    NEW,
    OLD,
    V08,
    F,
    H,
    P,
    R,
    T,
    U,
    V,
)

from sphinx_verl_resources.estimator.phases import roles_of

#: The critic's parameters: its head has one output.
P_CRITIC = P - HEAD + H
#: The saved bytes of a layer without recomputation.
SAVED = 16 * H + 8 * F + 4 * H + 4 * KEYS + 4 * HEADS
#: The smaller model, whose head is its embedding.
SMALL = "Qwen/Qwen2.5-0.5B"
P_SMALL, E_SMALL = 494_032_768, 151_936 * 896
R_SMALL, U_SMALL = E_SMALL + 896, (P_SMALL - E_SMALL - 896) // 24
ONE = {"actor.ppo_micro_batch_size_per_gpu": 16, "actor.ppo_mini_batch_size": 16, "rollout.n": 8}


@pytest.fixture(scope="module")
def working(registries):
    return registries.shape("Qwen/Qwen2.5-7B").backward()[0]


@pytest.fixture(scope="module")
def forward(registries):
    return registries.shape("Qwen/Qwen2.5-7B").forward


@pytest.fixture(scope="module")
def moment(ask):
    """Return the bytes of the actor's allocations by key, at a moment of an update."""

    def found(settings, name, tokens=1.0, **others):
        estimate = ask(settings, **others)
        ((actor,), _) = roles_of(estimate.shape, estimate.settings)
        return {part.key: part.size for part in getattr(actor.update(tokens), name)}

    return found


@pytest.mark.parametrize(("version", "kept"), [((0, 7, 1), False), (V08, True), ((0, 9, 0), False)])
def test_embeddings_of_earlier_micro_batches_stay_with_lora(ask, sizes, version, kept):
    """Four micro-batches of 16 sequences: the embeddings of three of them, and their gradients, in 16 bits."""
    four = {"actor.ppo_micro_batch_size_per_gpu": 16, "actor.ppo_mini_batch_size": 64, "rollout.n": 8}
    found = sizes(ask({**LORA, **four, "actor.use_dynamic_bsz": False}, version=version), "update-forward")
    assert found.get("kept-embeddings") == (pytest.approx(4 * H * T * 3) if kept else None)
    full = sizes(ask({**FULL, **four, "actor.use_dynamic_bsz": False}, version=version), "update-forward")
    assert "kept-embeddings" not in full


# Passes without gradients.
def test_old_log_prob_is_widest_at_the_head(ask, tensors):
    found = tensors(ask(FULL, version=V08), "old-log-prob")
    assert found == pytest.approx(
        {"weights": 4 * P / 8, "optimizer-states": P, "gathered-root": 2 * R, "logits": 2 * T * V}
    )


def test_old_log_prob_is_widest_at_a_layer_where_no_logits_are_stored(ask, tensors, forward):
    states = {"weights": 4 * P / 8, "optimizer-states": P}
    fused = {"model.use_fused_kernels": True}
    found = tensors(ask({**FULL, **fused}), "old-log-prob")
    at_work = {"gathered-layer": 2 * U, "working-set": forward * T}
    assert found == pytest.approx({**states, **at_work, "gathered-root": 2 * R})
    # FSDP2 has a layer in two buffers, and gathers an untied head separately.
    found = tensors(ask({**FSDP2, **fused}), "old-log-prob")
    assert found == pytest.approx({**states, **at_work, "gathered-layer": 4 * U})


@pytest.mark.parametrize(("settings", "root"), [(FULL, {"gathered-root": 2 * R}), (FSDP2, {})])
def test_reference_log_prob_streams_one_unit(ask, tensors, settings, root):
    settings = {**settings, "actor.use_kl_loss": True, "fsdp.param_offload": True}
    found = tensors(ask(settings, version=OLD), "ref-log-prob")
    assert found == pytest.approx({"optimizer-states": P, "logits": 2 * T * V, **root})


# Updates.
@pytest.mark.parametrize(("settings", "root"), [(FULL, {"gathered-root": 2 * R}), (FSDP2, {})])
def test_update_loss(ask, tensors, settings, root):
    """FSDP keeps the root gathered at the loss, FSDP2 nothing."""
    found = tensors(ask(settings, version=V08), "update-forward")
    assert found == pytest.approx(
        {
            "weights": 4 * P / 8,
            "optimizer-states": P,
            "gradients": 4 * P / 8,
            "layer-inputs": 2 * H * LAYERS * T,
            "logits": 8 * T * V,
            "last-norm": 8 * H * T,
            **root,
        }
    )


@pytest.mark.parametrize(
    ("settings", "gathered"),
    [
        # The layer and the next one; the head's gradient stays until that of the embedding is ready.
        (FULL, {"gathered-root": 2 * R, "gathered-layer": 4 * U, "head-gradient": 2 * HEAD}),
        # And the gradient of the last layer in 32 bits; those of embedding and head are sharded at once.
        (FSDP2, {"gathered-layer": 8 * U}),
    ],
)
def test_update_backward(moment, working, settings, gathered):
    found = moment(settings, "backward", T, version=V08)
    expected = {
        "weights": 4 * P / 8,
        "optimizer-states": P,
        "gradients": 4 * P / 8,
        "layer-inputs": 2 * H * LAYERS * T,
        "working-set": working * T,
        **gathered,
    }
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(("strategy", "root"), [("fsdp", R_SMALL), ("fsdp2", E_SMALL)])
def test_update_backward_of_tied_embeddings(moment, strategy, root):
    """The root is gathered (again, with FSDP2), and the head's gradient stays until the embedding's is ready."""
    settings = {**FULL, "actor.strategy": strategy}
    for name, layers in (("at_head", 4), ("backward", 4 if strategy == "fsdp" else 8)):
        found = moment(settings, name, T, model=SMALL, version=V08)
        assert found["gathered-root"] == pytest.approx(2 * root)
        assert found["head-gradient"] == pytest.approx(2 * E_SMALL)
        assert found["gathered-layer"] == pytest.approx(layers * U_SMALL)
    at_loss = moment(settings, "loss", T, model=SMALL, version=V08)
    assert ("gathered-root" in at_loss) is (strategy == "fsdp")


def test_update_backward_is_widest_at_the_head_of_a_small_model(ask, tensors):
    found = tensors(ask(FULL, model=SMALL, version=V08), "update-backward")
    assert found == pytest.approx(
        {
            "weights": 4 * P_SMALL / 8,
            "optimizer-states": P_SMALL,
            "gradients": 4 * P_SMALL / 8,
            "layer-inputs": 2 * 896 * 24 * T,
            "gathered-root": 2 * R_SMALL,
            "gathered-layer": 4 * U_SMALL,
            "head-gradient": 2 * E_SMALL,
            "logits": 2 * T * 151_936,
        }
    )


def test_a_head_of_its_own_is_gathered_with_its_gradient_in_16_and_32_bits(moment):
    found = moment(FSDP2, "at_head", version=V08)
    # With each GPU's shard in 32 bits.
    assert (found["head-gradient"], found["gathered-layer"]) == pytest.approx(((6 + 4 / 8) * HEAD, 2 * U))
    assert "gathered-root" not in found
    # Before v0.7.1 FSDP2 had the head in its root.
    found = moment(FSDP2, "at_head", version=(0, 7, 0))
    assert (found["head-gradient"], found["gathered-layer"]) == pytest.approx((2 * HEAD, 4 * U))


END = {"weights", "optimizer-states", "gradients", "root-gradient"}


@pytest.mark.parametrize(
    ("settings", "model", "expected"),
    [
        ({}, "Qwen/Qwen2.5-7B", 6 * R),
        ({}, SMALL, 6 * R_SMALL),
        ({"actor.strategy": "fsdp2"}, "Qwen/Qwen2.5-7B", 6 * HEAD),  # as large as the embedding
        # The shard in 32 bits of a gradient that is kept in 16.
        ({"fsdp.model_dtype": "bf16"}, "Qwen/Qwen2.5-7B", 6 * R + 4 * R / 8),
        ({"fsdp.model_dtype": "bf16", "fsdp.fsdp_size": 2}, "Qwen/Qwen2.5-7B", 6 * R + 4 * R / 2),
        ({"fsdp.model_dtype": "bf16", "actor.strategy": "fsdp2"}, "Qwen/Qwen2.5-7B", 6.5 * HEAD),
    ],
)
def test_end_of_the_backward_pass(moment, settings, model, expected):
    """The last gradient is the root's, in 16 and 32 bits; nothing is gathered."""
    found = moment({**ONE, **settings}, "backward", model=model)
    assert set(found) == END
    assert found["root-gradient"] == pytest.approx(expected)


def test_end_of_the_backward_pass_of_others(moment, ask, sizes):
    assert "root-gradient" not in moment(LORA, "backward")
    assert "root-gradient" not in moment(FULL, "backward", model=SMALL, gpus=1)
    critic = {**FULL, "algorithm.adv_estimator": "gae", "critic.ppo_max_token_len_per_gpu": 1024}
    found = sizes(ask(critic, version=V08), "critic-backward")
    # With several micro-batches, the shard of the last one comes on top of that of the others.
    assert found["critic-root-gradient"] == pytest.approx((6 + 4 / 8) * (R - HEAD + H))


def test_with_one_micro_batch_gradients_come_while_activations_go(ask, sizes):
    one = {**ONE, "actor.ppo_mini_batch_size": 128, "model.use_fused_kernels": True}
    found = ask({**one, "actor.ppo_micro_batch_size_per_gpu": 128}, version=OLD)
    assert "gradients" not in sizes(found, "update-forward")
    backward = sizes(found, "update-backward")
    assert backward["layer-inputs"] == pytest.approx(2 * H * LAYERS * 128 * 1024)
    assert "gradients" not in backward  # 4 bytes ÷ 8 of them are fewer than the inputs


# Gradients of earlier micro-batches.
@pytest.mark.parametrize(
    ("settings", "version", "expected"),
    [
        ({}, V08, {"gradients": 4 * P / 8}),
        ({}, NEW, {"undivided-gradients": 2 * P}),  # in the data type of the computation
        ({}, MAIN, {"gradients": 4 * P / 8}),
        ({"fsdp.use_no_sync_for_gradient_accumulation": True}, MAIN, {"undivided-gradients": 2 * P}),
        ({"fsdp.use_no_sync_for_gradient_accumulation": False}, NEW, {"gradients": 4 * P / 8}),
        ({"actor.strategy": "fsdp2"}, V08, {"gradients": 4 * P / 8}),
        (
            {"actor.strategy": "fsdp2"},
            NEW,
            {"undivided-gradients": 4 * P},
        ),  # in the data type of the reduction
        ({"fsdp.fsdp_size": 2}, NEW, {"undivided-gradients": 2 * P}),
        ({"model.lora_rank": 32}, NEW, {"undivided-gradients": 2 * ADAPTERS}),
        ({"fsdp.fsdp_size": 1}, NEW, {"gradients": 4 * P}),
    ],
)
def test_gradients_of_earlier_micro_batches(moment, settings, version, expected):
    """If sharding is deferred, they stay unsharded on every GPU, instead of the sharded ones."""
    found = moment({**FULL, **settings}, "loss", version=version)
    assert {key: size for key, size in found.items() if "gradients" in key} == pytest.approx(expected)


def test_one_gpu_defers_nothing(moment):
    for strategy in ("fsdp", "fsdp2"):
        found = moment({**FULL, "actor.strategy": strategy}, "loss", model=SMALL, gpus=1)
        assert found["gradients"] == pytest.approx(4 * P_SMALL)
        assert "undivided-gradients" not in found


def test_one_micro_batch_leaves_nothing_to_defer(moment):
    assert not {"gradients", "undivided-gradients"} & set(moment(ONE, "loss"))


def test_deferred_gradients_at_the_end_of_the_backward_pass(moment):
    found = moment(FULL, "backward")
    assert set(found) == {"weights", "optimizer-states", "undivided-gradients", "root-gradient"}
    assert set(moment(FULL, "step")) == {"weights", "optimizer-states", "gradients", "step-buffer"}


# The root that stays gathered after a pass without gradients.
AFTER = ("rollout", "update-forward", "update-backward", "optimizer-step", "weight-sync")


@pytest.mark.parametrize(
    ("settings", "version", "stays"),
    [
        ({}, (0, 7, 1), False),
        ({}, V08, True),
        ({}, MAIN, True),
        ({"fsdp.param_offload": True, "ref.fsdp_config.param_offload": True}, V08, True),
        ({"fsdp.fsdp_size": 8, "ref.fsdp_config.fsdp_size": 8}, V08, False),
        ({"fsdp.fsdp_size": 2, "ref.fsdp_config.fsdp_size": 2}, V08, False),
        ({"actor.strategy": "fsdp2"}, V08, False),
        ({"model.lora_rank": 32}, V08, False),  # the actor itself is the reference policy
    ],
)
def test_root_of_the_reference_stays(ask, sizes, settings, version, stays):
    found = ask({**FULL, "actor.use_kl_loss": True, **settings}, version=version)
    for name in AFTER:
        size = sizes(found, name).get("reference-root")
        assert size == (pytest.approx(2 * R) if stays else None), name


def test_root_of_the_reference_is_there_once(ask, tensors):
    """In its own pass, next to the actor's root, which stays gathered since the old log-probs."""
    found = tensors(ask({**FULL, "actor.use_kl_loss": True}, version=V08), "ref-log-prob")
    states = {"weights": 4 * P / 8, "optimizer-states": P}
    roots = {"gathered-root": 2 * R, "reference-root": 2 * R}
    assert found == pytest.approx({**states, **roots, "logits": 2 * T * V})


def test_one_gpu_leaves_no_root(ask, sizes):
    found = ask({**FULL, "actor.use_kl_loss": True}, model=SMALL, gpus=1, version=V08)
    assert not any("reference-root" in sizes(found, name) for name in AFTER)


@pytest.mark.parametrize(
    ("settings", "version", "stays"),
    [({}, (0, 7, 1), False), ({}, V08, True), ({"fsdp.fsdp_size": 8}, V08, False)],
)
def test_root_of_the_actor_stays_beside_the_critic(ask, sizes, settings, version, stays):
    """From the old log-probs until the actor's own update."""
    found = ask({**FULL, "algorithm.adv_estimator": "gae", **settings}, version=version)
    for name in ("critic-values", "critic-forward", "critic-backward", "critic-optimizer-step"):
        assert ("gathered-root" in sizes(found, name)) is stays
    for name in ("rollout", "optimizer-step", "weight-sync"):
        assert sizes(found, name).get("gathered-root") in (None, pytest.approx(4 * R))


# Other roles and settings.
def test_lora(ask, sizes, tensors, registries):
    found = ask(LORA, version=OLD)
    assert tensors(found, "optimizer-step") == pytest.approx(
        {
            "weights": 4 * (P + ADAPTERS) / 8,
            "optimizer-states": ADAPTERS,
            "gradients": 4 * ADAPTERS / 8,
            "step-buffer": 4 * ADAPTERS / 8,
        }
    )
    backward = sizes(found, "update-backward")
    assert backward["working-set"] == pytest.approx(
        registries.shape("Qwen/Qwen2.5-7B").backward("all-linear")[0] * T
    )
    assert not {"head-gradient", "root-gradient"} & set(backward)
    # Frozen layers have no gradients to reduce.
    assert backward["gathered-layer"] == pytest.approx(2 * U)
    # The fp32 copies of the adapters' inputs nearly double the current layer.
    plain = sizes(ask(FULL, version=OLD), "update-backward")["working-set"]
    assert 1.1 < backward["working-set"] / plain < 2


def test_critic(ask, tensors, working, forward):
    settings = {**FULL, "algorithm.adv_estimator": "gae", "critic.ppo_infer_max_token_len_per_gpu": T}
    settings |= {"fsdp.param_offload": True, "fsdp.optimizer_offload": True, "fsdp.fsdp_size": 8}
    found = ask(settings, version=NEW)
    states = {"critic-weights": 4 * P_CRITIC / 8, "critic-optimizer-states": P_CRITIC}
    root = {"critic-gathered-root": 2 * (R - HEAD + H)}
    kept = {"critic-layer-inputs": 2 * H * LAYERS * T, "critic-undivided-gradients": 2 * P_CRITIC}
    at_work = {"critic-gathered-layer": 2 * U, "critic-working-set": forward * T}
    assert tensors(found, "critic-values") == pytest.approx({**states, **root, **at_work})
    assert tensors(found, "critic-forward") == pytest.approx({**states, **kept, **root})
    at_work = {"critic-gathered-layer": 4 * U, "critic-working-set": working * T}
    assert tensors(found, "critic-backward") == pytest.approx({**states, **kept, **root, **at_work})
    assert tensors(found, "critic-optimizer-step") == pytest.approx(
        {**states, "critic-gradients": 4 * P_CRITIC / 8, "critic-step-buffer": 4 * P_CRITIC / 8}
    )


def test_layers_stay_gathered_without_resharding(ask, sizes):
    fused = {"model.use_fused_kernels": True}  # otherwise the gradient of the logits is wider than a layer
    found = ask({**FULL, **fused, "fsdp.reshard_after_forward": False})
    for name in ("update-forward", "update-backward", "old-log-prob"):
        assert sizes(found, name)["gathered-layers"] == pytest.approx(2 * P)
        assert not {"gathered-layer", "gathered-root"} & set(sizes(found, name))
    critic = {"algorithm.adv_estimator": "gae", "critic.fsdp.reshard_after_forward": False}
    both = ask({**FULL, **critic})
    assert sizes(both, "critic-forward")["critic-gathered-layers"] == pytest.approx(2 * (P - HEAD + H))


def test_activation_offload_keeps_two_layers(ask, sizes):
    found = ask({**FULL, "model.enable_activation_offload": True})
    assert sizes(found, "update-forward")["layer-inputs"] == pytest.approx(2 * 2 * H * T)
    bare = ask(
        {**FULL, "model.enable_activation_offload": True, "model.enable_gradient_checkpointing": False}
    )
    assert sizes(bare, "update-forward")["activations"] == pytest.approx(2 * SAVED * T)


def test_without_checkpointing_every_layer_keeps_its_tensors(moment, working):
    settings = {**FULL, "model.enable_gradient_checkpointing": False}
    for name in ("loss", "at_head"):
        assert moment(settings, name, T)["activations"] == pytest.approx(LAYERS * SAVED * T)
    # The working set includes those of the current layer.
    backward = moment(settings, "backward", T)
    assert backward["activations"] == pytest.approx((LAYERS - 1) * SAVED * T)
    assert backward["working-set"] == pytest.approx(working * T)


def test_one_gpu_gathers_nothing(ask, moment):
    found = ask({**FULL, "actor.use_kl_loss": True}, model=SMALL, gpus=1)
    ((actor,), _) = roles_of(found.shape, found.settings)
    for name in ("loss", "at_head", "backward"):
        update = moment(FULL, name, T, model=SMALL, gpus=1)
        assert update["weights"] == pytest.approx(4 * P_SMALL)
        assert not {"gathered-root", "gathered-layer", "head-gradient", "root-gradient"} & set(update)
    # The reference policy still comes from the host.
    reference = {part.key: part.size for part in actor.reference_pass(T, ())[0]}
    assert reference["gathered-root"] == pytest.approx(2 * R_SMALL)
    assert reference["gathered-layer"] == pytest.approx(2 * U_SMALL)
