"""The recorded runs relevant to a question and their order, and the measured runs behind an estimate."""

from __future__ import annotations

import math
from cProfile import Profile

import pytest

from sphinx_verl_resources.dataset import Directory
from sphinx_verl_resources.fit import evidence
from sphinx_verl_resources.fit.answer import answer, answer_run, answer_settings
from sphinx_verl_resources.fit.evidence import (
    contested_by,
    is_proof,
    profile_of,
    runs_by_shape,
    runs_for,
    smallest_run,
)
from sphinx_verl_resources.fit.question import Question, request_of
from sphinx_verl_resources.fit.results import export_files
from sphinx_verl_resources.memory.recorded import request_of_run
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import Request

DATA = EstimatorContext()
SEVEN = "Qwen/Qwen2.5-7B"
H800 = "qwen2-7b-grpo-2xh800"
GRPO = {"algorithm.adv_estimator": "grpo"}
LORA = {**GRPO, "actor_rollout_ref.model.lora_rank": 32}
MEGATRON = {**GRPO, "actor_rollout_ref.actor.strategy": "megatron"}
#: The recorded runs that ran or were reported, on GPUs with known memory, with their profiles.
RECORDED = [pair for pairs in runs_by_shape(DATA).values() for pair in pairs]
THAT_RAN = {run.id: (run, own) for run, own in RECORDED if run.word != "claimed" and own.memory_gb}


def runs(model, gpus, gpu, **question):
    return runs_for(profile_of(request_of(Question(model, gpus, gpu, **question)), DATA), DATA)


def bearing(*question, **more):
    return [run.id for run in runs(*question, **more)]


@pytest.mark.parametrize("gpu", ["H800", "H100", "A100-80GB", "A800", "H20", "H200"])
@pytest.mark.parametrize("model", [SEVEN, "Qwen/Qwen2-7B-Instruct", "Qwen/Qwen2.5-Coder-7B-Instruct"])
def test_a_run_counts_for_the_same_shape_and_gpus_with_as_much_memory(model, gpu):
    assert H800 in bearing(model, 2, gpu)


@pytest.mark.parametrize(
    ("model", "gpus", "gpu", "question"),
    [
        ("Qwen/Qwen3-8B", 2, "H800", {}),
        (SEVEN, 1, "H800", {}),
        (SEVEN, 2, "L20", {}),
        (SEVEN, 2, "Ascend A2", {}),
        (SEVEN, 2, "MI300X", {}),
        (SEVEN, 2, "H800", {"lora": 32}),
        (SEVEN, 2, "H800", {"task": "PPO"}),
        (SEVEN, 2, "H800", {"response": 100_000}),
        (SEVEN, 2, "H800", {"prompt": 100_000}),
        (SEVEN, 2, "H800", {"overrides": {"actor_rollout_ref.hybrid_engine": False}}),
        (SEVEN, 2, None, {}),
    ],
)
def test_a_run_does_not_count_for_what_needs_more_or_is_something_else(model, gpus, gpu, question):
    assert H800 not in bearing(model, gpus, gpu, **question)


def test_more_gpus_more_memory_and_shorter_responses_keep_all_evidence():
    few = bearing(SEVEN, 16, "H20", response=8192)
    assert few[:2] == ["qwen2-5-math-7b-dapo-16xh20-megatron", "qwen2-5-math-7b-dapo-16xh20-fsdp2"]
    for more in (
        bearing(SEVEN, 64, "H20", response=8192),
        bearing(SEVEN, 16, "H200", response=8192),
        bearing(SEVEN, 16, "H20", response=1024),
    ):
        assert set(few) <= set(more)


def test_the_nearest_run_comes_first_within_each_word():
    result = runs(SEVEN, 128, "H20")
    assert [run.word for run in result] == sorted(
        (run.word for run in result), key=["ran", "reported", "claimed"].index
    )
    assert result[0].id == H800  # ran, although on fewer GPUs of another type
    reported = [run.gpus.count for run in result if run.word == "reported" and run.gpus.type == "H20"]
    assert reported == sorted(reported, reverse=True)


def test_adapters_of_a_larger_rank_count_for_smaller_ones():
    rank = "qwen2-5-7b-grpo-lora-1xh100"
    assert rank in bearing(SEVEN, 1, "H100", lora=8)
    assert rank not in bearing(SEVEN, 1, "H100", lora=1024)


def test_a_run_with_a_critic_counts_for_tasks_without_one():
    ppo = "qwen2-5-0-5b-ppo-8xl20-vllm"
    assert ppo in bearing("Qwen/Qwen2.5-0.5B", 8, "L20", prompt=256, response=256)


def test_rollout_on_gpus_of_its_own_and_weights_of_one_byte_count_for_nothing_else():
    apart = {"actor_rollout_ref.hybrid_engine": False}
    run = "qwen2-5-math-7b-dapo-fully-async-32xh20"
    assert run in bearing(SEVEN, 32, "H20", overrides=apart)
    assert run not in bearing(SEVEN, 32, "H20")
    fp8 = {"actor_rollout_ref.rollout.quantization": "fp8"}
    run = "qwen3-8b-base-dapo-fp8-rollout-8xh100"
    assert run in bearing("Qwen/Qwen3-8B", 8, "H100", overrides=fp8)
    assert run not in bearing("Qwen/Qwen3-8B", 8, "H100")


def test_a_run_on_unknown_gpus_is_named_last_and_proves_nothing():
    """verl's documents that name no GPU had at least 80 GB."""
    run = DATA.runs["deepseek-v3-grpo-128-gpus"]
    assert not run.gpus.type
    assert bearing("deepseek-ai/DeepSeek-V3", 128, "B300")[-1] == run.id
    assert run.id not in bearing("deepseek-ai/DeepSeek-V3", 128, "L40S")
    assert not is_proof(run, DATA)
    assert "qwen2-5-72b-grpo-lora-8-gpus" in bearing("Qwen/Qwen2.5-72B", 8, "A100", lora=32)


def test_a_contested_run_proves_nothing():
    result = answer(Question("Qwen/Qwen2.5-32B", 8, "H20"), DATA)
    contested = "qwen2-5-32b-grpo-8xh20"
    assert contested in [run.id for run in result.evidence]
    assert contested_by(DATA.runs[contested]) == "https://github.com/verl-project/verl/issues/3124"
    assert contested not in [run.id for run in result.proof]
    assert smallest_run(result.profile, DATA)[1].id != contested


def test_a_length_that_was_not_read_leaves_no_evidence():
    open_ = {"data.max_response_length": "${oc.env:LENGTH}"}
    assert bearing(SEVEN, 8, "H100", overrides=open_) == []


def test_a_mean_response_says_that_responses_were_longer():
    run = "deepseek-v3-grpo-96xh20"
    assert run in bearing("deepseek-ai/DeepSeek-V3", 96, "H20", response=1024)
    assert run not in bearing("deepseek-ai/DeepSeek-V3", 96, "H20", response=4096)


def test_every_run_with_known_memory_bears_on_its_own_question():
    """A run's profile is compared with itself."""
    capacities = [own for _, own in RECORDED if own.memory_gb]
    assert len(capacities) > 40
    assert all(own.shows_fit(own) for own in capacities)


# -- no recorded run that ran is contradicted


def question_of(run, own, gpus, gpu):
    """Return the question that the run answers."""
    overrides = {"actor_rollout_ref.hybrid_engine": False} if own.separate else {}
    if own.eight_bit:
        overrides["actor_rollout_ref.rollout.quantization"] = "fp8"
    rank = 32 if own.rank == math.inf else own.rank
    task = "PPO" if own.critic else "DAPO" if own.task == "DAPO" else "GRPO"
    return Question(run.model, gpus, gpu, task, rank, own.prompt, own.response, overrides)


@pytest.mark.parametrize("run_id", THAT_RAN)
def test_no_recorded_run_is_contradicted(run_id):
    """Not on its own GPUs, nor on more, nor on others with the same memory."""
    run, own = THAT_RAN[run_id]
    alike = [
        gpu.name
        for gpu in DATA.gpus
        if (gpu.memory_gb, gpu.vendor, gpu.bfloat16) == (own.memory_gb, *own.device)
    ]
    for gpus, gpu in {(own.gpus, own.gpu), (2 * own.gpus, own.gpu), (own.gpus, alike[-1])}:
        result = answer(question_of(run, own, gpus, gpu), DATA)
        assert result.verdict != "does-not-fit", (gpus, gpu)
        assert run_id in [run.id for run in result.evidence], (gpus, gpu)


@pytest.mark.parametrize("run_id", THAT_RAN)
def test_its_own_settings_are_not_contradicted_either(run_id):
    request = request_of_run(THAT_RAN[run_id][0], DATA)
    result = answer_settings(request, DATA)
    assert result.verdict != "does-not-fit"
    assert run_id in [run.id for run in result.evidence]


@pytest.mark.parametrize("run_id", [run_id for run_id, (run, _) in THAT_RAN.items() if run.settings])
def test_nor_is_the_run_where_it_is_shown(run_id):
    result = answer_run(DATA.runs[run_id], DATA)
    assert result.verdict != "does-not-fit"
    assert result.evidence[0].id == run_id


def test_a_run_says_nothing_about_settings_that_take_more_than_its_own():
    run = DATA.runs[H800]
    own = request_of_run(run, DATA)
    on_gpu = {f"actor_rollout_ref.actor.fsdp_config.{part}_offload": False for part in ("param", "optimizer")}
    budget = {"actor_rollout_ref.actor.use_dynamic_bsz": True, "data.max_response_length": 1024}
    more = Request(run.model, {**own.config, **on_gpu, **budget}, own.gpus, own.gpu, version=own.version)
    result = answer_settings(more, DATA)
    assert H800 in [run.id for run in result.evidence]
    assert result.best.estimate.low > result.best.estimate.capacity
    assert result.verdict == "does-not-fit"


def test_an_export_does_not_compare_all_runs_with_each_other(root, tmp_path):
    text, counts = (root / f"data/runs/{H800}.yaml").read_text("utf-8"), []
    for number in (6, 12, 24):
        (folder := tmp_path / f"{number}/runs").mkdir(parents=True)
        for index in range(number):
            (folder / f"r{index}.yaml").write_text(text.replace(f"id: {H800}", f"id: r{index}"), "utf-8")
        (own := Profile()).runcall(export_files, EstimatorContext([Directory(folder.parent, "data")]))
        counts.append(sum(each.callcount for each in own.getstats() if evidence.__file__ in str(each.code)))
    assert 0 < counts[2] - counts[1] < 2.6 * (counts[1] - counts[0])


# -- measured runs, and the smallest one


@pytest.mark.parametrize(
    ("model", "config", "version", "runs", "error"),
    [
        (SEVEN, GRPO, (0, 9, 0), 7, 0.078),
        (SEVEN, LORA, (0, 7, 0), 7, 0.05),
        (SEVEN, LORA, (0, 9, 0), 0, None),
        ("Qwen/Qwen3-30B-A3B", GRPO, (0, 9, 0), 0, None),
        ("Qwen/Qwen3-30B-A3B", MEGATRON, (0, 7, 0), 1, 0.068),
        ("Qwen/Qwen3-30B-A3B", MEGATRON, (0, 9, 0), 0, None),  # only fine-tuning was measured
    ],
)
def test_measured_runs_of_the_same_kind(model, config, version, runs, error):
    """By backend, time of verl, full fine-tuning or adapters, dense or experts."""
    result = answer_settings(Request(model, config, gpus=8, gpu="H200", version=version), DATA)
    mean = result.accuracy and result.accuracy.mean_error
    assert (result.accuracy.cases if result.accuracy else 0, mean) == (
        runs,
        error and pytest.approx(error, abs=5e-4),
    )


@pytest.mark.parametrize(
    ("model", "gpus", "gpu", "undercuts"),
    [
        ("Qwen/Qwen2.5-Coder-14B-Instruct", 2, "H200", "qwen2-5-coder-14b-grpo-4xh800"),
        ("Qwen/Qwen2.5-Coder-14B-Instruct", 4, "H800", None),  # as many
        ("meta-llama/Llama-3.1-8B-Instruct", 8, "H100", None),  # without a recorded run
    ],
)
def test_an_estimate_that_undercuts_every_recorded_run_says_so(model, gpus, gpu, undercuts):
    result = answer(Question(model, gpus, gpu), DATA)
    run = result.undercuts
    assert (result.verdict, run and run.id) == ("fits", undercuts)


def test_gpus_for_rollout_alone_count_as_memory():
    pool = {"rollout.nnodes": 1, "rollout.n_gpus_per_node": 8}  # the smallest recorded run has 16 GPUs, too
    result = answer(Question("Qwen/Qwen2.5-Math-7B", 8, "H20", "DAPO", overrides=pool), DATA)
    assert (result.verdict, result.all_gpus, result.undercuts) == ("fits", 16, None)
