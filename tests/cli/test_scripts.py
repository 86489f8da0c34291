"""Launch scripts on the command line: ``--env``, number of messages, and verdicts with unread settings."""

from __future__ import annotations

import pytest

SCRIPT = """\
DEVICE=${DEVICE:-$(python3 -c 'import torch_npu' && echo npu || echo gpu)}
if [ "$DEVICE" = gpu ]; then N=8; else N=16; fi
if [ "$LARGE" = 1 ]; then SHARE=0.8; else SHARE=0.5; fi
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B \\
    data.train_batch_size=64 actor_rollout_ref.actor.use_dynamic_bsz=True data.max_response_length=1024 \\
    actor_rollout_ref.rollout.gpu_memory_utilization=$SHARE trainer.n_gpus_per_node=$N
"""
SHARE = "actor_rollout_ref.rollout.gpu_memory_utilization"
#: The commands, with the arguments that they need besides the script.
COMMANDS = {
    "estimate": "estimate --gpu H100",
    "new": "new --dry-run --output data",
    "diagnose": "diagnose run.log --gpu H100",
}


@pytest.fixture
def read(tmp_path, result):
    """Return a function that runs a command on a script; it returns exit code, result and messages."""
    (tmp_path / "run.log").write_text("torch.OutOfMemoryError: CUDA out of memory.\n", "utf-8")

    def call(name, script, words=""):
        (tmp_path / "run.sh").write_text(script, "utf-8")
        code, output, err = result(f"{COMMANDS[name]} --script run.sh {words}")
        return code, output[0] if isinstance(output, list) else output, err

    return call


@pytest.mark.parametrize("name", COMMANDS)
def test_what_the_script_leaves_open_is_said_once(read, name):
    _, _, err = read(name, SCRIPT)
    assert err[:2] == [
        "run.sh:1:1: WARNING: DEVICE is assumed to be gpu; for another device, add --env DEVICE=npu [verl.assumed_device]",
        f"run.sh:3:1: WARNING: the value of {SHARE} is unknown: the condition in line 3 depends "
        "on $LARGE; add --env LARGE=… [verl.unresolved]",
    ]
    _, _, err = read(name, SCRIPT, "--env DEVICE=gpu --env LARGE=0")
    assert not any("assumed_device" in line or "unresolved" in line for line in err)
    _, _, err = read(name, SCRIPT, "--env LAREG=1 --env SHARE=4")
    unused = [line for line in err if "[verl.unused_variable]" in line]
    text = "the script does not use this environment variable; "
    assert unused[0] == f"WARNING: --env LAREG: {text}did you mean 'LARGE'? [verl.unused_variable]"
    assert unused[1].startswith(f"WARNING: --env SHARE: {text}")


@pytest.mark.parametrize(("device", "gpus"), [("gpu", 8), ("npu", 16)])
def test_variables_change_what_is_read(read, device, gpus):
    words = f"--env DEVICE={device} --env LARGE=1"
    assert read("diagnose", SCRIPT, words)[1]["gpus"]["count"] == gpus
    assert f"count: {gpus}" in read("new", SCRIPT, words)[1]["text"]
    peaks = [read("estimate", SCRIPT, f"{words} --env LARGE={large}")[1]["peak_gib"] for large in ("1", "")]
    assert peaks[0] > peaks[1]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (SCRIPT, ""),
        (f"source settings.sh\n{SCRIPT}", "--env LARGE=0"),
        (f'eval "$MORE"\n{SCRIPT}', "--env LARGE=0"),
        (SCRIPT.replace("=$N", "=$N $MORE"), "--env LARGE=0"),
    ],
)
def test_no_verdict_over_what_was_not_read(read, script, words):
    assert read("estimate", SCRIPT, "--env LARGE=0")[1]["verdict"] == "fits"
    code, output, _ = read("estimate", script, words)
    assert (code, output["verdict"], output["peak_gib"]) == (0, "unknown", None)
    assert output["undecided"]
    assert read("estimate", script, f"{words} --strict")[0] == 1
    assert read("diagnose", script, words)[1]["no_estimate"].startswith("not read: ")


@pytest.mark.parametrize("name", ["estimate", "new"])
def test_ten_messages_come_first_and_the_rest_is_counted(read, run, name):
    words = " ".join(f"actor_rollout_ref.actor.unheard_of_{number}=$X{number}" for number in range(14))
    conditions = "".join(f"[ -f {number} ] && X{number}={number}\n" for number in range(14))
    script = conditions + SCRIPT.replace("=$N", f"=$N {words}")
    code, _, every = read(name, script, "--verbose")
    exit_code, _, first = read(name, script)
    assert (code, len(every) >= 16) == (exit_code, True)
    assert first[10:] == [f"… and {len(every) - 10} more messages; --verbose shows all"]
    assert set(first[:10]) <= set(every)
