"""Plain text: long tables in parts, so that the time is proportional to the rows."""

from __future__ import annotations

import re
from itertools import groupby

import pytest

from sphinx_verl_resources.sphinx_ext.transforms import ROWS


@pytest.fixture
def text(own, data, make_run_text):
    """A function that returns the plain text of a page with a number of runs."""

    def of_page(runs: int, page: str = ".. verl-runs:: 7B") -> str:
        pattern = make_run_text(id="NAME", task="task-of-NAME")
        for name in (f"run-{number}" for number in range(runs)):
            data.write(f"runs/{name}.yaml", pattern.replace("NAME", name))
        build = own.page(page).build("text")
        assert build.warnings == []
        return build.text("index.txt")

    return of_page


def tables(text: str) -> list[list[list[str]]]:
    """Return the cells of each table, header first."""
    blocks = groupby(text.splitlines(), key=lambda line: line.startswith(("+", "|")))
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
        for is_table, lines in blocks
        if is_table
    ]


@pytest.mark.slow
def test_many_rows_all_appear_in_parts_of_a_bounded_size(text):
    found = tables(text(2000))
    names = [row[2] for rows in found for row in rows[1:]]
    assert sorted(names) == sorted(f"task-of-run-{number}" for number in range(2000))
    # The writer's time grows with the square of the rows per part, so only with the number of parts.
    assert [len(rows) - 1 for rows in found] == [ROWS] * (2000 // ROWS)
    assert {tuple(rows[0]) for rows in found} == {
        ("Tag", "Model", "Task", "Resource", "MaxBatch", "Train", "Infer", "Link", "Contributor")
    }


def test_parts_are_of_one_width_and_the_caption_stands_once(text):
    found = text(ROWS + 1, ".. verl-runs:: 7B\n   :caption: All of them\n\nThe end.")
    borders = set(re.findall(r"^\+-.*", found, re.MULTILINE))
    assert len(borders) == 1
    assert found.count("All of them") == 1
    assert found.index("All of them") < found.index("+-") < found.rindex("+-") < found.index("The end.")


def test_notes_follow_the_last_part(text, data):
    data.run("a", notes=[{"code": "n", "text": "A remark."}])
    found = text(ROWS)
    assert [len(rows) - 1 for rows in tables(found)] == [ROWS, 1]
    assert found.rindex("+-") < found.index("A remark.")


def test_tables_that_fit_and_those_of_others_stay_whole(text):
    typed = ".. list-table::\n\n" + "".join(f"   * - cell {number}\n" for number in range(ROWS + 1))
    found = tables(text(ROWS, f".. verl-runs:: 7B\n\n{typed}"))
    assert [len(rows) for rows in found] == [ROWS + 1, ROWS + 1]
