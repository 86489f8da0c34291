"""``verl-resources new``: the file, the messages, and the errors."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from sphinx_verl_resources.cli import main
from sphinx_verl_resources.diagnostics import Code

RUN = "python3 -m verl.trainer.main_ppo"
PATH = "runs/qwen2-5-7b-grpo-2xh100.yaml"


@pytest.fixture
def here(data, root, monkeypatch):
    """Return a folder with the example's script and log next to an empty data directory."""
    for name in ("run.sh", "run.log"):
        shutil.copy(root / "docs" / "examples" / name, data.path.parent)
    monkeypatch.chdir(data.path.parent)
    return data


def names(folder):
    """Return the names of the files in a folder."""
    return sorted(path.name for path in Path(folder).iterdir())


def fill_in(path):
    """Replace the values that ``new`` leaves to the contributor."""
    text = (
        path.read_text("utf-8")
        .replace("tag: TODO", "tag: MIN")
        .replace("url: TODO", "url: https://example.org/a")
    )
    path.write_text(text.replace("name: TODO", "name: Jane Doe"), "utf-8")


def new(capsys, *arguments):
    code = main(["new", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_example(here, capsys):
    code, out, err = new(capsys, "--script", "run.sh", "--log", "run.log")
    assert code == 0
    text = (here.path / PATH).read_text("utf-8")
    run = yaml.safe_load(text)
    assert text.startswith("id: qwen2-5-7b-grpo-2xh100\n")
    assert [line.strip().partition("  # ")[0] for line in text.splitlines() if "TODO" in line] == [
        "tag: TODO", "contributor: {name: TODO, url: TODO}", "- {kind: log, url: TODO}",
    ]  # fmt: skip
    assert run["model"] == "Qwen/Qwen2.5-7B-Instruct"
    assert run["infer"] == {"engine": "vllm", "version": "0.11.0"}
    assert run["versions"] == {"verl": "0.8.0", "torch": "2.8.0"}
    assert run["measured"]["gib"] == 64.8
    assert "data/runs/qwen2-5-7b-grpo-2xh100.yaml:3: tag: TODO" in out
    assert "next: verl-resources check data/runs/qwen2-5-7b-grpo-2xh100.yaml" in out
    assert "measured 64.8 GiB" in out
    assert "within the range" in out
    assert {line.rsplit("[", 1)[1] for line in err.splitlines()} == {"verl.script_place]", "verl.left_out]"}
    assert not {"home", "gsm8k", "console", "example"} & set(str(run["settings"]).replace("/", " ").split())


def test_the_first_line_leads_to_the_schema_where_there_is_one(here, capsys):
    here.write("schema/run.json", "{}")
    new(capsys, "--script", "run.sh", "--log", "run.log")
    text = (here.path / PATH).read_text("utf-8")
    assert text.startswith("# yaml-language-server: $schema=../schema/run.json\nid: qwen2-5-7b-grpo-2xh100\n")


def test_json(here, capsys):
    code, out, _ = new(capsys, "--script", "run.sh", "--log", "run.log", "--format", "json", "--dry-run")
    found = json.loads(out)
    assert (code, found["written"], found["measured_gib"]) == (0, False, 64.8)
    lines = found["text"].splitlines()
    assert len(found["todo"]) == 3
    assert all("TODO" in lines[item["line"] - 1] for item in found["todo"])
    low, high = (found["estimate"][f"logged_{end}_gib"] for end in ("low", "high"))
    assert low <= found["measured_gib"] <= high
    assert found["difference"] == pytest.approx(
        found["estimate"]["logged_max_allocated_gib"] / 64.8 - 1, abs=1e-3
    )
    assert list((here.path / "runs").iterdir()) == []


def test_dry_run_prints_the_file(here, capsys):
    code, out, _ = new(capsys, "--script", "run.sh", "--dry-run", "--output", "nowhere")
    assert code == 0
    assert out.startswith("id: ")
    assert names(".") == ["data", "run.log", "run.sh"]


def test_nothing_is_overwritten_without_force(here, capsys):
    (here.path / PATH).write_text("mine\n")
    arguments = ("--script", "run.sh", "--gpus", "H100")
    code, out, err = new(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == (
        f"verl-resources: data/{PATH}: already exists; --force replaces it, "
        "--id qwen2-5-7b-grpo-2xh100-fsdp writes another file"
    )
    assert (here.path / PATH).read_text() == "mine\n"
    assert new(capsys, *arguments, "--force")[0] == 0
    assert yaml.safe_load((here.path / PATH).read_text())["tag"] == "TODO"
    assert names(here.path / "runs") == [PATH.removeprefix("runs/")]


def test_what_is_not_known_is_no_part_of_an_id(here, capsys):
    (here.path.parent / "run.sh").write_text(f"{RUN} trainer.nnodes=$N actor_rollout_ref.rollout.name=vllm\n")
    assert new(capsys, "--script", "run.sh", "--task", "GRPO")[0] == 0
    assert names(here.path / "runs") == ["run-grpo.yaml"]
    code, _, err = new(capsys, "--script", "run.sh", "--task", "GRPO")
    assert (code, err.splitlines()[-1].partition("--force")[2]) == (
        2, " replaces it, --id run-grpo-fsdp writes another file",
    )  # fmt: skip


def test_the_check_asks_for_nothing_that_was_not_said(here, capsys):
    arguments = ("--script", "run.sh", "--gpus", "H100")
    _, _, err = new(capsys, *arguments, "--dry-run")
    versions = "the version of vllm, the version of verl; add --infer-version, --verl-version"
    assert f"run.sh:1:1: WARNING: unknown: {versions} [verl.undecided]" in err.splitlines()
    assert new(capsys, *arguments, "--verl-version", "0.8.0", "--infer-version", "0.11.0")[0] == 0
    fill_in(here.path / PATH)
    assert main(["check", "data"]) == 0
    assert capsys.readouterr() == ("data: 1 run, 0 errors, 0 warnings\n", "")


@pytest.mark.parametrize("name", ["../x", "A", "", "a" * 81, "a\n"])
def test_ids_that_are_none(here, capsys, name):
    with pytest.raises(SystemExit, match="2"):
        main(["new", "--script", "run.sh", f"--id={name}"])
    assert "invalid id" in capsys.readouterr().err
    assert names(".") == ["data", "run.log", "run.sh"]


def test_links_that_lead_out(here, capsys, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "x.yaml").write_text("mine\n")
    (here.path / "runs" / "x.yaml").symlink_to(outside / "x.yaml")
    code, _, err = new(capsys, "--script", "run.sh", "--id", "x", "--force")
    assert (code, "points outside the data directory" in err) == (1, True)
    (here.path / "runs" / "x.yaml").unlink()
    (here.path / "runs").rmdir()
    (here.path / "runs").symlink_to(outside)
    code, _, err = new(capsys, "--script", "run.sh")
    assert (code, "points outside the data directory" in err) == (1, True)
    assert names(outside) == ["x.yaml"]
    assert (outside / "x.yaml").read_text() == "mine\n"


def test_a_full_disk_leaves_nothing(here, capsys, monkeypatch):
    def refuse(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    code, _, err = new(capsys, "--script", "run.sh", "--gpus", "H100")
    assert (code, err.splitlines()[-1]) == (
        2, f"verl-resources: data/{PATH}: cannot be written: no space left on device",
    )  # fmt: skip
    assert names(here.path / "runs") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (),
            "verl-resources: give a launch script with --script FILE, or write a template with --blank",
        ),
        (
            ("--blank", "--log", "run.log"),
            "verl-resources: --blank cannot be combined with --script or --log",
        ),
        (("--script", "no.sh"), "verl-resources: no.sh: no such file or directory"),
        (("--log", "data"), "verl-resources: data: not a regular file"),
        (
            ("--script", "run.sh", "--output", "run.log"),
            "verl-resources: run.log: not a directory; give a data ",
        ),
        (("--script", "run.log\0"), "verl-resources: run.log"),
    ],
)
def test_what_cannot_run(here, capsys, monkeypatch, arguments, message):
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    code, out, err = new(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(message)


def test_no_data_directory(tmp_path, monkeypatch, capsys):
    (tmp_path / "run.sh").write_text(f"{RUN} trainer.nnodes=1\n")
    monkeypatch.chdir(tmp_path)
    code, _, err = new(capsys, "--script", "run.sh")
    assert (code, err) == (2, "verl-resources: no data directory here; give one with --output DIR\n")
    code, out, _ = new(capsys, "--script", "run.sh", "--dry-run")
    assert (code, "id: run-ppo-8-gpus\n" in out, names(tmp_path)) == (0, True, ["run.sh"])
    assert new(capsys, "--script", "run.sh", "--output", "own")[0] == 0
    assert len(names(tmp_path / "own" / "runs")) == 1


ARCHITECTURE = """\
# yaml-language-server: $schema=schema/architectures.json
architectures:
  - name: Acme-7B
    hf_id: acme/Acme-7B
    model_type: qwen2
    hidden_size: 3584
    num_hidden_layers: 28
    intermediate_size: 18944
    num_attention_heads: 28
    num_key_value_heads: 4
    head_dim: 128
    vocab_size: 152064
    tie_word_embeddings: false
    qkv_bias: true
    qk_norm: false
    norms_per_layer: 2
    max_position_embeddings: 131072
    parameters: 7615616512
    verified: false
"""

OOM = "(WorkerDict pid=1) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB\n"


def test_a_run_that_failed(here, capsys):
    log = here.path.parent / "run.log"
    log.write_text(log.read_text("utf-8") + OOM, "utf-8")
    lines = len(log.read_text("utf-8").splitlines())
    code, out, err = new(capsys, "--script", "run.sh", "--log", "run.log")
    assert (code, out) == (1, "")
    assert f"run.log:{lines}:1: ERROR: the run ran out of memory here" in err
    assert "verl-resources diagnose run.log" in err
    assert list((here.path / "runs").iterdir()) == []
    code, _, err = new(capsys, "--script", "run.sh", "--log", "run.log", "--despite-out-of-memory")
    assert (code, f"run.log:{lines}:1: WARNING: the run ran out of memory here" in err) == (0, True)


@pytest.mark.parametrize("content", [b"", b"nothing here\n"])
def test_a_log_that_says_nothing(here, capsys, content):
    (here.path.parent / "run.log").write_bytes(content)
    code, _, err = new(capsys, "--script", "run.sh", "--log", "run.log")
    assert (code, err.count("[verl.file_empty]")) == (0, 1)
    code, out, err = new(capsys, "--log", "run.log", "--id", "x")
    assert (code, out, "run.log:1:1: ERROR: this log contains neither" in err) == (1, "", True)


@pytest.mark.parametrize("text", ["echo hello\n", f"{RUN} 'trainer.nnodes=1\n"])
def test_a_script_that_is_none(here, capsys, text):
    (here.path.parent / "run.sh").write_text(text)
    code, out, err = new(capsys, "--script", "run.sh")
    assert (code, out) == (1, "")
    assert "run.sh:1:" in err
    assert ": ERROR: " in err
    assert list((here.path / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("--infer-version", "a b", Code.wrong_value),
        ("--task", "a\nb", Code.wrong_value),
    ],
)
def test_options_that_make_no_run(here, capsys, option, value, code):
    found, out, err = new(capsys, "--script", "run.sh", "--gpus", "H100", option, value)
    assert (found, out, f"[{code.id}]" in err) == (1, "", True)
    assert list((here.path / "runs").iterdir()) == []


def test_a_model_of_ones_own(here, capsys):
    (here.path / "architectures.yaml").write_text(ARCHITECTURE, "utf-8")
    script = here.path.parent / "run.sh"
    script.write_text(script.read_text().replace("Qwen2.5-7B-Instruct", "Acme-7B"), "utf-8")
    code, out, err = new(capsys, "--script", "run.sh", "--gpus", "H100", "--format", "json")
    found = json.loads(out)
    assert (code, found["id"], found["no_estimate"]) == (0, "acme-7b-grpo-2xh100", None)
    assert yaml.safe_load(found["text"])["model"] == "acme/Acme-7B"
    assert "verl.unknown_model" not in err
    (here.path / "architectures.yaml").write_text(ARCHITECTURE.replace("head_dim", "heads_dim"), "utf-8")
    code, out, err = new(capsys, "--script", "run.sh", "--gpus", "H100", "--id", "x")
    assert (code, out, "architectures.yaml:11:5: ERROR: unknown key 'heads_dim'" in err) == (1, "", True)
