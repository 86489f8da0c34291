"""``.. verl-fewest::``: each cell has the figures of the table and the recorded run, in every format."""

from __future__ import annotations

import json

import pytest
from page_cases import words

from sphinx_verl_resources.fit import directives
from sphinx_verl_resources.fit.fewest import fewest_by_memory, fewest_tables
from sphinx_verl_resources.fit.question import Question
from sphinx_verl_resources.memory.registries import EstimatorContext

DATA = EstimatorContext()


def tables_of(sizes, memories):
    return fewest_tables(
        DATA, sizes, lambda model, rank: fewest_by_memory(Question(model, lora=rank), DATA, memories)
    )


@pytest.fixture(scope="module")
def build(new_project):
    """A page with the table of two size classes, then that of one; another page has the rows of runs."""
    project = new_project("docs").page(".. verl-runs:: 7B 32B\n", "rows.rst")
    project.page(".. verl-fewest::\n   :sizes: 7B 32B\n", "both.rst")
    return project.page(".. verl-fewest::\n   :sizes: 7B\n").build()


def test_a_cell_has_the_fewest_gpus_and_the_recorded_run(build):
    (table,) = tables_of(("7B", "32B"), (80,))
    assert build.warnings == []
    panel = build.soup("both.html").select_one("#fewest-80-gb")
    _headings, *rows = [[*map(words, row.select("th, td"))] for row in panel.select("tr")]
    assert [row[0] for row in rows] == ["7B (Qwen2.5-7B)", "32B (Qwen2.5-32B)"]
    runs = []
    for (_size, *cells), row in zip(table, rows, strict=True):
        for cell, fewest, ran in zip(cells, row[1::2], row[2::2], strict=True):
            word = "reported" if cell.ran.get("word") == "reported" else ""
            about = ", ".join(filter(None, (cell.ran.get("task"), word)))
            gpus = cell.ran.get("gpus", "").replace("*", "×")
            assert ran == (f"{gpus} ({about})" if about else gpus)
            mark = {"undercuts": " †", "unrecorded": " ‡"}.get(cell.support, "")
            others = "" if cell.without == cell.count else f" ({cell.without or 'none'})"
            assert fewest == f"{cell.count}{mark}{others}"
            runs += [cell.ran["id"]] if cell.ran else []
    assert [link["href"] for link in panel.select("tbody a")] == [f"rows.html#run-{run}" for run in runs]


def test_the_largest_model_on_some_gpus_is_the_last_whose_fewest_are_no_more(build):
    first, *panels = build.soup("both.html").select("table.verl-fewest")
    for row, panel in zip(first.select("tbody tr"), panels, strict=True):
        classes = [[*map(words, each.select("th, td"))] for each in panel.select("tbody tr")]
        for most, cell in zip((1, 2, 4, 8, 16, 32), row.select("td"), strict=True):
            fits = [
                [name.partition(" ")[0] for name, *cells in classes if int(cells[at].split()[0]) <= most]
                for at in (0, 2)
            ]
            output = words(cell).replace(" †", "").replace(" ‡", "")
            full, lora = (each[-1:] for each in fits)
            assert output == (", ".join([*full, *(f"LoRA {size}" for size in lora)]) or "none")


def test_the_values_of_the_table_are_a_file_whose_name_follows_from_the_options(build):
    pages = (build.soup(f"{name}.html").select_one("ul.verl-legend a")["href"] for name in ("both", "index"))
    other, name = pages
    assert name != other
    assert json.loads(build.text(name)) == [
        {"size": size, "lora_rank": rank, **cell.result}
        for table in tables_of(("7B",), directives.MEMORIES)
        for size, *both in table
        for rank, cell in zip((0, 32), both, strict=True)
    ]


def test_an_edit_of_a_run_answers_again_for_its_model_only(project, data, monkeypatch):
    models = []

    def answer_of(question, data, _memories):
        models.append((question.model.rpartition("/")[2], question.lora))
        return fewest_by_memory(question, data, (80,))

    def build_with(**run):
        models.clear()
        data.run("a", model="Qwen/Qwen2.5-7B", **run)
        page = project.page(".. verl-fewest::\n   :sizes: 0.5B 7B\n")
        build = page.build(verl_resources_data=["../data"])
        assert build.warnings == []
        return [*models], build.soup().select_one("#fewest-80-gb").text

    monkeypatch.setattr(directives, "fewest_by_memory", answer_of)
    of_7b = [("Qwen2.5-7B", 0), ("Qwen2.5-7B", 32)]
    first, table = build_with()
    assert first == [("Qwen2.5-0.5B", 0), ("Qwen2.5-0.5B", 32), *of_7b]
    assert build_with(added="2026-01-01") == (of_7b, table)
