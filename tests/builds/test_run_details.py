"""The blocks of details below a table of runs."""

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
    """A project with one run that has all data."""
    data.run(
        "a",
        settings=COMPLETE,
        gpus={"count": 8, "type": "H100"},
        added="2026-08-20",
        versions={"verl": "0.9.0", "torch": "2.8.0"},
        measured={"gib": 60.0, "counter": "device", "step_seconds": 31.5},
        script={"ref": "abc", "path": "examples/a.sh"},
        contributor={"name": "Jane"},
        evidence=[{"kind": "log", "url": "https://example.org/log"}],
    )
    return own.page(DETAILS)


def kind(element) -> str:
    """Return our class of an element, otherwise its name or text."""
    ours = [name for name in element.get("class", []) if name.startswith("verl-")]
    return ours[0] if ours else "summary" if element.name == "summary" else text(element)


def text(element) -> str:
    return " ".join(element.get_text().split())


def test_a_block_says_what_the_row_has_no_room_for(detailed):
    build = detailed.build(verl_resources_edit_url="https://example.org/edit/{path}")
    assert build.warnings == []
    soup = build.soup()
    block = soup.select_one("details#run-a-details")
    assert "verl-run-a" in block["class"]
    summary = text(block.summary)
    assert summary.startswith("Qwen2.5-7B-Instruct, GRPO on 8×H100: MIN, ran; peak measured 60.0, estimated ")
    assert summary.endswith(" of 79.1 GiB")
    assert block.select_one(".verl-answer strong")
    assert block.svg
    assert block.select_one("table.verl-memory")
    assert text(block.select_one(".verl-flags")).startswith(
        "python3 -m verl.trainer.main_ppo \\ algorithm.adv_estimator=grpo \\ data.train_batch"
    )
    assert [text(item) for item in block.select(".verl-facts li")] == [
        "Status: MIN, ran, contributed by Jane, added 2026-08-20",
        "Rollout engine: vllm 0.8.3",
        "Versions: verl 0.9.0, PyTorch 2.8.0",
        "Script: a.sh",
        "Evidence: log",
        "Measured: 60.0 GiB: memory in use on the GPU; compare it with the peak. Step (s): 31.5",
    ]
    assert [kind(child) for child in block.find_all(recursive=False)] == [
        "summary", "verl-facts", "verl-answer", "verl-answer", "verl-chart", "verl-scroll", "verl-notes-title",
        "verl-flags", "Edit this row",
    ]  # fmt: skip
    links = {text(link): link["href"] for link in block.select("a")}
    assert links["Edit this row"] == "https://example.org/edit/runs/a.yaml"
    assert links["log"] == "https://example.org/log"


@pytest.mark.parametrize(
    ("about", "launched"),
    [
        ({"train": "megatron"}, "python3 -m verl.trainer.main_ppo \\ model_engine=megatron \\ algorithm."),
        (
            {"train": "megatron", "versions": {"verl": "0.7.1"}},
            "python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer.yaml \\ algorithm.",
        ),
        ({"task": "GRPO (fully async)"}, "algorithm."),
    ],
)
def test_the_command_is_that_of_the_trainer(detailed, data, about, launched):
    data.run("a", settings=COMPLETE, **{"versions": {"verl": "0.9.0"}, **about})
    block = detailed.build().soup().select_one("details#run-a-details")
    assert text(block.select_one(".verl-flags")).startswith(launched)


def test_runs_with_one_title_are_told_apart_by_what_differs(detailed, data):
    data.run("b", settings=COMPLETE, gpus={"count": 8, "type": "H100"}, train="megatron")
    blocks = detailed.build().soup().select("details")
    titles = {block["id"]: block.summary.strong.get_text() for block in blocks}
    assert titles["run-a-details"] == "Qwen2.5-7B-Instruct, GRPO on 8×H100, fsdp"
    assert titles["run-b-details"] == "Qwen2.5-7B-Instruct, GRPO on 8×H100, megatron"
    data.run("b", settings=COMPLETE, gpus={"count": 8, "type": "H100"}, infer={"engine": "sglang"})
    summary = detailed.build().soup().select_one("#run-b-details > summary")
    assert summary.strong.get_text() == "Qwen2.5-7B-Instruct, GRPO on 8×H100, sglang"


def test_twice_on_a_page_each_row_has_its_own_block(detailed):
    soup = detailed.page(DETAILS + "\nBetween.\n\n" + DETAILS.replace("7B", "7B 3B")).build().soup()
    links = [row.select("td")[1].a["href"] for row in soup.select("table.verl-runs tbody tr")]
    assert links == ["#run-a-details", "#run-a-details-2"]
    assert [block["id"] for block in soup.select("details")] == ["run-a-details", "run-a-details-2"]


def test_only_what_says_more_than_its_row_has_a_block(own, data):
    data.run("bare", kind="stated", gpus={"count": 8, "type": None}, tag=None)
    data.run("some", kind="stated", settings={"trainer.nnodes": 1}, tag=None)
    data.run("known", label="Known", measured={"host_ram_gib": 90, "counter": "not-stated"})
    build = own.page(DETAILS).build()
    assert build.warnings == []
    known, some = build.soup().select("details")
    assert (known["id"], text(known.summary)) == ("run-known-details", "Known, GRPO on 2×H100: MIN, ran")
    assert "Measured: Host RAM (GiB per node): 90" in text(known)
    assert (some["id"], text(some.summary)) == (
        "run-some-details", "Qwen2.5-7B-Instruct, GRPO on 2×H100: claimed",
    )  # fmt: skip
    assert "The source quotes only some of the settings, so there is no estimate." in text(some)
    assert not some.select("svg, table")
    cells = [row.select("td")[1] for row in build.soup().select("table.verl-runs tbody tr")]
    assert [cell.a and cell.a["href"] for cell in cells] == ["#run-known-details", "#run-some-details", None]


def test_remarks_are_in_the_details_where_their_marks_lead(own, data):
    note = {"code": "contested", "about": "max_batch", "text": "Others *saw* <b>less</b>."}
    data.run("a", max_batch=16, notes=[note])
    data.run("b", added="2026-01-01", notes=[{"code": "y", "text": "Second."}, note])
    data.run("c", added="2026-01-02", settings={"trainer.nnodes": 1})
    build = own.page(DETAILS + "\n" + DETAILS).build()
    assert build.warnings == []
    soup = build.soup()
    assert soup.select("ol.verl-notes") == []
    remarks = [
        [text(item) for item in block.select(".verl-facts li") if "Remark" in text(item)]
        for block in soup.select("details")
    ]
    both = ["Remark [1]: Second.", "Remark [2]: Others *saw* <b>less</b>."]
    assert remarks == [both, [], ["Remark [2]: Others *saw* <b>less</b>."]] * 2
    marks = soup.select("table.verl-runs a.verl-mark")
    assert [text(mark) for mark in marks] == ["[1]", "[2]", "[2]"] * 2
    for mark in marks:
        row, block = mark.find_parent("tr"), soup.find(id=mark["href"][1:]).find_parent("details")
        assert row["class"][0] in block["class"]
        assert f"Remark {text(mark)}" in text(soup.find(id=mark["href"][1:]).parent)
    assert len({mark["href"] for mark in marks}) == 6


def test_runs_that_did_not_run_can_be_folded_where_another_of_the_page_did(own, data):
    data.run("a", kind="stated", settings={"trainer.nnodes": 1})
    data.run("b", size="3B", kind="stated", settings={"trainer.nnodes": 1})
    pages = own.page(".. verl-runs:: 3B 7B\n   :details:\n   :sort: id\n")
    assert pages.build().soup().select(".verl-more") == []
    data.run("c", max_batch=8)
    soup = pages.build().soup()
    rows = {row["class"][0]: row["class"][1:-1] for row in soup.select("table.verl-runs tbody tr")}
    assert rows == {"verl-run-a": ["verl-more"], "verl-run-b": ["verl-more"], "verl-run-c": []}
    blocks = {block["id"]: "verl-more" in block["class"] for block in soup.select("details")}
    assert blocks == {"run-b-details": True, "run-a-details": True}


@pytest.mark.parametrize(("builder", "name"), [("text", "index.txt"), ("man", "*.1"), ("latex", "*.tex")])
def test_where_nothing_folds_all_of_it_stands_there(detailed, builder, name):
    build = detailed.build(builder)
    assert build.warnings == []
    (path,) = build.out.glob(name)
    content = path.read_text("utf-8").replace("\\", "").replace("\n", " ")
    assert "Measured" in content
    assert "data.train" in content
    assert gib_number(60 * 2**30) in content
    assert "****Qwen" not in content
