"""The project's data against the verified facts they were taken from, where those are at hand."""

from __future__ import annotations

import pytest
import yaml

from sphinx_verl_resources.catalog.files import bundled_directory, take_snapshot
from sphinx_verl_resources.catalog.load import load_catalog
from sphinx_verl_resources.diagnostics import Location


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
