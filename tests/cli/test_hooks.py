"""Use in other repositories: the hook as pre-commit calls it, the workflow, and the helper for tests."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sphinx_verl_resources.testing import assert_data

#: The commands of this environment come first.
COMMANDS = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def git(*words):
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path, make_good_run_text, run):
    """Return a repository with a committed, valid run under docs/data."""
    (tmp_path / "docs/data/runs").mkdir(parents=True)
    (tmp_path / "docs/data/runs/a.yaml").write_text(make_good_run_text(id="a"), "utf-8")
    (tmp_path / "README.md").write_text("# Title\n", "utf-8")
    git("init", "--quiet")
    git("add", ".")
    git("-c", "user.name=n", "-c", "user.email=e", "commit", "--quiet", "-m", "Begin")
    return tmp_path


@pytest.fixture
def staged(root, repository, run):
    """Return a function that stages a file and runs the hook as pre-commit does; None if it has nothing to do."""
    (hook,) = yaml.safe_load((root / ".pre-commit-hooks.yaml").read_text("utf-8"))
    (config,) = yaml.safe_load((root / "docs/examples/pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert config["hooks"][0]["id"] == hook["id"]

    def called(name, text):
        (repository / name).write_text(text, "utf-8")
        git("add", ".")
        names = git("diff", "--staged", "--name-only", "--no-ext-diff", "--diff-filter=ACMRTUXB").split()
        files = [name for name in names if re.search(hook.get("files", ""), name)]
        if not files and not hook.get("always_run"):
            return None
        entry, *words = [*shlex.split(hook["entry"]), *config["hooks"][0].get("args", hook.get("args", []))]
        assert entry == "verl-resources"
        return run("", *words, *(files if hook.get("pass_filenames", True) else []))

    return called


def test_the_hook_in_a_repository(staged, make_good_run_text):
    assert staged("README.md", "# Other\n") is None
    good = make_good_run_text(id="b", gpus={"count": 4, "type": "H100"})
    code, out, err = staged("docs/data/runs/b.yaml", good)
    assert (code, out[:29], err) == (0, "docs/data: 2 runs, 0 errors, ", "")
    code, _, err = staged("docs/data/runs/b.yaml", make_good_run_text(id="b", tag="X"))
    assert (code, err[:52]) == (1, "docs/data/runs/b.yaml:4:6: ERROR: tag: unknown value")


@pytest.mark.slow
def test_the_workflow_runs(root, repository, make_good_run_text):
    workflow = yaml.safe_load((root / "docs/examples/check-data.yml").read_text("utf-8"))
    assert workflow[True], "on:, which YAML 1.1 reads as true"
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    steps = [step["run"] for step in job["steps"] if step.get("run", "").startswith("verl-resources")]
    assert len(steps) == 2
    environment = {**COMMANDS, "GITHUB_STEP_SUMMARY": "summary.md"}

    def start(step):
        return subprocess.run(["bash", "-e", "-c", step], capture_output=True, text=True, env=environment)

    assert [(found.returncode, found.stderr) for found in map(start, steps)] == [(0, "")] * 2
    assert Path("summary.md").read_text("utf-8").startswith("| Tag ")
    Path("docs/data/runs/a.yaml").write_text(make_good_run_text(tag="X"), "utf-8")
    bad = start(steps[0])
    assert (bad.returncode, bad.stderr[:39]) == (1, "docs/data/runs/a.yaml:4:6: ERROR: tag: ")


@pytest.mark.slow
def test_the_example_of_a_test(root, repository, make_good_run_text):
    example = (root / "docs/examples/test_data.py").read_text("utf-8")
    assert len(example.strip().splitlines()) == 5
    Path("test_data.py").write_text(example, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_data.py"]
    good = subprocess.run(command, capture_output=True, text=True)
    assert good.returncode == 0, good.stdout
    Path("docs/data/runs/a.yaml").write_text(make_good_run_text(tag="X"), "utf-8")
    bad = subprocess.run(command, capture_output=True, text=True)
    assert bad.returncode == 1
    assert "docs/data/runs/a.yaml:4:6: ERROR: tag: unknown value 'X'" in bad.stdout


def test_assert_data_says_what_check_prints(data, run, tmp_path):
    data.good_run("a")
    assert_data(data.path, warnings=True)
    data.write("runs/c.txt", "")
    assert_data(data.path)
    data.good_run("b", tag="X", size="9B")
    printed = run("check")[2].splitlines()
    errors = [line for line in printed if " ERROR: " in line]
    for lines, warnings in ((printed, True), (errors, False)):
        with pytest.raises(AssertionError) as raised:
            assert_data("data", warnings=warnings)
        assert str(raised.value).splitlines()[1:] == lines
    assert 0 < len(errors) < len(printed)
    with pytest.raises(OSError, match="No such file or directory"):
        assert_data(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(OSError, match="contains no data"):
        assert_data(tmp_path / "empty")
