"""``verl-resources plan``: an answer, the fewest GPUs, the models that fit, and questions without an answer."""

from __future__ import annotations

import json

import pytest

from sphinx_verl_resources.fit.answer import answer
from sphinx_verl_resources.fit.question import Question
from sphinx_verl_resources.fit.results import ANSWER_FIELDS as FIELDS
from sphinx_verl_resources.fit.words import lines
from sphinx_verl_resources.memory.registries import EstimatorContext

ACTOR = "actor_rollout_ref.actor"
CONTRACT = {
    "model", "gpus", "verdict", "ran", "reported", "claimed", "contested", "strategy", "peak_gib", "low_gib",
    "high_gib", "capacity_gib", "peak_phase", "host_ram_gib_per_node", "host_limit_gib", "largest_token_budget",
    "longest_response", "measured_runs_of_this_kind", "offloaded", "change", "command", "assumed", "speed",
    "reason", "other_release",
}  # fmt: skip
QWEN = {
    "model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24, "intermediate_size": 4864,
    "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
}  # fmt: skip
DATA = EstimatorContext()


def test_the_fields_of_an_answer(result):
    code, values, err = result("plan Qwen/Qwen2.5-7B --gpus 2xA100-80GB --prompt 1024 --response 1024")
    assert (code, err, set(values) >= CONTRACT) == (0, [], True)
    assert values["gpus"] == {"count": 2, "type": "A100-80GB"}
    assert (values["ran"], values["contested"]) == (["qwen2-7b-grpo-2xh800"], [])
    assert values["command"].startswith("python3 -m verl.trainer.main_ppo")
    assert values["assumed"] == ["task GRPO", "verl v0.9.0"]
    own = answer(Question("Qwen/Qwen2.5-7B", 2, "A100-80GB", prompt=1024, response=1024), DATA)
    assert values["strategy"] == own.best.name
    contested = result("plan Qwen/Qwen2.5-32B --gpus 8xH20")[1]
    assert [item["run"] for item in contested["contested"]] == ["qwen2-5-32b-grpo-8xh20"] == contested["ran"]
    assert contested["contested"][0]["url"].endswith("/3124")


def test_the_text(run):
    """The command says what the page says."""
    code, out, err = run("plan qwen2.5-7b --gpus 8xH100")
    assert (code, err) == (0, "")
    answer_lines = lines(answer(Question("Qwen/Qwen2.5-7B", 8, "H100"), DATA))
    for line in answer_lines:
        assert " ".join(f"{line.title}: {line.plain}".removeprefix(": ").split()) in " ".join(out.split())
    assert out.startswith("Fits: Qwen/Qwen2.5-7B, GRPO, on 8×H100.\n")
    assert {line.name for line in answer_lines} >= {"verdict", "ran", "offloaded", "host", "sure", "assumed"}
    verbose = run("plan qwen2.5-7b --gpus 8xH100 --verbose")[1]
    assert ("Evidence" in verbose, "Evidence" in out) == (True, False)


@pytest.mark.parametrize("columns", [60, 300])
@pytest.mark.parametrize("words", ["qwen2.5-7b --gpus 8xH100", "qwen2.5-72b --gpus 2xH100", "qwen2.5-32b"])
def test_no_line_is_too_long_except_settings_to_copy(run, monkeypatch, columns, words):
    monkeypatch.setenv("COLUMNS", str(columns))
    before, _, command = run(f"plan {words}")[1].partition("Command:\n")
    long = [line for line in before.splitlines() if len(line) > min(columns, 100)]
    assert [line for line in long if len(line.split()) > 1 and "=" not in line.split()[0]] == []
    assert bool(command) == ("8xH100" in words), "no command for what does not fit"


@pytest.mark.parametrize(
    ("words", "count", "settings"),
    [
        ("--gpus 2x8xH200", 16, "trainer.nnodes=2 trainer.n_gpus_per_node=8"),
        ("--gpus 4x2xH200", 8, "trainer.nnodes=4 trainer.n_gpus_per_node=2"),
        ("--gpu 8*H200", 8, "trainer.nnodes=1 trainer.n_gpus_per_node=8"),
        ("--gpus 2x8 --gpu H200", 16, "trainer.nnodes=2 trainer.n_gpus_per_node=8"),
        ("--gpu 4090 --gpus 2 --lora 8", 2, "trainer.nnodes=1 trainer.n_gpus_per_node=2"),
        ("--gpus 1x4090 --task grpo-lora", 1, "actor_rollout_ref.actor.use_kl_loss=True"),
        (f"--gpus 8xH100 --task ppo {ACTOR}.strategy=fsdp2", 8, f"{ACTOR}.strategy=fsdp2 algorithm.adv_estimator=gae"),
    ],
)  # fmt: skip
def test_gpus_nodes_and_settings_are_as_given(result, words, count, settings):
    code, values, _ = result(f"plan qwen2.5-7b {words} data.train_batch_size=64")
    assert (code, values["gpus"]["count"]) == (0, count)
    assert {*settings.split(), "data.train_batch_size=64"} <= set(values["command"].split())


@pytest.mark.parametrize(
    ("words", "first", "code", "strict"),
    [
        ("qwen2.5-7b --gpus 8xH100", "Fits: Qwen/Qwen2.5-7B, GRPO, on 8×H100.", 0, 0),
        ("Qwen/Qwen2.5-32B --gpus 4xH100 --host-gib 200", "Borderline: ", 0, 1),
        (f"Qwen/Qwen2.5-7B --gpus 8xH100 {ACTOR}.strategy=veomni", "Unknown: ", 0, 1),
        ("qwen2.5-7b --gpus 1xT4", "Does not fit: Qwen/Qwen2.5-7B, GRPO, on 1×T4.", 1, 1),
        ("--gpus 1xT4 --response 100000", "Models that fit on 1×T4, GRPO: none.", 1, 1),
    ],
)
def test_verdicts_and_exit_codes(run, words, first, code, strict):
    status, out, _ = run(f"plan {words}")
    assert out.startswith(first)
    assert (status, run(f"plan {words} --strict")[0]) == (code, strict)


def test_an_undecided_answer_has_no_figures(result):
    values = result(f"plan Qwen/Qwen2.5-7B --gpus 8xH100 {ACTOR}.strategy=veomni")[1]
    figures = ("peak_gib", "low_gib", "high_gib", "peak_phase", "host_ram_gib_per_node", "command")
    limits = ("largest_token_budget", "longest_response")
    assert [name for name in (*figures, *limits) if values[name] is not None] == []
    assert (bool(values["undecided"]), values["capacity_gib"] > 79) == (True, True)


def test_the_fewest_of_each_memory_size(result, run):
    code, values, err = result("plan qwen2.5-32b --response 1024")
    assert (code, err, values["model"]) == (0, [], "Qwen/Qwen2.5-32B")
    assert values["assumed"] == ["task GRPO", "prompts up to 512 tokens", "verl v0.9.0"]
    t4, *_others = values["fewest"]
    assert (t4["memory_gb"], t4["gpus"]["count"], t4["why_none"]) == (16, None, "no bfloat16")
    of_80 = next(item for item in values["fewest"] if item["memory_gb"] == 80)
    assert of_80["gpus"]["count"] < of_80["without_offloading"]
    out = run("plan qwen2.5-32b --response 1024")[1]
    assert out.startswith("Fewest GPUs for Qwen/Qwen2.5-32B, GRPO, by the memory of a GPU:\n")
    for words in ("none: no", "first GPU", "* none had", "** No uncontested run of this model"):
        assert words in out


def test_a_gpu_without_a_number(result):
    """The number is verl's default, as in ``estimate``; a change names more GPUs."""
    code, values, _ = result("plan Qwen/Qwen2.5-72B --gpu H100")
    assert (code, values["gpus"]["count"], "8 GPUs" in values["assumed"]) == (0, 8, True)
    assert values["change"][0]["overrides"] == {"trainer.nnodes": 2, "trainer.n_gpus_per_node": 8}


def test_what_fits_on_gpus(result):
    code, values, err = result("plan --gpus 8xRTX4090 --lora 32")
    assert (code, err, values["gpus"]) == (0, [], {"count": 8, "type": "RTX4090"})
    models = [item["model"] for item in values["fits"]]
    sizes = [DATA.shape(model).parameters for model in models]
    assert sizes == sorted(sizes, reverse=True)
    assert all(list(item) == list(FIELDS) for item in values["fits"])
    assert {"Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-72B"} & {*models} == {"Qwen/Qwen2.5-7B"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--gpus 8xH100 worker.a=1", "settings that determine memory cannot be read: worker: settings of EasyR1"),
        ("qwen2.5-7b worker.a=1", "settings that determine memory cannot be read: worker: settings of EasyR1"),
        ("", "no type of GPU given; write --gpus 8xH100, or give a model alone for the fewest GPUs"),
        ("qwen2.5-7b --gpus 8", "no type of GPU given; write --gpus 8xH100, or give a model alone"),
        ("Qwen/Qwen2.5-9B --gpus 8xH100", "model: unknown model 'Qwen/Qwen2.5-9B'; give the path of its config.json"),
        ("qwn2.5-7b --gpus 8xH100", "model: unknown model 'qwn2.5-7b'; did you mean 'Qwen/Qwen2.5-7B'? If not, give"),
        ("qwen2.5-7b --gpus 8xH10", "unknown GPU 'H10'; did you mean 'H100'?"),
        ("qwen2.5-7b --gpus 8xH100 --task GRPO-Lara", "unknown task 'GRPO-Lara'; did you mean 'GRPO-LoRA'? [verl.unknown_value]"),
        ("qwen2.5-7b --gpus 8xH100 --gpu A100", "--gpus is H100, but --gpu is A100; give one of them"),
        ("qwen2.5-7b --gpus 8xH100 --gpu 4xH100", "--gpus is 8, but --gpu is 4; give one of them"),
        ("qwen2.5-7b nonsense --gpus 8xH100", "two models given, 'qwen2.5-7b' and 'nonsense'; give one model; settings are key=value"),
        ("actor_rollout_ref.model.path=/m/Qwen2.5-7 --gpus 8xH100", "did you mean 'Qwen/Qwen2.5-7B'? If not, give it before the settings, "),
    ],
)  # fmt: skip
def test_questions_without_an_answer(result, words, message):
    code, values, err = result(f"plan {words}")
    assert (code, list(values)) == (2, [*FIELDS, "error"])
    assert err[0].startswith("ERROR: ")
    assert message in "\n".join(err)
    assert (values["verdict"], bool(values["error"])) == (None, True)


@pytest.mark.parametrize("words", ["own", "own/config.json", "own/small --config own/config.json"])
def test_a_model_by_its_config_json(result, tmp_path, words):
    (tmp_path / "own").mkdir()
    (tmp_path / "own/config.json").write_text(json.dumps(QWEN), "utf-8")
    code, values, _ = result(f"plan {words} --gpus 1xH100")
    recorded = result("plan Qwen/Qwen2.5-0.5B --gpus 1xH100")[1]
    # verl loads a directory, from any working directory.
    name = str(tmp_path / "own") if words == "own/config.json" else words.split()[0]
    assert (code, values["model"], values["peak_gib"]) == (0, name, recorded["peak_gib"])
    assert f"actor_rollout_ref.model.path={name} " in values["command"]
