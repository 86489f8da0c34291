"""Estimates on pages have the figures of the estimator, in text, table and chart."""

from __future__ import annotations

import subprocess
import sys

import pytest
from page_cases import words

from sphinx_verl_resources.units import gib, gib_number

PAGE = ".. verl-memory::\n   :run: a\n   :show: answer, chart, table\n   :caption: C\n"


def test_answer_table_and_chart(runs, estimated):
    build = runs.page(PAGE).build()
    assert build.warnings == []
    soup, found = build.soup(), estimated
    first = words(soup.select_one("p.verl-answer"))
    assert f"Peak {gib(found.peak)} per GPU (range {gib_number(found.low)} to {gib(found.high)})" in first
    assert gib(found.capacity) in first
    peak_phase, metric, host, measured = map(words, soup.select("ul.verl-answer > li")[-4:])
    assert peak_phase == f"Peak phase: {found.peak_phase.label}"
    assert f"perf/max_memory_allocated_gb: {gib(found.torch_peak)}" in metric
    assert "does not decide" in metric
    assert host == f"Host memory: {gib(found.host.total)} on each node."
    assert measured == "Measured: 60.0 GiB: memory in use on the GPU; compare it with the peak."
    headings, *rows = [
        [words(cell) for cell in row.select("th, td")] for row in soup.select("table.verl-memory tr")
    ]
    assert headings[:3] == ["Phase", "Total (GiB)", "Weights (GiB)"]
    assert headings[-1] == "Outside PyTorch (GiB)"
    assert soup.caption.get_text().startswith("C")
    names = [phase.label for phase in found.phases]
    peak = names.index(found.peak_phase.label)
    assert [row[0] for row in rows] == [
        f"{name} (peak phase)" if at == peak else name for at, name in enumerate(names)
    ]
    assert [bool(row.select("strong")) for row in soup.select("table.verl-memory tbody tr")].index(
        True
    ) == peak
    for row, phase in zip(rows, found.phases, strict=True):
        total, *parts = (float(cell.replace(",", "")) for cell in row[1:])
        assert row[1] == gib_number(phase.total)
        assert sum(parts) == pytest.approx(total, abs=0.4)
    svg = soup.select_one("div.verl-chart svg")
    values = [words(text) for text in svg.select("g[transform] > text")]
    assert [value.split(" ")[0] for value in values] == [*(row[1] for row in rows), "60.0"]
    labels = [words(text) for text in svg.select("svg > text")]
    assert [label for label in labels if label.removesuffix(" (peak)") in names][
        peak
    ] == f"{names[peak]} (peak)"
    assert f"GPU capacity: {gib(found.capacity)}" in labels
    assert f"Range of the peak: {gib_number(found.low)} to {gib(found.high)}" in labels
    for phase in found.phases:
        assert f"{phase.label} {gib(phase.total)}" in svg.desc.get_text()


def test_ids_of_charts(runs):
    both = f"{PAGE}\n{PAGE.replace('C', 'D')}\n.. verl-memory:: 8B\n"
    charts = runs.page(both).build().soup().select("div.verl-chart")
    assert [chart["id"] for chart in charts] == ["verl-chart-a", "verl-chart-a-2", "verl-chart-8b"]
    for chart in charts:
        named = [f"{chart['id']}--title", f"{chart['id']}--desc"]
        assert chart.svg["aria-labelledby"].split() == named == [chart.title["id"], chart.desc["id"]]
        for path in chart.select('[stroke^="url"]'):
            assert path["stroke"] == f"url(#{chart.pattern['id']})"


def test_a_label_of_a_run_is_text(runs, data):
    path = data.path / "runs/a.yaml"
    path.write_text(path.read_text() + f"label: '<b>&\"{'x' * 60}'\n")
    soup = runs.page(PAGE).build().soup()
    assert soup.svg.title.get_text().startswith('<b>&"xxx')
    assert not soup.select("[role=main] b")


@pytest.mark.parametrize(("builder", "pattern"), [("text", "*.txt"), ("latex", "*.tex"), ("man", "*.1")])
def test_elsewhere_the_table_is_alone(runs, builder, pattern):
    build = runs.page(PAGE).build(builder, version="1", copyright="x")
    assert build.warnings == []
    text = "".join(path.read_text("utf-8") for path in build.out.glob(pattern))
    assert "svg" not in text
    assert "Gathered" in text


def test_a_page_of_runs_loads_neither_the_answer_nor_the_analysis(runs):
    """Most pages show no computed values: the build reads the settings of runs, but searches and draws nothing."""
    runs.page(".. verl-runs:: 7B\n").build()
    code = (
        "import sys\nfrom sphinx.cmd.build import main\n"
        f"assert main(['-q', '-E', {str(runs.path)!r}, {str(runs.path / 'out')!r}]) == 0\n"
        "unused = ('answer.answer', 'estimator.backtest', 'views.charts')\n"
        "assert not [name for name in unused if f'sphinx_verl_resources.{name}' in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
