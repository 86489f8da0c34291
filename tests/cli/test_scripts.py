"""Launch scripts on the command line: ``--env``, number of messages, and verdicts with unread settings."""

from __future__ import annotations

import json

import pytest

from sphinx_verl_resources.cli import main

SCRIPT = """\
DEVICE=${DEVICE:-$(python3 -c 'import torch_npu' && echo npu || echo gpu)}
if [ "$DEVICE" = gpu ]; then N=8; else N=16; fi
if [ "$LARGE" = 1 ]; then SHARE=0.8; else SHARE=0.5; fi
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B \\
    data.train_batch_size=64 actor_rollout_ref.actor.use_dynamic_bsz=True data.max_response_length=1024 \\
    actor_rollout_ref.rollout.gpu_memory_utilization=$SHARE trainer.n_gpus_per_node=$N
"""
#: The commands, with the arguments that they need besides the script.
COMMANDS = {
    "estimate": ("--gpu", "H100"),
    "new": ("--dry-run", "--output", "data"),
    "diagnose": ("run.log", "--gpu", "H100"),
}


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function that runs a command on a script; it returns exit code, result and messages."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.log").write_text("torch.OutOfMemoryError: CUDA out of memory.\n", "utf-8")

    def called(name, script, *words):
        (tmp_path / "run.sh").write_text(script, "utf-8")
        code = main([name, *COMMANDS[name], "--script", "run.sh", *words, "--format", "json"])
        out, err = capsys.readouterr()
        found = json.loads(out) if out else None
        return code, found[0] if isinstance(found, list) else found, err.splitlines()

    return called


@pytest.mark.parametrize("name", COMMANDS)
def test_the_device_and_the_condition_are_said_once(run, name):
    _, _, err = run(name, SCRIPT)
    assert err[:2] == [
        "run.sh:1:1: WARNING: DEVICE is assumed to be gpu; for another device, add --env DEVICE=npu [verl.assumed_device]",
        "run.sh:3:1: WARNING: the value of actor_rollout_ref.rollout.gpu_memory_utilization is unknown: the condition in line 3 depends "
        "on $LARGE; add --env LARGE=… [verl.unresolved]",
    ]
    _, _, err = run(name, SCRIPT, "--env", "DEVICE=gpu", "--env", "LARGE=0")
    assert not any("assumed_device" in line or "unresolved" in line for line in err)


@pytest.mark.parametrize(("device", "gpus"), [("gpu", 8), ("npu", 16)])
def test_variables_change_what_is_read(run, device, gpus):
    words = ("--env", f"DEVICE={device}", "--env", "LARGE=1")
    assert run("diagnose", SCRIPT, *words)[1]["gpus"]["count"] == gpus
    assert f"count: {gpus}" in run("new", SCRIPT, *words)[1]["text"]
    large = run("estimate", SCRIPT, *words)[1]
    small = run("estimate", SCRIPT, "--env", f"DEVICE={device}", "--env", "LARGE=")[1]
    assert large["peak_gib"] > small["peak_gib"]


def test_no_verdict_over_a_setting_that_was_not_read(run):
    code, found, _ = run("estimate", SCRIPT)
    assert (code, found["verdict"], found["peak_gib"]) == (0, "unknown", None)
    assert found["undecided"] == ["actor_rollout_ref.rollout.gpu_memory_utilization: its value is unknown"]
    assert (
        run("new", SCRIPT)[1]["no_estimate"]
        == "not read: actor_rollout_ref.rollout.gpu_memory_utilization: its value is unknown"
    )
    assert run("diagnose", SCRIPT)[1]["estimate"] is None


@pytest.mark.parametrize(
    "script", [f"source settings.sh\n{SCRIPT}", f'eval "$MORE"\n{SCRIPT}', SCRIPT.replace("=$N", "=$N $MORE")]
)
def test_no_verdict_over_a_script_that_may_set_more(run, script):
    words = ("--env", "LARGE=0")
    assert run("estimate", SCRIPT, *words)[1]["verdict"] == "fits"
    assert run("estimate", script, *words)[1]["verdict"] == "unknown"
    for name in ("new", "diagnose"):
        assert run(name, script, *words)[1]["no_estimate"].startswith("not read: ")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_variable_that_the_script_does_not_take(run, name):
    _, _, err = run(name, SCRIPT, "--env", "LAREG=1", "--env", "SHARE=4")
    unused = [line for line in err if "[verl.unused_variable]" in line]
    text = "the script does not use this environment variable; "
    assert unused[0] == f"WARNING: --env LAREG: {text}did you mean 'LARGE'? [verl.unused_variable]"
    assert unused[1].startswith(f"WARNING: --env SHARE: {text}")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("variable", ["DEVICE", "1A=2"])
def test_a_variable_that_is_none(run, capsys, name, variable):
    with pytest.raises(SystemExit, match="2"):
        run(name, SCRIPT, "--env", variable)
    wanted = f"argument --env: expected NAME=VALUE, as in DEVICE=gpu, got {variable!r}"
    assert wanted in capsys.readouterr().err


@pytest.mark.parametrize("words", [("estimate", "qwen2.5-7b"), ("new", "--blank"), ("diagnose", "run.log")])
def test_variables_without_a_script(run, capsys, words):
    assert main([*words, "--env", "A=1"]) == 2
    assert capsys.readouterr().err == (
        "verl-resources: --env sets variables of a launch script; give the script with --script\n"
    )


@pytest.mark.parametrize("name", ["estimate", "new"])
def test_ten_messages_come_first_and_the_rest_is_counted(run, name):
    keys = [f"actor_rollout_ref.actor.unheard_of_{number}=$(x{number})" for number in range(14)]
    conditions = "".join(f"[ -f {number} ] && X{number}={number}\n" for number in range(14))
    words = " ".join(f"{key.partition('=')[0]}=$X{number}" for number, key in enumerate(keys))
    script = conditions + SCRIPT.replace("=$N", f"=$N {words}")
    code, _, every = run(name, script, "--verbose")
    shown, _, first = run(name, script)
    assert code == shown
    assert len(every) >= 16
    assert first[10:] == [f"… and {len(every) - 10} more messages; --verbose shows all"]
    assert set(first[:10]) <= set(every)
    _, _, broken = run(name, script.replace("trainer.n", "'trainer.n"))
    assert " ERROR: " in broken[0]
