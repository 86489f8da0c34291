"""The data of this project: no problems, sources for everything, and schemas that explain each field."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest
import yaml

from sphinx_verl_resources.commands import main
from sphinx_verl_resources.strict_yaml import LOADER


@pytest.fixture(scope="module")
def runs(root):
    return [yaml.load(path.read_bytes(), LOADER) for path in sorted((root / "data/runs").glob("*.yaml"))]


def test_no_problem(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    assert main(["check", "--strict", "data"]) == 0
    out, err = capsys.readouterr()
    assert (out.endswith(" runs, 0 errors, 0 warnings\n"), err) == (True, "")


def test_every_published_row_is_there(runs, published):
    by_script = {run["script"]["path"]: run for run in runs if "script" in run}
    assert len(published) == 12
    for row in published:
        run = by_script[row["Path"]]
        settings = run["settings"]
        assert settings["trainer.nnodes"] * settings["trainer.n_gpus_per_node"] == run["gpus"]["count"]
        assert run.get("max_batch", settings["data.train_batch_size"]) == settings["data.train_batch_size"]


def test_every_run_can_be_looked_up(runs):
    for run in runs:
        assert run["added"], run["id"]
        assert run.get("script") or run["evidence"], run["id"]
        # A minimum offloads, or its source calls it one; see "How to read the tables".
        offloads = any(value for key, value in run.get("settings", {}).items() if "offload" in key)
        minimum = any("minimum" in note["code"] + note["text"] for note in run.get("notes", ()))
        assert run["tag"] != "MIN" or offloads or minimum, run["id"]


def test_no_email_address_and_a_schema_in_every_file(root):
    for path in sorted((root / "data").rglob("*.yaml")):
        text = path.read_text("utf-8")
        assert not re.search(r"[\w.+-]+@[\w-]+\.\w", text), path
        match = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
        assert match, path
        assert (path.parent / match[1]).is_file(), path


class Editor(LOADER):
    """YAML as editors read it: dates are text."""


Editor.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in forms if not tag.endswith("timestamp")]
    for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def fields(part, path=""):
    """Yield the path and schema of every field, at any depth, but not those of conditions."""
    for name, field in part.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field, f"{path}.{name}")
    for name, definition in part.get("definitions", {}).items():
        yield f"/{name}", definition
        yield from fields(definition, f"/{name}")


def test_schemas_accept_the_data_and_explain_each_field(root):
    for path in (root / "data/schema").glob("*.json"):
        schema = json.loads(path.read_text("utf-8"))
        assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
        validator = jsonschema.Draft7Validator(schema)
        validator.check_schema(schema)
        assert "$defs" not in schema
        folder = {"run": "runs", "cases": "cases"}.get(path.stem, "")
        files = [*(root / "data" / folder).glob("*.yaml" if folder else f"{path.stem}.yaml")]
        assert files
        for file in files:
            validator.validate(yaml.load(file.read_text("utf-8"), Editor))
        result = dict(fields(schema))
        assert len(result) >= 5
        for name, field in result.items():
            assert re.search(r"[.:]\s*\Z", field["description"]), (path.stem, name)


def test_the_example_of_the_documentation_is_right_once_it_is_filled_in(root, data, monkeypatch, capsys):
    monkeypatch.chdir(data.path.parent)
    name = "qwen2-5-7b-grpo-2xh100.yaml"
    text = (root / "docs/examples" / name).read_text("utf-8")
    complete = re.sub("TODO-[a-z-]+", "https://example.org/x", text).replace("TODO", "Jane Doe")
    for content, errors in ((text, 3), (complete, 0)):
        data.write(f"runs/{name}", content)
        assert main(["check"]) == bool(errors)
        assert capsys.readouterr().err.count("[verl.todo]") == errors
