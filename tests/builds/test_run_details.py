"""The blocks below a table of runs that say more about each of them."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.units import gib_number

COMPLETE = {
    "algorithm.adv_estimator": "grpo",
    "data.train_batch_size": 64,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 32,
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.rollout.gpu_memory_utilization": 0.5,
}
DETAILS = ".. verl-runs:: 7B\n   :details:\n"


@pytest.fixture
def detailed(own, data):
    """A project with one run that is known well."""
    data.run(
        "a",
        settings=COMPLETE,
        gpus={"count": 8, "type": "H100"},
        added="2026-08-20",
        versions={"verl": "0.9.0", "torch": "2.8.0"},
        measured={"gib": 60.0, "counter": "device"},
        script={"ref": "abc", "path": "examples/a.sh"},
        contributor={"name": "Jane"},
        evidence=[{"kind": "log", "url": "https://example.org/log"}],
    )
    return own.page(DETAILS)


def text(element) -> str:
    return " ".join(element.get_text().split())


def test_a_block_says_what_the_row_has_no_room_for(detailed):
    build = detailed.build(verl_resources_edit_url="https://example.org/edit/{path}")
    assert build.warnings == []
    soup = build.soup()
    block = soup.select_one("details#run-a-details")
    assert "verl-run-a" in block["class"]
    summary = text(block.summary)
    assert summary.startswith("Qwen2.5-7B-Instruct, GRPO on 8*H100: MIN, ran; peak measured 60.0, estimated ")
    assert summary.endswith(" of 79.1 GiB; evidence: log, script")
    assert block.select_one(".verl-answer strong")
    assert block.svg
    assert block.select_one("table.verl-memory")
    assert text(block.select_one(".verl-flags")).startswith(
        "algorithm.adv_estimator=grpo \\ data.train_batch"
    )
    assert [text(item) for item in block.select(".verl-facts li")] == [
        "Status: MIN, ran, contributed by Jane, in the data since 2026-08-20",
        "Rollout engine: vllm 0.8.3",
        "Versions: verl 0.9.0, PyTorch 2.8.0",
        "Script: a.sh",
        "Evidence: log",
        "Edit this row",
    ]
    links = {text(link): link["href"] for link in block.select(".verl-facts a")}
    assert links["Edit this row"] == "https://example.org/edit/runs/a.yaml"
    assert links["log"] == "https://example.org/log"


def test_the_row_leads_to_its_block(detailed):
    cell = detailed.build().soup().select("table.verl-runs td")[1]
    assert (text(cell), cell.a["href"]) == ("Qwen2.5-7B-Instruct", "#run-a-details")


def test_twice_on_a_page_each_row_has_its_own_block(detailed):
    soup = detailed.page(DETAILS + "\nBetween.\n\n" + DETAILS.replace("7B", "7B 3B")).build().soup()
    links = [row.select("td")[1].a["href"] for row in soup.select("table.verl-runs tbody tr")]
    assert links == ["#run-a-details", "#run-a-details-2"]
    assert [block["id"] for block in soup.select("details")] == ["run-a-details", "run-a-details-2"]


def test_pages_that_are_joined_have_ids_of_their_own(detailed):
    detailed.page(f"{DETAILS}\n.. toctree::\n\n   other\n").page(DETAILS, "other.rst")
    ids = [block["id"] for block in detailed.build("singlehtml").soup().select("details")]
    assert len(ids) == 2
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "No settings are recorded, so there is no estimate."),
        (
            {"trainer.nnodes": 1},
            "The source quotes only some of the settings, so there is no estimate.",
        ),
    ],
)
def test_nothing_is_computed_from_what_is_not_known(own, data, settings, said):
    data.run("a", settings=settings, kind="stated", gpus={"count": 8, "type": None}, tag=None)
    soup = own.page(DETAILS).build().soup()
    block = soup.select_one("details")
    assert text(block.summary) == "Qwen2.5-7B-Instruct, GRPO on 8*GPU: claimed; peak not recorded"
    assert said in text(block)
    assert not block.select("svg, table")


@pytest.mark.parametrize(("builder", "name"), [("text", "index.txt"), ("man", "*.1"), ("latex", "*.tex")])
def test_where_nothing_folds_all_of_it_stands_there(detailed, builder, name):
    build = detailed.build(builder)
    assert build.warnings == []
    (path,) = build.out.glob(name)
    content = path.read_text("utf-8").replace("\\", "").replace("\n", " ")
    assert "evidence: log, script" in content
    assert "data.train" in content
    assert gib_number(60 * 2**30) in content
    assert "****Qwen" not in content


def test_a_broken_template_is_said_at_its_line(detailed):
    build = detailed.build(verl_resources_edit_url="https://example.org/edit/")
    assert len(build.warnings) == 1
    assert "conf.py" in build.warnings[0]
    assert "verl_resources_edit_url must hold {path}" in build.warnings[0]
    assert "Edit this row" not in build.text("index.html")
