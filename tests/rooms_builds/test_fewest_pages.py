"""``.. verl-fewest::``: each cell has the run that ran or the estimate, in every format."""

from __future__ import annotations

import pytest
from page_cases import words

from sphinx_verl_resources.answer.sizes import fewest_tables
from sphinx_verl_resources.memory.registries import EstimatorContext

PAGE = ".. verl-fewest::\n   :memory: 40 80 96\n   :sizes: 7B 32B\n"


def test_a_cell_has_the_run_that_ran_or_the_estimate(project):
    (table,) = fewest_tables(EstimatorContext(), memories=(80,), task="GRPO", sizes=("7B", "32B"), config={})
    build = project.page(".. verl-runs:: 7B 32B\n", "rows.rst").page(PAGE).build()
    assert build.warnings == []
    shown = build.soup().select_one("#fewest-80-gb")
    headings, *rows = [[words(cell) for cell in row.select("th, td")] for row in shown.select("tr")]
    assert headings == ["Size class (model)", "Full: ran", "Full: estimated", "LoRA: ran", "LoRA: estimated"]
    assert [row[0] for row in rows] == ["7B (Qwen2.5-7B)", "32B (Qwen2.5-32B)"]
    runs = []
    for (_size, *cells), row in zip(table.rows, rows, strict=True):
        for cell, ran, estimated in zip(cells, row[1::2], row[2::2], strict=True):
            about = ", ".join(filter(None, [cell.task, cell.word == "reported" and "reported"]))
            assert ran == cell.on.replace("*", "×") + (f" ({about})" if about else "")
            assert estimated == f"{cell.count}{' †' if cell.undercuts else ''}"
            runs.append(cell.run)
    assert [link["href"] for link in shown.select("tbody a")] == [f"rows.html#run-{run}" for run in runs]
    assert rows[1][1] == "128×H800 (DAPO, reported)", "not GRPO, which is in the caption"


@pytest.mark.parametrize("builder", ["text", "epub"])
def test_formats_without_tabs_show_one_table_after_the_other(project, builder):
    build = project.page(PAGE).build(builder)
    text = build.text("index.txt") if builder == "text" else build.text("index.xhtml")
    captions = [text.index(f"Fewest GPUs for GRPO, {size} GB each") for size in (40, 80, 96)]
    assert captions == sorted(captions)
    assert text.count("40 GB") == (1 if builder == "text" else 3), (
        "the caption, the name of its region, and a link"
    )
