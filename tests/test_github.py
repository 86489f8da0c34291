"""Files that GitHub and pre-commit read: they ask for the right fields, and run in a repository with data."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from run_texts import good_run_text

from sphinx_verl_resources import __version__
from sphinx_verl_resources.commands import main
from sphinx_verl_resources.logs.draft import _LABELS as LABELS

#: Fields of a run file that need no question in the issue form.
NOT_ASKED = {"id", "size", "label", "kind", "added"}
BAD = r"docs/data/runs/a\.yaml:4:6: ERROR: tag: unknown value 'X'"


def load(path: Path):
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Return a function that writes the only run of a repository with data; it is the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")

    def write(**changes):
        (tmp_path / "docs/data/runs").mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs/data/runs/a.yaml").write_text(good_run_text(**changes), "utf-8")

    write()
    return write


def test_the_form_of_a_run_asks_for_the_fields_of_a_run_file(root, data):
    items = [item for item in load(root / ".github/ISSUE_TEMPLATE/run.yml")["body"] if "id" in item]
    schema = json.loads((root / "data/schema/run.json").read_text("utf-8"))
    labels = [item["attributes"]["label"].lower() for item in items]
    assert [LABELS.get(label, label) for label in labels] == [item["id"] for item in items], "new --issue"
    assert {item["id"] for item in items} <= schema["properties"].keys() - NOT_ASKED
    assert {item["id"] for item in items if "validations" in item} == {*schema["required"]} - NOT_ASKED
    lines = ["id: a", "size: 7B"]
    for item in items:
        attributes = item["attributes"]
        if "options" in attributes:
            assert f"'{attributes['options'][0]}'" in str(schema["properties"][item["id"]])
        answer = attributes.get("placeholder") or attributes["options"][0]
        block = answer.strip().replace("\n", "\n  ")
        lines.append(f"{item['id']}:\n  {block}" if item["type"] == "textarea" else f"{item['id']}: {answer}")
    data.write("runs/a.yaml", "\n".join(lines) + "\n")
    assert data.problems() == [], "the examples in the fields, one below the other, are a run file"


@pytest.mark.parametrize(
    ("tag", "heading", "message"),
    [
        (f"v{__version__}", f"## {__version__} - 2026-11-23", ""),
        ("v99.0", f"## {__version__} - 2026-11-23", f"the tag is v99.0 and the version is {__version__}"),
        (f"v{__version__}", "## Unreleased", f"no section of {__version__}; add the heading"),
    ],
)
def test_only_the_tag_of_the_version_is_published(root, tmp_path, tag, heading, message):
    steps = load(root / ".github/workflows/release.yml")["jobs"]["build"]["steps"]
    (command,) = [step["run"] for step in steps if "Compare" in step.get("name", "")]
    (tmp_path / "sphinx_verl_resources").symlink_to(root / "sphinx_verl_resources")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n", "utf-8")
    shell = ["bash", "-e", "-o", "pipefail", "-c", command]
    environment = {**os.environ, "GITHUB_REF_NAME": tag}
    done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == bool(message)
    assert message in done.stdout


def test_the_hook_and_the_problem_matcher(root, repository, capsys):
    (hook,) = load(root / ".pre-commit-hooks.yaml")
    (config,) = load(root / "docs/examples/pre-commit-config.yaml")["repos"]
    (used,) = config["hooks"]
    assert used["id"] == hook["id"]
    assert not hook["pass_filenames"]
    names = ("README.md", "docs/data/runs/a.yaml", "docs/data/gpus.yml", "docs/gpu.yaml")
    assert tuple(name for name in names if re.search(hook["files"], name)) == names[1:3]
    program, *words = [*shlex.split(hook["entry"]), *used["args"]]
    assert (program, main(words)) == ("verl-resources", 0)
    repository(tag="X")
    assert main(words) == 1
    (matcher,) = json.loads((root / ".github/problem-matcher.json").read_text("utf-8"))["problemMatcher"]
    (pattern,) = matcher["pattern"]
    match = re.match(pattern["regexp"], capsys.readouterr().err)
    names = ("file", "line", "column", "severity", "code")
    place = " ".join(match[pattern[name]] for name in names)
    assert place == "docs/data/runs/a.yaml 4 6 ERROR verl.unknown_value"
    assert match[pattern["message"]].startswith("tag: unknown value 'X'; ")


@pytest.mark.slow
def test_the_workflow_and_the_example_of_a_test(root, repository, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    workflow = load(root / "docs/examples/check-data.yml")
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    commands = [step["run"] for step in job["steps"] if step.get("run", "").startswith("verl-resources")]
    Path("test_data.py").write_text((root / "docs/examples/test_data.py").read_text("utf-8"), "utf-8")
    commands.append("python -m pytest -q -p no:cacheprovider test_data.py >&2")
    for changes, codes in (({}, [0, 0, 0]), ({"tag": "X"}, [1, 1, 1])):
        repository(**changes)
        done = [
            subprocess.run(["bash", "-e", "-c", line], capture_output=True, text=True) for line in commands
        ]
        assert [result.returncode for result in done] == codes, done
        assert all(re.search(BAD, result.stderr) for result in done) == bool(changes)
        assert Path("summary.md").read_text("utf-8").startswith("| Tag ")
