"""The peak, both ends of its range, the verdict and host memory compared with sums by hand; Qwen2.5-7B."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from qwen_7b import ADAPTERS, EXPERTS, HEAD, KL, LAYERS, NEW, OLD, OTHERS, ROUTED, V08, H, P, U

from sphinx_verl_resources.memory.estimate import AnyEstimate, errors_of, largest_that_fits
from sphinx_verl_resources.memory.phases import Phase
from sphinx_verl_resources.memory.registries import capacity_range
from sphinx_verl_resources.units import GIB

#: In GiB, outside PyTorch and the engine 2 each: a phase of the training process, and one with the engine awake.
UPDATE = Phase("update-forward", (), (), (), 10 * GIB, 0, 12 * GIB)
ROLLOUT = Phase("rollout", (), (), (), 2 * GIB, 20 * GIB, 24 * GIB)


def estimate_of(error, capacity=None, least=(ROLLOUT, UPDATE), **others):
    names = {"least": least} | {name: others.pop(name) for name in ("fits_up_to_tokens",) if name in others}
    kind = type("Estimate", (AnyEstimate,), names)
    return kind(
        phases=(ROLLOUT, UPDATE),
        kind="fsdp",
        errors=(error, error / 2),
        capacity=capacity,
        pool_in_torch_peak=3 * GIB,
        **others,
    )


#: Training process ± error, engine + 1 % and - 8 %, outside + 2 and - 1 GiB; the widest phase at each end.
RULE = [
    (0.5, (ROLLOUT, UPDATE), 24 - 1 - 1.6 - 1, 24 + 1 + 0.2 + 2),
    (1.6, (ROLLOUT, UPDATE), 24 - 3.2 - 1.6 - 1, 12 + 16 + 2),
    (0.5, (UPDATE,), 12 - 5 - 1, 24 + 1 + 0.2 + 2),
]


@pytest.mark.parametrize(("error", "least", "low", "high"), RULE)
def test_range_rule_at_both_ends(error, least, low, high):
    own = estimate_of(error, least=least)
    assert (own.low / GIB, own.high / GIB) == pytest.approx((low, high))
    assert (own.peak, own.peak_phase) == (24 * GIB, ROLLOUT)
    # PyTorch counts neither the engine nor what is outside, but an engine's pool in the training process.
    assert own.torch_peak == (3 + 10) * GIB
    assert [end / GIB for end in own.torch_peak_range] == pytest.approx([13 - 5 * error, 13 + 5 * error])
    assert own.of_phase("update-forward").high / GIB == pytest.approx(12 + 10 * error + 2)
    assert own.of_phase("critic-values") is own


LOW, HIGH = estimate_of(0.5).low, estimate_of(0.5).high
LENGTHS_DECIDE, UNREAD = {"fits_up_to_tokens": 100}, {"undecided": ("a setting",)}
VERDICTS = [
    (HIGH, {}, "fits"), (HIGH - 1, {}, "borderline"), (LOW, {}, "borderline"), (LOW - 1, {}, "does-not-fit"),
    (HIGH - 1, LENGTHS_DECIDE, "depends-on-lengths"), (LOW - 1, LENGTHS_DECIDE, "does-not-fit"),
    (LOW - 1, {"ran": True}, "borderline"), (None, {}, "unknown"), (HIGH, UNREAD, "unknown"),
]  # fmt: skip


@pytest.mark.parametrize(("capacity", "others", "verdict"), VERDICTS)
def test_verdicts(capacity, others, verdict):
    own = estimate_of(0.5, capacity, **others)
    assert (own.verdict, own.fits) == (verdict, verdict == "fits")


LOADED = {"actor.strategy": "fsdp2", "model": "Qwen/Qwen2.5-32B", "gpus": 32, "actor.use_dynamic_bsz": True}
LOADED |= {"fsdp.param_offload": True, "fsdp.optimizer_offload": True}
RETAINED = {
    "model.lora_rank": 32,
    "actor.use_dynamic_bsz": True,
    "rollout.n": 8,
    "data.train_batch_size": 4096,
}
RETAINED |= {"actor.ppo_mini_batch_size": 4096}
KEPT = {"actor.strategy": "megatron", "megatron.tp": 4, "actor.use_dynamic_bsz": True}
KEPT |= {
    "megatron.param_offload": True,
    "megatron.optimizer_offload": True,
    "rollout.gpu_memory_utilization": 0.87,
}
AWARE = {"optim.use_precision_aware_optimizer": True}
#: The embedding's output and gradient, for all tokens of a rank's mini-batch but those of its last micro-batch.
EARLIER = 4 * H * (4096 * 1024 - 16_384)
#: Settings, a release with more memory and one without it, a phase, an allocation, bytes, settings without them.
FAULTS = [
    (LOADED, OLD, (0, 5, 0), "loading", "weights", 4 * 32_763_876_352, {"actor.strategy": "fsdp"}),
    (RETAINED, V08, NEW, "update-forward", "layer-inputs", EARLIER, {"model.lora_rank": 0}),
    (
        {**KEPT, **AWARE},
        (0, 6, 0),
        NEW,
        "rollout",
        "optimizer-states",
        2 * P / 8,
        {"megatron.optimizer_offload": False},
    ),
]


@pytest.mark.parametrize(("settings", "since", "until", "name", "key", "size", "without"), FAULTS)
def test_what_only_some_releases_need(ask, settings, since, until, name, key, size, without):
    def bytes_in(own):
        phases = [phase for phase in own.phases if phase.name == name]
        return sum(item.size for phase in phases for item in phase.allocations if item.key == key)

    def more(others):
        every = {**settings, **others}
        return bytes_in(ask(every, version=since)) - bytes_in(ask(every, version=until))

    assert more({}) == pytest.approx(size)
    assert more(without) == 0


def test_a_gpu_of_which_only_the_nominal_memory_is_known(ask):
    """A run that fits on some GPUs of this size, or does not fit on some, is borderline."""
    own = ask({"actor.use_dynamic_bsz": True}, gpu=None, memory_gb=64)
    assert [size / GIB for size in (own.capacity, own.most_capacity)] == pytest.approx([60.96, 61.27])
    verdicts = ("does-not-fit", "borderline", "borderline", "borderline", "fits")
    ends = ((1, 2), (1, own.low), (own.low, own.low), (own.low, own.high), (own.high, own.high))
    for verdict, (least, most) in zip(verdicts, ends, strict=True):
        assert replace(own, capacity=least, most_capacity=most).verdict == verdict
    assert ask({"actor.use_dynamic_bsz": True}, gpu=None, memory_gb=70).most_capacity == capacity_range(70)[1]


def test_an_unknown_error_is_the_worst_known():
    class Errors(dict):
        def __iter__(self):
            return iter(self.values())

    pairs = {"fsdp": (0.1, 0.3), "other": (0.4, 0.2)}
    both = ("error", "counter_error")
    errors = Errors({name: SimpleNamespace(**dict(zip(both, pairs[name], strict=True))) for name in pairs})
    own = [errors_of(name, SimpleNamespace(accuracy=errors)) for name in ("fsdp", "other", "new")]
    assert own == [*pairs.values(), (0.4, 0.3)]
    assert errors_of("fsdp", SimpleNamespace(accuracy=Errors())) == (1.0, 1.0)


KINDS = [
    ({"version": (0, 7, 1)}, "fsdp"), ({"model.lora_rank": 8, **EXPERTS}, "fsdp-today-lora-experts"), ({"framework": "EasyR1"}, "easyr1"),
    ({"actor.strategy": "megatron", **EXPERTS}, "megatron-today-experts"), ({"trainer.v1.trainer_mode": "separate_async"}, "training"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "kind"), KINDS)
def test_kinds(ask, settings, kind):
    assert ask({"version": V08, **settings}).kind == kind


FOUR = {"actor.ppo_micro_batch_size_per_gpu": 4, "model.use_remove_padding": True}
SEEN = {"prompt_length_mean": 200, "response_length_mean": 400}
INPUTS = 2 * H * LAYERS
LENGTHS = [(SEEN, (600, 600 * (1 + 1 / math.sqrt(4)))), ({}, (0.24 * 1024, 1024))]


def of_phase(phases, name):
    return {part.key: part.size for phase in phases if phase.name == name for part in phase.trainer}


@pytest.mark.parametrize(("observed", "lengths"), LENGTHS)
def test_low_end_without_variation_of_lengths(ask, observed, lengths):
    """At the low end all lengths are equal: the observed mean, or the shortest of real data."""
    own = ask(FOUR, observed=observed)
    inputs = [of_phase(phases, "update-forward")["layer-inputs"] for phases in (own.least, own.phases)]
    assert inputs == pytest.approx([4 * length * INPUTS for length in lengths])


def test_low_end_with_settings_that_a_source_leaves_open(ask):
    """They may have been set: offloading and Megatron's recomputation. What it quotes holds."""
    own = ask({**FOUR, "partial": True}, version=V08)
    assert of_phase(own.phases, "rollout").keys() == {"weights", "optimizer-states"}
    assert of_phase(own.least, "rollout") == {}
    quoted = ask({**FOUR, "fsdp.param_offload": False, "partial": True}, version=V08)
    assert of_phase(quoted.least, "rollout") == of_phase(own.phases, "rollout")
    megatron = ask({**FOUR, "actor.strategy": "megatron", "partial": True}, version=V08)
    assert "activations" in of_phase(megatron.phases, "update-backward")
    assert "layer-inputs" in of_phase(megatron.least, "update-backward")


LONG = {**FOUR, "data.max_response_length": 15_360, "data.max_prompt_length": 1024}
LONG |= {"rollout.gpu_memory_utilization": 0.4}
BATCH, SURE = "actor.ppo_micro_batch_size_per_gpu", {"prompt_length_mean": 1000, "response_length_mean": 9000}
LONGEST = [(3, 0.24, "high"), (10, 0.24, "peak"), (12, 0, "high")]
NO_MATTER = [(1, {}, "fits"), (256, {}, "does-not-fit"), (3, SURE, "borderline")]


@pytest.mark.parametrize(("batch", "least", "figure"), LONGEST)
def test_longest_sequences_that_fit(ask, batch, least, figure):
    """Of the lengths of real data, with the whole range or at least the peak; or shorter ones."""
    own = ask({**LONG, BATCH: batch})
    tokens = own.fits_up_to_tokens
    assert own.verdict == "depends-on-lengths"
    assert least * 16_384 <= tokens < (1 if least else 0.24) * 16_384
    ends = [getattr(own.with_mean(mean), figure) for mean in (tokens, tokens + 1)]
    assert ends[0] <= own.capacity < ends[1]
    assert [largest_that_fits(0, 9, limit.__ge__) for limit in range(9)] == [*range(9)]


@pytest.mark.parametrize(("batch", "tokens", "verdict"), NO_MATTER)
def test_lengths_that_do_not_matter(ask, batch, tokens, verdict):
    own = ask({**LONG, BATCH: batch}, observed=tokens)
    assert (own.fits_up_to_tokens, own.verdict) == (None, verdict)


PARAM, POLICY = {"fsdp.param_offload": True}, {"actor.strategy": "fsdp2", "fsdp.offload_policy": True}
MEGATRON = {"actor.strategy": "megatron", "megatron.tp": 2, "megatron.pp": 2}
OVERRIDE = "optim.override_optimizer_config.optimizer"
ON_HOST = {**MEGATRON, f"{OVERRIDE}_cpu_offload": True, f"{OVERRIDE}_offload_fraction": 0.5}
SPREAD = {**EXPERTS, "megatron.pp": 1, "megatron.ep": 4, "megatron.etp": 1}
UNEVEN = {"transformer.num_layers_in_last_pipeline_stage": 24}
#: Parameters on each GPU of the last of two stages, which has the head and the last norm; and of a rank with TP 2,
#: EP 4 and a distributed optimizer on eight GPUs.
STAGE, PER_RANK = (14 * U + HEAD + H) / 2, OTHERS / 2 / 4 + ROUTED / 4 / 2
HOST = [
    ({}, {}), ({**PARAM, "fsdp.model_dtype": "bf16"}, {"weights": 2 * P}), ({**PARAM, "gpus": 32}, {"weights": P}),
    ({**PARAM, "fsdp.fsdp_size": 2}, {"weights": 4 * 4 * P}),  # four groups, each with a copy
    ({"fsdp.optimizer_offload": True}, {"optimizer-states": 8 * P}), (KL, {"reference": 4 * P}),
    (POLICY, {"weights": 4 * P, "gradients": 4 * P, "optimizer-states": 8 * P}),
    ({**PARAM, "model.lora_rank": 32}, {"weights": 4 * (P + ADAPTERS), "sleeping-weights": 8 * 2 * P / 2}),
    ({"algorithm.adv_estimator": "gae", "critic.fsdp.param_offload": True}, {"critic-weights": 4 * (P - HEAD + H)}),
    ({**MEGATRON, **UNEVEN, "megatron.param_offload": True}, {"weights": 8 * (24 * U + HEAD + H)}),  # fullest stage
    ({**MEGATRON, **KL, "megatron.optimizer_offload": True}, {"optimizer-states": 8 * 12 * STAGE / 2}),
    ({**ON_HOST, **SPREAD}, {"host-optimizer": 8 * 8 * PER_RANK}),
    ({**ON_HOST, "megatron.use_distributed_optimizer": False}, {"host-optimizer": 8 * 8 * STAGE}),
    ({**MEGATRON, **KL, "ref.megatron.param_offload": True}, {"reference": 8 * 2 * STAGE}),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "expected"), HOST)
def test_host_memory_of_a_node(ask, settings, expected):
    own = ask({**FOUR, "version": NEW, **settings}).host
    assert {part.key: part.size for part in own.components} == pytest.approx({**expected, "base": 20 * GIB})
