"""Estimates on pages have the figures of the estimator, in text, table and chart."""

from __future__ import annotations

import subprocess
import sys
from email.message import Message
from importlib import metadata
from urllib.parse import parse_qs

import pytest
from page_cases import words

from sphinx_verl_resources.fit.words import whole
from sphinx_verl_resources.units import gib_number

PAGE = ".. verl-memory::\n   :run: a\n   :show: answer, chart, table\n   :caption: C\n"


def test_answer_table_and_chart(runs, estimated):
    build = runs.page(PAGE).build()
    assert build.warnings == []
    soup, result = build.soup(), estimated
    texts = [words(line) for line in soup.select("p.verl-answer, ul.verl-answer > li")]
    peak, low, high, capacity = map(whole, (result.peak, result.low, result.high, result.capacity))
    assert texts[0] == f"Fits. Peak {peak} GiB per GPU (range {low} to {high}); the GPU has {capacity} GiB."
    assert "Measured: 60.0 GiB (in use on the GPU)." in texts
    headings, *rows = [[*map(words, row.select("th, td"))] for row in soup.select("table.verl-memory tr")]
    assert headings[:3] == ["Phase", "Total (GiB)", "Weights (GiB)"]
    assert headings[-1] == "Outside PyTorch (GiB)"
    assert soup.caption.get_text().startswith("C")
    names = [phase.label for phase in result.phases]
    peak = names.index(result.peak_phase.label)
    labels = [f"{name} (peak phase)" if at == peak else name for at, name in enumerate(names)]
    assert [row[0] for row in rows] == labels
    assert [words(row.td) for row in soup.select("table.verl-memory tbody tr:has(strong)")] == [labels[peak]]
    for row, phase in zip(rows, result.phases, strict=True):
        total, *parts = (float(cell.replace(",", "")) for cell in row[1:])
        assert row[1] == gib_number(phase.total)
        assert sum(parts) == pytest.approx(total, abs=0.4)
    cells = soup.select("div.verl-chart > div > :is(span, strong)")
    assert [words(cell) for cell in cells[1::2]] == [f"{whole(phase.total)} GiB" for phase in result.phases]
    assert words(cells[2 * peak]) == f"{names[peak]} (peak)"


@pytest.mark.parametrize("issues", [None, "https://example.org/o/n/issues"])
def test_the_details_of_a_run_link_to_an_issue_with_its_settings(runs, monkeypatch, issues):
    meta = Message()
    if issues:
        meta["Project-URL"] = f"Issues, {issues}"
    monkeypatch.setattr(metadata, "metadata", lambda _: meta)
    soup = runs.page(".. verl-runs::\n   :details:\n   :hide-empty:\n").build().soup()
    links = [link["href"] for link in soup.select("details a") if "a run like" in link.get_text()]
    fields = [parse_qs(link.removeprefix(f"{issues}/new?")) for link in links]
    expected = {"template", "title", "model", "task", "gpus", "train", "infer", "settings"}
    assert (count := len(soup.select("details"))) > 0
    assert [{*each} for each in fields] == [expected] * (count if issues else 0)


def test_ids_of_charts(runs):
    both = f"{PAGE}\n{PAGE.replace('C', 'D')}\n.. verl-memory:: 8B\n"
    charts = runs.page(both).build().soup().select("div.verl-chart")
    assert [chart["id"] for chart in charts] == ["verl-chart-a", "verl-chart-a-2", "verl-chart-8b"]


def test_a_page_of_runs_loads_neither_the_answer_nor_the_analysis(runs):
    """Most pages show no computed values: the build reads the settings of runs, but searches and draws nothing."""
    runs.page(".. verl-runs:: 7B\n").build()
    code = (
        "import sys\nfrom sphinx.cmd.build import main\n"
        f"assert main(['-q', '-E', {str(runs.path)!r}, {str(runs.path / 'out')!r}]) == 0\n"
        "unused = ('fit.answer', 'fit.search', 'fit.directives')\n"
        "assert not [name for name in unused if f'sphinx_verl_resources.{name}' in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
