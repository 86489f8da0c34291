"""``verl-resources estimate``: settings, launch scripts, cases and run files, and every kind of mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import yaml
from run_texts import good_run_text

from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.units import Category

FIELDS = [
    "id", "fits", "verdict", "fits_up_to_tokens", "peak_gib", "low_gib", "high_gib", "capacity_gib",
    "binding_phase", "relief", "logged_max_allocated_gib",
    "logged_low_gib", "logged_high_gib", "host_ram_gib_per_node", "phases", "undecided", "unsupported",
    "warnings", "verl_version",
]  # fmt: skip
ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
CONFIG = {
    "algorithm.adv_estimator": "grpo",
    f"{ACTOR}.use_dynamic_bsz": True,
    f"{ACTOR}.ppo_max_token_len_per_gpu": 4096,
}
OWN = f"estimate Qwen/Qwen2.5-7B --gpus 8*H100 {ACTOR}.use_dynamic_bsz=True"
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
GOOD = SCRIPT.replace("=7 ", "=0.3 ").replace("$BATCH", "64")


def case(name="a", **changes):
    fields = {"id": name, "model": "Qwen/Qwen2.5-7B", "gpus": {"count": 8, "type": "H100"}, "config": CONFIG}
    values = {key: value for key, value in {**fields, **changes}.items() if value is not None}
    return json.loads(json.dumps(values))  # YAML would write repeated objects as aliases


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a file; other values than text become YAML."""

    def new_file(name, content):
        text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
        (tmp_path / name).write_text(text, "utf-8")

    return new_file


@pytest.fixture
def cases(write, result):
    """Return a function that estimates cases; it returns exit code, results and lines of errors."""

    def estimates(*items, words=""):
        write("cases.yaml", [*items])
        return result(f"estimate cases.yaml {words}")

    return estimates


# -- settings


def test_a_question(run, result):
    code, (output,), err = result(f"{OWN} algorithm.adv_estimator=grpo data.max_response_length=2048")
    assert (code, err, output["id"]) == (0, [], "Qwen/Qwen2.5-7B")
    assert output["capacity_gib"] == pytest.approx(79.15, abs=0.01)
    assert "critic-forward" not in {phase["name"] for phase in output["phases"]}
    lines = run("estimate qwen2.5-7b --gpu H100")[1].splitlines()
    assert lines[0] == "Fits: Qwen/Qwen2.5-7B, PPO, on 8×H100."
    assert all(words in " ".join(lines) for words in ("task PPO with a critic", "8 GPUs", "Command:"))


def test_options_and_files_are_settings_of_verl(result, write):
    (named,) = result(f"{OWN} --task GRPO --response 4096")[1]
    keys = (
        f"algorithm.adv_estimator=grpo {ACTOR}.use_kl_loss=True {ROLLOUT}.n=5 data.max_response_length=4096"
    )
    assert named["phases"] == result(f"{OWN} {keys}")[1][0]["phases"]
    assert named["assumed"] == ["prompts up to 512 tokens", "verl v0.9.0"]
    write("run.yaml", CONFIG)
    line, words = "estimate Qwen/Qwen2.5-7B --gpus 8*H100", [f"{key}={CONFIG[key]}" for key in CONFIG]
    assert result(f"{line} --settings run.yaml") == result(line, *words)


def test_a_launch_script(result, write):
    write("run.sh", SCRIPT)
    code, (output,), err = result("estimate --script run.sh --gpus H100")
    assert (code, output["id"]) == (2, "Qwen/Qwen2.5-7B")
    assert [line.split(": ")[0:2] for line in err] == [["run.sh:8:5", "ERROR"], ["run.sh:6:5", "WARNING"]]
    assert "expected a number from 0 to 1, got 7" in err[0]
    assert "the value of data.train_batch_size is unknown" in err[1]
    mended = f"data.train_batch_size=64 {ROLLOUT}.gpu_memory_utilization=0.25"
    script = f"estimate --script run.sh --gpus H100 {mended}"
    code, (output,), err = result(script)
    assert (code, err) == (0, [])
    new_file = (
        f"{ACTOR}.strategy=megatron algorithm.adv_estimator=grpo trainer.nnodes=2 trainer.n_gpus_per_node=4"
    )
    assert output == result(f"{OWN} {mended} {new_file}")[1][0]
    # What is written out stands above the options, and these above the script.
    more = ("", "--response 16384", "--response 16384 data.max_response_length=512")
    peaks = [result(f"{script} {words}")[1][0]["peak_gib"] for words in more]
    assert peaks[0] == peaks[2] < peaks[1]


def test_gpus_settle_what_a_script_leaves_open(result, write):
    script = SCRIPT.replace("trainer.nnodes=2", "trainer.nnodes=$NODES")
    assert script != SCRIPT
    write("run.sh", script)
    mended = f"data.train_batch_size=64 {ROLLOUT}.gpu_memory_utilization=0.25"
    _, (left_open,), err = result(f"estimate --script run.sh --gpu H100 {mended}")
    assert (left_open["verdict"], "trainer.nnodes" in err[0]) == ("unknown", True)
    code, (output,), err = result(f"estimate --script run.sh --gpus 8xH100 {mended}")
    assert (code, output["undecided"], output["gpus"], err) == (0, [], {"count": 8, "type": "H100"}, [])


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("$HOME/models/Qwen2.5-7B/", ""),
        ("/models/Qwen2.5-7", "no recorded model matches the end of the path '/models/Qwen2.5-7'; did you mean 'Qwen/Qwen2.5-7B'? If not, give it before the settings, "),
        ("$WHERE", "the model '$WHERE' contains a variable with an unknown value; set it with --env WHERE=…, or give the model before "),
    ],
)  # fmt: skip
def test_a_model_by_the_end_of_its_path(result, write, path, message):
    write("run.sh", GOOD)
    recorded = result("estimate --script run.sh --gpus H100")
    write("run.sh", GOOD.replace("MODEL=Qwen/Qwen2.5-7B\n", "").replace("$MODEL", path))
    code, (output,), err = result("estimate --script run.sh --gpus H100")
    if not message:
        assert (code, [output], err) == recorded
        return
    assert (code, output["id"], message in output["error"]) == (2, "run.sh", True)
    (error,) = (text for text in err if "ERROR" in text)
    assert error.startswith(f"run.sh:4:5: ERROR: {message}")


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        *((f"--{name} given", text, "given:") for name in ("script", "settings") for text in ("", "# nothing\n", "model: [\n")),
        ("--script given", "#!" + "x" * (1 << 20), "given:1:1: ERROR: the script is too long "),
        ("--config given", '{"model_type": "qwen2", "hidden_size": 0}', "given:1:1: ERROR: num_hidden_layers: the key is missing"),
        ("", "", "ERROR: no model given; give its name, such as qwen2.5-7b, its config.json, a file of cases or runs, or --script"),
    ],
    ids=lambda value: value[:40],
)  # fmt: skip
def test_texts_that_leave_no_estimate(result, write, option, text, message):
    write("given", text)
    code, (output,), err = result(f"{OWN} {option}" if option else "estimate a=b")
    assert (code, bool(output["error"])) == (2, True)
    assert err[-1].startswith(message) or err[0].startswith(message)


def test_registries_of_ones_own(result, data):
    gpu = "name: Z9, vendor: nvidia, memory_gb: 100, memory_mib: 95000, kind: nominal"
    data.write("gpus.yaml", f"gpus:\n- {{{gpu}}}\n")
    code, (output,), err = result(f"estimate Qwen/Qwen2.5-7B --gpus 8*Z9 --data {data.path}")
    assert (code, output["capacity_gib"] < 95000 / 1024, "ERROR" in str(err)) == (0, True, False)
    assert result("estimate Qwen/Qwen2.5-7B --gpus 8*Z9")[1] == [output], "./data is the default"
    data.write("gpus.yaml", "gpus:\n- {name: Z9, vendor: nobody}\n")
    code, _, err = result("estimate Qwen/Qwen2.5-7B --gpus 8*H100")
    assert (code, any(line.startswith("data/gpus.yaml:2:") for line in err)) == (1, True)


# -- cases


def test_fields_of_a_result(cases):
    code, (output,), err = cases(case())
    assert (code, err, list(output), output["fits"]) == (0, [], FIELDS, True)
    assert output["low_gib"] <= output["peak_gib"] <= output["high_gib"] <= output["capacity_gib"]
    assert output["peak_gib"] == max(phase["total_gib"] for phase in output["phases"])
    categories = {part["category"] for phase in output["phases"] for part in phase["components"]}
    assert categories <= {category.value for category in Category}


def test_cases_keep_the_order_of_the_files(cases, write, result):
    write("more.yaml", [case("b"), case("a")])
    code, output, _ = cases(case("c"), case("a"), words="more.yaml")
    assert (code, [item["id"] for item in output]) == (0, ["c", "a", "b", "a"])
    write("bad.yaml", "- id: [\n")
    code, (output,), err = cases(case(), words="bad.yaml")
    assert (code, output["fits"], err[0][:11]) == (1, True, "bad.yaml:2:")
    code, output, _ = result("estimate bad.yaml")
    assert (code, [*map("error".__contains__, output)]) == (2, [])


def test_the_text_of_cases(run, write):
    odd = case("odd", config={**CONFIG, f"{ROLLOUT}.speculative_model": "x"})
    write("cases.yaml", [case(), odd, case("bad", model="none/such")])
    code, out, _ = run("estimate cases.yaml")
    rows = [line.split()[:2] for line in out.splitlines()[2:5]]
    assert (code, rows) == (1, [["a", "fits"], ["odd", "fits"], ["bad", "no"]])


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"gpus": {"count": 8, "type": "H10O"}}, 0, "5:11: WARNING: gpus: unknown GPU 'H10O'; did you mean 'H100'?"),
        ({"gpus": {"count": "eight"}}, 1, "4:12: ERROR: gpus.count: Input should be a valid integer, got 'eight'"),
        ({"model": "Qwen/Qwen2.5-7"}, 1, "2:10: ERROR: model: unknown model 'Qwen/Qwen2.5-7'; did you mean 'Qwen/Qwen2.5-7B'?"),
        ({"config": None}, 1, "1:3: ERROR: "),
        ({"config": {f"{ROLLOUT}.gpu_memory_utilization": 1.5}}, 1, f"7:55: ERROR: {ROLLOUT}.gpu_memory_utilization: expected a number from 0 to 1"),
        ({"config": {f"{ROLLOUT}.gpu_memory_utilisation": 0.4, **CONFIG}}, 0, f"7:5: WARNING: {ROLLOUT}.gpu_memory_utilisation: "),
        ({"config": None, "training": {"micro_batch_per_gpu": 2, "sequence_length": 1024, "method": "full"}}, 1, "7:5: ERROR: training: training without "),
    ],
)  # fmt: skip
def test_problems_of_a_case_at_their_places(cases, changes, code, message):
    found_code, (output, other), err = cases(case(**changes), case("b"))
    assert (found_code, other["fits"], "error" in other) == (code, True, False)
    assert any(line.startswith(f"cases.yaml:{message}") for line in err) == bool(message), err
    is_broken = ": ERROR: " in message
    assert ("error" in output) == is_broken
    assert list(output) == [*FIELDS, *(["error"] if is_broken else [])]


def test_verdicts_of_cases(cases):
    small, unknown = case(gpus={"count": 1, "type": "T4"}), case(gpus={"count": 8, "type": "H10O"})
    code, output, _ = cases(small, unknown)
    values = [(item["verdict"], item["fits"], item["capacity_gib"] is None) for item in output]
    assert (code, values) == (1, [("does-not-fit", False, False), ("unknown", None, True)])
    assert [cases(unknown, words=words)[0] for words in ("", "--strict")] == [0, 1]


@pytest.mark.parametrize(("outcome", "verdict"), [("oom", "borderline"), ("fits", "fits")])
def test_the_verdict_of_a_case_considers_hosts_unless_it_ran(cases, outcome, verdict):
    """The settings of a run that ran suffice for its hosts; the GPU's memory is judged without the outcome."""
    recorded = EstimatorContext().cases.by_id["verl-dsv3-671b-96h20"]
    fields = recorded.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert cases({**fields, "outcome": outcome})[1][0]["verdict"] == verdict


def test_settings_and_plan_have_one_verdict(result):
    """A card without bfloat16 cannot run verl, however little memory the run takes."""
    words = f"Qwen/Qwen2.5-0.5B --gpus 8xT4 --task GRPO {ACTOR}.use_dynamic_bsz=True"
    code, (output,), _ = result(f"estimate {words}")
    planned = result(f"plan {words}")
    verdict = (output["fits"], output["verdict"], output["reason"])
    assert (code, *verdict) == (1, False, "does-not-fit", "no-bfloat16")
    assert (planned[0], planned[1]["verdict"], planned[1]["command"]) == (1, "does-not-fit", None)


def test_another_process_prints_the_same_and_imports_nothing_heavy(run, write, tmp_path):
    """The output depends neither on the order of sets nor on modules that are already imported."""
    write("cases.yaml", [case(), case("b", gpus={"count": 1, "type": "T4"})])
    code = (
        "import sys\nfrom sphinx_verl_resources.commands import main\n"
        "main(['estimate', 'cases.yaml', '--format', 'json'])\n"
        "heavy = {'torch', 'transformers', 'numpy', 'sphinx'} & set(sys.modules)\nassert not heavy, heavy"
    )
    there = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONHASHSEED": "3"}
    )  # fmt: skip
    assert there.returncode == 0, there.stderr
    assert there.stdout == run("estimate cases.yaml --format json")[1]


# -- run files


def test_a_run_file(run, result, write):
    """The result is the same as on the page, with problems at their places in the file."""
    size = f"{ROLLOUT}.tensor_model_parallel_size"
    settings = {"data.train_batch_size": 64, f"{ACTOR}.ppo_micro_batch_size_per_gpu": 1}
    write("a.yaml", good_run_text(settings=settings))
    code, (output,), err = result("estimate a.yaml")
    assert (code, output["id"], output["peak_gib"] > 0, err) == (0, "a", True, [])
    assert run("estimate a.yaml")[1].startswith("Borderline: Qwen/Qwen2.5-7B-Instruct, GRPO, on ")
    text = good_run_text(id="b", settings={**settings, size: 3})
    write("b.yaml", text)
    write("cases.yaml", [case("c")])
    _, output, err = result("estimate b.yaml cases.yaml")
    assert [item["id"] for item in output] == ["b", "c"]
    assert err[0].startswith(f"b.yaml:{text.splitlines().index(f'  {size}: 3') + 1}:")
    # Without settings there is no estimate, as on the page, rather than one with verl's defaults.
    write("a.yaml", good_run_text(settings={}))
    code, (output,), err = result("estimate a.yaml")
    reason = "the run 'a' has no recorded settings; add them to its file"
    assert (code, output["peak_gib"], output["error"][: len(reason)]) == (1, None, reason)
    assert f": ERROR: {reason}" in err[0]
    assert "no estimate" in run("estimate a.yaml")[1]
