"""The documentation's own page, compared cell by cell with the page that verl published."""

from __future__ import annotations

import os
import re
import shutil

import pytest

HEADINGS = ["Tag", "Model", "Task", "Resource", "MaxBatch", "Train", "Infer", "Link", "Contributor"]


@pytest.fixture(scope="module")
def hardware(hardware_page, new_project):
    """The page on the bundled data, with the page that it links."""
    made = new_project("docs").page(".. toctree::\n\n   hardware\n   contributing-a-run\n")
    made.page(".. _verl-add-a-run:\n\nAdd a run\n---------\n", "contributing-a-run.rst")
    made.page(hardware_page, "hardware.rst")
    return made


def section_rows(published, size):
    return [[row[heading] for heading in HEADINGS] for row in published if row["Size"] == size]


def test_html(hardware, published):
    soup = hardware.build().soup("hardware.html")
    for size in dict.fromkeys(row["Size"] for row in published):
        section = soup.find(id=f"size-{size.lower().replace('.', '-')}")
        rows = [
            [re.sub(r"\s*\[\d+\]", "", cell.get_text()).strip() for cell in row.find_all(["th", "td"])]
            for row in section.select("table.verl-runs tr")
        ]
        assert rows[0] == HEADINGS
        expected = section_rows(published, size)
        assert rows[1 : 1 + len(expected)] == expected, (
            "the published rows come first, in the order of the page"
        )
    links = {link.get_text(): link["href"] for link in soup.select("table.verl-runs td.verl-path a.external")}
    for row in published:
        assert links[row["Link"]] == (
            f"https://github.com/verl-project/verl/blob/2239fd0ff7210c80ad63e20581924d1f66167429/{row['Path']}"
        )


def test_text(hardware, published):
    text = hardware.build("text").text("hardware.txt")
    for size in dict.fromkeys(row["Size"] for row in published):
        section = re.search(
            rf"^{re.escape(size)}\n-+\n(.*?)(?=^\S+B?\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL
        )[1]
        rows = [
            [re.sub(r"\s*\[\d+\]", "", cell).strip() for cell in line.strip("|").split("|")]
            for line in section.splitlines()
            if line.startswith("| ")
        ]
        assert rows[0] == HEADINGS
        expected = section_rows(published, size)
        assert rows[1 : 1 + len(expected)] == expected, "one line per row: nothing wraps"


def test_405b_asks_for_a_run_and_671b_is_not_empty(hardware):
    soup = hardware.build().soup("hardware.html")
    (empty,) = soup.select(".verl-empty")
    assert empty.get_text() == "No run is recorded for 405B yet. Add one."
    assert empty.find("a")["href"] == "contributing-a-run.html#verl-add-a-run"
    assert len(soup.find(id="size-671b").select("tbody tr")) >= 4


def test_no_number_of_a_row_is_typed_in_the_page(root):
    source = (root / "docs" / "hardware.rst").read_text("utf-8")
    assert "Last updated" in source
    assert "list-table" not in source
    # The source may contain numbers in options of directives, but none of their output.
    prose = re.sub(r"^\.\. verl-\S+::.*\n(\n?   .*\n)*", "", source, flags=re.MULTILINE)
    assert len(prose) > len(source) / 2
    assert re.findall(r"\b20\d\d-|\b\d{2,}\b(?!\*)", prose) == []


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="Sphinx reads in parallel only where processes can fork")
def test_parallel_output_equals_serial_output(own, data):
    for index in range(12):
        data.run(
            f"r{index}", size=["3B", "7B"][index % 2], notes=[{"code": "n", "text": f"Note {index % 3}."}]
        )
    own.page(".. toctree::\n   :glob:\n\n   page*\n\n.. verl-runs::\n")
    for index in range(8):
        own.page(f".. verl-runs:: {['3B', '7B'][index % 2]}\n   :sort: -id\n", f"page{index}.rst")
    serial = {path.name: path.read_bytes() for path in own.build(fresh=True).out.rglob("*.html")}
    shutil.rmtree(own.path / "_build")
    parallel = {
        path.name: path.read_bytes() for path in own.build(fresh=True, parallel=4).out.rglob("*.html")
    }
    assert parallel == serial
