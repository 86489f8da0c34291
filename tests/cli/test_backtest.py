"""``verl-resources backtest``: cases compared with observations, the summary, and the record."""

from __future__ import annotations

import json
import statistics

import pytest
import yaml

from sphinx_verl_resources.cli import main

CONFIG = {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.use_dynamic_bsz": True}


def case(name, outcome="measured", gib=None, **changes):
    fields = {
        "id": name,
        "framework": "verl",
        "model": "Qwen/Qwen2.5-7B",
        "gpus": {"count": 8, "type": "H100"},
        "config": dict(CONFIG),
        "outcome": outcome,
        **({"measured": {"gib": gib, "counter": "perf/max_memory_allocated_gb"}} if gib else {}),
        **changes,
    }
    return {key: value for key, value in fields.items() if value is not None}


@pytest.fixture
def backtest(tmp_path, monkeypatch, capsys):
    """Return a function that runs the command on cases; it returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(cases, *words):
        names = []
        if cases is not None:
            (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases, sort_keys=False), "utf-8")
            names = ["cases.yaml"]
        code = main(["backtest", *names, *words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def scored(backtest):
    """Return a function that runs the command with JSON and parses the output."""

    def run(cases, *words):
        code, out, err = backtest(cases, *words, "--format", "json")
        return code, json.loads(out), err

    return run


def test_the_recorded_cases(scored):
    code, found, err = scored(None)
    assert (code, err) == (0, "")
    assert list(found) == ["cases", "summary", "verdicts", "boundaries"]
    compared = [item for item in found["cases"] if item["scored"] and item["error"] is not None]
    for group in found["summary"]:
        errors = [abs(item["error"]) for item in compared if item["group"] == group["group"]]
        assert group["cases"] == len(errors)
        assert group["mean_error"] == pytest.approx(statistics.fmean(errors), abs=0.0002)
        assert group["median_error"] == pytest.approx(statistics.median(errors), abs=0.0002)
        assert group["worst_error"] == pytest.approx(max(errors), abs=0.0002)
    assert sum(group["cases"] for group in found["summary"]) == len(compared)
    of_verl = [item for item in found["cases"] if item["scored"] and item["group"] != "training"]
    assert found["verdicts"] == {
        verdict: {
            "ran": sum(item["verdict"] == verdict and item["outcome"] != "oom" for item in of_verl),
            "oom": sum(item["verdict"] == verdict and item["outcome"] == "oom" for item in of_verl),
        }
        for verdict in ("fits", "borderline", "depends-on-lengths", "does-not-fit", "unknown")
    }


def test_a_case_beside_its_observation(scored):
    code, found, err = scored([case("a", gib=40)])
    assert (code, err) == (0, "")
    (item,) = found["cases"]
    assert item["observed_gib"] == 40
    assert item["error"] == pytest.approx(item["computed_gib"] / 40 - 1, abs=0.001)
    assert item["inside"] is (item["low_gib"] <= 40 <= item["high_gib"])
    assert (item["group"], item["figure"], item["scored"]) == ("fsdp", "counter", True)
    (group,) = found["summary"]
    assert group["mean_error"] == abs(item["error"])


def test_contested_cases_are_shown_and_do_not_count(scored, backtest):
    cases = [
        case("a", gib=40),
        case("b", gib=10, contested="Somebody else saw 40."),
        case("c", gib=10, not_scored="Another counter."),
        case("d", outcome="fits", gpus={"count": 1, "type": "T4"}),
    ]
    code, found, _ = scored(cases)
    assert code == 0
    assert [item["scored"] for item in found["cases"]] == [True, False, False, True]
    assert [item["error"] is None for item in found["cases"]] == [False, False, False, True]
    assert found["summary"][0]["cases"] == 1
    nobody = {"ran": 0, "oom": 0}
    assert found["verdicts"] == {
        "fits": {"ran": 1, "oom": 0},
        "borderline": nobody,
        "depends-on-lengths": nobody,
        "does-not-fit": {"ran": 1, "oom": 0},
        "unknown": nobody,
    }
    text = backtest(cases)[1]
    notes = [text.index(note) for note in ("contested", "not scored", "wrong")]
    assert notes == sorted(notes)
    lines = text.splitlines()
    assert [line.split() for line in lines if line.startswith(("fits ", "does not fit "))] == [
        ["fits", "1", "0"],
        ["does", "not", "fit", "1", "0"],
    ]


def test_marks_of_the_record(scored, root):
    recorded = [
        item
        for path in sorted((root / "data/cases").glob("*.yaml"))
        for item in yaml.safe_load(path.read_text("utf-8"))
        if item.get("contested") or item.get("not_scored")
    ]
    assert recorded
    bare = [
        {key: value for key, value in item.items() if key not in {"contested", "not_scored"}}
        for item in recorded
    ]
    _, found, _ = scored(bare)
    assert not any(item["scored"] for item in found["cases"])


def test_broken_cases_and_cases_without_an_estimate(scored, backtest):
    cases = [case("a", gib=40), case("b", gib="much"), case("c", outcome="fits", model="none/such")]
    code, found, err = scored(cases)
    assert code == 1
    assert [item["id"] for item in found["cases"]] == ["a", "c", "b"]
    assert [bool(item["problem"]) for item in found["cases"]] == [False, True, True]
    assert err.startswith("cases.yaml:")
    assert "measured.gib: expected a number" in err
    out = backtest(cases)[1]
    assert "No estimate for c: unknown model 'none/such'." in out
    # An unscored case without an estimate is not an error.
    assert scored([case("c", outcome="fits", model="none/such", not_scored="No name.")])[0] == 0


def test_the_record_is_the_same_however_often_it_is_written(backtest, tmp_path, root):
    code, _, err = backtest(None, "--record", "one.yaml")
    assert (code, err) == (0, "")
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "one.yaml").rename(data / "accuracy.yaml")
    assert backtest(None, "--record", "two.yaml")[0] == 0
    text = (tmp_path / "two.yaml").read_text("utf-8")
    assert text == (data / "accuracy.yaml").read_text("utf-8")
    written = yaml.safe_load(text)["accuracy"]
    committed = yaml.safe_load((root / "data/accuracy.yaml").read_text("utf-8"))["accuracy"]
    assert [entry["name"] for entry in written] == [entry["name"] for entry in committed]
    assert text.splitlines()[0].startswith("# yaml-language-server: $schema=")


def test_a_record_needs_good_cases(backtest, tmp_path):
    for cases in ([case("b", gib="much")], []):
        code, out, err = backtest(cases, "--record", "new.yaml")
        assert (code, out) == (2, "")
        assert err.splitlines()[-1].startswith("verl-resources: new.yaml: not written")
        assert not (tmp_path / "new.yaml").exists()


def test_files_that_cannot_be_read_or_written(backtest):
    assert backtest(None, "none.yaml") == (2, "", "verl-resources: none.yaml: no such file or directory\n")
    code, _, err = backtest([case("a", gib=40)], "--record", "no/such/folder.yaml")
    assert code == 2
    assert "no/such/folder.yaml" in err
    assert backtest([], "--format", "json")[0] == 0


def test_output_is_the_same_every_time(backtest):
    assert backtest(None) == backtest(None)
