"""``.. verl-fewest::`` in real builds."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.answer.sizes import fewest_tables
from sphinx_verl_resources.estimator.context import EstimatorContext
from sphinx_verl_resources.sphinx_ext.fewest import DEFAULT_MEMORIES

PAGE = ".. verl-fewest::\n   :memory: 40 80 96\n   :sizes: 7B 32B\n"
TABLES = {
    table.memory_gb: {size: cells for size, *cells in table.rows}
    for table in fewest_tables(
        EstimatorContext(), memories=(40, 80, 96), task="GRPO", sizes=("7B", "32B"), config={}
    )
}


def test_a_cell_has_the_run_that_ran_or_the_estimate(project, table_rows):
    project.page(".. verl-runs:: 7B 32B\n", "rows.rst").page(PAGE)
    build = project.build()
    assert build.warnings == []
    shown = build.soup().select_one("#fewest-80-gb")
    headings, *table = table_rows(shown, "verl-fewest")
    assert headings == [
        "Size class (model)", "Full: ran", "Full: estimated", "LoRA: ran", "LoRA: estimated",
    ]  # fmt: skip
    assert [row[0] for row in table] == ["7B (Qwen2.5-7B)", "32B (Qwen2.5-32B)"]
    for size, row in zip(("7B", "32B"), table, strict=True):
        for cell, ran, estimated in zip(TABLES[80][size], row[1::2], row[2::2], strict=True):
            about = ", ".join(filter(None, [cell.task, cell.word == "reported" and "reported"]))
            assert ran == cell.on.replace("*", "×") + (f" ({about})" if about else "")
            assert estimated == f"{cell.count}{' †' if cell.undercuts else ''}"
    links = [link["href"].partition("#") for link in shown.select("tbody a")]
    rows = build.soup("rows.html")
    assert all(page == "rows.html" and rows.find(id=id_) for page, _, id_ in links)
    runs = [cell.run for cells in TABLES[80].values() for cell in cells]
    assert [f"run-{run}" for run in runs] == [id_ for *_, id_ in links]
    assert {"ran", "reported"} <= {cell.word for cells in TABLES[80].values() for cell in cells}
    assert table[1][1] == "128×H800 (DAPO, reported)", "not GRPO, which is in the caption"


def test_each_memory_has_its_panel_and_80_gb_is_shown_first(project):
    soup = project.page(".. verl-fewest::\n   :sizes: 7B\n").build().soup()
    tabs = {tab.get_text(): tab["href"] for tab in soup.select(".verl-tabs a")}
    assert tabs == {f"{size} GB": f"#fewest-{size}-gb" for size in DEFAULT_MEMORIES}
    panels = soup.select(".verl-panel")
    assert [f"#{panel['id']}" for panel in panels] == list(tabs.values())
    assert [panel["id"] for panel in soup.select(".verl-panel-first")] == ["fewest-80-gb"]
    caption = panels[2].select_one("caption").get_text()
    assert "80 GB each: H100, H800, A100, A800" in caption
    assert {cell["scope"] for cell in panels[2].select("tbody th")} == {"row"}
    assert any(script["src"].startswith("_static/verl-tables.js") for script in soup.select("script[src]"))


def test_the_search_says_where_it_ends_and_for_which_lengths(project, table_rows):
    page = ".. verl-fewest::\n   :memory: 24\n   :sizes: 671B\n\n   data.max_response_length: 16384\n"
    soup = project.page(page).build().soup()
    (row,) = table_rows(soup, "verl-fewest")[1:]
    assert row[2] == "none up to 1,024 GPUs"
    title = "Settings of the estimates: prompts of up to 512 and responses of up to 16384 tokens"
    assert soup.select_one("details summary").get_text() == title


def test_data_without_a_run_leave_estimates(own, data):
    data.write("gpus.yaml", "gpus: []\n")
    build = own.page(PAGE.replace("32B", "70B")).build()
    soup = build.soup()
    assert build.warnings == []
    assert soup.select("table.verl-fewest")
    legend = soup.select_one("ul.verl-legend").get_text()
    assert "No run of these models is recorded yet." in legend
    assert "†" not in legend


def test_a_size_class_that_only_recorded_runs_give_a_model_is_an_error_without_them(own, data, problems):
    data.write("gpus.yaml", "gpus: []\n")
    found = problems(own.page(PAGE).build())
    assert found[4].startswith("ERROR: verl-fewest: no model represents '32B'; allowed: 0.5B, 1.5B, 7B, ")


def test_settings_count_and_some_models_may_leave_no_estimate(project, table_rows):
    tp = "   actor_rollout_ref.rollout.tensor_model_parallel_size: 4\n"
    build = project.page(f".. verl-fewest::\n   :memory: 80\n   :sizes: 0.5B 7B\n\n{tp}").build()
    assert build.warnings == []
    without, with_tp = table_rows(build.soup(), "verl-fewest")[1:]
    assert without[2] == without[4] == "unknown"  # its 14 heads are not divisible
    assert with_tp[2].removesuffix(" †") == "4"
    assert tp.strip() in build.soup().select_one("pre").get_text()


@pytest.mark.parametrize("builder", ["text", "epub"])
def test_formats_without_tabs_show_one_table_after_the_other(project, builder):
    build = project.page(PAGE).build(builder)
    text = build.text("index.txt") if builder == "text" else build.text("index.xhtml")
    captions = [text.index(f"Fewest GPUs for GRPO, {size} GB each") for size in (40, 80, 96)]
    assert captions == sorted(captions)
    assert text.count("40 GB") == (1 if builder == "text" else 3), (
        "the caption, the name of its region, and a link"
    )
