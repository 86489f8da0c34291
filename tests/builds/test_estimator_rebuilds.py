"""What an estimate rests on changes: only the pages that show it are read again."""

from __future__ import annotations

import json

import pytest
import yaml

from sphinx_verl_resources.units import gib_number

pytestmark = pytest.mark.thorough

PAGES = {
    "run": ".. verl-memory::\n   :run: a\n",
    "model": ".. verl-memory::\n   :model: Qwen/Qwen2.5-7B-Instruct\n   :gpus: 8*H100\n\n   trainer.nnodes: 1\n",
    "fit": ".. verl-fit::\n   :gpu: H100\n   :sizes: 7B\n   :gpus: 2 8\n",
    "accuracy": ".. verl-accuracy::\n",
    "columns": ".. verl-runs:: 7B\n   :columns: id estimate.peak\n",
    "plain": ".. verl-runs:: 7B\n   :columns: id\n",
    "analysis": ".. verl-memory:: 8B\n   :show: table\n",
}


ESTIMATES = {"run", "model", "fit", "accuracy", "columns"}


@pytest.fixture
def pages(runs):
    runs.page("Text.")
    for name, text in PAGES.items():
        runs.page(text, f"{name}.rst")
    build = runs.build()
    assert build.read == {"index", *PAGES}
    assert build.warnings == []
    assert runs.build().read == set()
    return runs


def test_a_run_that_changes(pages, data, estimated, settings):
    data.run(
        "a",
        settings={**settings, "actor_rollout_ref.rollout.gpu_memory_utilization": 0.8},
        added="2026-08-20",
    )
    build = pages.build()
    # The table of sizes shows which runs there are, and nothing of their settings.
    assert build.read == {"run", "columns", "plain"}
    found = gib_number(estimated().peak)
    assert build.rows("size-7b", "columns.html")[1][1].endswith(f" to {found}")
    assert found in build.soup("run.html").get_text()


def test_a_case_that_is_added(pages, data):
    case = {"id": "one", "model": "Qwen/Qwen2.5-7B", "config": {"trainer.nnodes": 1}}
    data.write("cases/own.yaml", json.dumps([case]))
    assert pages.build().read == {"accuracy"}
    (data.path / "cases" / "own.yaml").unlink()
    assert pages.build().read == {"accuracy"}


def test_the_record_of_accuracy(pages, data):
    entry = {
        "name": "other", "cases": 2, "mean_error": 0.1, "median_error": 0.1, "worst_error": 0.2, "inside": 1.0,
        "half_width": 0.3, "low": 0.5, "high": 1.9,
    }  # fmt: skip
    data.write("accuracy.yaml", yaml.safe_dump({"accuracy": [entry, {**entry, "name": "verl-log"}]}))
    assert pages.build().read == ESTIMATES


def test_a_default_of_verl(pages, data):
    entry = {
        "name": "actor_rollout_ref.actor.fsdp_config.model_dtype", "group": "actor", "type": "str",
        "default": "bf16", "phases": ["update"], "effect": "New.", "status": "active",
    }  # fmt: skip
    data.write("config_keys.yaml", yaml.safe_dump({"config_keys": [entry]}))
    assert pages.build().read == ESTIMATES


def test_a_card(pages, data):
    data.write(
        "gpus.yaml",
        "gpus:\n  - {name: H100, vendor: nvidia, memory_gb: 80, memory_mib: 70000, kind: reading}\n",
    )
    # Rows of runs are filtered by the name that the registry has for their card, which is another one now.
    assert pages.build().read == {*ESTIMATES, "plain"}


def test_nothing_is_read_twice_in_parallel(pages):
    assert pages.build(parallel=2, fresh=True).read == {"index", *PAGES}
    assert pages.build(parallel=2).read == set()
