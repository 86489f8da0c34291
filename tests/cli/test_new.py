"""``verl-resources new``: the file, the messages, the template, and the errors."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from sphinx_verl_resources.records import Run

RUN = "python3 -m verl.trainer.main_ppo"
NAME = "qwen2-5-7b-grpo-2xh100.yaml"
OOM = "(WorkerDict pid=1) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB\n"


@pytest.fixture
def here(data, root, tmp_path, run):
    """Return a folder with the example's script and log next to an empty data directory."""
    for name in ("run.sh", "run.log"):
        shutil.copy(root / "docs/examples" / name, tmp_path)
    return tmp_path


def names(folder):
    """Return the names of the files in a folder."""
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.mark.parametrize("schema", ["", "# yaml-language-server: $schema=../schema/run.json\n"])
def test_the_example(here, data, run, schema):
    if schema:
        data.write("schema/run.json", "{}")
    code, out, err = run("new --script run.sh --log run.log")
    text = (here / "data/runs" / NAME).read_text("utf-8")
    found = yaml.safe_load(text)
    assert text.startswith(f"{schema}id: qwen2-5-7b-grpo-2xh100\n")
    assert [line.strip().partition("  # ")[0] for line in text.splitlines() if "TODO" in line] == [
        "tag: TODO", "contributor: {name: TODO, url: TODO}", "- {kind: log, url: TODO}",
    ]  # fmt: skip
    assert (code, found["model"], found["measured"]["gib"]) == (0, "Qwen/Qwen2.5-7B-Instruct", 64.8)
    assert found["infer"] == {"engine": "vllm", "version": "0.11.0"}
    assert found["versions"] == {"verl": "0.8.0", "torch": "2.8.0"}
    for words in (f"data/runs/{NAME}:{4 if schema else 3}: tag: TODO", "measured 64.8 GiB", "within the range", f"next: verl-resources check data/runs/{NAME}"):  # fmt: skip
        assert words in out
    assert {line.rsplit("[", 1)[1] for line in err.splitlines()} == {"verl.script_place]", "verl.left_out]"}
    assert not {"home", "gsm8k", "console", "example"} & set(str(found["settings"]).replace("/", " ").split())


def test_what_is_printed_instead(here, run, result):
    code, found, _ = result("new --script run.sh --log run.log --dry-run")
    assert (code, found["written"], found["measured_gib"]) == (0, False, 64.8)
    lines = found["text"].splitlines()
    assert ["TODO" in lines[item["line"] - 1] for item in found["todo"]] == [True] * 3
    estimate = found["estimate"]
    assert estimate["logged_low_gib"] <= 64.8 <= estimate["logged_high_gib"]
    assert found["difference"] == pytest.approx(estimate["logged_max_allocated_gib"] / 64.8 - 1, abs=1e-3)
    code, out, _ = run("new --script run.sh --dry-run --output nowhere")
    assert (code, out[:4]) == (0, "id: ")
    assert (names("."), names("data/runs")) == (["data", "run.log", "run.sh"], [])


def test_nothing_is_compared_with_an_unknown_gpu(here, run, result):
    log = Path("run.log").read_text("utf-8")
    Path("run.log").write_text(re.sub("^GPU .*\n", "", log, flags=re.MULTILINE), "utf-8")
    words = "new --script run.sh --log run.log --dry-run"
    assert [result(words)[1][name] for name in ("measured_gib", "difference")] == [64.8, None]
    assert "estimate: unknown, because the GPU is; --gpus names it\n\n" in run(words)[1]


def test_nothing_is_overwritten_without_force(here, run, monkeypatch):
    file = here / "data/runs" / NAME
    file.write_text("mine\n")
    code, out, err = run("new --script run.sh --gpus H100")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == (
        f"verl-resources: data/runs/{NAME}: already exists; --force replaces it, "
        "--id qwen2-5-7b-grpo-2xh100-fsdp writes another file"
    )

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        code, _, err = run("new --script run.sh --gpus H100 --force")
        assert (code, err.splitlines()[-1]) == (
            2,
            f"verl-resources: data/runs/{NAME}: no space left on device",
        )
    assert (file.read_text(), names("data/runs")) == ("mine\n", [NAME])
    assert run("new --script run.sh --gpus H100 --force")[0] == 0
    assert (yaml.safe_load(file.read_text())["tag"], names("data/runs")) == ("TODO", [NAME])


def test_the_check_asks_for_nothing_that_was_not_said(here, run):
    _, _, err = run("new --script run.sh --gpus H100 --dry-run")
    versions = "the version of vllm, the version of verl; add --infer-version, --verl-version"
    assert f"run.sh:1:1: WARNING: unknown: {versions} [verl.undecided]" in err.splitlines()
    assert run("new --script run.sh --gpu H100 --verl-version 0.8.0 --infer-version 0.11.0")[0] == 0
    file = here / "data/runs" / NAME
    text = file.read_text("utf-8").replace("tag: TODO", "tag: MIN").replace("name: TODO", "name: Jane Doe")
    file.write_text(text.replace("url: TODO", "url: https://example.org/a"), "utf-8")
    assert run("check data") == (0, "data: 1 run, 0 errors, 0 warnings\n", "")


def test_links_that_lead_out(here, run, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "x.yaml").write_text("mine\n")
    (here / "data/runs/x.yaml").symlink_to(outside / "x.yaml")
    code, _, err = run("new --script run.sh --id x --force")
    assert (code, "points outside the data directory" in err) == (1, True)
    shutil.rmtree(here / "data/runs")
    (here / "data/runs").symlink_to(outside)
    code, _, err = run("new --script run.sh")
    assert (code, "points outside the data directory" in err) == (1, True)
    assert (names(outside), (outside / "x.yaml").read_text()) == (["x.yaml"], "mine\n")


def test_no_data_directory(tmp_path, run):
    (tmp_path / "run.sh").write_text(f"{RUN} trainer.nnodes=1\n")
    reason = "verl-resources: no data directory here; give one with --output DIR\n"
    assert run("new --script run.sh") == (2, "", reason)
    code, out, _ = run("new --script run.sh --dry-run")
    assert (code, "id: run-ppo-8-gpus\n" in out, names(tmp_path)) == (0, True, ["run.sh"])
    assert run("new --script run.sh --output own")[0] == 0
    assert len(names(tmp_path / "own/runs")) == 1


@pytest.mark.parametrize(
    ("script", "log", "words", "message"),
    [
        ("", OOM, "", "run.log:37:1: ERROR: the run ran out of memory here; find out why with: verl-resources diagnose run.log"),
        (None, "nothing here\n", "--id x", "run.log:1:1: ERROR: this log contains neither"),
        ("echo hello\n", None, "", "run.sh:1:1: ERROR: "),
        (f"{RUN} 'trainer.nnodes=1\n", None, "", "run.sh:1:"),
        ("", None, "--gpus H100 --infer-version a_b", "[verl.wrong_value]"),
    ],
)  # fmt: skip
def test_what_makes_no_run(here, run, script, log, words, message):
    if script:
        (here / "run.sh").write_text(script)
    if log:
        before = (here / "run.log").read_text("utf-8") if log == OOM else ""
        message = message.replace("37", str(before.count("\n") + 1))
        (here / "run.log").write_text(before + log)
    given = f"{'--script run.sh' if script is not None else ''} {'--log run.log' if log else ''} {words}"
    code, out, err = run("new", *(word.replace("a_b", "a b") for word in given.split()))
    assert (code, out, message in err) == (1, "", True), err
    assert names("data/runs") == []
    if log == OOM:
        code, _, err = run("new --script run.sh --log run.log --despite-out-of-memory")
        assert (code, "WARNING: the run ran out of memory here" in err) == (0, True)


# -- templates

ANSWERS = {
    "size": "7B", "tag": "MIN", "model": "Qwen/Qwen2.5-7B-Instruct", "task": "GRPO", "count": "8", "type": "H100",
    "train": "fsdp", "engine": "vllm", "name": "Jane Doe", "url": "https://example.org/run.log",
}  # fmt: skip


def test_a_template(data, run):
    code, out, err = run("new --blank --id mine")
    assert (code, err) == (0, "")
    path = data.path / "runs/mine.yaml"
    text = path.read_text("utf-8")
    words = " ".join(re.sub(r"(?m)^#", " ", text).split())
    for name, field in Run.model_fields.items():
        assert f"{name}:" in words
        assert field.description in words
    blank = yaml.safe_load(text)
    required = {name for name, field in Run.model_fields.items() if field.is_required()}
    assert required <= {*blank} == required | {"contributor", "kind", "added", "evidence"}
    lines = [
        line for line in text.splitlines() if line.lstrip(" -")[:1] != "#" and "TODO" in line.split("#")[0]
    ]
    listed = re.findall(r"(?m)^  data/runs/mine\.yaml:\d+: (.+)$", out)
    assert listed == [line.split("  # ")[0].strip() for line in lines]
    assert "no estimate: unknown model, task, train, gpus.count" in out
    for key, value in ANSWERS.items():
        text = re.sub(rf"(?m)^([\s-]*{key}:) TODO", rf"\1 {value}", text)
    path.write_text(text, "utf-8")
    code, _, err = run("check data")
    assert (code, " ERROR: " in err, data.load().runs["mine"].gpus.count) == (0, False, 8)
