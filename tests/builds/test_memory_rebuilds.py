"""A figure changed in the analysis: only the pages that use it are read again, and it is new everywhere."""

from __future__ import annotations

import pytest
import yaml

pytestmark = pytest.mark.thorough

OWN = """\
specifications:
  - {name: 3B, parameters: 3000000000, hidden_size: 2560, layers: 32, attention_heads: 32, gpus: 8}
  - {name: 8B, parameters: 8000000000, hidden_size: 4096, layers: 32, attention_heads: 32, gpus: 8}
"""

PAGES = {
    "three": ".. verl-memory:: 3B",
    "eight": ".. verl-memory:: 8B",
    "gpus16": ".. verl-memory:: 8B\n   :gpus: 16\n",
    "qwen": ".. verl-memory:: Qwen/Qwen3-8B",
    "unsharded": ".. verl-memory:: Qwen/Qwen3-8B\n   :steps: none\n",
    "inline": "For 8B :verl:memory:`8B, after FSDP`.",
    "kv": "For 8B :verl:memory:`8B, KV cache`.",
    "batch": "Of :verl:memory:`batch size`.",
    "summary": ".. verl-memory-summary::",
    "published": ".. verl-published:: 3B",
    "required": ".. verl-requirements:: 8B",
    "config": ".. verl-config:: 8B",
    "assumed": ".. verl-analysis:: assumptions",
    "priorities": ".. verl-analysis:: priorities",
    "costs": ".. verl-analysis:: trade-offs",
    "watch": ".. verl-analysis:: monitoring",
    "wrong": ".. verl-memory:: 13B\n   :show: table\n",
    "runs": ".. verl-runs:: 7B",
}
#: Pages that compute with the chain of 8B.
EIGHT = {"eight", "gpus16", "inline", "summary", "required", "priorities"}


@pytest.fixture
def pages(own, data):
    data.run("a")
    data.write("analysis.yaml", OWN)
    own.page("Text.")
    for name, text in PAGES.items():
        own.page(text, f"{name}.rst")
    build = own.build()
    assert build.read == {"index", *PAGES}
    assert [line.rpartition(": ")[2].split(";")[0] for line in build.warnings] == ["there is no model '13B'"]
    assert own.build().read == set()
    return own


def test_a_model(pages, data):
    data.write("analysis.yaml", OWN.replace("hidden_size: 4096", "hidden_size: 5120"))
    build = pages.build()
    assert build.read == {*EIGHT, "kv"}
    # 32 x 2048 x 32 x 5120 x 4 bytes are 42.9 GB; that everywhere, in the tables, formulas and inside sentences
    for page in ("eight", "kv"):
        assert "42.9 GB" in build.soup(f"{page}.html").get_text()
    for page in ("inline", "eight", "summary"):
        assert "74.4" in build.soup(f"{page}.html").get_text()
        assert "61.5" not in build.soup(f"{page}.html").get_text()
    assert pages.build().read == set()


def test_another_model(pages, data):
    data.write("analysis.yaml", OWN.replace("hidden_size: 2560", "hidden_size: 2048"))
    assert pages.build().read == {"three", "summary", "priorities"}


def test_what_one_page_alone_shows(pages, data):
    data.write(
        "analysis.yaml",
        OWN.replace("attention_heads: 32, gpus: 8}\n  - {name: 8B", "gpus: 8}\n  - {name: 8B"),
    )
    assert pages.build().read == {"three", "summary", "priorities"}


def test_an_assumption(pages, data):
    data.write("analysis.yaml", OWN + "assumptions: {batch_size: 16}\n")
    build = pages.build()
    everything = {name for name in PAGES if name not in {"config", "costs", "runs", "wrong", "published"}}
    assert build.read == everything
    assert "Of 16." in build.soup("batch.html").get_text()
    assert "16 sequences of 2048 tokens" in build.soup("qwen.html").get_text()


def test_a_step(pages, data):
    step = {
        "name": "fsdp", "label": "Sharding", "components": ["optimizer"], "divide_by": "gpus", "text": "x",
    }  # fmt: skip
    data.write("analysis.yaml", OWN + yaml.safe_dump({"steps": [step]}))
    build = pages.build()
    assert build.read == {*EIGHT, "three", "qwen"}
    assert "For 8B 89.5 GB." in build.soup("inline.html").get_text()


def test_what_was_printed_is_compared_with_what_its_file_says(pages, data):
    printed = "printed:\n  - name: 3B\n    figures:\n      - {figure: total, value: 53.5, carried: [K]}\n"
    data.write("analysis.yaml", OWN + printed)
    assert pages.build().read == {"published"}
    data.write("analysis.yaml", OWN.replace("hidden_size: 2560", "hidden_size: 2048") + printed)
    build = pages.build()
    assert build.read == {"three", "summary", "published", "priorities"}
    assert "51.8" in build.soup("published.html").get_text()


def test_a_model_that_was_missing(pages, data):
    data.write("analysis.yaml", OWN + "  - {name: 13B, model: meta-llama/Llama-2-13b-hf}\n")
    build = pages.build()
    assert build.read == {"wrong"}
    assert build.warnings == []
    assert build.soup("wrong.html").select("table.verl-memory")


def test_a_card(pages, data):

    data.write(
        "gpus.yaml",
        "gpus:\n  - {name: RTX-4090, vendor: nvidia, memory_gb: 24, memory_mib: 30000, kind: reading}\n",
    )
    assert pages.build().read == {"required"}


def test_settings(pages, data):
    data.write(
        "analysis.yaml", OWN + "configurations:\n  - {name: 8B, settings: {data.train_batch_size: 8}}\n"
    )
    build = pages.build()
    assert build.read == {"config"}
    assert "data.train_batch_size=8" in build.soup("config.html").get_text()


def test_advice(pages, data):
    data.write("analysis.yaml", OWN + "trade_offs:\n  - {name: gpus, change: More cards, gain: a, cost: b}\n")
    build = pages.build()
    assert build.read == {"costs"}
    assert "More cards" in build.soup("costs.html").get_text()


def test_a_remark(pages, data):
    remark = {"name": "debug-level", "about": ["verl-log"], "text": "New.", "sources": [{"path": "a.py"}]}
    data.write("analysis.yaml", OWN + yaml.safe_dump({"remarks": [remark]}))
    build = pages.build()
    assert build.read == {"watch"}
    assert "New. (a.py)" in build.soup("watch.html").get_text()


def test_a_key_of_verl(pages, data):
    entry = {
        "name": "actor_rollout_ref.rollout.gpu_memory_utilization", "group": "rollout", "type": "float",
        "default": 0.9, "phases": [], "effect": "New.", "status": "active",
    }  # fmt: skip
    data.write("config_keys.yaml", yaml.safe_dump({"config_keys": [entry]}))
    build = pages.build()
    assert build.read == {"config"}
    assert "New." in build.soup("config.html").get_text()


def test_a_comment_changes_no_page(pages, data):
    data.write("analysis.yaml", "# A remark for people.\n" + OWN)
    assert pages.build().read == set()


def test_deleted_and_added(pages, data):
    (data.path / "analysis.yaml").unlink()
    assert pages.build().read == set()  # it said what the package says
    data.write("analysis.yaml", OWN)
    assert pages.build().read == set()


def test_the_address_of_sources(pages):
    build = pages.build(verl_resources_script_url="https://example.org/{ref}/{path}")
    with_remarks = {
        "three",
        "eight",
        "gpus16",
        "qwen",
        "unsharded",
        "summary",
        "config",
        "assumed",
        "priorities",
        "watch",
        "required", "costs",
    }  # fmt: skip
    assert build.read == with_remarks
