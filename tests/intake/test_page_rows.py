"""Rows that lack cells, as those of a page that has lost some: told, never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sphinx_verl_resources.catalog.files import DataFile
from sphinx_verl_resources.cli.data import load_facts
from sphinx_verl_resources.diagnostics import Code
from sphinx_verl_resources.intake.page import Known, read_page

HEADINGS = ("Tag", "Model", "Task", "Resource", "MaxBatch", "Train", "Infer", "Link", "Contributor")


def read(content: bytes):
    facts = load_facts([])
    return read_page(DataFile(Path("page.rst"), "page.rst", content), Known(facts.gpus, facts.architectures))


def listed(*rows) -> str:
    lines = ["7B", "~~", "", ".. list-table::", "    :widths: auto", "    :header-rows: 1", ""]
    for row in (HEADINGS, *rows):
        lines += [f"    {'  -' if index else '* -'} {cell}" for index, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("cells", "words"), [
    (("MIN", "GRPO-LoRA", "1*H100", "116", "fsdp", "vllm0.8.3"), "6 cells under 9 headings: Model, Link and Contributor are missing"),
    (("MIN", "GRPO", "2*H800", "\\", "fsdp", "vllm0.8.2"), "6 cells under 9 headings: Model, Link and Contributor are missing"),
    (("MIN", "Qwen2-7B", "GRPO", "2*H800", "16", "fsdp", "vllm0.8.2", "a.sh"), "8 cells under 9 headings: Contributor is missing"),
    (("MIN", "Qwen2-7B", "GRPO", "16", "fsdp", "vllm0.8.2", "a.sh", "Jane"), "8 cells under 9 headings: Resource is missing"),
    (("Qwen2-7B",), "1 cell under 9 headings: Tag, Task, Resource, MaxBatch, Train, Infer, Link and Contributor are missing"),
    (("MIN", "Qwen2-7B", "GRPO", "2*H800", "16", "fsdp", "8*H20", "vllm0.8.2", "a.sh", "Jane"), "10 cells under 9 headings: '8*H20' goes with no heading"),
])  # fmt: skip
def test_what_is_missing(cells, words):
    page = read(listed(cells).encode())
    assert (page.rows, page.runs) == (1, ())
    (problem,) = page.problems
    assert (problem.code, problem.location.line) == (Code.page_row, 17)
    assert problem.message == words


def test_whole_rows_beside_them_are_read():
    whole = ("MIN", "Qwen2-7B", "GRPO", "2*H800", "16", "fsdp", "vllm0.8.2", "\\", "Jane")
    page = read(listed(whole[:6], whole, ("a", "b")).encode())
    assert (page.rows, len(page.runs)) == (3, 1)
    assert page.runs[0].place.line == 23


def test_short_rows_of_csv_tables_are_not_filled_up():
    page = read(
        b"7B\n--\n\n.. csv-table::\n   :header: Tag, Model, Task, Resource, Train, Infer\n\n   MIN, GRPO, 1*H100\n"
    )
    (problem,) = page.problems
    assert problem.message == "3 cells under 6 headings: Model, Train and Infer are missing"
    assert problem.location.line == 7


def test_cells_over_several_columns_are_rows_of_another_length():
    page = read(b"""7B
--

+-----+-------+------+----------+-------+-------+
| Tag | Model | Task | Resource | Train | Infer |
+=====+=======+======+==========+=======+=======+
| MIN | GRPO         | 1*H100   | fsdp  | vllm  |
+-----+--------------+----------+-------+-------+
""")
    assert [problem.message for problem in page.problems] == ["5 cells under 6 headings: Model is missing"]


def test_the_damaged_document(root):
    """Rows of six cells under nine headings, two headings with short underlines, two tables of backslashes."""
    source = root.parent / "shared" / "sources" / "000_da4b8cf7f4633950.txt"
    if not source.is_file():
        pytest.skip("the document is not beside this checkout")
    page = read(source.read_bytes())
    assert (page.rows, page.runs) == (12, ())
    rows = [problem for problem in page.problems if problem.code is Code.page_row]
    assert [problem.location.line for problem in rows] == [
        44,
        67,
        90,
        113,
        119,
        142,
        148,
        171,
        177,
        200,
        206,
        212,
    ]
    assert {problem.message for problem in rows} == {
        "6 cells under 9 headings: Model, Link and Contributor are missing"
    }
    mended = [problem.location.line for problem in page.problems if problem.code is Code.page_mended]
    assert mended == [29, 52]
    assert len(page.problems) == 14
