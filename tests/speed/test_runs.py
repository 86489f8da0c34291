"""Speeds of recorded runs: the nearest to a question, what differs, the fastest, and how old they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sphinx_verl_resources.fit.answer import answer, answer_run
from sphinx_verl_resources.fit.question import Question
from sphinx_verl_resources.fit.results import answer_result
from sphinx_verl_resources.fit.words import lines
from sphinx_verl_resources.selection import select_runs
from sphinx_verl_resources.speed.runs import checked_text, fastest_runs, is_old

LENGTHS = {"data.max_prompt_length": 512, "data.max_response_length": 1024}
BATCH = {"data.train_batch_size": 1024, "actor_rollout_ref.rollout.n": 5}
RUNS = {
    "dense": {},
    "wide": {"gpus": {"count": 64, "type": "H100"}},
    "long": {"settings": {**LENGTHS, **BATCH, "data.max_response_length": 16384}},
    "adapters": {"settings": {**LENGTHS, **BATCH, "actor_rollout_ref.model.lora_rank": 32}},
    "apart": {"trainer": "separate_async", "gpus": {"count": 16, "type": "H100"}},
    "one-step": {"model": "Qwen/Qwen2.5-14B", "size": "14B", "measured": {"step_seconds": 90, "steps": 1}},
    "dapo": {"model": "Qwen/Qwen2.5-32B", "size": "32B", "task": "DAPO", "gpus": {"count": 64, "type": "H20"},
             "measured": {"tokens_per_second_per_gpu": 148.315, "step_seconds": 1434.384, "response_tokens": 1489.7}},
    "experts": {"model": "Qwen/Qwen3-30B-A3B", "size": "32B"},
    "seconds": {"model": "Qwen/Qwen2.5-VL-7B-Instruct", "gpus": {"count": 8, "type": "H20"},
                "measured": {"step_seconds": 309}},
    "pipeline": {"train": "megatron"},
    "critic": {"task": "PPO", "settings": {**LENGTHS, **BATCH, "data.max_response_length": 4096}},
    "one-step-of-8b": {"model": "Qwen/Qwen3-8B", "measured": {"tokens_per_second_per_gpu": 5000, "steps": 1}},
    "vague": {"gpus": {"count": 8, "type": "B200"}, "settings": {}},
    "memory-only": {"model": "Qwen/Qwen2.5-0.5B", "size": "0.5B", "measured": {"gib": 9.5}},
}  # fmt: skip


@pytest.fixture
def records(data):
    """Runs of which all but one have a time or a speed."""
    for name, changes in RUNS.items():
        usual = {"model": "Qwen/Qwen2.5-7B", "settings": {**LENGTHS, **BATCH}, "kind": "measured"}
        usual |= {"gpus": {"count": 8, "type": "H100"}, "measured": {"tokens_per_second_per_gpu": 1000}}
        data.run(name, **{**usual, **changes})
    return data.load()


ROLLOUT = {"actor_rollout_ref.hybrid_engine": False, "rollout.nnodes": 1, "rollout.n_gpus_per_node": 8}


@pytest.mark.parametrize(
    ("model", "gpus", "gpu", "others", "run", "differs"),
    [
        ("Qwen/Qwen2.5-7B", 8, "H100", {}, "dense", []),
        (
            "Qwen/Qwen2.5-7B",
            8,
            "H100",
            {"overrides": {"actor_rollout_ref.actor.strategy": "megatron"}},
            "pipeline",
            [],
        ),
        ("Qwen/Qwen2.5-7B", 8, "B200", {}, "vague", []),
        ("Qwen/Qwen2.5-7B-Instruct", 16, "H100", {}, "dense", ["model", "number of GPUs"]),
        ("Qwen/Qwen2.5-7B", 32, "H100", {}, "wide", ["number of GPUs"]),
        ("Qwen/Qwen2.5-7B", 8, "H100", {"response": 8192}, "long", ["longest response"]),
        ("Qwen/Qwen2.5-7B", 8, "H100", {"lora": 16}, "adapters", ["LoRA rank"]),
        ("Qwen/Qwen2.5-7B", 8, "H100", {"task": "PPO"}, "critic", ["longest response", "sequences a step"]),
        ("Qwen/Qwen2.5-7B", 8, "H100", {"lora": 32, "response": 16384}, "adapters", ["longest response"]),
        ("Qwen/Qwen2.5-7B", 8, "H100", {"task": "DAPO"}, "dense", ["task", "sequences a step"]),
        ("Qwen/Qwen2.5-7B", 8, "H100", {"overrides": ROLLOUT}, "apart", []),
        ("Qwen/Qwen3-8B", 8, "H100", {}, "dense", ["model"]),
        ("Qwen/Qwen2.5-14B", 8, "H100", {}, "one-step", []),
        ("Qwen/Qwen3-32B", 64, "H20", {}, "dapo", ["model", "task"]),
        ("Qwen/Qwen3-30B-A3B", 32, "H100", {}, "experts", ["number of GPUs"]),
        # Another GPU; with experts or without; another size; no time.
        ("Qwen/Qwen2.5-7B", 8, "H200", {}, None, []),
        ("Qwen/Qwen2.5-32B", 64, "H100", {}, None, []),
        ("Qwen/Qwen2.5-72B", 64, "H20", {}, None, []),
        ("Qwen/Qwen2.5-0.5B", 8, "H100", {}, None, []),
    ],
)
def test_the_nearest_run_and_what_differs(records, model, gpus, gpu, others, run, differs):
    own = answer(Question(model, gpus, gpu, **{"response": 1024, **others}), records)
    speed = answer_result(own)["speed"]
    if run is None:
        assert speed is None
    else:
        figures = records.runs[run].measured.model_dump()
        result = {name for name in speed["differs"] if name != "backend"}  # the layout is the search's
        assert (speed["run"], result) == (run, set(differs))
        for name in ("tokens_per_second_per_gpu", "step_seconds", "steps", "response_tokens"):
            assert speed[name] == figures[name]
    sentence = {line.name: line.plain for line in lines(own)}.get("speed")
    says_none = sentence == "No run of this kind has a recorded speed."
    is_said = own.verdict != "does-not-fit"
    assert (sentence is not None, says_none) == (is_said, is_said and run is None)


def test_a_recorded_run_has_no_nearest_speed(records):
    assert "speed" not in {line.name for line in lines(answer_run(records.runs["dense"], records))}


@pytest.mark.parametrize(
    ("model", "gpu", "sentence"),
    [
        (
            "Qwen/Qwen2.5-32B", "H20",
            "The nearest run, Qwen2.5-32B, DAPO on 64×H20 (fsdp, responses of 1,490 tokens on average), "
            "made 148 tokens/s per GPU, took 1,434 s and 26 GPU-hours a step. It differs in: task, ",
        ),
        (
            "Qwen/Qwen2.5-14B", "H100",
            "The nearest run, Qwen2.5-14B, GRPO on 8×H100 (fsdp, one step only, its tokens not counted), "
            "took 90 s and 0.2 GPU-hours a step. It differs in: number of GPUs, ",
        ),
    ],
)  # fmt: skip
def test_the_sentence(records, model, gpu, sentence):
    own = answer(Question(model, 64, gpu, response=512), records)
    (line,) = [line for line in lines(own) if line.name == "speed"]
    assert f"{line.title}: {line.plain}".startswith(f"Speed: {sentence}")


def test_a_question_that_leaves_the_backend_open_gets_the_faster_run(records, data):
    text = (data.path / "runs/pipeline.yaml").read_text("utf-8").replace("1000", "1200")
    data.write("runs/pipeline.yaml", text)
    more, request = data.load(), Question("Qwen/Qwen2.5-7B", 8, "H100", response=1024)
    speed = answer(request, more).speed()
    assert (speed.timed.run.id, speed.differs) == ("pipeline", ("backend",))
    strategy = {"actor_rollout_ref.actor.strategy": "fsdp"}
    assert answer(replace(request, overrides=strategy), more).speed().timed.run.id == "dense"


def test_what_a_source_does_not_state(records):
    speed = answer_result(answer(Question("Qwen/Qwen2.5-7B", 8, "B200"), records))["speed"]
    assert speed["not_stated"] == ["longest prompt", "longest response", "sequences a step"]


def test_a_group_of_gpus_has_the_speed_of_any_of_them(records, data):
    request, group = Question("Qwen/Qwen2.5-7B", 8, "H800", response=1024), [records.gpus.get("H100")]
    assert answer(request, records).speed() is None
    nearest = answer(request, records).speed(group)
    assert (nearest.timed.run.id, "GPU" in nearest.differs) == ("dense", True)
    speed = {"measured": {"tokens_per_second_per_gpu": 9}, "model": "Qwen/Qwen2.5-7B"}
    data.run("own", gpus={"count": 64, "type": "H800"}, settings={**LENGTHS, **BATCH}, **speed)
    assert answer(request, data.load()).speed(group).timed.run.id == "own"


def test_the_fastest_runs(records, data):
    data.run("slower", model="Qwen/Qwen2.5-7B", measured={"tokens_per_second_per_gpu": 999.0})
    result = [run.id for run in fastest_runs(data.load())]
    assert result == ["vague", "adapters", "apart", "critic", "dense", "experts", "dapo"]


def test_what_is_recommended_stands_after_min_and_is_not_folded(data):
    data.run("ran-min", tag="MIN")
    data.run("ran", tag=None, kind="measured", evidence=[{"kind": "log", "url": "https://example.org/log"}])
    data.run("fast", tag="RECOMMENDED", kind="stated", recommended_over=["ran"])
    data.run("said-min", tag="MIN", kind="stated")
    runs = select_runs(data.load(), (), {}, ())
    assert [run.id for run in runs] == ["ran-min", "fast", "ran", "said-min"]
    assert [run.id for run in runs if run.is_folded] == ["said-min"]


@pytest.mark.parametrize(
    ("changes", "text", "old"),
    [
        ({"added": "2025-06-12"}, "2025-06-12, when verl v0.4.0 was the newest; 6 releases have followed", True),
        ({"versions": {"verl": "0.6.1"}, "added": "2025-12-01"}, "2025-12-01, verl v0.6.1; 4 releases have followed", False),
        ({"dates": ["2026-06", "2026-06-30", "2025-01-01"]}, "2026-06, when verl v0.8.0 was the newest; one release has followed", False),
        ({"dates": ["2026-08-22"], "versions": {"verl": "0.9.0"}}, "2026-08-22, verl v0.9.0", False),
        ({"kind": "stated", "added": "2026-06-12"}, "", False),
    ],
)  # fmt: skip
def test_when_a_run_was_last_checked(data, changes, text, old):
    dates = changes.pop("dates", [])
    evidence = [{"kind": "log", "url": "https://example.org", "date": date} for date in dates]
    data.run("a", **{"added": ..., **changes, "evidence": evidence})
    run = data.load().runs["a"]
    assert (checked_text(run), is_old(run)) == (text, old)
