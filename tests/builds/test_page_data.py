"""The data for the script on a page: the values of runs, and class names of rows and columns."""

from __future__ import annotations

import json

import pytest

from sphinx_verl_resources.filter_bar import ELEMENT_ID, as_script

SCRIPT = "verl-resources.js"


def block(build, name: str = "index.html"):
    """Return the element with the data; None if there is none."""
    return build.soup(name).find("script", id=ELEMENT_ID)


def page_data(build, name: str = "index.html") -> dict:
    return json.loads(block(build, name).string)


@pytest.fixture
def three(own, data):
    data.run("a", gpus={"count": 16, "type": "H100"}, task="PPO", added="2026-01-01")
    data.run(
        "b", gpus={"count": 2, "type": None}, kind="stated", size="0.5B", train="megatron", task="GRPO-LoRA"
    )
    data.run("c", gpus={"count": 4, "type": "H20"}, label="Named", added="2026-01-02", task="GRPO (async)")
    return own.page(".. verl-runs::")


def test_facets_in_order_with_the_values_of_this_page(three):
    found = page_data(three.build())
    assert [(facet["name"], facet["heading"], facet["values"]) for facet in found["facets"]] == [
        ("gpu", "GPU", [["H20", "H20"], ["H100", "H100", "H100-80GB"], ["GPU", "not stated"]]),
        ("size", "Size", [["0.5B", "0.5B"], ["7B", "7B"]]),
        ("task", "Task", [["GRPO", "GRPO", "GRPO (async)", "GRPO-LoRA"], ["PPO", "PPO"]]),
        ("trained", "Trained", [["all", "all parameters"], ["lora", "LoRA"]]),
        ("train", "Backend", [["fsdp", "fsdp"], ["megatron", "megatron"]]),
        ("kind", "Status", [["ran", "Ran"], ["claimed", "Claimed"]]),
    ]
    assert found["runs"] == {"b": [2, 0, 0, 1, 1, 1], "a": [1, 1, 1, 0, 0, 0], "c": [0, 1, 0, 0, 0, 0]}
    assert found["words"]["some"] == "Showing {shown} of {total} runs"


def test_rows_and_columns_have_names_that_do_not_depend_on_the_language(three):
    build = three.page(".. verl-runs:: 7B\n   :columns: id measured.gib estimate.peak\n").build(
        language="zh_CN"
    )
    table = build.soup().select_one("table.verl-runs")
    assert [row["class"][0] for row in table.select("tbody tr")] == ["verl-run-a", "verl-run-c"]
    assert [cell["class"] for cell in table.select("th")] == [
        ["head", "verl-col-id"],
        ["head", "verl-col-measured-gib"],
        ["head", "verl-col-estimate-peak"],
    ]
    assert page_data(build)["facets"][0]["name"] == "gpu"


def test_a_run_that_is_shown_twice_is_there_once(three):
    build = three.page(".. verl-runs:: 7B\n   :caption: one\n\n.. verl-runs:: 7B\n   :caption: two\n").build()
    assert list(page_data(build)["runs"]) == ["a", "c"]
    assert len(build.soup().select(f"#{ELEMENT_ID}")) == 1


@pytest.mark.parametrize(
    ("builder", "path"), [("html", "runs.html"), ("dirhtml", "runs/index.html"), ("singlehtml", "index.html")]
)
def test_pages_with_runs_have_their_data_and_no_other(three, builder, path):
    three.page(".. toctree::\n\n   runs\n   empty\n\n.. verl-gpus::\n").page(".. verl-runs:: 7B", "runs.rst")
    three.page(".. verl-runs:: 405B\n   :caption: None\n", "empty.rst")
    build = three.build(builder)
    (script,) = [tag for tag in build.soup(path).find_all("script", src=True) if SCRIPT in tag["src"]]
    assert (script.get("defer"), script.get("async")) == ("defer", None)
    assert list(page_data(build, path)["runs"]) == ["a", "c"]
    for page in build.out.rglob("*.html"):
        has_runs = page == build.out / path
        text = page.read_text("utf-8")
        assert (ELEMENT_ID in text) == has_runs, page
    assert (build.out / "_static" / SCRIPT).is_file()


def test_nothing_in_the_data_ends_the_element(three, data):
    nasty = "</script><!--<script>&amp;\u2028"
    assert json.loads(as_script({"text": nasty})) == {"text": nasty}
    assert not set("<>&\u2028\u2029") & set(as_script({"text": nasty + "\u2029"}))
    data.run("d", task="</script><b>&amp;")
    assert ["</script><b>&amp;"] * 2 in page_data(three.build())["facets"][2]["values"]


def test_the_bar_and_what_is_folded_are_in_the_page(three):
    soup = three.build().soup()
    bar = soup.select_one(".verl-filter")
    assert bar.find_next("section")["id"] == "size-0-5b"
    assert [label.text for label in bar.select("label")] == [
        "GPU",
        "Size",
        "Task",
        "Trained",
        "Backend",
        "Status",
    ]
    assert bar.select_one(".verl-status").text == "2 of 3 runs: only those that ran"
    assert [tag["class"] for tag in soup.select(".verl-more")] == [
        ["verl-scroll", "verl-more"], ["verl-run-b", "verl-more", "row-even"],
    ]  # fmt: skip
    assert [tag.text for tag in soup.select("#size-0-5b .verl-unfold")] == ["1 run, reported or claimed"]


def test_regions_of_one_name_are_numbered(three):
    table = ".. verl-runs:: 7B\n   :caption: Seven\n\n"
    soup = three.page(table * 2).build().soup()
    assert [region["aria-label"] for region in soup.select(".verl-scroll")] == ["Seven", "Seven (2)"]


def test_one_gpu_by_two_names_is_one_value(own, data):
    data.run("a", gpus={"count": 1, "type": "H100"}, added="2026-01-01")
    data.run("b", gpus={"count": 1, "type": "NVIDIA H100 80GB HBM3"}, added="2026-01-02")
    facet = page_data(own.page(".. verl-runs:: 7B").build())["facets"][0]
    assert facet["values"] == [["H100", "H100", "H100-80GB", "NVIDIA H100 80GB HBM3"]]


def test_a_rank_of_adapters_tells_lora_whatever_the_task_is_called(own, data):
    data.run("a", settings={"actor_rollout_ref.model.lora_rank": 32})
    facets = page_data(own.page(".. verl-runs:: 7B").build())["facets"]
    assert [facet["values"] for facet in facets if facet["name"] == "trained"] == [[["lora", "LoRA"]]]
