"""The fields of a run, derived from a script and a log."""

from __future__ import annotations

import io
import subprocess
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.intake.draft import committed, draft_run
from sphinx_verl_resources.intake.recorded_names import recorded_gpu
from sphinx_verl_resources.intake.run_text import TODO, run_text
from sphinx_verl_resources.intake.sources import Sources, UserInput, public_settings
from sphinx_verl_resources.intake.tasks import LOSS, task_of
from sphinx_verl_resources.logs.log import read_log
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.scripts.read import read_script
from sphinx_verl_resources.strict_yaml import read_yaml

TASK_REWARDS = "distillation.distillation_loss.use_task_rewards"
TODAY = date(2026, 11, 22)
FACTS = EstimatorContext()


def draft(script="", log="", said=None, shown="run.sh"):
    read = read_script(script, shown) if script else Sources().script
    logged = read_log(io.BytesIO(log.encode()), "run.log") if log else None
    return draft_run(
        Sources(read, script, shown if script else "", None, logged), said or UserInput(), FACTS, TODAY
    )


def command(*words, program="verl.trainer.main_ppo"):
    return f"python3 -m {program} " + " \\\n  ".join(words) + "\n"


def codes(found):
    return [problem.code for problem in found.problems]


def test_a_model_that_is_not_recorded():
    nowhere = draft(command("actor_rollout_ref.model.path=/models/Qwn2.5-7B trainer.nnodes=1"))
    assert nowhere.fields["model"] == nowhere.fields["size"] == TODO
    assert any("did you mean 'Qwen/Qwen2.5-7B'?" in problem.remedy for problem in nowhere.problems)
    loop = draft(f"for M in a b; do {command('actor_rollout_ref.model.path=$M trainer.nnodes=1')}done")
    assert (
        "the model '$M' contains a variable with an unknown value; set it with --env M=…, or give the model "
        "with --model"
    ) in "\n".join(map(str, loop.problems))
    log = "(T pid=1) {'actor_rollout_ref': {'model': {'path': 'someone/own-13B'}}}\n"
    assert draft(command("actor_rollout_ref.model.path=$M"), log).fields["model"] == "someone/own-13B"
    hub = draft(command("actor_rollout_ref.model.path=someone/own-13B"))
    assert (hub.fields["model"], hub.fields["size"]) == ("someone/own-13B", TODO)
    assert "unknown_model" in codes(hub)


def test_a_fine_tune_is_its_base_model():
    found = draft(command("actor_rollout_ref.model.path=/m/Qwen2.5-7B-sft trainer.nnodes=1"))
    assert (found.fields["model"], found.fields["size"]) == ("Qwen/Qwen2.5-7B", "7B")
    (problem,) = [problem for problem in found.problems if problem.code == "unknown_model"]
    assert problem.message.startswith("/m/Qwen2.5-7B-sft taken as Qwen/Qwen2.5-7B (")
    asked = UserInput(model="acme/Qwen3-4B-SFT", gpus=(8, "910B3"))
    named = draft(command("trainer.nnodes=1"), said=asked).fields
    assert (named["model"], named["gpus"]["type"]) == ("Qwen/Qwen3-4B", "Ascend-A2")


@pytest.mark.parametrize(
    ("settings", "program", "task"),
    [
        ({"algorithm.adv_estimator": "grpo"}, "", "GRPO"),
        ({}, "", "PPO"),
        ({"algorithm.adv_estimator": "reinforce_plus_plus"}, "", "REINFORCE++"),
        ({"algorithm.adv_estimator": "grpo", "actor_rollout_ref.model.lora_rank": 32}, "", "GRPO-LoRA"),
        ({"algorithm.adv_estimator": "grpo"}, "recipe.dapo.main_dapo", "DAPO"),
        ({"algorithm.adv_estimator": "grpo", "reward_model.reward_manager": "dapo"}, "", "DAPO"),
        (
            {"algorithm.adv_estimator": "grpo"},
            "recipe.one_step_off_policy.main_ppo",
            "GRPO (one step off)",
        ),
        ({"algorithm.adv_estimator": "grpo"}, "recipe.fully_async_policy.x", "GRPO (fully async)"),
        ({"algorithm.adv_estimator": "grpo", LOSS: "gspo", "reward_model.reward_manager": "dapo"}, "", "GSPO"),
        ({"algorithm.adv_estimator": "grpo", LOSS: "geo_mean", "actor_rollout_ref.model.lora_rank": 8}, "", "GMPO-LoRA"),
        ({"algorithm.adv_estimator": "grpo", LOSS: "kl_cov"}, "recipe.entropy.main_entropy", "KL-Cov"),
        ({"algorithm.adv_estimator": "gae", LOSS: "gspo"}, "", "PPO (GSPO loss)"),
        ({"algorithm.adv_estimator": "gae", "reward_model.reward_manager": "dapo"}, "", "PPO"),
        ({"algorithm.adv_estimator": "optimal_token_baseline"}, "", "OTB"),
        ({"algorithm.adv_estimator": "rloo"}, "recipe.prime.main_prime", "PRIME"),
        ({}, "main_gkd on_policy_distill_trainer", "GKD"),
        ({"algorithm.adv_estimator": "grpo", "distillation.enabled": True, TASK_REWARDS: False}, "", "OPD"),
        ({"algorithm.adv_estimator": "grpo", "distillation.enabled": True, "actor_rollout_ref.model.lora_rank": 8}, "", "GRPO-LoRA + OPD"),
        ({"algorithm.adv_estimator": "grpo", "trainer.v1.trainer_mode": "separate_async"}, "", "GRPO (separate async)"),
        ({"algorithm.adv_estimator": "some thing"}, "", None),
        ({"algorithm.adv_estimator": 7}, "", "7"),
    ],
)  # fmt: skip
def test_tasks(settings, program, task):
    assert task_of(settings, program) == task


def test_a_task_that_depends_on_the_environment():
    for key in ("algorithm.adv_estimator", LOSS):
        found = draft(command(f"{key}=$ADV data.train_batch_size=8"))
        assert found.fields["task"] == TODO
        assert "unresolved" in codes(found)


@pytest.mark.parametrize(
    ("printed", "gpu"),
    [("H100 80GB HBM3 On", "H100"), ("h100", "H100"), ("A100-SXM4-40GB", "A100-40GB"), ("H20", "H20"),
     ("A100", None), ("Rage 128", None), ("", None)],
)  # fmt: skip
def test_gpu_names(printed, gpu):
    assert recorded_gpu(printed, FACTS.gpus) == gpu


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data.train_files", "x.parquet"),
        ("trainer.logger", ("console",)),
        ("trainer.default_local_dir", "ckpt"),
        ("env.WANDB_API_KEY", "0123"),
        ("a.b", "/home/somebody/x"),
        ("a.b", "a@b"),
        ("a.b", "10.1.2.3:80"),
        ("a.b", float("inf")),
        ("a.b", {"c": 1}),
        ("a/b", 1),
        ("a.b", "two\nlines"),
    ],
)
def test_settings_that_are_left_out(key, value):
    assert public_settings({key: value}) == ({}, [key])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("actor_rollout_ref.actor.checkpoint.save_contents", ("model", "optimizer")),
        ("actor_rollout_ref.model.target_modules", "all-linear"),
        ("actor_rollout_ref.model.external_lib", None),
    ],
)
def test_settings_that_are_kept(key, value):
    assert public_settings({key: value}) == ({key: value}, [])


def test_gpus():
    each = "trainer.n_gpus_per_node"
    assert draft(command(f"{each}=4 trainer.nnodes=2")).fields["gpus"] == {
        "count": 8,
        "type": TODO,
        "nodes": 2,
    }
    assert draft(command("data.shuffle=True")).fields["gpus"]["count"] == 8  # verl's default
    assert draft(command(f"{each}=$N data.shuffle=True")).fields["gpus"]["count"] == TODO
    named = "qwen2-7b_grpo_4_h800_fsdp_vllm.sh"
    assert draft(command(f"{each}=$N data.shuffle=True"), shown=named).fields["gpus"]["count"] == 4
    assert draft(command(f"{each}=4"), shown=named).fields["gpus"]["type"] == "H800"
    said = UserInput(gpus=(16, "H20"))
    assert draft(command(f"{each}=8 trainer.nnodes=2"), said=said).fields["gpus"] == {
        "count": 16, "type": "H20", "nodes": 2,
    }  # fmt: skip
    apart = command(f"{each}=8 trainer.nnodes=1 rollout.nnodes=1 rollout.n_gpus_per_node=4")
    assert draft(apart).fields["gpus"]["count"] == 12


def test_backends():
    assert draft(command("data.shuffle=True")).fields["train"] == "fsdp"
    assert draft(command("actor_rollout_ref.actor.strategy=fsdp2")).fields["train"] == "fsdp2"
    assert (
        draft(command("actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2")).fields["train"]
        == "megatron"
    )
    assert (
        draft(command("--config-name=ppo_megatron_trainer data.shuffle=True")).fields["train"] == "megatron"
    )
    assert draft(command("model_engine=veomni")).fields["train"] == "veomni"


LOG = """\
(T pid=1) {'actor_rollout_ref': {'model': {'path': '/m/Qwen2.5-7B'}, 'rollout': {'name': 'vllm', 'n': 5}},
(T pid=1)  'data': {'train_batch_size': 64, 'max_prompt_length': 512}, 'trainer': {'nnodes': 2, 'n_gpus_per_node': 8}}
(T pid=1) step:1 - perf/max_memory_reserved_gb:50.26 - perf/time_per_step:10
vLLM API server version 0.8.3
"""


def test_the_log_fills_what_the_script_leaves_open():
    script = command(
        "data.train_batch_size=$B", "data.max_prompt_length=512", "actor_rollout_ref.rollout.n=4.0",
        "trainer.nnodes=2 actor_rollout_ref.rollout.name=vllm actor_rollout_ref.model.path=$M data.seed=$S",
    )  # fmt: skip
    found = draft(script, LOG)
    assert found.fields["settings"] == {
        "data.train_batch_size": 64, "data.max_prompt_length": 512, "actor_rollout_ref.rollout.n": 4.0,
        "trainer.nnodes": 2, "actor_rollout_ref.rollout.name": "vllm",
    }  # fmt: skip
    assert found.fields["gpus"]["count"] == 16
    assert "max_batch" not in found.fields  # the batch as run is not the largest that fits
    assert found.fields["model"] == "Qwen/Qwen2.5-7B"
    assert found.fields["infer"] == {"engine": "vllm", "version": "0.8.3"}
    assert found.fields["measured"] == {"gib": 50.3, "counter": "torch-max-reserved", "step_seconds": 10.0}
    about = {problem.code: problem for problem in found.problems}
    assert str(about["log_differs"].place) == "run.sh:3:3"
    assert "4.0 in the script but 5 in the log" in about["log_differs"].message
    assert "data.seed" in about["unresolved"].message
    assert codes(found).count("unresolved") == 1


@pytest.mark.parametrize(
    ("path", "taken"), [("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"), ("$HOME/models/Qwen3-8B", "Qwen/Qwen2.5-7B")]
)
def test_the_log_of_another_model_is_named(path, taken):
    found = draft(command(f"actor_rollout_ref.model.path={path}"), LOG)
    (problem,) = [problem for problem in found.problems if problem.code == "log_differs"]
    assert found.fields["model"] == taken
    assert f"Qwen/Qwen3-8B in the script and Qwen/Qwen2.5-7B in the log; {taken} is used" in problem.message
    assert str(problem.place) == "run.sh:1:34"


@pytest.mark.parametrize("path", ["Qwen/Qwen2.5-7B", "$HOME/models/Qwen2.5-7B", "$HOME/models/my-own", "$M"])
def test_the_log_of_the_same_model_is_no_problem(path):
    assert "log_differs" not in codes(draft(command(f"actor_rollout_ref.model.path={path}"), LOG))


def test_a_log_alone():
    found = draft("", LOG)
    assert found.fields["model"] == "Qwen/Qwen2.5-7B"
    assert found.fields["gpus"] == {"count": 16, "type": TODO, "nodes": 2}
    assert found.fields["settings"]["data.train_batch_size"] == 64
    assert found.fields["task"] == found.fields["train"] == TODO  # not in the configuration


def test_why_something_is_left_out_is_said():
    found = draft(command("data.seed=1 'data.a=x\ny' data.b=~/x"))
    said = [problem.message for problem in found.problems if problem.code == "left_out"]
    assert said == [
        "settings left out, because they contain files, accounts or machines: data.b",
        "settings left out, because a run file cannot contain such values or keys: data.a",
    ]


@pytest.fixture
def git(tmp_path):
    def run(*arguments):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    run("init", "-q")
    package = tmp_path / "verl/__init__.py"
    package.parent.mkdir()
    package.touch()
    return run


def test_a_committed_script(tmp_path, git):
    script = tmp_path / "examples" / "run it.sh"
    script.parent.mkdir()
    script.write_text("x\n")
    with pytest.raises(OSError, match="not in a git checkout"):
        committed(script)
    git("add", "verl")
    git("commit", "-q", "-m", "x")
    with pytest.raises(OSError, match="differs from the version that is committed"):
        committed(script)
    git("add", ".")
    with pytest.raises(OSError, match="differs from the version that is committed"):
        committed(script)
    git("commit", "-q", "-m", "y")
    found = committed(script)
    assert found == (git("rev-parse", "HEAD"), "examples/run it.sh")
    script.write_text("y\n")
    with pytest.raises(OSError, match="differs from the version"):
        committed(script)


def test_a_checkout_of_something_else(tmp_path, git):
    (tmp_path / "run.sh").write_text("x\n")
    git("add", "run.sh")
    git("commit", "-q", "-m", "x")
    with pytest.raises(OSError, match="not in a git checkout of verl"):
        committed(tmp_path / "run.sh")
    git("add", "verl")
    git("commit", "-q", "-m", "y")
    for remote, is_verl in (
        ("https://x.example/a/verl.git", True),
        ("git@x.example:verl", True),
        ("/a/other", False),
        ("/a/my-verl", False),
    ):
        git("config", "remote.origin.url", remote)
        if is_verl:
            assert committed(tmp_path / "run.sh")[1] == "run.sh"
        else:
            with pytest.raises(OSError, match="not in a git checkout of verl"):
                committed(tmp_path / "run.sh")


WORDS = st.sampled_from(
    [
        "python3 -m verl.trainer.main_ppo ", "actor_rollout_ref.model.path=", "Qwen/Qwen2.5-7B", "/", "$X", "${A:-",
        "}", "trainer.nnodes=", "trainer.n_gpus_per_node=", "99999999999", "-1", "algorithm.adv_estimator=", "grpo",
        "actor_rollout_ref.rollout.name=", "vllm", " ", "\\\n", "\n", "'", '"', "#", "data.train_batch_size=", "1e400",
        "actor_rollout_ref.actor.strategy=", "TODO", "[", "a.b=", "{c: ", "@",
    ]
)  # fmt: skip


@given(st.lists(WORDS | st.text(max_size=4), max_size=40), st.booleans())
def test_any_text_makes_a_file_that_reads_back(parts, with_log):
    found = draft("python3 -m verl.trainer.main_ppo " + "".join(parts), LOG if with_log else "")
    document = read_yaml(run_text(found.fields, found.remarks).encode("utf-8", "surrogatepass"))
    assert not document.problems
    assert document.data["id"] == found.fields["id"]
