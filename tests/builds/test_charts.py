"""Charts on pages: the same numbers as the table after them, unique ids, and none outside of HTML."""

from __future__ import annotations

import re

import pytest

from sphinx_verl_resources.units import gib, gib_number

ESTIMATE = ".. verl-memory::\n   :run: a\n   :show: {}\n"


def tables_behind(soup) -> list[str]:
    """Return the classes of the element after each chart; a region around a table counts as the table."""
    found = []
    for chart in soup.select("div.verl-chart"):
        after = chart.find_next_sibling()
        table = after if after.name == "table" else after.find("table")
        found.append(" ".join(table["class"]))
    return found


def texts(svg) -> tuple[list[str], list[str]]:
    """Return the texts above the bars, on the left and on the right."""
    right = [item.get_text() for item in svg.select("g[transform] > text")]
    return [item.get_text() for item in svg.select("svg > text")], right


def test_the_drawing_of_an_estimate_has_the_numbers_of_the_table(runs, estimated, table_rows):
    build = runs.page(ESTIMATE.format("chart")).build()
    assert build.warnings == []
    soup, found = build.soup(), estimated()
    assert ["verl-memory" in name for name in tables_behind(soup)] == [True]
    chart = soup.select_one("div.verl-chart")
    assert chart["id"] == "verl-chart-a"
    labels, values = texts(chart.svg)
    rows = table_rows(soup, "verl-memory")[1:]
    assert [value.split(" ")[0] for value in values] == [*(row[1] for row in rows), "60.0"]
    assert [value.split(",")[0] for value in values[:-1]] == [gib(phase.total) for phase in found.phases]
    names = [row[0].replace(" (peak phase)", " (peak)") for row in rows]
    assert [label for label in labels if label in names] == names
    bold = [item.get_text() for item in chart.select('[font-weight="bold"]')]
    assert bold == [
        f"{found.peak_phase.label} (peak)",
        max(values, key=lambda value: float(value.split()[0])),
    ]
    assert f"GPU capacity: {gib(found.capacity)}" in labels
    assert f"Range of the peak: {gib_number(found.low)} to {gib(found.high)}" in labels
    assert chart.svg.title.get_text() == "Qwen2.5-7B-Instruct, GRPO on 8×H100: memory per GPU, phase by phase"
    for phase in found.phases:
        assert f"{phase.label} {gib(phase.total)}" in chart.desc.get_text()


def test_a_chart_in_its_place_keeps_the_table_in_its_own(runs):
    soup = runs.page(ESTIMATE.format("table, host, chart")).build().soup()
    assert len(soup.select("table.verl-memory")) == 1
    soup = runs.page(ESTIMATE.format("chart") + "   :caption: Own\n").build().soup()
    assert soup.caption.get_text().startswith("Own")


def test_the_waterfall_of_an_analysis_has_the_numbers_of_the_table(project, table_rows):
    soup = project.page(".. verl-memory:: 8B\n   :show: chart\n").build().soup()
    rows = table_rows(soup, "verl-memory")[1:]
    labels, values = texts(soup.svg)
    assert len(values) == len(rows) == 12
    assert labels[12:] == ["Saved"]
    for label, value, row in zip(labels, values, rows, strict=False):
        assert row[0].startswith(label)
        number = row[2] if label in {"Total", "Per GPU"} else row[1].removeprefix("+")
        assert value == f"{number} GB"
    assert soup.svg.title.get_text().startswith("8B: memory for 32 sequences of 2048 tokens")


def test_ids_are_unique_and_every_reference_leads_somewhere(runs):
    text = ESTIMATE.format("chart") + "\n" + ESTIMATE.format("chart") + "\n.. verl-memory:: 8B\n"
    runs.page(".. toctree::\n\n   one\n   two\n")
    for name in ("one", "two"):
        (runs.path / f"{name}.rst").write_text(f"{name}\n===\n\n{text}", "utf-8")
    build = runs.build()
    assert build.warnings == []
    soup = build.soup("two.html")
    charts = soup.select("div.verl-chart")
    assert len(charts) == 3
    ids = [element["id"] for element in soup.select("[id]")]
    assert len(ids) == len(set(ids))
    for chart in charts:
        named = chart.svg["aria-labelledby"].split()
        assert (
            named
            == [f"{chart['id']}--title", f"{chart['id']}--desc"]
            == [chart.title["id"], chart.desc["id"]]
        )
        for path in chart.select('[stroke^="url"]'):
            assert path["stroke"] == f"url(#{chart.pattern['id']})"


@pytest.mark.parametrize(
    ("builder", "pattern"),
    [("text", "*.txt"), ("latex", "*.tex"), ("man", "*.1")],
)
def test_elsewhere_the_table_stands_alone(runs, builder, pattern):
    runs.conf.update(version="1", copyright="x")
    build = runs.page(ESTIMATE.format("chart")).build(builder)
    assert build.warnings == []
    text = "".join(path.read_text("utf-8") for path in build.out.glob(pattern))
    assert "<svg" not in text
    assert not re.search("verl.chart", text)
    assert "Gathered" in text


def test_a_label_of_a_run_is_text(runs, data, settings):
    data.run("a", settings=settings, gpus={"count": 8, "type": "H100"}, label='<b>&"' + "x" * 60)
    soup = runs.page(ESTIMATE.format("chart")).build().soup()
    assert soup.svg.title.get_text().startswith('<b>&"xxx')
    assert not soup.select("svg b, div.verl-chart b")


def test_a_run_without_numbers_is_said_to_have_none(runs):
    build = runs.page(ESTIMATE.replace("a\n", "b\n").format("chart")).build()
    assert "has no recorded settings" in build.warnings[0]
    assert not build.soup().select("svg")
