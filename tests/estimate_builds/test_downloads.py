"""``.. verl-downloads::``: two files made from the data, and links to them."""

from __future__ import annotations

import csv
import json
import re

import pytest

from sphinx_verl_resources import __version__
from sphinx_verl_resources.fit.results import gib_value
from sphinx_verl_resources.units import GIB

PAGE = ".. verl-downloads::\n"


def test_the_files_say_what_is_recorded_and_computed(runs, estimated):
    build = runs.page(PAGE).build()
    result = json.loads(build.text("verl-resources.json"))
    assert (result["schema"], result["extension_version"]) == (1, __version__)
    assert [run["id"] for run in result["runs"]] == ["a", "b"]
    a, b = result["runs"]
    assert a["computed"] == {
        "verdict": estimated.verdict,
        "fits_up_to_tokens": estimated.fits_up_to_tokens,
        "peak_gib": gib_value(estimated.peak),
        "low_gib": gib_value(estimated.low),
        "high_gib": gib_value(estimated.high),
        "capacity_gib": gib_value(estimated.capacity),
        "binding_phase": estimated.peak_phase.name,
        "host_ram_gib_per_node": gib_value(estimated.host.total),
        "measured_runs_of_this_kind": a["computed"]["measured_runs_of_this_kind"],
    }
    assert a["computed"]["measured_runs_of_this_kind"] > 0
    assert (a["not_computed"], a["word"]) == (None, "ran")
    assert (b["computed"], b["row_id"], b["word"], b["gpu"]) == (None, "run-b", "ran", "H100-80GB")
    assert "has no recorded settings" in b["not_computed"]
    assert a["record"]["measured"] == {"gib": 60.0, "counter": "device"}
    assert "script" not in b["record"]
    assert [gpu["name"] for gpu in result["gpus"]] == ["H100-80GB"]
    kinds = [entry["name"] for entry in result["accuracy"]]
    assert kinds == sorted(kinds)
    rows = {row["id"]: row for row in csv.DictReader(build.text("verl-resources.csv").splitlines())}
    assert list(rows) == ["a", "b"]
    assert rows["a"]["computed.peak_gib"] == str(round(estimated.peak / GIB, 3))
    recorded = [rows["a"][name] for name in ("measured.gib", "gpus.count", "gpus.type")]
    assert recorded == ["60.0", "8", "H100"]
    assert rows["b"]["computed.peak_gib"] == rows["b"]["max_batch"] == ""


@pytest.mark.slow
def test_the_files_publish_what_the_page_shows_and_nothing_else(project):
    build = project.page(f"{PAGE}\n.. verl-runs::\n   :details:\n").build()
    soup, text = build.soup(), build.text("verl-resources.csv")
    csv_rows = {row["id"]: row for row in csv.DictReader(text.splitlines())}
    runs = {run["id"]: run for run in json.loads(build.text("verl-resources.json"))["runs"]}
    assert runs["deepseek-v3-grpo-128-gpus"]["computed"] is None
    for name, run in runs.items():
        block, computed = soup.find("details", id=f"run-{name}-details"), run["computed"]
        text = " ".join(block.get_text().split()) if block else ""
        peak = re.search(r"Peak ([\d,]+) GiB per GPU \(range ([\d,]+) to ([\d,]+)\)", text)
        assert bool(computed) is bool(peak), name
        assert bool(computed) is bool(csv_rows[name]["computed.high_gib"]), name
        if peak:
            sizes = [float(size.replace(",", "")) for size in peak.groups()]
            found_sizes = [computed[key] for key in ("peak_gib", "low_gib", "high_gib")]
            assert sizes == pytest.approx(found_sizes, abs=0.51)  # rounded
        else:
            assert run["not_computed"]
