"""Files that GitHub reads: the issue forms, and the workflow that publishes a release."""

from __future__ import annotations

import os
import re
import subprocess
from typing import get_args

import pytest
import yaml

from sphinx_verl_resources import __version__
from sphinx_verl_resources.catalog.models.run import Evidence, Infer, Measured, Run
from sphinx_verl_resources.catalog.names import TAGS, TRAIN_BACKENDS
from sphinx_verl_resources.cli.main import build_parser

#: For each type of item, the attributes that GitHub requires and the others that it knows.
ATTRIBUTES = {
    "markdown": ({"value"}, set()),
    "input": ({"label"}, {"description", "placeholder", "value"}),
    "textarea": ({"label"}, {"description", "placeholder", "value", "render"}),
    "dropdown": ({"label", "options"}, {"description", "multiple", "default"}),
}
#: Fields of a run file that need no question in the issue form.
NOT_ASKED = {"id", "size", "label", "kind", "added"}
PINNED = r"[\w-]+/[\w/-]+@[0-9a-f]{40}"


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


@pytest.mark.parametrize("name", ["run", "estimate"])
def test_github_takes_the_form(form, name):
    found = form(name)
    assert found.keys() == {"name", "description", "title", "body"}
    ids = [item.get("id") for item in found["body"] if item["type"] != "markdown"]
    labels = [item["attributes"].get("label") for item in found["body"] if item["type"] != "markdown"]
    for names in (ids, labels):
        assert len(names) == len(set(names))
    for item in found["body"]:
        demanded, known = ATTRIBUTES[item["type"]]
        assert demanded <= item["attributes"].keys() <= demanded | known
        assert item.keys() <= {"type", "attributes", "id", "validations"}
        assert item.get("validations", {"required": True}) == {"required": True}
        for value in item["attributes"].values():
            assert value
            assert isinstance(value, str) or all(isinstance(option, str) for option in value)
        assert item["type"] == "markdown" or re.fullmatch(r"[\w-]+", item["id"])


def test_the_form_of_a_run_asks_for_the_fields_of_a_run_file(questions):
    asked = questions("run")
    assert asked.keys() == Run.model_fields.keys() - NOT_ASKED
    required = {name for name, item in asked.items() if "validations" in item}
    assert required == {name for name, field in Run.model_fields.items() if field.is_required()} - NOT_ASKED
    options = {name: item["attributes"].get("options") for name, item in asked.items()}
    assert options["tag"] == list(TAGS)
    assert options["train"] == list(TRAIN_BACKENDS)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("evidence", Evidence.model_fields["kind"]),
        ("measured", Measured.model_fields["counter"]),
        ("infer", Infer.model_fields["engine"]),
    ],
)
def test_words_to_choose_from_are_named(questions, name, field):
    description = questions("run")[name]["attributes"]["description"]
    for word in get_args(field.annotation):
        assert word == field.default or re.search(rf"\b{word}\b", description)


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


@pytest.mark.parametrize("name", ["run", "estimate"])
def test_the_commands_of_the_forms_exist(form, name):
    _, parsers = build_parser()
    texts = " ".join(str(item["attributes"]) for item in form(name)["body"])
    commands = re.findall(r"`verl-resources ([^`]+)`", texts)
    assert commands
    for command in commands:
        if command != "--version":
            known, *arguments = command.split()
            parsers[known].parse_args(arguments)


def test_actions_that_publish_are_pinned(workflow):
    used = [
        step["uses"] for job in workflow["jobs"].values() for step in job.get("steps", ()) if "uses" in step
    ]
    assert len(used) == 5
    for action in used:
        assert re.fullmatch(PINNED, action)
    rights = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
    assert (rights, workflow["permissions"]) == ({"publish": {"id-token": "write"}}, {"contents": "read"})
    assert workflow["jobs"]["publish"]["environment"] == "pypi"
    assert [workflow["jobs"][name]["needs"] for name in ("build", "publish")] == ["tests", "build"]


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
