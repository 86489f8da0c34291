"""Plain fine-tuning: states, activations, losses and kernels, one by one; Llama-3-8B."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.estimator.case_records import Case
from sphinx_verl_resources.estimator.context import EstimatorContext
from sphinx_verl_resources.units import Category

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
from training import estimate_any

REGISTRIES = EstimatorContext().registries
P, H, F, V, LAYERS = 8_030_261_248, 4096, 14_336, 128_256, 32
Q, K, HEADS = 4096, 8 * 128, 32
#: Parameters of one layer: four matrices of attention, three of the MLP, two norms.
U = H * (2 * Q + 2 * K) + 3 * H * F + 2 * H
R = 2 * V * H + H
T = 8192
#: Bytes per token of the current layer, and those saved by a layer without recomputation.
WORKING, SAVED = 18 * H + 12 * F + 4 * Q + 4 * K + 4 * HEADS, 16 * H + 8 * F + 4 * Q + 4 * K + 4 * HEADS
FULL = {
    "parameter_dtype": "float32",
    "autocast": True,
    "sharding": {"fsdp": 4},
    "micro_batch_per_gpu": 1,
    "sequence_length": T,
}


def run(model="meta-llama/Meta-Llama-3-8B", gpus=4, gpu="A100", **changes):
    training = {key: value for key, value in {**FULL, **changes}.items() if value is not None}
    fields = {"id": "a", "model": model, "gpus": {"count": gpus, "type": gpu}, "training": training}
    found = estimate_any(Case.model_validate(fields), REGISTRIES)
    return found, {phase.name: {part.key: part.size for part in phase.trainer} for phase in found.phases}


def adapters(*targets):
    return {"method": "lora", "lora": {"rank": 16, "targets": targets}}


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
    _, phases = run(sequence_length=2 * T)
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
    _, phases = run(parameter_dtype="bfloat16", sequence_length=512)
    assert phases["update-backward"]["root-gradient"] == pytest.approx((6 + 4 / 4) * R)
    _, with_lora = run(**adapters(), sequence_length=512)
    assert "root-gradient" not in with_lora["update-backward"]


@pytest.mark.parametrize(
    ("changes", "total"),
    [
        ({}, 20),
        ({"optimizer": "adamw-fused"}, 16),
        ({"parameter_dtype": "bfloat16"}, 10),
        ({"parameter_dtype": "bfloat16", "optimizer": "adamw-fused"}, 8),
        ({"optimizer": "adamw-8bit"}, 10),
    ],
)
def test_bytes_a_parameter_in_the_optimizer_step(changes, total):
    _, phases = run(**changes)
    assert sum(phases["optimizer-step"].values()) == pytest.approx(total * P / 4)


def test_one_gpu_gathers_nothing():
    found, phases = run(sharding={"fsdp": 1}, gpus=1)
    assert not {"gathered-root", "gathered-layer"} & set(phases["update-backward"])
    assert phases["optimizer-step"]["weights"] == 4 * P
    assert outside(found) == ["context", "fragmentation"]
    assert outside(run()[0]) == ["context", "communicators", "fragmentation"]


def outside(found) -> list[str]:
    components = found.phases[0].breakdown.components
    return [part.key for part in components if part.category is Category.RUNTIME_OVERHEAD]


def test_without_recomputation():
    _, phases = run(recompute="none")
    assert phases["update-forward"]["activations"] == pytest.approx(LAYERS * SAVED * T)
    assert phases["update-backward"]["activations"] == pytest.approx((LAYERS - 1) * SAVED * T)
    assert phases["update-backward"]["working-set"] == pytest.approx(WORKING * T)


@pytest.mark.parametrize(
    ("changes", "working"),
    [
        ({"kernels": "liger"}, WORKING - 8 * H),
        ({"kernels": "liger", **adapters()}, WORKING * 1.94),
        ({"kernels": "liger", **adapters(), "autocast": False, "parameter_dtype": "bfloat16"}, WORKING),
    ],
)
def test_fused_kernels(changes, working):
    _, phases = run(sequence_length=2 * T, **changes)
    assert phases["update-backward"]["working-set"] == pytest.approx(working * 2 * T)


@pytest.mark.parametrize(("loss", "size"), [("torch", 12), ("fused", 8), ("chunked", 4), ("liger", None)])
def test_losses(loss, size):
    _, phases = run(loss=loss)
    assert phases["update-forward"].get("logits") == (None if size is None else pytest.approx(size * T * V))


def test_adapters_keep_fp32_under_autocast():
    _, phases = run(**adapters("q_proj", "v_proj"), parameter_dtype="bfloat16")
    trained = 16 * LAYERS * (H + Q + H + K)
    assert phases["optimizer-step"] == pytest.approx(
        {
            "weights": 2 * P / 4,
            "adapters": 4 * trained / 4,
            "optimizer-states": 8 * trained / 4,
            "gradients": 4 * trained / 4,
            "step-buffer": 4 * trained / 4,
        }
    )
    _, plain = run(**adapters("q_proj", "v_proj"), parameter_dtype="bfloat16", autocast=False)
    assert plain["optimizer-step"]["adapters"] == pytest.approx(2 * trained / 4)


def test_what_is_compiled_keeps_less():
    _, phases = run(recompute="none", kernels="torch.compile")
    assert phases["update-forward"]["activations"] == pytest.approx(0.69 * LAYERS * SAVED * T)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"sequence_length": None}, "training.sequence_length"),
        ({"micro_batch_per_gpu": None}, "training.micro_batch_per_gpu"),
        ({"parameter_dtype": "float8"}, "training.parameter_dtype"),
    ],
)
def test_numbers_that_nothing_stands_in_for(changes, key):
    with pytest.raises(NoAnswerError) as caught:
        run(**changes)
    assert [problem.place.key for problem in caught.value.diagnostics] == [key]


def test_unknown_models():
    with pytest.raises(NoAnswerError) as caught:
        run(model="meta-llama/Meta-Llama-3-8c")
    assert caught.value.diagnostics[0].code == "unknown_model"


def test_capacity():
    assert run(gpu=None)[0].verdict == "unknown"
    assert run(sharding={"fsdp": 1}, gpus=1)[0].verdict == "does-not-fit"
    assert run(sharding=None, gpus=64, sequence_length=512)[0].verdict == "fits"


@given(
    tokens=st.integers(1, 10**6),
    more=st.integers(0, 10**6),
    recompute=st.sampled_from(["full", "none"]),
    lora=st.sampled_from([{}, adapters()]),
    kernels=st.sampled_from([None, "liger", "torch.compile"]),
    loss=st.sampled_from(["torch", "fused", "liger", "chunked"]),
    shard=st.sampled_from([1, 2, 8]),
)
def test_more_tokens_never_take_less(tokens, more, recompute, lora, kernels, loss, shard):
    settings = {"recompute": recompute, "kernels": kernels, "loss": loss, "sharding": {"fsdp": shard}, **lora}
    few, many = (run(sequence_length=count, **settings)[0] for count in (tokens, tokens + more))
    assert few.peak <= many.peak * (1 + 1e-9)
    assert 0 < few.low <= few.peak <= few.high
    assert few.torch_peak == max(phase.counted for phase in few.phases)
    assert few.torch_peak_range[0] <= few.torch_peak <= few.torch_peak_range[1]
