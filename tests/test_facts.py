"""The project's data against the verified facts they were taken from, where those are at hand."""

from __future__ import annotations

import re

import pytest
import yaml

from sphinx_verl_resources.catalog.cases import load_cases
from sphinx_verl_resources.catalog.catalog import load_catalog
from sphinx_verl_resources.catalog.files import bundled_directory, take_snapshot
from sphinx_verl_resources.cli.data import load_all
from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.views.settings import nested_yaml


@pytest.fixture
def facts(root):
    folder = root.parent / "shared" / "facts"
    if not folder.is_dir():
        pytest.skip("the fact files are not beside this checkout")
    return lambda name: yaml.safe_load((folder / name).read_text("utf-8"))


@pytest.fixture(scope="module")
def catalog():
    return load_catalog(take_snapshot(bundled_directory(), [], Location("conf.py")))


def test_published_rows(facts, published):
    rows = facts("hardware_runs.yaml")["runs"]
    assert [
        {
            "Size": row["size"], "Tag": row["tag"], "Model": row["label"], "Task": row["task"],
            "Resource": f"{row['gpu_count']}*{row['gpu_type']}", "MaxBatch": str(row["max_batch"] or ""),
            "Train": row["train"], "Infer": row["infer"], "Link": row["script_text"],
            "Contributor": row["contributor"], "Path": row["script_real_path"],
        }
        for row in rows
    ] == published  # fmt: skip


def test_runs(facts, catalog):
    scripts = {item["script"]: item for item in facts("tuning_scripts.yaml")["scripts"]}
    by_script = {run.script.path: run for run in catalog.runs.values() if run.kind == "tested"}
    for row in facts("hardware_runs.yaml")["runs"]:
        run = by_script[row["script_real_path"]]
        assert run.model == row["model"]
        assert run.added.isoformat() == row["added"]
        assert run.script.ref == row["script_ref"]
        assert dict(run.settings) == scripts[run.script.path]["set"]


def test_gpus(facts, catalog):
    for fact in facts("gpus.yaml")["gpus"]:
        gpu = catalog.gpus.get(fact["name"])
        for key in ("memory_gb", "memory_mib", "kind", "vendor"):
            assert getattr(gpu, key) == fact[key]
        assert gpu.cuda_total_gib == fact.get("cuda_total_gib")
        assert list(gpu.aliases) == fact["aliases"]


def test_architectures(facts, catalog):
    for fact in facts("architectures.yaml")["architectures"]:
        entry = catalog.architectures.get(fact["hf_id"]).model_dump(exclude_none=True, mode="json")
        for key, value in fact.items():
            if key not in {"notes", "difference_percent"} and value not in (None, []):
                expected = (
                    {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value
                )
                if key == "mla":
                    assert {k: v for k, v in entry[key].items() if v is not None} == expected
                elif key == "published":
                    assert {k: v for k, v in entry[key].items() if k != "counts"} == expected
                else:
                    assert entry[key] == expected, (entry["name"], key)


@pytest.fixture(scope="module")
def cases():
    return load_cases(take_snapshot(bundled_directory(), [], Location("conf.py")).cases).by_id


def fields(record, *names):
    """What is given of a record, apart from ``names``; lists as the facts have them."""
    given = record.model_dump(exclude_none=True, exclude_defaults=True, exclude=set(names)) if record else {}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}


@pytest.mark.parametrize("name", ["rl_cases.yaml", "training_cases.yaml"])
def test_cases(facts, cases, name):
    for row in facts(name):
        case = cases[row["id"]].case
        assert case.source.text
        for key in ("framework", "version", "task", "model", "train", "infer", "outcome", "oom_message"):
            ours, theirs = getattr(case, key), row.get(key)
            if key == "version" and ours and theirs:  # ours may have the day as well
                ours = ours[: len(theirs)]
            assert ours == theirs, (case.id, key)
        assert case.confidence == row.get("confidence", "high"), case.id
        assert case.config == row.get("config"), case.id
        assert fields(case.observed_tokens) == row.get("observed_tokens", {}), case.id
        assert fields(case.measured, "counter_kind") == row.get("measured", {}), case.id
        about = {key: value for key, value in row["gpus"].items() if "note" not in key}
        assert fields(case.gpus, "note", "memory_note") == about, case.id
        training = fields(case.training)
        if "lora" in training:
            training["lora"]["targets"] = list(training["lora"]["targets"])
        assert training == row.get("training", {}), case.id


def test_other_reports(facts, cases):
    left_out = []
    for row in facts("other_training_reports.yaml"):
        if row["id"] not in cases:
            left_out.append(row)
            continue
        case = cases[row["id"]].case
        assert case.model.endswith(f"/{row['model']}")
        assert (case.gpus.count, case.gpus.type) == (row["gpus"], row["gpu"])
        assert case.measured.gib == row["value_gib"]
        assert row["metric"] in case.measured.counter
        assert case.training.method == {"full FT": "full", "LoRA": "lora"}[row["method"]]
        assert case.training.micro_batch_per_gpu == row["micro_batch_per_gpu"]
        assert case.training.sequence_length == row["seq_len"]
        assert case.source.path == row["source"]["path"]
        assert case.source.commit == row["source"]["commit"]
    assert len(left_out) == 4
    assert all("reserved" in row["metric"] for row in left_out)


def test_config_keys(facts):
    known = load_all([])[1].config_keys
    groups = facts("verl_config_keys.yaml")["keys"]
    assert sum(len(keys) for keys in groups.values()) == len(known.names) + sum(
        len(key.variants) for key in known
    )
    for group, keys in groups.items():
        for fact in keys:
            key = known.get(fact["key"])
            if "variant" in fact:
                (key,) = key.variants
                assert key.backend == fact["variant"]
            else:
                assert key.group == group
                assert key.status == fact["status"]
                assert key.backends == tuple(fact.get("backend", "").split(", ") if "backend" in fact else ())
                assert [(item.since, item.default) for item in key.default_changes] == [
                    (str(item["from"]), item["default"]) for item in fact.get("default_changes", [])
                ]
                assert dict(key.rows_ran_with) == {
                    str(k): v for k, v in fact.get("rows_ran_with", {}).items()
                }
                for name in ("in_yaml", "dataclass_default", "moved_to", "moved_from", "note"):
                    assert getattr(key, name) == fact.get(name, name == "in_yaml" or None), (key.name, name)
            default = tuple(fact["default"]) if isinstance(fact["default"], list) else fact["default"]
            assert (key.type, key.default, list(key.phases)) == (fact["type"], default, fact["phases"])
            assert key.host_memory == fact.get("host_memory", False)
            assert key.since == fact.get("since")


def test_every_figure_of_the_document_is_recorded(root):
    """Each line with a result in GB, each row of the summary table, each specification, section by section."""
    source = root.parent / "shared" / "sources" / "001_5b41c636c4f71e07.txt"
    if not source.is_file():
        pytest.skip("the document is not beside this checkout")
    text = source.read_text("utf-8")
    printed = load_all([])[1].printed
    for name, entry in printed.items():
        values = {item.figure: item.value for item in entry.figures}
        section = text[text.index(f"## {name} Parameter Model") :]
        section = section[: section.index("\n## ", 1)]
        results = [
            float(number)
            for number in re.findall(r"= ([\d.]+) GB(?: per GPU)?(?: \(|$)", section, re.MULTILINE)
        ]
        found = [values[figure] for figure in RESULTS]
        assert results == found, name
        (states,) = re.findall(r"\) / \d+ \+ .* = ([\d.]+) \+ [\d.]+ \+ ", section)
        assert float(states) == values["fsdp.states"]
        assert [int(number) for number in re.findall(r"(?:Hidden Size|FFN Dimension)\*\*: ~(\d+)", section)] == [
            values["hidden-size"], values["ffn-dimension"],
        ]  # fmt: skip
        (row,) = re.findall(rf"^\| {name} .*$", text, re.MULTILINE)
        assert [float(number) for number in re.findall(r"([\d.]+) GB", row)] == [
            item.value for item in entry.figures if item.summary
        ]


#: The results of a section of the document, in its order.
RESULTS = (
    "parameters", "gradients", "optimizer", "activations", "kv-cache", "total", "fsdp.total",
    "gradient-checkpointing.activations", "gradient-checkpointing.total", "activation-offload.activations",
    "activation-offload.total", "dynamic-batching.kv-cache", "dynamic-batching.total",
)  # fmt: skip


def test_requirement_lists_and_settings_of_the_document(root):
    source = root.parent / "shared" / "sources" / "001_5b41c636c4f71e07.txt"
    if not source.is_file():
        pytest.skip("the document is not beside this checkout")
    text, analysis = source.read_text("utf-8"), load_all([])[1]
    for name, entry in analysis.requirements.items():
        section = text[text.index(f"### {name} Model Training") :]
        section = section[: section.index("\n#", 1)]
        lists = re.findall(r"\*\*(\w+)\*\*: (.*)", section)
        assert [(level.lower(), claim) for level, line in lists for claim in line.split(" or ")] == [
            (claim.level, claim.text) for claim in entry.claims
        ]
        assert all(claim.text.startswith(f"{claim.count}×") for claim in entry.claims)
    for name, entry in analysis.configurations.items():
        section = text[text.index(f"### For {name} Models") :]
        block = section[section.index("```yaml") + 7 : section.index("```", section.index("```yaml") + 7)]
        assert yaml.safe_load(nested_yaml(entry.settings)) == yaml.safe_load(block)
