"""Diagnoses: first changes by form of message and phase, and contradictions between log and estimate."""

from __future__ import annotations

import pytest
from oom_reports import first_advice, load_reports

from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.intake.diagnosis import Given, diagnose
from sphinx_verl_resources.intake.failure import Failure
from sphinx_verl_resources.intake.log import LogText
from sphinx_verl_resources.intake.log_facts import Figures, read_metrics
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.views.diagnosis import PHASES

GIB = 2**30
ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
SHARE = f"{ROLLOUT}.gpu_memory_utilization"
#: A run that fits with room to spare.
CONFIG = {
    "actor_rollout_ref.model.path": "Qwen/Qwen2.5-7B-Instruct",
    "algorithm.adv_estimator": "grpo",
    "data.max_prompt_length": 1024,
    "data.max_response_length": 4096,
    "trainer.nnodes": 1,
    "trainer.n_gpus_per_node": 8,
    f"{ACTOR}.use_dynamic_bsz": True,
    f"{ACTOR}.use_kl_loss": True,
    f"{ACTOR}.ppo_max_token_len_per_gpu": 32768,
    f"{ROLLOUT}.gpu_memory_utilization": 0.6,
    f"{ROLLOUT}.log_prob_use_dynamic_bsz": True,
    f"{ROLLOUT}.max_num_seqs": 1024,
    f"{ROLLOUT}.max_model_len": 5120,
    f"{ROLLOUT}.enforce_eager": False,
    f"{ROLLOUT}.name": "vllm",
}


@pytest.fixture(scope="module")
def data():
    return EstimatorContext()


@pytest.fixture
def found(data):
    """Return a function that diagnoses a failure of a run on eight H100 with some settings."""

    def diagnosed(
        phase, form="cuda", config=CONFIG, *, figures=None, versions=None, gpu="H100 80GB", **facts
    ):
        failure = Failure(phase, "message", form, Location("run.log", 9), facts.pop("text", ""), **facts)
        log = LogText("run.log", figures or Figures(), config, versions or {}, gpu, failure)
        return diagnose(log, Given(), data)

    return diagnosed


@pytest.fixture
def first(found):
    """Return a function that returns the overrides of the first change."""

    def of(*words, **facts):
        return dict(found(*words, **facts).advice[0].remedy.overrides)

    return of


@pytest.mark.parametrize("form", ["no-room-for-cache", "sglang-pool"])
def test_an_engine_without_room_at_its_start_gets_more(first, form):
    assert first("startup", form) == {SHARE: 0.7}


@pytest.mark.parametrize(
    ("phase", "form"),
    [("weight-sync", "wake-up"), ("startup", "sglang-graph"), ("weight-sync", "memory-saver"),
     ("rollout", "cuda"), ("startup", "nccl"), ("weight-sync", "cumem")],
)  # fmt: skip
def test_an_engine_that_fails_later_gets_less(first, phase, form):
    assert first(phase, form) == {SHARE: 0.5}


def test_the_share_rises_by_what_the_message_says_is_missing(first):
    missing = {"tried": 20 * GIB, "free": 2 * GIB}
    assert first("startup", "sequence-too-long-for-cache", **missing) == {SHARE: 0.85}
    hopeless = first("startup", "sequence-too-long-for-cache", tried=70 * GIB, free=2 * GIB)
    assert hopeless == {f"{ROLLOUT}.tensor_model_parallel_size": 4}


def test_an_engine_need_not_plan_for_the_longest_sequence_of_the_model(first):
    config = {**CONFIG, f"{ROLLOUT}.max_model_len": None}
    assert first("startup", "sequence-too-long-for-cache", config) == {f"{ROLLOUT}.max_model_len": 5120}
    text = "Based on the available memory, the estimated maximum model length is 4000. Try increasing"
    short = first("startup", "sequence-too-long-for-cache", config, text=text)
    assert short == {f"{ROLLOUT}.max_model_len": 4000}


def test_the_share_that_is_free_at_the_start(first):
    free = {"free": 43.0 * GIB, "capacity": 79.1 * GIB}
    assert first("startup", "not-enough-free-at-start", **free) == {SHARE: 0.5}


@pytest.mark.parametrize(
    ("frame", "key", "value"),
    [("capture_model", f"{ROLLOUT}.enforce_eager", True), ("profile_run", f"{ROLLOUT}.max_num_batched_tokens", 4096),
     ("make_layers", f"{ROLLOUT}.tensor_model_parallel_size", 4)],
)  # fmt: skip
def test_functions_of_an_engine_that_starts(first, frame, key, value):
    assert first("startup", frame=frame) == {key: value}


def test_training_is_ordered_by_the_estimate(found):
    config = {**CONFIG, f"{ACTOR}.ppo_max_token_len_per_gpu": 65536}
    advice = found("update-forward", config=config).advice
    before = next(
        phase
        for phase in found("update-forward", config=config).estimate.phases
        if phase.name == "update-forward"
    )
    after = [
        next(phase.total for phase in each.after.phases if phase.name == "update-forward") for each in advice
    ]
    assert all(size < 0.99 * before.total for size in after)
    keys = [key for each in advice for key in each.remedy.overrides]
    assert {"actor_rollout_ref.model.use_fused_kernels", f"{ACTOR}.ppo_max_token_len_per_gpu"} <= set(keys)
    assert after[0] < 79 * GIB


def test_micro_batches_never_hold_less_than_a_sequence(found):
    config = {**CONFIG, f"{ACTOR}.ppo_max_token_len_per_gpu": 6000}
    ulysses = f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size"
    for each in found("update-forward", config=config).advice:
        overrides = each.remedy.overrides
        budget = overrides.get(f"{ACTOR}.ppo_max_token_len_per_gpu", 5120)
        assert budget * overrides.get(ulysses, 1) >= 5120


def test_without_settings_the_change_starts_at_verls_defaults(found):
    diagnosis = found("update-backward", config={})
    remedy = diagnosis.advice[0].remedy
    assert dict(remedy.overrides) == {
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.ppo_max_token_len_per_gpu": 8192,
    }
    assert "verl's default" in remedy.text
    assert diagnosis.estimate is None
    assert "the configuration" in diagnosis.missing


def test_functions_of_megatron_tell_the_backend(first):
    assert list(first("optimizer-step", config={}))[-1] == f"{ACTOR}.fsdp_config.offload_policy"
    (key, *_) = first("optimizer-step", config={}, of_megatron=True)
    assert key == f"{ACTOR}.optim.override_optimizer_config.optimizer_cpu_offload"


def test_old_workers_tell_the_time_of_verl(found):
    assert "the version of verl (assumed: v0.7.1)" in found("update-backward", of_old_workers=True).missing
    assert "the version of verl (assumed: v0.9.0)" in found("update-backward").missing


def test_host_memory_wants_less_offloading_and_no_other_share(found):
    config = {**CONFIG, f"{ACTOR}.fsdp_config.optimizer_offload": True}
    diagnosis = found("host", "ray-memory", config)
    assert dict(diagnosis.advice[0].remedy.overrides) == {f"{ACTOR}.fsdp_config.optimizer_offload": False}
    assert not any(SHARE in each.remedy.overrides for each in diagnosis.advice)


def test_the_gpu_keeps_what_it_has_no_room_for(found):
    """If the state does not fit on the GPU, less offloading is the last change for the host."""
    offloaded = {f"{ACTOR}.fsdp_config.optimizer_offload": True, f"{ACTOR}.fsdp_config.param_offload": True}
    config = {**CONFIG, **offloaded, "actor_rollout_ref.model.path": "Qwen/Qwen2.5-32B-Instruct"}
    advice = found("host", "ray-memory", config, in_use=900 * GIB).advice
    last = [each.after.verdict == "does-not-fit" for each in advice]
    assert any(last)
    assert last == sorted(last)
    assert "the estimate explains" in found("host", "ray-memory", in_use=900 * GIB).differences[-1]


def test_a_leak_of_vllm_is_named(found):
    remedy = found("host", "raylet-killed", versions={"vllm": "0.7.3"}).advice[0].remedy
    assert not remedy.overrides
    assert "0.8.3" in remedy.text
    assert found("host", "raylet-killed", versions={"vllm": "0.8.5"}).advice[0].remedy.overrides


def test_checkpoints(first):
    assert first("checkpoint") == {f"{ACTOR}.checkpoint.save_contents": ("model", "extra")}


def test_keys_have_the_names_of_the_version(data):
    log = LogText(
        "run.log", Figures(), failure=Failure("critic-optimizer-step", "", "cuda", Location("a"), "")
    )
    first = diagnose(log, Given(version=(0, 7, 1)), data).advice[0].remedy.overrides
    assert dict(first) == {"critic.model.fsdp_config.optimizer_offload": True}
    assert dict(diagnose(log, Given(), data).advice[0].remedy.overrides) == {
        "critic.fsdp.optimizer_offload": True
    }


def test_an_engine_that_holds_memory_is_told_to_free_it(found, first):
    held = {"capacity": 79 * GIB, "free": GIB, "others": 30 * GIB, "tried": 2 * GIB}
    config = {**CONFIG, f"{ROLLOUT}.free_cache_engine": False}
    assert first("update-backward", config=config, **held) == {f"{ROLLOUT}.free_cache_engine": True}
    assert first("update-backward", **held) == {SHARE: 0.5}
    assert any("not asleep" in text for text in found("update-backward", **held).differences)


def test_fragmentation(found):
    pieces = {"capacity": 79 * GIB, "tried": 2 * GIB, "reserved_unallocated": 20 * GIB, "free": GIB}
    diagnosis = found("optimizer-step", config={}, **pieces)
    (value,) = diagnosis.advice[0].remedy.overrides.values()
    assert value == "expandable_segments:True"
    assert any("fragmented" in text for text in diagnosis.differences)
    # vLLM's sleep mode rejects it on GPUs shared with the engine
    keys = [key for each in found("optimizer-step", **pieces).advice for key in each.remedy.overrides]
    assert not any("ALLOC_CONF" in key for key in keys)


def test_a_run_that_wants_more_than_the_estimate_says(found):
    full = {"capacity": 79 * GIB, "free": 0, "tried": 2 * GIB}
    assert "do not explain" in found("optimizer-step", **full).differences[0]
    little = {"capacity": 79 * GIB, "free": 75 * GIB, "tried": 2 * GIB}
    assert "only" in found("optimizer-step", **little).differences[0]
    # Nothing is compared with an assumed GPU.
    assert found("rollout", gpu="", capacity=70 * GIB, free=0, tried=2 * GIB).differences == ()


def test_settings_without_the_phase_that_failed(found):
    diagnosis = found("critic-backward")  # GRPO has no critic
    assert "not the settings of the failed run" in diagnosis.differences[0]
    assert all(key.startswith("critic.") for key in diagnosis.advice[0].remedy.overrides)


@pytest.mark.parametrize("config", [CONFIG, {}], ids=["settings", "no settings"])
@pytest.mark.parametrize("phase", PHASES)
def test_there_is_advice_for_every_phase(found, phase, config):
    changes = [each.remedy for each in found(phase, config=config).advice]
    assert changes
    keys = [frozenset(each.overrides) for each in changes]
    assert len(set(keys)) == len(keys)


def test_figures_that_grow(found):
    figures = Figures()
    for step, value in enumerate((40, 45, 60)):
        figures.add(read_metrics(f"step:{step} - perf/max_memory_allocated_gb:{value}"))
    assert "grew from 40.0 to 60.0 over 3 steps" in found("update-backward", figures=figures).differences[-1]


def test_the_gpu_is_told_by_its_memory(found):
    diagnosis = found("update-backward", gpu="", capacity=47.4 * GIB)
    assert diagnosis.request.memory_gb == 48
    assert any("48 GB" in text for text in diagnosis.missing)
    assert found("host", "ray-memory", gpu="", capacity=47.4 * GIB).request.memory_gb is None


def test_what_the_log_does_not_say(data):
    nothing = diagnose(LogText("run.log", Figures()), Given(), data)
    assert nothing.failure is None
    assert nothing.missing[:2] == ("an out-of-memory failure", "the configuration")
    assert nothing.advice == nothing.differences == ()


def test_overrides_stand_above_the_log_and_the_log_above_the_script(data):
    log = LogText("run.log", Figures(), CONFIG)
    given = Given(
        script={SHARE: 0.1, "data.train_batch_size": 64}, overrides={"data.max_prompt_length": 2048}
    )
    config = diagnose(log, given, data).request.config
    assert (config[SHARE], config["data.train_batch_size"], config["data.max_prompt_length"]) == (
        0.6,
        64,
        2048,
    )


def test_possible_phases_that_the_run_does_not_have_are_left_out(found):
    diagnosis = found("unknown", phases=("update-backward", "critic-backward"))
    assert diagnosis.failure.phase == "update-backward"  # GRPO has no critic


def test_first_advice_for_public_reports(data):
    """The first advice is the confirmed fix, except for reports with a reason in the data."""
    reports = [report for report in load_reports() if "fix" in report]
    first = {report["report"]: first_advice(report, data) for report in reports}
    hits = {report["report"] for report in reports if is_fix(report, first[report["report"]])}
    assert hits == {report["report"] for report in reports if "missed" not in report}
    assert (len(hits), len(reports)) == (5, 15)
    assert all(first[name].overrides[SHARE] < 0.5 for name in ("verl-302", "verl-2588", "lmm-r1-43"))


def is_fix(report, remedy):
    """Return whether a remedy sets the same settings as a fix; a newer engine is not a setting."""
    if remedy is None:
        return False
    keys = {key.rpartition(".")[2] for key in remedy.overrides}
    newer = any("newer vLLM" in text for text in report["fix"]) and "or newer" in remedy.text
    return newer or bool(keys & {key.rpartition(".")[2] for key in report.get("fix_settings", ())})
