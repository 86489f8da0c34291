"""Use in other repositories: the hook as pre-commit calls it, the workflow, and the helper for tests."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sphinx_verl_resources.cli import main
from sphinx_verl_resources.testing import assert_data

#: The commands of this environment come first.
COMMANDS = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def hook(root):
    """Return the only hook."""
    (found,) = yaml.safe_load((root / ".pre-commit-hooks.yaml").read_text("utf-8"))
    return found


@pytest.fixture
def repository(tmp_path, make_good_run_text):
    """Return a repository with a committed, valid run under docs/data."""
    place = tmp_path / "repository"
    (place / "docs/data/runs").mkdir(parents=True)
    (place / "docs/data/runs/a.yaml").write_text(make_good_run_text(id="a"), "utf-8")
    (place / "README.md").write_text("# Title\n", "utf-8")
    git(place, "init", "--quiet")
    git(place, "add", ".")
    git(place, "-c", "user.name=n", "-c", "user.email=e", "commit", "--quiet", "-m", "Begin")
    return place


def git(place, *words):
    return subprocess.run(["git", *words], cwd=place, check=True, capture_output=True, text=True).stdout


def run_hook(place, hook, config):
    """Run the hook on the staged files as pre-commit does; return None if it has nothing to do."""
    staged = git(place, "diff", "--staged", "--name-only", "--no-ext-diff", "--diff-filter=ACMRTUXB").split()
    files = [name for name in staged if re.search(hook.get("files", ""), name)]
    if not files and not hook.get("always_run"):
        return None
    names = files if hook.get("pass_filenames", True) else []
    command = [*shlex.split(hook["entry"]), *config["hooks"][0].get("args", hook.get("args", [])), *names]
    assert command[0] == "verl-resources"
    out, err, before = io.StringIO(), io.StringIO(), Path.cwd()
    os.chdir(place)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(command[1:])
    finally:
        os.chdir(before)
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def test_the_hook_in_a_repository(hook, repository, root, make_good_run_text):
    config = yaml.safe_load((root / "docs/examples/pre-commit-config.yaml").read_text("utf-8"))["repos"][0]
    assert config["hooks"][0]["id"] == hook["id"]
    (repository / "README.md").write_text("# Other\n", "utf-8")
    git(repository, "add", ".")
    assert run_hook(repository, hook, config) is None
    (repository / "docs/data/runs/b.yaml").write_text(
        make_good_run_text(id="b", gpus={"count": 4, "type": "H100"}), "utf-8"
    )
    git(repository, "add", ".")
    good = run_hook(repository, hook, config)
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.startswith("docs/data: 2 runs, 0 errors")
    (repository / "docs/data/runs/b.yaml").write_text(make_good_run_text(id="b", tag="X"), "utf-8")
    git(repository, "add", ".")
    bad = run_hook(repository, hook, config)
    assert bad.returncode == 1
    assert bad.stderr.startswith("docs/data/runs/b.yaml:4:6: ERROR: tag: unknown value 'X'")


@pytest.mark.slow
def test_the_workflow_runs(root, repository, make_good_run_text):
    workflow = yaml.safe_load((root / "docs/examples/check-data.yml").read_text("utf-8"))
    assert workflow[True], "on:, which YAML 1.1 reads as true"
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    steps = [step["run"] for step in job["steps"] if step.get("run", "").startswith("verl-resources")]
    assert len(steps) == 2
    summary = repository / "summary.md"
    environment = {**COMMANDS, "GITHUB_STEP_SUMMARY": str(summary)}
    for step in steps:
        result = subprocess.run(
            ["bash", "-e", "-c", step], cwd=repository, capture_output=True, text=True, env=environment
        )
        assert (result.returncode, result.stderr) == (0, "")
    assert summary.read_text("utf-8").startswith("| Tag ")
    (repository / "docs/data/runs/a.yaml").write_text(make_good_run_text(tag="X"), "utf-8")
    bad = subprocess.run(
        ["bash", "-e", "-c", steps[0]], cwd=repository, capture_output=True, text=True, env=environment
    )
    assert bad.returncode == 1
    assert bad.stderr.startswith("docs/data/runs/a.yaml:4:6: ERROR: tag: ")


@pytest.mark.slow
def test_the_example_of_a_test(root, repository, make_good_run_text):
    example = (root / "docs/examples/test_data.py").read_text("utf-8")
    assert len(example.strip().splitlines()) == 5
    (repository / "test_data.py").write_text(example, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_data.py"]
    good = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert good.returncode == 0, good.stdout
    (repository / "docs/data/runs/a.yaml").write_text(make_good_run_text(tag="X"), "utf-8")
    bad = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert bad.returncode == 1
    assert "docs/data/runs/a.yaml:4:6: ERROR: tag: unknown value 'X'" in bad.stdout


def test_assert_data_says_what_check_prints(data, monkeypatch, capsys):
    data.good_run("a", tag="X")
    data.good_run("b", size="9B")
    data.write("runs/c.txt", "")
    data.write("cases/mine.yaml", "- id: x\n  model: Qwen/Qwen2.5-7B\n  gpus: {count: eight}\n  config: {}\n")
    monkeypatch.chdir(data.path.parent)
    assert main(["check"]) == 1
    printed = capsys.readouterr().err.splitlines()
    with pytest.raises(AssertionError) as raised:
        assert_data("data", warnings=True)
    assert str(raised.value).splitlines()[1:] == printed
    with pytest.raises(AssertionError) as raised:
        assert_data(Path("data"))
    errors = [line for line in printed if " ERROR: " in line]
    assert str(raised.value).splitlines()[1:] == errors
    assert 0 < len(errors) < len(printed)


def test_assert_data_lets_good_data_pass(data, tmp_path):
    data.good_run("a")
    assert_data(data.path, warnings=True)
    data.write("runs/c.txt", "")
    assert_data(data.path)
    with pytest.raises(OSError, match="no such directory"):
        assert_data(tmp_path / "nowhere")
