"""Rows with missing cells are reported; the missing cells are never guessed."""

from __future__ import annotations

import pytest
from typed_pages import COLUMNS, listed, page_of, read

from sphinx_verl_resources.diagnostics import Code


def rows(*cells):
    """Read a page with these rows."""
    return read(page_of(listed(*cells)))


@pytest.mark.parametrize(("cells", "words"), [
    (("MIN", "GRPO-LoRA", "1*H100", "116", "fsdp", "vllm0.8.3"), "6 cells under 9 headings; missing: Model, Link, Contributor"),
    (("MIN", "GRPO", "2*H800", "\\", "fsdp", "vllm0.8.2"), "6 cells under 9 headings; missing: Model, Link, Contributor"),
    (("MIN", "Qwen2-7B", "GRPO", "2*H800", "16", "fsdp", "vllm0.8.2", "a.sh"), "8 cells under 9 headings; missing: Contributor"),
    (("MIN", "Qwen2-7B", "GRPO", "16", "fsdp", "vllm0.8.2", "a.sh", "Jane"), "8 cells under 9 headings; missing: Resource"),
    (("Qwen2-7B",), "1 cell under 9 headings; missing: Tag, Task, Resource, MaxBatch, Train, Infer, Link, Contributor"),
    (("MIN", "Qwen2-7B", "GRPO", "2*H800", "16", "fsdp", "8*H20", "vllm0.8.2", "a.sh", "Jane"), "10 cells under 9 headings"),
])  # fmt: skip
def test_what_is_missing(cells, words):
    page = rows(cells)
    assert (page.rows, page.runs) == (1, [])
    (problem,) = page.problems
    assert (problem.code, problem.place.line) == (Code.page_row, 19)
    assert problem.message == words
    assert ("no heading '8*H20'" in problem.remedy) == (len(cells) == 10)


def test_whole_rows_beside_them_are_read():
    whole = ("MIN", "Qwen2-7B", "GRPO", "2*H800", "16", "fsdp", "vllm0.8.2", "\\", "Jane")
    page = rows(whole[:6], whole, ("a", "b"))
    assert (page.rows, len(page.runs)) == (3, 1)
    assert page.runs[0].place.line == 25


def test_short_rows_of_csv_tables_are_not_filled_up():
    page = read(
        b"7B\n--\n\n.. csv-table::\n   :header: Tag, Model, Task, Resource, Train, Infer\n\n   MIN, GRPO, 1*H100\n"
    )
    (problem,) = page.problems
    assert problem.message == "3 cells under 6 headings; missing: Model, Train, Infer"
    assert problem.place.line == 7


def test_cells_over_several_columns_are_rows_of_another_length():
    page = read(b"""7B
--

+-----+-------+------+----------+-------+-------+
| Tag | Model | Task | Resource | Train | Infer |
+=====+=======+======+==========+=======+=======+
| MIN | GRPO         | 1*H100   | fsdp  | vllm  |
+-----+--------------+----------+-------+-------+
""")
    assert [problem.message for problem in page.problems] == ["5 cells under 6 headings; missing: Model"]


def damaged(size: str, underline: str, *rows: str) -> str:
    """Return a section of a page whose rows have lost Model, Link and Contributor."""
    lines = [size, underline, "", ".. list-table::", "    :widths: auto", "    :header-rows: 1", "    "]
    for cells in (COLUMNS, *(row.split() for row in rows)):
        lines += [f"    {'  -' if index else '* -'} {cell}" for index, cell in enumerate(cells)]
    return "\n".join([*lines, "", ""])


NOTHING = r"""
.. table::
   :widths: auto

   ====== ====== ====== ======== ======== ====== ====== ======
   tag    model  task   resource MaxBatch train  infer  link
   ====== ====== ====== ======== ======== ====== ====== ======
   \      \      \        \        \      \      \
   ====== ====== ====== ======== ======== ====== ====== ======

"""


def test_a_page_whose_rows_have_all_lost_cells():
    """Six cells under nine headings, two headings with short underlines, two tables of backslashes."""
    text = (
        "Runs that were made\n===================\n\nLast updated: 01/31/2025.\n\nWhat this is about.\n\n----\n\n"
        + damaged("0.5B", "~~~", "MIN PPO-LoRA 1*A100 24 fsdp vllm0.7.3")
        + damaged("1.5B", "~~~", "MIN PPO-LoRA 2*A100 48 fsdp vllm0.7.3")
        + damaged("7B", "~~", r"MIN PPO 4*H20 \ megatron sglang0.4.6", "RECOMMENDED PPO 8*H20 96 fsdp2 vllm0.8.4")
        + f"405B\n~~~~\n{NOTHING}671B\n~~~~\n{NOTHING}"
    )  # fmt: skip
    page = read(text)
    assert (page.rows, page.runs) == (4, [])
    missing = (
        "6 cells under 9 headings; missing: Model, Link, Contributor; no run file is written; "
        "the cells read as"
    )
    read_as = [
        (26, "Tag 'MIN', Task 'PPO-LoRA', Resource '1*A100', MaxBatch '24', Train 'fsdp', Infer 'vllm0.7.3'"),
        (49, "Tag 'MIN', Task 'PPO-LoRA', Resource '2*A100', MaxBatch '48', Train 'fsdp', Infer 'vllm0.7.3'"),
        (72, "Tag 'MIN', Task 'PPO', Resource '4*H20', MaxBatch '', Train 'megatron', Infer 'sglang0.4.6'"),
        (78, "Tag 'RECOMMENDED', Task 'PPO', Resource '8*H20', MaxBatch '96', Train 'fsdp2', Infer 'vllm0.8.4'"),
    ]  # fmt: skip
    assert [str(problem) for problem in page.problems if problem.code is Code.page_row] == [
        f"page.rst:{line}:1: ERROR: {missing} {cells} [verl.page_row]" for line, cells in read_as
    ]
    others = [
        (problem.code, problem.place.line) for problem in page.problems if problem.code is not Code.page_row
    ]
    assert others == [(Code.page_mended, 11), (Code.page_mended, 34)]
