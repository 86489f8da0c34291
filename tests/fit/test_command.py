"""The command of an answer: complete, in order, and valid for Hydra."""

from __future__ import annotations

import shlex

import pytest

from sphinx_verl_resources.fit.answer import answer, answer_settings
from sphinx_verl_resources.fit.command import command_of, launcher
from sphinx_verl_resources.fit.question import Question
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import Request

MEGATRON = {"actor_rollout_ref.actor.strategy": "megatron"}
CPU = "actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload"


@pytest.fixture(scope="module")
def data():
    return EstimatorContext()


@pytest.fixture
def command(data):
    def make(**fields):
        own = Question(**{"model": "Qwen/Qwen2.5-7B", "gpus": 8, "gpu": "H100", **fields})
        return command_of(answer(own, data).best, data)

    return make


def test_it_is_complete(command):
    words = shlex.split(command(response=2048).replace("\\\n", " "))
    assert words[:3] == ["python3", "-m", "verl.trainer.main_ppo"]
    settings = dict(word.split("=", 1) for word in words[3:])
    assert settings["actor_rollout_ref.model.path"] == "Qwen/Qwen2.5-7B"
    assert settings["data.train_files"] == "$HOME/data/gsm8k/train.parquet"
    assert settings["data.max_response_length"] == "2048"
    assert (settings["trainer.nnodes"], settings["trainer.n_gpus_per_node"]) == ("1", "8")
    assert settings["actor_rollout_ref.rollout.name"] == "vllm"


@pytest.mark.parametrize(
    ("question", "files", "comments"),
    [
        ({"task": "PPO"}, "$HOME/data/gsm8k/train.parquet", 0),
        ({"task": "DAPO"}, "TODO", 1),
        ({"model": "Qwen/Qwen2.5-VL-7B-Instruct"}, "TODO", 1),
        ({"model": "deepseek-ai/DeepSeek-V3", "gpus": 512, "task": "DAPO"}, "TODO", 2),
        ({"task": "DAPO", "overrides": {"data.train_files": "/d/a", "data.val_files": "/d/b"}}, "/d/a", 0),
    ],
)
def test_data_files_are_those_of_the_script_or_left_to_fill_in(command, question, files, comments):
    """GSM8K has no images: examples/grpo_trainer/run_qwen2_5_vl_7b_fsdp.sh at 1dda039b9 has other files."""
    *start, settings = command(**question).split("python3 ")
    assert f"data.train_files={files} " in settings
    assert ("".join(start).count("\n"), "".join(start).count("# ")) == (comments, comments)
    assert ("FP8" in "".join(start)) == (comments == 2)


@pytest.mark.parametrize(
    ("settings", "megatron", "version", "start"),
    [
        ({"rollout.nnodes": 1}, False, (0, 9, 0), "verl.experimental.one_step_off_policy.main_ppo"),
        ({"rollout.nnodes": 1}, False, (0, 7, 0), "recipe.one_step_off_policy.main_ppo"),
        (
            {"rollout.nnodes": 1, "async_training.staleness_threshold": 0.1},
            True,
            (0, 9, 0),
            "verl.experimental.fully_async_policy.fully_async_main --config-path=config "
            "--config-name=fully_async_ppo_megatron_trainer.yaml",
        ),
    ],
)
def test_trainers_with_engines_on_gpus_of_their_own_have_their_program(settings, megatron, version, start):
    assert launcher(version, settings, is_megatron=megatron) == [f"python3 -m {start}"]


def test_a_critic_has_keys_only_where_there_is_one(command):
    assert "critic." not in command(overrides={"critic.fsdp.param_offload": True})
    words = command(task="PPO").split()
    assert "critic.model.path=Qwen/Qwen2.5-7B" in words
    # Only a dataclass has this key: verl/workers/config/critic.py:89 at 1dda039b9.
    assert [word for word in words if word.startswith("+critic.ppo_infer_max_token_len_per_gpu=")]


def test_micro_batches_that_nothing_sets_are_in_the_command(data):
    """verl rejects a run without one: verl/utils/config.py:141 at 1dda039b9."""

    def words_of(**config):
        config = {key.replace("__", "."): value for key, value in config.items()}
        request = Request(
            "Qwen/Qwen2.5-7B", {f"actor_rollout_ref.{key}": config[key] for key in config}, 8, "H100"
        )
        words = command_of(answer_settings(request, data).best, data).split()
        return {word.rpartition("actor_rollout_ref.")[2] for word in words if "micro_batch" in word}

    critic = "critic.ppo_micro_batch_size_per_gpu=1"
    log_prob = "rollout.log_prob_micro_batch_size_per_gpu"
    assert words_of() == {"actor.ppo_micro_batch_size_per_gpu=1", f"{log_prob}=1", critic}
    assert words_of(actor__use_dynamic_bsz=True) == set()
    with_reference = words_of(actor__use_kl_loss=True, actor__ppo_micro_batch_size_per_gpu=4)
    assert with_reference == {
        "actor.ppo_micro_batch_size_per_gpu=4",
        f"{log_prob}=4",
        "ref.log_prob_micro_batch_size_per_gpu=4",
        critic,
    }
    assert "actor.ppo_micro_batch_size=64" in words_of(actor__ppo_micro_batch_size=64)


def test_how_megatron_is_chosen(command):
    """verl/trainer/config/ppo_megatron_trainer.yaml:1-6 at 1dda039b9."""
    words = command(overrides={**MEGATRON, CPU: True}).split()
    assert "model_engine=megatron" in words
    assert not [word for word in words if "strategy=" in word]
    assert f"+{CPU}=True" in words
    older = command(overrides=MEGATRON, version=(0, 7, 0)).split()
    assert older[3] == "--config-name=ppo_megatron_trainer.yaml"
    assert "model_engine=megatron" not in older


def test_keys_of_their_version(command):
    key, before = "critic.fsdp.param_offload", "critic.model.fsdp_config.param_offload"
    fields = {"task": "PPO", "overrides": {key: True}}
    assert f"{key}=True" in command(**fields).split()
    assert f"{before}=True" in command(**fields, version=(0, 7, 0)).split()


def test_a_key_that_is_not_recorded_is_set_in_any_case(command):
    assert "++a.b=3" in command(overrides={"a.b": 3}).split()
