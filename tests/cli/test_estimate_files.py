"""``verl-resources estimate`` of cases and run files: output, and every kind of invalid file."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import yaml

from sphinx_verl_resources.breakdown import Category
from sphinx_verl_resources.cli.data import read_data
from sphinx_verl_resources.estimator.export import FIELDS

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
CONFIG = {
    "algorithm.adv_estimator": "grpo",
    f"{ACTOR}.use_dynamic_bsz": True,
    f"{ACTOR}.ppo_max_token_len_per_gpu": 4096,
}
GPUS = {"count": 8, "type": "H100"}


def case(name="a", **changes):
    fields = {"id": name, "model": "Qwen/Qwen2.5-7B", "gpus": GPUS, "config": CONFIG, **changes}
    # Through JSON, since YAML would write repeated objects as aliases.
    return json.loads(json.dumps({key: value for key, value in fields.items() if value is not None}))


def test_fields_of_a_result(answers):
    code, (found,), err = answers([case()])
    assert (code, err) == (0, [])
    assert list(found) == ["id", *FIELDS]
    assert found["id"] == "a"
    assert found["fits"] is True
    assert found["low_gib"] <= found["peak_gib"] <= found["high_gib"] <= found["capacity_gib"]
    assert found["peak_gib"] == max(phase["total_gib"] for phase in found["phases"])
    assert found["binding_phase"] in {phase["name"] for phase in found["phases"]}
    for phase in found["phases"]:
        parts = [part["gib"] for part in phase["components"]]
        assert phase["total_gib"] == pytest.approx(sum(parts), abs=0.001 * len(parts))
        assert {part["category"] for part in phase["components"]} <= {category.value for category in Category}
        assert all(part["low_gib"] <= part["gib"] <= part["high_gib"] for part in phase["components"])
    parts = [part for phase in found["phases"] for part in phase["components"]]
    exact = [part for part in parts if part["name"] == "weights"]
    assert exact
    assert all(part["low_gib"] == part["high_gib"] for part in exact)
    assert any(part["low_gib"] < part["gib"] < part["high_gib"] for part in parts)
    assert found["relief_saves_gib"] == pytest.approx(found["peak_gib"] - found["relief_peak_gib"], abs=0.002)
    assert found["host_ram_gib_per_node"] > 0
    assert found["unsupported"] == []


def test_cases_keep_the_order_of_the_files(answers, tmp_path):
    (tmp_path / "more.yaml").write_text(yaml.safe_dump([case("b"), case("a")]), "utf-8")
    code, found, _ = answers([case("c"), case("a")], "more.yaml")
    assert code == 0
    assert [item["id"] for item in found] == ["c", "a", "b", "a"]


def test_text_of_one_case(estimate):
    code, out, err = estimate([case()])
    assert (code, err) == (0, "")
    assert out.startswith("Fits: a.\nPeak ")
    assert "Host memory of a node" in out
    verbose = estimate([case()], "--verbose")[1]
    assert verbose.startswith(out.rstrip())
    for word in ("Old log-prob", "Weight sync", "(the peak)", "Evidence", "× 4 ÷ 8"):
        assert word in verbose
        assert word not in out


def test_text_of_several_cases(estimate):
    odd = case("odd", config={**CONFIG, f"{ROLLOUT}.speculative_model": "x"})
    code, out, _ = estimate([case(), odd, case("bad", model="none/such")])
    assert code == 1
    assert [line.split()[0] for line in out.splitlines()[2:5]] == ["a", "odd", "bad"]
    assert "no estimate" in out.splitlines()[4]
    assert "1 case has settings that the estimate ignores" in out


def test_a_case_that_does_not_fit(answers):
    code, (found,), err = answers([case(gpus={"count": 1, "type": "T4"})])
    assert code == 1
    assert not [line for line in err if "ERROR" in line]
    assert (found["fits"], found["verdict"]) == (False, "does-not-fit")
    assert found["low_gib"] > found["capacity_gib"]


def test_a_gpu_that_nobody_knows_leaves_the_verdict_open(answers):
    code, (found,), err = answers([case(gpus={"count": 8, "type": "H10O"})])
    assert code == 0
    assert (found["fits"], found["verdict"], found["capacity_gib"]) == (None, "unknown", None)
    (line,) = err
    assert line.startswith("cases.yaml:5:11: WARNING: gpus: unknown GPU 'H10O'; did you mean 'H100'?")


@pytest.mark.parametrize(
    ("changes", "place", "message"),
    [
        ({"model": "Qwen/Qwen2.5-7"}, "2:10", "model: unknown model 'Qwen/Qwen2.5-7'; did you mean 'Qwen/Qwen2.5-7B'?"),
        ({"config": {f"{ROLLOUT}.gpu_memory_utilization": 1.5}}, "7:55", "gpu_memory_utilization: expected a number above 0 and up to 1, got 1.5"),
        ({"config": {f"{ROLLOUT}.tensor_model_parallel_size": 8}}, "7:59", "does not divide the model's 28 attention heads"),
    ],
)  # fmt: skip
def test_errors_of_a_case_at_their_places(answers, changes, place, message):
    code, (found, other), err = answers([case(**changes), case("b")])
    assert code == 1
    (line,) = [line for line in err if ": ERROR: " in line and message in line]
    assert line.startswith(f"cases.yaml:{place}: ERROR: ")
    assert message in found["error"]
    assert found["verdict"] == "unknown"
    assert other["fits"] is True
    assert "error" not in other


@pytest.mark.parametrize(
    ("config", "place", "message"),
    [
        ({f"{ROLLOUT}.gpu_memory_utilisation": 0.4}, "7:5", "did you mean 'actor_rollout_ref.rollout.gpu_memory_utilization'? [verl.unknown_key]"),
        ({f"{ACTOR}.ppo_mini_batch_size": 8, f"{ACTOR}.ppo_micro_batch_size_per_gpu": 64}, "8:59", "the micro-batch of 64 sequences is larger than a GPU's mini-batch of "),
        ({"actor_rollout_ref.model.lora_rank": 0, "actor_rollout_ref.model.target_modules": "all-linear"}, "8:45", "the LoRA rank is 0: there are no adapters"),
    ],
)  # fmt: skip
def test_warnings_of_a_case_at_their_places(answers, config, place, message):
    if f"{ACTOR}.ppo_micro_batch_size_per_gpu" not in config:
        config = {**config, **CONFIG}
    code, (found,), err = answers([case(config=config)])
    assert code == 0
    assert found["peak_gib"] > 0
    (line,) = [line for line in err if message in line]
    assert line.startswith(f"cases.yaml:{place}: WARNING: ")
    assert any(text in line for text in found["warnings"])


def test_a_broken_case_keeps_the_others(answers):
    code, found, err = answers(
        [case(), case("b", gpus={"count": "eight"}), case("c", config=None), case("d")]
    )
    assert code == 1
    assert [item["id"] for item in found] == ["a", "b", "c", "d"]
    assert ["error" in item for item in found] == [False, True, True, False]
    assert "gpus.count: expected a whole number, got the text 'eight'" in found[1]["error"]
    assert list(found[1]) == ["id", *FIELDS, "error"]
    assert len([line for line in err if ": ERROR: " in line]) == 2


def test_a_plain_training_case(answers):
    training = {"micro_batch_per_gpu": 2, "sequence_length": 1024, "method": "full"}
    code, (found,), (line,) = answers([case("t", config=None, training=training)])
    assert code == 1
    assert found["error"].startswith("training: training without reinforcement learning is not estimated; ")
    assert line.startswith("cases.yaml:7:5: ERROR: training: ")


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("- id: [", 2, "cases.yaml:1:"),
        ("a: 1", 2, "cases.yaml:1:1: ERROR: expected a list, got keys and values"),
        ("- id: a\n  model: m\n  gpus: {count: 1}\n  gpus: {count: 2}\n  config: {}\n", 1, "duplicate key 'gpus'"),
    ],
)  # fmt: skip
def test_yaml_that_is_not_as_it_should_be(answers, tmp_path, text, code, message):
    (tmp_path / "cases.yaml").write_text(text, "utf-8")
    found_code, found, err = answers("cases.yaml")
    assert found_code == code
    assert any(message in line for line in err)
    assert all("error" in item for item in found)


def test_a_bad_file_keeps_the_other_files(answers, tmp_path):
    (tmp_path / "bad.yaml").write_text("- id: [", "utf-8")
    code, (found,), err = answers("bad.yaml", [case()])
    assert code == 1
    assert found["fits"] is True
    assert err[0].startswith("bad.yaml:1:")


def test_another_process_prints_the_same_and_imports_nothing_heavy(estimate, tmp_path):
    """The output depends neither on the order of sets nor on modules that are already imported."""
    cases = [case(), case("b", gpus={"count": 1, "type": "T4"})]
    _, here, _ = estimate(cases, "--format", "json")
    assert len(json.loads(here)) == 2
    code = (
        "import sys\nfrom sphinx_verl_resources.cli import main\n"
        "main(['estimate', 'cases.yaml', '--format', 'json'])\n"
        "heavy = {'torch', 'transformers', 'numpy', 'sphinx'} & set(sys.modules)\nassert not heavy, heavy"
    )
    there = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONHASHSEED": "3"},
    )
    assert there.returncode == 0, there.stderr
    assert there.stdout == here


def test_every_recorded_case_has_a_result(answers, root):
    files = sorted(str(path) for path in (root / "data/cases").glob("*.yaml"))
    entries = read_data([]).cases.entries
    _, found, _ = answers(*files)
    assert [item["id"] for item in found] == [entry.case.id for entry in entries]


def test_a_run_file(estimate, tmp_path, make_good_run_text):
    """The result is the same as on the page, with problems at their places in the file."""
    settings = {"data.train_batch_size": 64, "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 1}
    (tmp_path / "a.yaml").write_text(make_good_run_text(settings=settings), "utf-8")
    code, out, err = estimate("a.yaml", "--format", "json")
    (found,) = json.loads(out)
    assert (code, found["id"], found["peak_gib"] > 0, err) == (0, "a", True, "")
    assert estimate("a.yaml")[1].startswith("Borderline: Qwen/Qwen2.5-7B-Instruct, GRPO, on ")
    size = "actor_rollout_ref.rollout.tensor_model_parallel_size"
    (tmp_path / "b.yaml").write_text(make_good_run_text(id="b", settings={**settings, size: 3}), "utf-8")
    line = (tmp_path / "b.yaml").read_text("utf-8").splitlines().index(f"  {size}: 3") + 1
    code, out, err = estimate("b.yaml", [case()], "--format", "json")
    assert [item["id"] for item in json.loads(out)] == ["b", case()["id"]]
    assert f"b.yaml:{line}:" in err
    (tmp_path / "c.yaml").write_text(make_good_run_text(tag="X"), "utf-8")
    code, out, err = estimate("c.yaml", "--format", "json")
    assert code == 1
    assert "c.yaml:4:6: ERROR: tag: unknown value 'X'" in err
    assert "unknown value 'X'" in json.loads(out)[0]["error"]


def test_a_run_file_without_settings(estimate, tmp_path, make_good_run_text):
    """It has no estimate, as on the page, rather than one with verl's defaults."""
    (tmp_path / "a.yaml").write_text(make_good_run_text(settings={}), "utf-8")
    code, out, err = estimate("a.yaml", "--format", "json")
    (found,) = json.loads(out)
    reason = "the run 'a' has no recorded settings; add them to its file"
    assert (code, found["id"], found["peak_gib"]) == (1, "a", None)
    assert found["error"].startswith(reason)
    assert err.startswith("a.yaml:")
    assert f": ERROR: {reason}" in err
    assert estimate("a.yaml")[1] == "No answer: a.\n"
