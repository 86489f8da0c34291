"""Files that GitHub reads: the issue forms, and the workflow that publishes a release."""

from __future__ import annotations

import os
import subprocess

import pytest
import yaml

from sphinx_verl_resources import __version__
from sphinx_verl_resources.records import TAGS, TRAIN_BACKENDS, Run

#: Fields of a run file that need no question in the issue form.
NOT_ASKED = {"id", "size", "label", "kind", "added"}


@pytest.fixture
def form(root):
    """Return a function that returns an issue form."""
    return lambda name: yaml.safe_load((root / f".github/ISSUE_TEMPLATE/{name}.yml").read_text("utf-8"))


@pytest.fixture
def questions(form):
    """Return a function that returns the answerable items of a form by id."""
    return lambda name: {item["id"]: item for item in form(name)["body"] if "id" in item}


@pytest.fixture
def workflow(root):
    return yaml.safe_load((root / ".github/workflows/release.yml").read_text("utf-8"))


def test_the_form_of_a_run_asks_for_the_fields_of_a_run_file(questions):
    asked = questions("run")
    assert asked.keys() == Run.model_fields.keys() - NOT_ASKED
    required = {name for name, item in asked.items() if "validations" in item}
    assert required == {name for name, field in Run.model_fields.items() if field.is_required()} - NOT_ASKED
    options = {name: item["attributes"].get("options") for name, item in asked.items()}
    assert options["tag"] == list(TAGS)
    assert options["train"] == list(TRAIN_BACKENDS)


def test_answers_make_a_run_file(questions, data):
    """The examples in the fields, one below the other, form a file that passes the check."""
    lines = ["id: a", "size: 7B"]
    for name, item in questions("run").items():
        attributes = item["attributes"]
        answer = attributes.get("placeholder") or attributes["options"][0]
        block = answer.strip().replace("\n", "\n  ")
        lines.append(f"{name}:\n  {block}" if item["type"] == "textarea" else f"{name}: {answer}")
    data.write("runs/a.yaml", "\n".join(lines) + "\n")
    assert data.problems() == []


@pytest.mark.parametrize(
    ("tag", "heading", "said"),
    [
        (f"v{__version__}", f"## {__version__} - 2026-11-23", ""),
        ("v99.0", f"## {__version__} - 2026-11-23", f"the tag is v99.0 and the version is {__version__}"),
        (__version__, f"## {__version__} - 2026-11-23", f"tag v{__version__}, or change __version__"),
        (f"v{__version__}", "## Unreleased", f"no section of {__version__}; add the heading"),
    ],
)
def test_only_the_tag_of_the_version_is_published(workflow, root, tmp_path, tag, heading, said):
    (command,) = [
        step["run"] for step in workflow["jobs"]["build"]["steps"] if "Compare" in step.get("name", "")
    ]
    (tmp_path / "sphinx_verl_resources").symlink_to(root / "sphinx_verl_resources")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n", "utf-8")
    environment = {**os.environ, "GITHUB_REF_NAME": tag}
    shell = ["bash", "-e", "-o", "pipefail", "-c", command]
    done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == bool(said)
    assert said in done.stdout
