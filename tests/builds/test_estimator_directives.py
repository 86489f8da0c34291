"""Estimates on pages: their content, in both languages and in every output."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from sphinx_verl_resources.units import gib, gib_number
from sphinx_verl_resources.views.verdicts import title

MODEL = (
    "verl-memory", ":model: Qwen/Qwen2.5-7B-Instruct", ":gpus: 8*H100", "",
    "algorithm.adv_estimator: grpo", "actor_rollout_ref:", "  actor: {use_dynamic_bsz: true}",
    "  rollout: {n: 4, gpu_memory_utilization: 0.5}",
)  # fmt: skip


def test_the_answer_names_both_figures_and_says_which_is_which(runs, estimated):
    build = runs.page(".. verl-memory::\n   :run: a\n").build()
    assert build.warnings == []
    found, soup = estimated(), build.soup()
    first = soup.select_one("p.verl-answer").get_text()
    assert f"Peak {gib(found.peak)} per GPU (range {gib_number(found.low)} to {gib(found.high)})" in first
    assert gib(found.capacity) in first
    assert first.startswith(f"{title(found.verdict)}. ")
    items = soup.select("ul.verl-answer > li")
    peak_phase, metric, host, measured = (item.get_text() for item in items[-4:])
    assert peak_phase == f"Peak phase: {found.peak_phase.label}"
    assert metric.startswith(
        f"Value of verl’s metric: perf/max_memory_allocated_gb: {gib(found.torch_peak)}"
    ), metric
    assert "does not decide" in metric
    assert host == f"Host memory: {gib(found.host.total)} on each node."
    assert measured == "Measured: 60.0 GiB: memory in use on the GPU; compare it with the peak."


def test_the_answer_says_what_to_change_where_it_does_not_fit(project, written):
    lines = list(MODEL)
    lines[1:3] = [":model: Qwen/Qwen2.5-72B-Instruct", ":gpus: 16*H100"]
    soup = project.page(written(tuple(lines))).build().soup()
    first = soup.select_one("ul.verl-answer > li")
    assert first.strong.get_text() == "What makes it fit"
    changes = [item.get_text() for item in first.select("li")]
    assert 1 <= len(changes) <= 3
    for item in first.select("li"):
        assert "=" in item.code.get_text()
        assert re.search(
            r"[0-9.]+ GiB \(up to [0-9.]+ GiB\), costs (no|little|a lot of) time\.", item.get_text()
        )


def test_the_table_has_a_row_for_each_phase_and_one_stands_out(runs, table_rows, estimated):
    soup = runs.page(".. verl-memory::\n   :run: a\n").build().soup()
    headings, *rows = table_rows(soup, "verl-memory")
    found = estimated()
    assert headings[:3] == ["Phase", "Total (GiB)", "Weights (GiB)"]
    assert headings[-1] == "Outside PyTorch (GiB)"
    assert all(heading.endswith("(GiB)") for heading in headings[1:])
    peak_phase = f"{found.peak_phase.label} (peak phase)"
    assert [row[0] for row in rows] == [
        peak_phase if phase is found.peak_phase else phase.label for phase in found.phases
    ]
    strong = [row for row in soup.select("table.verl-memory tbody tr") if row.select("strong")]
    assert [row.td.get_text() for row in strong] == [peak_phase]
    for row in rows:
        total, *parts = (float(cell.replace(",", "")) for cell in row[1:])
        assert sum(parts) == pytest.approx(total, abs=0.4)
    assert soup.caption.get_text().startswith(
        "Qwen2.5-7B-Instruct, GRPO on 8×H100: memory per GPU, phase by phase"
    )


def test_weights_that_stay_gathered_are_shown_as_gathered(project, table_rows, written):
    """Without resharding after the forward pass, every GPU has complete layers."""
    lines = (*MODEL[:3], ":show: chart, table", *MODEL[3:6])
    lines += ("  actor: {use_dynamic_bsz: true, fsdp_config: {reshard_after_forward: false}}",)
    soup = project.page(written(lines)).build().soup()
    headings, *rows = table_rows(soup, "verl-memory")
    gathered = {row[0].partition(" (")[0]: float(row[headings.index("Gathered (GiB)")]) for row in rows}
    assert gathered["Update: loss"] > 12
    assert "Other (GiB)" not in headings
    legend = [item.get_text() for item in soup.select("div.verl-chart svg > text")]
    assert {"Weights", "Gathered"}.issubset(legend)


def test_what_is_left_out_is_said(runs, data, settings):
    data.run("a", settings={**settings, "actor_rollout_ref.rollout.load_format": "sharded_state"})
    soup = runs.page(".. verl-memory::\n   :run: a\n   :show: table\n").build().soup()
    (note,) = soup.select("ul.verl-notes li")
    assert note.get_text() == "actor_rollout_ref.rollout.load_format: not modelled"
    assert soup.select_one(".verl-notes-title").get_text() == "What the estimate leaves out or assumes:"


def test_a_version_of_verl(project, written):
    def metric(version: str) -> str:
        lines = (*MODEL[:3], f":verl-version: {version}", *MODEL[3:])
        soup = project.page(written(lines)).build().soup()
        return soup.select("ul.verl-answer li")[-2].get_text()

    assert "including the memory of the sleeping rollout engine" in metric("v0.4.0")
    assert "sleeping" not in metric("0.8.0")


def test_runs_show_their_computed_peak(runs, estimated):
    text = ".. verl-runs:: 7B\n   :columns: id estimate.peak ESTIMATE.phase\n"
    build = runs.page(text).build()
    assert build.warnings == []
    found = estimated()
    assert build.rows("size-7b") == [
        ["Run", "Estimated peak (GiB)", "Peak phase"],
        ["a", f"{gib_number(found.low)} to {gib_number(found.peak)}", found.peak_phase.label],
        ["b", "", ""],
    ]


def test_a_run_that_cannot_be_estimated_has_an_empty_cell(own, data):
    data.run("a", settings={"actor_rollout_ref.actor.strategy": "veomni"})
    build = own.page(".. verl-runs:: 7B\n   :columns: id estimate.peak\n").build()
    assert build.rows("size-7b")[1] == ["a", ""]


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


@pytest.mark.parametrize("suffix", ["rst", pytest.param("md", marks=pytest.mark.slow)])
def test_remarks_lead_to_the_estimator_where_there_is_a_page_of_it(project, suffix, written):
    project.conf.update(extensions=["myst_parser"])
    summary = written(("verl-memory-summary",), suffix)
    assert (
        "The estimator"
        not in project.page(f"{summary}\n\n{summary}", f"index.{suffix}").build().soup().get_text()
    )
    project.page(".. _verl-estimator:\n\nEstimator\n---------\n\nText.\n", "estimator.rst")
    build = project.page(f"{summary}\n\n{summary}", f"index.{suffix}").build()
    assert build.warnings == []
    links = [
        a for a in build.soup().select("p.verl-notes-title a") if a.get_text().startswith("The estimator")
    ]
    assert [a["href"] for a in links] == ["estimator.html#verl-estimator"]
    build = project.build(verl_resources_estimator_page="https://example.org/e")
    assert build.read == {"index"}
    assert build.soup().select_one("p.verl-notes-title a")["href"] == "https://example.org/e"
    build = project.build(verl_resources_estimator_page="no-such-label")
    assert (
        "verl_resources_estimator_page: 'no-such-label' is neither an address nor a label"
        in build.warnings[0]
    )
