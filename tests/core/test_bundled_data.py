"""The bundled data: no problems, nothing lost, current schemas."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest
import yaml

from sphinx_verl_resources.dataset import Dataset
from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.print_commands import MODELS
from sphinx_verl_resources.validation import schema_text

SCHEMAS = {kind: schema_text(model) for kind, model in MODELS.items()}


@pytest.fixture(scope="module")
def catalog():
    return Dataset([], missing=Location("conf.py"))


def test_no_problem(catalog):
    assert [str(problem) for problem in catalog.diagnostics] == []


def test_every_published_row_is_there(catalog, published):
    by_script = {run.script.path: run for run in catalog.runs.values() if run.script}
    assert len(published) == 12
    for row in published:
        run = by_script[row["Path"]]
        assert run.settings, run.id
        assert run.settings["trainer.nnodes"] * run.settings["trainer.n_gpus_per_node"] == run.gpus.count
        if run.max_batch:
            assert run.settings["data.train_batch_size"] == run.max_batch


def test_every_run_says_what_it_rests_on(catalog):
    for run in catalog.runs.values():
        assert run.script or run.evidence, run.id
        assert run.added, run.id


def test_runs_of_2026_can_be_looked_up(catalog):
    runs = [run for run in catalog.runs.values() if run.added.isoformat() == "2026-11-23"]
    assert len(runs) >= 12
    for run in runs:
        assert run.kind in {"tested", "measured"}, run.id
        assert run.versions.verl.startswith(("0.8.0", "0.9.0")), run.id
        assert all((run.evidence, run.contributor.url, run.settings)), run.id
        offloads = [value for key, value in run.settings.items() if key.endswith("_offload")]
        assert (run.tag == "MIN") == all(offloads), run.id
    assert {run.train for run in runs} == {"fsdp", "fsdp2", "megatron"}
    assert {run.infer.engine for run in runs} == {"vllm", "sglang"}
    assert {"PPO", "GRPO", "GSPO"} <= {run.task for run in runs}
    gpus = {catalog.gpu_of(run).name for run in runs}
    assert gpus == {"L20", "H20", "RTX-4090", "RTX-5090", "Ascend-A2", "Ascend-A3"}


def test_the_tag_means_what_the_page_says(catalog):
    """MIN runs offload, or their source calls them a minimum; see "How to read this page"."""
    for run in catalog.runs.values():
        offloads = any(value for key, value in run.settings.items() if "offload" in key)
        minimum = any("minimum" in note.code or "minimum" in note.text for note in run.notes)
        assert run.tag != "MIN" or offloads or minimum, run.id


def test_counts_agree_with_the_published_ones(catalog):
    for entry in catalog.architectures:
        parts = entry.parameters_breakdown
        count = {
            "all": entry.parameters,
            "without-embeddings": entry.parameters - parts["embedding"] - parts["lm_head"],
            "with-mtp": entry.parameters + (entry.mtp_parameters or 0),
        }
        if entry.published:
            difference = abs(count[entry.published.counts] / entry.published.parameters - 1)
            assert difference <= (0.001 if entry.verified else 0.02), entry.name
            if entry.published.exact:
                assert count[entry.published.counts] == entry.published.parameters, entry.name


def test_no_email_address_in_the_data(root):
    for path in (root / "data").rglob("*.*"):
        assert not re.search(r"[\w.+-]+@[\w-]+\.\w", path.read_text("utf-8")), path


def test_schemas_are_current(root):
    """If this fails, run ``make schema``."""
    written = {path.stem: path.read_text("utf-8") for path in (root / "data" / "schema").glob("*.json")}
    assert written == SCHEMAS


@pytest.mark.parametrize("kind", sorted(SCHEMAS.keys() - {"export"}))
def test_schemas_are_draft_07_and_accept_the_data(root, kind):
    validator = jsonschema.Draft7Validator(json.loads(SCHEMAS[kind]))
    validator.check_schema(validator.schema)
    assert "$defs" not in SCHEMAS[kind]
    folder = {"run": "runs", "cases": "cases"}.get(kind)
    files = (root / "data" / folder).glob("*.yaml") if folder else [root / "data" / f"{kind}.yaml"]
    for path in sorted(files):
        validator.validate(_json(path))


def _json(path):
    """The file as an editor's YAML 1.2 parser reads it: dates are text."""
    loader = type("Loader", (yaml.SafeLoader,), {})
    loader.yaml_implicit_resolvers = {
        first: [(tag, regex) for tag, regex in resolvers if not tag.endswith("timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return yaml.load(path.read_text("utf-8"), loader)


def test_every_file_names_its_schema(root):
    for path in sorted((root / "data").rglob("*.yaml")):
        match = re.match(r"# yaml-language-server: \$schema=(\S+)\n", path.read_text("utf-8"))
        assert match, path
        assert (path.parent / match[1]).is_file(), path


REFUSED = [
    {"tag": "X"}, {"tag": None}, {"size": "9B"}, {"modle": 1}, {"task": ...}, {"id": "A"}, {"kind": "guessed"},
    {"gpus": {"count": 0, "type": "H100"}}, {"gpus": {"count": 1, "type": None}}, {"gpus": {"count": 1}},
    {"infer": None}, {"infer": {"engine": "vllm", "version": 0.8}}, {"infer": {"engine": "VLLM"}},
    {"max_batch": "1_000"}, {"max_batch": 0}, {"measured": {"counter": "device"}}, {"measured": {"gib": -1}},
    {"evidence": [{"kind": "log"}]}, {"evidence": [{"kind": "log", "url": "ftp://x.org"}]},
    {"evidence": [{"kind": "log", "url": "https://x.org", "ref": "abc"}]},
    {"evidence": [{"kind": "document", "ref": "abc", "lines": "3"}]},
    {"script": {"ref": "abc"}}, {"settings": {"+a.b": 1}}, {"settings": {"a.b": {"c": 1}}}, {"notes": [{"code": "x"}]},
]  # fmt: skip
ACCEPTED = [
    {}, {"tag": None, "kind": "stated"}, {"infer": None, "kind": "measured"}, {"measured": {"step_seconds": 1.5}},
    {"gpus": {"count": 8, "type": None, "memory_gb": 80}, "kind": "stated"}, {"settings": {"a.b": [1, "x", None]}},
    {"evidence": [{"kind": "commit", "ref": "abc"}, {"kind": "document", "ref": "abc", "path": "x.md", "lines": "3-4"}]},
]  # fmt: skip


@pytest.fixture(scope="module")
def schema():
    return jsonschema.Draft7Validator(json.loads(SCHEMAS["run"]))


@pytest.mark.parametrize("changes", REFUSED, ids=str)
def test_schema_and_loader_refuse_the_same(make_run_text, data, schema, changes):
    text = make_run_text(**changes)
    data.write("runs/a.yaml", text)
    assert data.problems() != []
    assert not schema.is_valid(yaml.safe_load(text))


@pytest.mark.parametrize("changes", ACCEPTED, ids=str)
def test_schema_and_loader_accept_the_same(make_run_text, data, schema, changes):
    text = make_run_text(**changes)
    data.write("runs/a.yaml", text)
    assert data.problems() == []
    schema.validate(yaml.safe_load(text))


def test_the_example_of_the_documentation_is_valid_once_it_is_filled_in(root, data):
    example = root / "docs" / "examples" / "qwen2-5-7b-grpo-2xh100.yaml"
    text = example.read_text("utf-8")
    data.write(f"runs/{example.name}", text)
    assert [line.split("[")[-1] for line in data.problems()] == ["verl.todo]"] * 3
    text = re.sub("TODO-[a-z-]+", "https://example.org/x", text).replace("TODO", "Jane Doe")
    data.write(f"runs/{example.name}", text)
    assert data.problems() == []
