"""``verl-resources estimate`` with settings: forms of the question, scripts, and invalid questions."""

from __future__ import annotations

import json

import pytest
import yaml

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
CONFIG = {
    "algorithm.adv_estimator": "grpo",
    f"{ACTOR}.use_dynamic_bsz": True,
    f"{ACTOR}.ppo_max_token_len_per_gpu": 4096,
}

OWN = ("Qwen/Qwen2.5-7B", "--gpus", "8*H100", f"{ACTOR}.use_dynamic_bsz=True")


def test_files_that_are_not_there(estimate):
    assert estimate("none.yaml") == (2, "", "verl-resources: none.yaml: no such file or directory\n")
    assert estimate("a=b")[::2] == (
        2,
        "ERROR: no model given; give it before the settings, such as qwen2.5-7b or the path of its "
        "config.json [verl.missing_key]\n",
    )
    assert estimate(".")[0] == 2
    assert estimate("a\0b")[0] == 2
    assert estimate()[2] == (
        "verl-resources: give a model, a launch script with --script, a file of cases or a run file\n"
    )


@pytest.mark.parametrize("words", [["qwen2.5-7b"], ["data.train_batch_size=8"], ["--gpu", "H100"]])
def test_files_and_questions_do_not_mix(estimate, words):
    code, out, err = estimate("cases.yaml", *words)
    assert (code, out) == (2, "")
    assert "cases.yaml contains its own models, GPUs and settings; leave out " in err


def test_the_first_lines(estimate):
    lines = estimate("qwen2.5-7b", "--gpu", "H100")[1].splitlines()
    assert lines[0] == "Fits: Qwen/Qwen2.5-7B, PPO, on 8×H100."
    assumed = " ".join(lines[1:6])
    assert "task PPO with a critic" in assumed
    assert "8 GPUs" in assumed


def test_the_task_and_the_lengths_are_settings_of_verl(answers):
    words = ("--task", "GRPO-LoRA", "--lora", "8", "--response", "4096")
    keys = (
        "algorithm.adv_estimator=grpo", f"{ACTOR}.use_kl_loss=True", "actor_rollout_ref.model.lora_rank=8",
        "actor_rollout_ref.model.target_modules=all-linear", f"{ROLLOUT}.load_format=safetensors",
        f"{ROLLOUT}.layered_summon=True", f"{ROLLOUT}.n=5", "data.max_response_length=4096",
    )  # fmt: skip
    (named,), (written,) = answers(*OWN, *words)[1], answers(*OWN, *keys)[1]
    assert named["phases"] == written["phases"]
    assert named["assumed"] == ["prompts up to 512 tokens", "verl v0.9.0"]


def test_what_is_written_out_stands_above_the_options_and_these_above_the_script(answers, tmp_path):
    (tmp_path / "run.sh").write_text(SCRIPT, "utf-8")
    words = (
        "--script",
        "run.sh",
        "--gpus",
        "8xH100",
        "data.train_batch_size=64",
        f"{ROLLOUT}.gpu_memory_utilization=0.25",
    )
    peaks = [
        answers(*words, *more)[1][0]["peak_gib"]
        for more in ([], ["--response", "16384"], ["--response", "16384", "data.max_response_length=512"])
    ]
    assert peaks[0] == peaks[2] < peaks[1]


def test_a_run_of_ones_own(answers):
    code, (found,), err = answers(*OWN, "algorithm.adv_estimator=grpo", "data.max_response_length=2048")
    assert (code, err) == (0, [])
    assert found["id"] == "Qwen/Qwen2.5-7B"
    assert found["capacity_gib"] == pytest.approx(79.15, abs=0.01)
    assert "critic-forward" not in {phase["name"] for phase in found["phases"]}
    longer = answers(*OWN, "algorithm.adv_estimator=grpo", "data.max_response_length=30000")[1][0]
    assert longer["peak_gib"] > found["peak_gib"]


def test_of_a_version_of_verl(answers):
    words = (*OWN, "algorithm.adv_estimator=grpo")
    newest, old = (answers(*words, "--verl-version", version)[1][0] for version in ("0.9", "v0.4.0"))
    assert newest == answers(*words)[1][0]
    # vLLM once ran in the training process, so the counter includes its pool.
    assert old["logged_max_allocated_gib"] > newest["logged_max_allocated_gib"]


SCRIPT = """\
#!/bin/bash
MODEL=Qwen/Qwen2.5-7B
python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer.yaml \\
    algorithm.adv_estimator=grpo \\
    actor_rollout_ref.model.path=$MODEL \\
    data.train_batch_size=$BATCH \\
    actor_rollout_ref.actor.use_dynamic_bsz=True \\
    actor_rollout_ref.rollout.gpu_memory_utilization=7 \\
    trainer.nnodes=2 trainer.n_gpus_per_node=4
"""


def test_of_a_launch_script(answers, tmp_path):
    (tmp_path / "run.sh").write_text(SCRIPT, "utf-8")
    code, (found,), err = answers("--script", "run.sh", "--gpus", "H100")
    assert code == 2
    assert found["id"] == "Qwen/Qwen2.5-7B"
    assert [line.split(": ")[0:2] for line in err] == [["run.sh:8:5", "ERROR"], ["run.sh:6:5", "WARNING"]]
    assert "expected a number above 0 and up to 1, got 7" in err[0]
    assert "the value of data.train_batch_size is unknown" in err[1]
    mended = ("data.train_batch_size=64", f"{ROLLOUT}.gpu_memory_utilization=0.25")
    code, (found,), err = answers("--script", "run.sh", "--gpus", "H100", *mended)
    assert err == []
    assert code == 0
    assert found == answers(
        "--gpus", "8*H100", "Qwen/Qwen2.5-7B", *mended, f"{ACTOR}.strategy=megatron",
        "algorithm.adv_estimator=grpo", f"{ACTOR}.use_dynamic_bsz=True", "trainer.nnodes=2", "trainer.n_gpus_per_node=4",
    )[1][0]  # fmt: skip


@pytest.mark.parametrize("path", ["$HOME/models/Qwen2.5-7B/", "${A}/Qwen/Qwen2.5-7B"])
def test_a_model_by_the_end_of_its_path(answers, tmp_path, path):
    script = SCRIPT.replace("=7 ", "=0.3 ").replace("$BATCH", "64")
    (tmp_path / "run.sh").write_text(script, "utf-8")
    recorded = answers("--script", "run.sh", "--gpus", "H100")
    (tmp_path / "run.sh").write_text(script.replace("Qwen/Qwen2.5-7B", path), "utf-8")
    assert answers("--script", "run.sh", "--gpus", "H100") == recorded
    asked = {"model": "Qwen/Qwen2.5-7B", "task": "GRPO", "gpus": {"count": 8, "type": "H100"}}
    assert (recorded[0], {name: recorded[1][0][name] for name in asked}) == (0, asked)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/models/Qwen2.5-7", "no recorded model matches the end of the path '/models/Qwen2.5-7'; did you mean Qwen/Qwen2.5-7B? Give it before the settings, "),
        ("$WHERE", "the model '$WHERE' contains a variable with an unknown value; set it with --env WHERE=…, or give the model before "),
        ("someone/own-13B", "unknown model 'someone/own-13B'; give it before the settings, such as "),
        ("/m/GPT-OSS-20B-bf16", "the model '/m/GPT-OSS-20B-bf16' may be any of lmsys/gpt-oss-20b-bf16, unsloth/gpt-oss-20b-BF16; give its full name before "),
    ],
)  # fmt: skip
def test_a_model_path_that_is_none_of_the_known_names(answers, tmp_path, path, message):
    (tmp_path / "run.sh").write_text(SCRIPT.replace("Qwen/Qwen2.5-7B", path), "utf-8")
    code, (found,), err = answers("--script", "run.sh", "--gpus", "H100")
    assert (code, found["id"]) == (2, "run.sh")
    line = SCRIPT[: SCRIPT.index("model.path")].count("\n") + 1
    (error,) = (text for text in err if "ERROR" in text)
    assert error.startswith(f"run.sh:{line}:")
    assert f": ERROR: {message}" in error
    assert message in found["error"]


def test_settings_in_yaml(answers, tmp_path):
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(CONFIG), "utf-8")
    by_file = answers("Qwen/Qwen2.5-7B", "--gpus", "8*H100", "--settings", "run.yaml")
    assert by_file == answers("Qwen/Qwen2.5-7B", "--gpus", "8*H100", *(f"{k}={v}" for k, v in CONFIG.items()))
    assert by_file[0] == 0


ARCHITECTURE = {
    "model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "intermediate_size": 18944,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}  # fmt: skip


def test_a_model_by_its_config_json(answers, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(ARCHITECTURE), "utf-8")
    recorded = answers(*OWN)[1][0]
    for name in ("own/model", "Qwen/Qwen2.5-7B"):
        code, (found,), err = answers("--config", "config.json", *OWN[1:], name)
        assert code == 0
        assert found == {**recorded, "id": name, "model": name}
        assert not [line for line in err if "ERROR" in line]
    assert answers("--config", "config.json", *OWN[1:])[1][0]["peak_gib"] == recorded["peak_gib"]
    (tmp_path / "config.json").write_text(json.dumps({**ARCHITECTURE, "num_hidden_layers": 14}), "utf-8")
    assert answers("--config", "config.json", *OWN)[1][0]["peak_gib"] < recorded["peak_gib"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"model_type": "qwen2", "hidden_size": 0}', "config.json:1:40: ERROR: hidden_size: must be at least 1, got '0'"),
        ('{"model_type": "qwen2"', "config.json:1:1: ERROR: the bracket that opens here is not closed"),
    ],
)  # fmt: skip
def test_a_config_json_with_errors(answers, tmp_path, text, message):
    (tmp_path / "config.json").write_text(text, "utf-8")
    code, (found,), err = answers("--config", "config.json", *OWN)
    assert code == 2
    assert err[0].startswith(message)
    assert found["error"]


@pytest.mark.parametrize("option", ["--script", "--settings"])
@pytest.mark.parametrize("text", ["", "# nothing\n", "model: [\n"])
def test_a_text_without_settings_leaves_no_estimate(answers, tmp_path, option, text):
    (tmp_path / "given").write_text(text, "utf-8")
    code, (found,), err = answers(*OWN, option, "given")
    assert code == 2
    assert err[-1].startswith("given:")
    assert found["error"]


_NEITHER = "expected a number and a GPU, as in 8*H100, got "
_NO_NUMBER = "must be a whole number from 1 to 100,000, got "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, f"{_NEITHER}{text.strip()!r}") for text in ("", "*H100", "8*")),
        ("0*H100", f"{_NO_NUMBER}'0'"),
    ],
)
def test_gpus_that_are_none(estimate, capsys, text, message):
    with pytest.raises(SystemExit) as exit_:
        estimate("Qwen/Qwen2.5-7B", f"--gpus={text}")
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_numbers_of_gpus_are_read_as_on_pages(answers):
    texts = ("1,000*H100", "1_000 x H100", "01000×H100")
    assert len({str(answers(OWN[0], "--gpus", text, *OWN[3:])) for text in texts}) == 1


def test_a_version_that_is_none(estimate, capsys):
    with pytest.raises(SystemExit):
        estimate(*OWN, "--verl-version", "newest")
    assert "expected a version such as 0.7.1, got 'newest'" in capsys.readouterr().err


def test_files_that_hold_no_text(estimate, tmp_path):
    (tmp_path / "run.sh").write_bytes(b"\xff\xfe")
    (tmp_path / "long.yaml").write_text("# " + "x" * (1 << 20), "utf-8")
    assert estimate(*OWN, "--script", "run.sh")[::2] == (
        2,
        "verl-resources: run.sh: not UTF-8 text, at byte 0\n",
    )
    assert estimate(*OWN, "--settings", "long.yaml")[::2] == (
        2,
        "verl-resources: long.yaml: larger than 1 MiB; not read\n",
    )
    assert estimate(*OWN, "--config", "none.json")[::2] == (
        2,
        "verl-resources: none.json: no such file or directory\n",
    )


def test_registries_of_ones_own(answers, data):
    data.write(
        "gpus.yaml", "gpus:\n- {name: Z9, vendor: nvidia, memory_gb: 100, memory_mib: 95000, kind: nominal}\n"
    )
    code, (found,), err = answers("--data", str(data.path), "Qwen/Qwen2.5-7B", "--gpus", "8*Z9")
    assert found["capacity_gib"] < 95000 / 1024
    assert code == 0
    assert not [line for line in err if "ERROR" in line]
    # ./data is the default.
    assert answers("Qwen/Qwen2.5-7B", "--gpus", "8*Z9")[1] == [found]
    data.write("gpus.yaml", "gpus:\n- {name: Z9, vendor: nobody}\n")
    code, _, err = answers("Qwen/Qwen2.5-7B", "--gpus", "8*H100")
    assert code == 1
    assert any(line.startswith("data/gpus.yaml:2:") for line in err)


def test_the_task_that_a_script_leaves_to_verl_is_assumed(answers, tmp_path):
    text = SCRIPT.replace("=7 ", "=0.3 ").replace("$BATCH", "64").replace("algorithm.adv_estimator=grpo", "")
    (tmp_path / "run.sh").write_text(text, "utf-8")
    _, (found,), _ = answers("--script", "run.sh", "--gpus", "H100")
    assert (found["task"], found["assumed"][0]) == (
        "PPO", "task PPO with a critic (verl's default of algorithm.adv_estimator)",
    )  # fmt: skip


def test_what_is_not_read_is_not_assumed(answers, tmp_path):
    (tmp_path / "run.sh").write_text(SCRIPT.replace("=7 ", "=0.3 data.max_response_length=$LONG "), "utf-8")
    code, (found,), _ = answers("--script", "run.sh", "--gpus", "H100", "data.train_batch_size=64")
    assert (code, found["verdict"], found["peak_gib"]) == (0, "unknown", None)
    assert found["undecided"] == ["data.max_response_length: its value is unknown"]
    assert found["assumed"] == ["prompts up to 512 tokens", "verl v0.9.0"]
    assert answers("--script", "run.sh", "--gpus", "H100", "data.train_batch_size=64", "--strict")[0] == 1
    words = ("--script", "run.sh", "--gpus", "H100", "data.train_batch_size=64", "--response", "512")
    code, (answered,), err = answers(*words)
    assert (code, answered["undecided"], err) == (0, [], [])


def test_the_number_of_gpus_that_is_assumed(answers):
    for words, text in (((), "8 GPUs"), (("trainer.nnodes=2",), "16 GPUs")):
        (found,) = answers("qwen2.5-7b", "--gpu", "H100", *words)[1]
        assert text in found["assumed"]
    (found,) = answers("qwen2.5-7b", "--gpu", "H100", "trainer.n_gpus_per_node=4")[1]
    assert "GPUs" not in str(found["assumed"])
