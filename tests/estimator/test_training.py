"""Plain fine-tuning: states, activations, losses and kernels, one by one; Llama-3-8B."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.breakdown import Category
from sphinx_verl_resources.cli.data import read_data
from sphinx_verl_resources.diagnostics import Code, NoAnswerError
from sphinx_verl_resources.estimator.training import Training, estimate_training

REGISTRIES = read_data([]).registries
P, H, F, V, LAYERS = 8_030_261_248, 4096, 14_336, 128_256, 32
Q, K, HEADS = 4096, 8 * 128, 32
#: Parameters of one layer: four matrices of attention, three of the MLP, two norms.
U = H * (2 * Q + 2 * K) + 3 * H * F + 2 * H
R = 2 * V * H + H
T = 8192
#: Bytes per token of the current layer, and those saved by a layer without recomputation.
WORKING, SAVED = 18 * H + 12 * F + 4 * Q + 4 * K + 4 * HEADS, 16 * H + 8 * F + 4 * Q + 4 * K + 4 * HEADS
FULL = Training(
    model="meta-llama/Meta-Llama-3-8B",
    lora_rank=0,
    targets="all-linear",
    parameter_bytes=4,
    autocast=True,
    optimizer="adamw-foreach",
    shard=4,
    tokens=T,
    recompute=True,
    loss="torch",
    gpus=4,
    gpu="A100",
)


def run(**changes):
    found = estimate_training(replace(FULL, **changes), REGISTRIES)
    return found, {phase.name: {part.key: part.size for part in phase.trainer} for phase in found.phases}


def test_counts_add_up():
    assert P == LAYERS * U + R


def test_full_fine_tuning():
    _, phases = run()
    states = {"weights": 4 * P / 4, "optimizer-states": 8 * P / 4}
    assert phases["update-forward"] == pytest.approx(
        {
            **states,
            "gathered-root": 2 * R,
            "layer-inputs": 2 * T * H * LAYERS,
            "logits": 12 * T * V,
            "last-norm": 4 * T * H,
        }
    )
    assert phases["optimizer-step"] == pytest.approx(
        {**states, "gradients": 4 * P / 4, "step-buffer": 4 * P / 4}
    )
    # At the end of the backward pass the root's gradient is unsharded, in 16 bits and as a copy in 32.
    end = {**states, "gradients": 4 * P / 4, "root-gradient": 6 * R}
    assert phases["update-backward"] == pytest.approx(end)
    assert sum(end.values()) > sum(states.values()) + 2 * R + 2 * U + 2 * V * H + 4 * P / 4 + WORKING * T


def test_a_layer_of_the_backward_pass():
    """With more tokens the current layer is wider than the last gradient."""
    _, phases = run(tokens=2 * T)
    assert phases["update-backward"] == pytest.approx(
        {
            "weights": 4 * P / 4,
            "optimizer-states": 8 * P / 4,
            "gathered-root": 2 * R,
            "gathered-layer": 2 * U,
            "head-gradient": 2 * V * H,
            "working-set": WORKING * 2 * T,
            # More than the inputs of layers, which are freed meanwhile.
            "gradients": 4 * P / 4,
        }
    )


def test_the_gradient_of_the_root_of_weights_in_16_bits():
    """Its shard in 32 bits comes on top."""
    _, phases = run(parameter_bytes=2, tokens=512)
    assert phases["update-backward"]["root-gradient"] == pytest.approx((6 + 4 / 4) * R)
    _, adapters = run(lora_rank=16, tokens=512)
    assert "root-gradient" not in adapters["update-backward"]


@pytest.mark.parametrize(
    ("changes", "total"),
    [
        ({}, 20),
        ({"optimizer": "adamw-fused"}, 16),
        ({"parameter_bytes": 2}, 10),
        ({"parameter_bytes": 2, "optimizer": "adamw-fused"}, 8),
        ({"optimizer": "adamw-8bit"}, 10),
    ],
)
def test_bytes_a_parameter_in_the_optimizer_step(changes, total):
    _, phases = run(**changes)
    assert sum(phases["optimizer-step"].values()) == pytest.approx(total * P / 4)


def test_one_gpu_gathers_nothing():
    found, phases = run(shard=1, gpus=1)
    assert not {"gathered-root", "gathered-layer"} & set(phases["update-backward"])
    assert phases["optimizer-step"]["weights"] == 4 * P
    assert outside(found) == ["context", "fragmentation"]
    assert outside(run()[0]) == ["context", "communicators", "fragmentation"]


def outside(found) -> list[str]:
    components = found.phases[0].breakdown.components
    return [part.key for part in components if part.category is Category.RUNTIME_OVERHEAD]


def test_without_recomputation():
    _, phases = run(recompute=False)
    assert phases["update-forward"]["activations"] == pytest.approx(LAYERS * SAVED * T)
    assert phases["update-backward"]["activations"] == pytest.approx((LAYERS - 1) * SAVED * T)
    assert phases["update-backward"]["working-set"] == pytest.approx(WORKING * T)


@pytest.mark.parametrize(
    ("changes", "working"),
    [
        ({"kernels": "liger"}, WORKING - 8 * H),
        ({"kernels": "liger", "lora_rank": 16}, WORKING * 1.94),
        ({"kernels": "liger", "lora_rank": 16, "autocast": False, "parameter_bytes": 2}, WORKING),
    ],
)
def test_fused_kernels(changes, working):
    _, phases = run(tokens=2 * T, **changes)
    assert phases["update-backward"]["working-set"] == pytest.approx(working * 2 * T)


@pytest.mark.parametrize(("loss", "size"), [("torch", 12), ("fused", 8), ("chunked", 4), ("liger", None)])
def test_losses(loss, size):
    _, phases = run(loss=loss)
    assert phases["update-forward"].get("logits") == (None if size is None else pytest.approx(size * T * V))


def test_adapters_keep_fp32_under_autocast():
    _, phases = run(lora_rank=16, targets=("q_proj", "v_proj"), parameter_bytes=2)
    adapters = 16 * LAYERS * (H + Q + H + K)
    assert phases["optimizer-step"] == pytest.approx(
        {
            "weights": 2 * P / 4,
            "adapters": 4 * adapters / 4,
            "optimizer-states": 8 * adapters / 4,
            "gradients": 4 * adapters / 4,
            "step-buffer": 4 * adapters / 4,
        }
    )
    _, plain = run(lora_rank=16, targets=("q_proj", "v_proj"), parameter_bytes=2, autocast=False)
    assert plain["optimizer-step"]["adapters"] == pytest.approx(2 * adapters / 4)


def test_what_is_compiled_keeps_less():
    _, phases = run(recompute=False, kernels="torch.compile")
    assert phases["update-forward"]["activations"] == pytest.approx(0.69 * LAYERS * SAVED * T)


def test_unknown_models():
    with pytest.raises(NoAnswerError) as caught:
        run(model="meta-llama/Meta-Llama-3-8b-")
    assert caught.value.diagnostics[0].code is Code.unknown_model


def test_capacity():
    assert run(gpu=None)[0].verdict == "unknown"
    assert run(shard=1, gpus=1)[0].verdict == "does-not-fit"
    assert run(shard=64, gpus=64, tokens=512)[0].verdict == "fits"


@given(
    tokens=st.floats(1, 1e6),
    more=st.floats(0, 1e6),
    recompute=st.booleans(),
    rank=st.sampled_from([0, 16]),
    kernels=st.sampled_from(["", "liger", "torch.compile"]),
    loss=st.sampled_from(["torch", "fused", "liger", "chunked"]),
    shard=st.sampled_from([1, 2, 8]),
)
def test_more_tokens_never_take_less(tokens, more, recompute, rank, kernels, loss, shard):
    settings = {"recompute": recompute, "lora_rank": rank, "kernels": kernels, "loss": loss, "shard": shard}
    few, many = (run(tokens=count, **settings)[0] for count in (tokens, tokens + more))
    assert few.peak <= many.peak * (1 + 1e-9)
    assert 0 < few.low <= few.peak <= few.high
    assert few.torch_peak == max(phase.counted for phase in few.phases)
    assert few.torch_peak_range[0] <= few.torch_peak <= few.torch_peak_range[1]
