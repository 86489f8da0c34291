"""Launch scripts of many kinds: results of ``new`` and ``estimate``, or why they reject a script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from sphinx_verl_resources.commands import main
from sphinx_verl_resources.logs.run_file import TODO

HERE = Path(__file__).parent
EXPECTED = yaml.safe_load((HERE / "scripts.yaml").read_text("utf-8"))
REFUSED = [each for each in EXPECTED if "refused" in each]
ACCEPTED = [each for each in EXPECTED if "refused" not in each]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command next to a copy of the script, without a data directory."""
    monkeypatch.chdir(tmp_path)

    def ran(command, expected, *more):
        name = expected["script"]
        (tmp_path / name).write_bytes((HERE / "scripts" / name).read_bytes())
        code = main([command, "--script", name, *more])
        return code, *capsys.readouterr()

    return ran


def named(cases):
    return pytest.mark.parametrize("expected", cases, ids=lambda each: each["script"])


def test_every_script_is_described():
    assert sorted(path.name for path in (HERE / "scripts").iterdir()) == sorted(
        each["script"] for each in EXPECTED
    )


@named(ACCEPTED)
def test_new(run, expected):
    code, out, err = run("new", expected, "--dry-run", "--format", "json")
    fields = yaml.safe_load(json.loads(out)["text"])
    assert code == 0
    assert (fields["model"], fields["task"], fields["gpus"]["count"]) == (
        expected["model"], expected["task"], expected["gpus"],
    )  # fmt: skip
    assert all(text in err for text in expected.get("messages", ())), err
    assert ("ERROR" in err, TODO in fields["task"]) == (False, False)


@named(ACCEPTED[::6])
def test_the_file_passes_the_check_once_it_is_filled_in(run, expected, tmp_path, capsys):
    arguments = ["--gpus", "16*H100" if expected["gpus"] == TODO else "H100"]
    arguments += ["--model", "lmsys/gpt-oss-20b-bf16"] if expected["model"] == TODO else []
    assert run("new", expected, "--output", "data", *arguments)[0] == 0
    (path,) = (tmp_path / "data/runs").iterdir()
    text = path.read_text("utf-8").replace("tag: TODO", "tag: MIN").replace("name: TODO", "name: Jane Doe")
    text = text.replace("version: TODO", 'version: "0.11.0"').replace("verl: TODO", 'verl: "0.8.0"')
    path.write_text(text.replace("url: TODO", "url: https://example.org/a"), "utf-8")
    code = main(["check", "data"])
    assert (code, " 0 errors" in (err := capsys.readouterr())[0]) == (0, True), err


@named(ACCEPTED)
def test_estimate(run, expected):
    gpus = "16xH100" if expected["gpus"] == TODO else "H100"
    model = ["openai/gpt-oss-20b"] if expected["model"] == TODO else []
    code, out, err = run("estimate", expected, *model, "--gpus", gpus, "--format", "json")
    (fields,) = json.loads(out)
    assert (code in {0, 1}, fields["task"]) == (True, expected["task"]), err
    assert fields["model"] in {expected["model"], *model}
    assert fields["gpus"] == {"count": 16 if expected["gpus"] == TODO else expected["gpus"], "type": "H100"}
    undecided = [expected["undecided"]] if "undecided" in expected else []
    assert fields["undecided"] == undecided or expected["gpus"] == TODO
    assert (fields["peak_gib"] is None) == bool(fields["undecided"])


@named([each for each in ACCEPTED if each["gpus"] == TODO])
def test_estimate_says_that_the_number_of_gpus_is_not_known(run, expected):
    _, out, _ = run("estimate", expected, "Qwen/Qwen3-4B", "--gpu", "H100")
    text = " ".join(out.split())
    assert text.startswith(f"Unknown: Qwen/Qwen3-4B, {expected['task']}, on an unknown number of H100s. ")
    assert "Set it with --gpus, as in 8xH100." in text
    _, out, _ = run("estimate", expected, "Qwen/Qwen3-4B", "--gpu", "H100", "--format", "json")
    assert json.loads(out)[0]["gpus"] == {"count": None, "type": "H100"}


@named([each for each in ACCEPTED if each["model"] == TODO])
def test_estimate_names_what_the_model_may_be(run, expected):
    code, out, err = run("estimate", expected, "--format", "json")
    assert (code, expected["messages"][0] in err, "error" in json.loads(out)[0]) == (2, True, True)


@named(REFUSED)
def test_refusals(run, expected, tmp_path):
    for command, code, more in (("new", 1, ("--output", "data")), ("estimate", 2, ("--gpu", "H100"))):
        exit_code, out, err = run(command, expected, *more)
        assert (exit_code, err.count("ERROR")) == (code, 1)
        assert err.startswith(f"{expected['script']}:{expected['refused']}")
        assert all(text in err for text in expected.get("messages", ())), err
        assert err.endswith(" [verl.not_training]\n")
        assert not out or out == f"No answer: {expected['script']}.\n"
    assert not (tmp_path / "data").exists()
