"""What the script finds on a page: the data behind the tables of runs, and names to find rows and columns by."""

from __future__ import annotations

import json

import pytest

from sphinx_verl_resources.sphinx_ext.page_data import ELEMENT_ID, as_script

SCRIPT = "verl-resources.js"


def block(build, name: str = "index.html"):
    """The element of the data; None without one."""
    return build.soup(name).find("script", id=ELEMENT_ID)


def page_data(build, name: str = "index.html") -> dict:
    return json.loads(block(build, name).string)


@pytest.fixture
def three(own, data):
    data.run("a", gpus={"count": 16, "type": "H100"}, task="PPO", added="2026-01-01")
    data.run("b", gpus={"count": 2, "type": None}, kind="stated", size="0.5B", train="megatron")
    data.run("c", gpus={"count": 4, "type": "H20"}, label="Named", added="2026-01-02")
    return own.page(".. verl-runs::")


def test_facets_in_order_with_the_values_of_this_page(three):
    found = page_data(three.build())
    assert [(facet["name"], facet["heading"], facet["values"]) for facet in found["facets"]] == [
        ("gpu", "GPU", [["H20", "H20"], ["H100-80GB", "H100-80GB", "H100"], ["GPU", "not stated"]]),
        ("size", "Size", [["0.5B", "0.5B"], ["7B", "7B"]]),
        ("task", "Task", [["GRPO", "GRPO"], ["PPO", "PPO"]]),
        ("train", "Backend", [["fsdp", "fsdp"], ["megatron", "megatron"]]),
        ("kind", "Status", [["ran", "Ran"], ["claimed", "Claimed"]]),
    ]
    assert found["runs"] == {
        "b": {"title": "Qwen2.5-7B-Instruct, GRPO on 2*GPU", "values": [2, 0, 0, 1, 1]},
        "a": {"title": "Qwen2.5-7B-Instruct, PPO on 16*H100", "values": [1, 1, 1, 0, 0]},
        "c": {"title": "Named, GRPO on 4*H20", "values": [0, 1, 0, 0, 0]},
    }
    assert found["words"]["some"] == "{shown} of {total} runs"
    assert found["words"]["absent"] == ["not recorded", "not computed"]


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
def test_pages_with_runs_link_the_script_and_no_other(three, builder, path):
    three.page(".. toctree::\n\n   runs\n   empty\n\n.. verl-gpus::\n").page(".. verl-runs:: 7B", "runs.rst")
    three.page(".. verl-runs:: 405B\n   :caption: None\n", "empty.rst")
    build = three.build(builder)
    (script,) = [tag for tag in build.soup(path).find_all("script", src=True) if SCRIPT in tag["src"]]
    assert (script.get("defer"), script.get("async")) == ("defer", None)
    assert list(page_data(build, path)["runs"]) == ["a", "c"]
    for page in build.out.rglob("*.html"):
        has_runs = page == build.out / path
        text = page.read_text("utf-8")
        assert [SCRIPT in text, ELEMENT_ID in text] == [has_runs, has_runs], page
    assert (build.out / "_static" / SCRIPT).is_file()


def test_a_book_has_neither(three):
    build = three.build("epub", version="1", copyright="x", suppress_warnings=["epub.unknown_project_files"])
    text = build.text("index.xhtml")
    assert "verl-run-a" in text
    assert SCRIPT not in text
    assert ELEMENT_ID not in text


def test_nothing_in_the_data_ends_the_element(three, data):
    nasty = "</script><!--<script>&amp;\u2028"
    assert json.loads(as_script({"text": nasty})) == {"text": nasty}
    assert not set("<>&\u2028\u2029") & set(as_script({"text": nasty + "\u2029"}))
    data.run("d", task="</script><b>&amp;", label="<!--")
    found = page_data(three.build())
    assert found["runs"]["d"]["title"].startswith("<!--, </script><b>&amp; on")


def test_a_gpu_that_takes_another_name_is_written_again(three, data):
    card = "gpus:\n  - {{name: {name}, aliases: [Own], vendor: nvidia, memory_gb: 40, memory_mib: 40960, kind: reading}}\n"
    data.write("gpus.yaml", card.format(name="OWN-1"))
    data.run("d", gpus={"count": 1, "type": "Own"})
    assert ["OWN-1", "OWN-1", "Own"] in page_data(three.build())["facets"][0]["values"]
    data.write("gpus.yaml", card.format(name="OWN-2"))
    build = three.build()
    assert build.read == {"index"}
    assert ["OWN-2", "OWN-2", "Own"] in page_data(build)["facets"][0]["values"]


def test_values_that_differ_in_case_come_in_one_order(own, data):
    for number, task in enumerate(("ppo", "PPO", "Ppo")):
        data.run(f"r{number}", task=task)
    found = page_data(own.page(".. verl-runs:: 7B").build())
    assert [value for value, _shown in found["facets"][2]["values"]] == ["PPO", "Ppo", "ppo"]
