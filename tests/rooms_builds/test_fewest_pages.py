"""``.. verl-fewest::``: each cell has the figures of the table and the recorded run, in every format."""

from __future__ import annotations

import pytest
from page_cases import words

from sphinx_verl_resources.fit.fewest import fewest_tables
from sphinx_verl_resources.memory.registries import EstimatorContext

PAGE = ".. verl-fewest::\n   :memory: 40 80 96\n   :sizes: 7B 32B\n"


def test_a_cell_has_the_fewest_gpus_and_the_recorded_run(project):
    (table,) = fewest_tables(EstimatorContext(), memories=(80,), task="GRPO", sizes=("7B", "32B"), config={})
    build = project.page(".. verl-runs:: 7B 32B\n", "rows.rst").page(PAGE).build()
    assert build.warnings == []
    shown = build.soup().select_one("#fewest-80-gb")
    _headings, *rows = [[words(cell) for cell in row.select("th, td")] for row in shown.select("tr")]
    assert [row[0] for row in rows] == ["7B (Qwen2.5-7B)", "32B (Qwen2.5-32B)"]
    runs = []
    for (_size, *cells), row in zip(table.rows, rows, strict=True):
        for cell, estimated, ran in zip(cells, row[1::2], row[2::2], strict=True):
            about = cell.ran and [cell.task, cell.ran.word == "reported" and "reported"]
            about = ", ".join(filter(None, about or []))
            assert ran == (f"{cell.ran.gpus}".replace("*", "×") if cell.ran else "") + f" ({about})" * bool(
                about
            )
            mark = " †" if cell.undercuts else "" if cell.recorded else " ‡"
            others = "" if cell.without == cell.count else f" ({cell.without or 'none'})"
            assert estimated == f"{cell.count}{mark}{others}"
            runs += [cell.ran.id] if cell.ran else []
    assert [link["href"] for link in shown.select("tbody a")] == [f"rows.html#run-{run}" for run in runs]


def test_the_largest_model_on_some_gpus_is_the_last_whose_fewest_are_no_more(project):
    soup = project.page(PAGE).build().soup()
    first, *panels = soup.select("table.verl-fewest")
    for row, panel in zip(first.select("tbody tr"), panels, strict=True):
        classes = [[words(cell) for cell in each.select("th, td")] for each in panel.select("tbody tr")]
        for most, cell in zip((1, 2, 4, 8, 16, 32), row.select("td"), strict=True):
            fits = [
                [name.partition(" ")[0] for name, *cells in classes if int(cells[at].split()[0]) <= most]
                for at in (0, 2)
            ]
            found = words(cell).replace(" †", "").replace(" ‡", "")
            full, lora = (each[-1:] for each in fits)
            assert found == (", ".join([*full, *(f"LoRA {size}" for size in lora)]) or "none")


@pytest.mark.parametrize("builder", ["text", "epub"])
def test_formats_without_tabs_show_one_table_after_the_other(project, builder):
    build = project.page(PAGE).build(builder)
    text = build.text("index.txt") if builder == "text" else build.text("index.xhtml")
    captions = [text.index(f"Fewest GPUs for GRPO, {size} GB each") for size in (40, 80, 96)]
    assert captions == sorted(captions)
