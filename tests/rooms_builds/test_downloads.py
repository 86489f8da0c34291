"""``.. verl-downloads::``: two files made from the data, and links to them."""

from __future__ import annotations

import csv
import json
import re

import pytest

from sphinx_verl_resources import __version__
from sphinx_verl_resources.fit.results import gib_value
from sphinx_verl_resources.units import GIB

NAMES = ["verl-resources.json", "verl-resources.csv"]
PAGE = ".. verl-downloads::\n"


def files(build):
    """Return the files in an output, by name."""
    return {name: build.text(name) for name in NAMES if (build.out / name).is_file()}


def links(soup):
    return [link["href"] for link in soup.select("ul.verl-downloads a")]


@pytest.fixture
def pages(runs):
    """A page with the list at the top, one in a folder, and runs with and without settings."""
    (runs.path / "in").mkdir()
    (runs.path / "in/folder.rst").write_text(f"Folder\n======\n\n{PAGE}", "utf-8")
    return runs.page(f".. toctree::\n\n   in/folder\n\n{PAGE}")


@pytest.mark.parametrize(
    ("builder", "places"),
    [
        ("html", {"index.html": "", "in/folder.html": "../"}),
        ("dirhtml", {"index.html": "", "in/folder/index.html": "../../"}),
        ("singlehtml", {"index.html": ""}),
    ],
)
def test_links_lead_to_the_files_from_every_page(pages, builder, places):
    build = pages.build(builder)
    assert build.warnings == []
    assert [*files(build)] == NAMES
    for page, prefix in places.items():
        assert links(build.soup(page))[:2] == [prefix + name for name in NAMES]


@pytest.mark.parametrize(
    ("builder", "name"), [("text", "index.txt"), ("latex", "p.tex"), ("epub", "index.xhtml")]
)
def test_elsewhere_are_the_names_and_no_file(pages, builder, name):
    build = pages.build(builder, version="1", copyright="me", project="p")
    assert (build.warnings, files(build)) == ([], {})
    assert NAMES[0] in build.text(name).replace("\\sphinxhyphen{}", "-")
    assert builder != "epub" or links(build.soup(name)) == []


def test_the_json_says_what_is_recorded_and_computed(pages, estimated):
    text = files(pages.build())["verl-resources.json"]
    found = json.loads(text)
    assert (found["schema"], found["extension_version"]) == (1, __version__)
    assert [run["id"] for run in found["runs"]] == ["a", "b"]
    a, b = found["runs"]
    expected = estimated
    assert a["computed"] == {
        "verdict": expected.verdict,
        "fits_up_to_tokens": expected.fits_up_to_tokens,
        "peak_gib": gib_value(expected.peak),
        "low_gib": gib_value(expected.low),
        "high_gib": gib_value(expected.high),
        "capacity_gib": gib_value(expected.capacity),
        "binding_phase": expected.peak_phase.name,
        "host_ram_gib_per_node": gib_value(expected.host.total),
        "measured_runs_of_this_kind": a["computed"]["measured_runs_of_this_kind"],
    }
    assert a["computed"]["measured_runs_of_this_kind"] > 0
    assert (a["not_computed"], a["word"]) == (None, "ran")
    assert (b["computed"], b["row_id"], b["word"], b["gpu"]) == (None, "run-b", "ran", "H100-80GB")
    assert "has no recorded settings" in b["not_computed"]
    assert a["record"]["measured"] == {"gib": 60.0, "counter": "device"}
    assert "script" not in b["record"]
    assert [gpu["name"] for gpu in found["gpus"]] == ["H100-80GB"]
    assert [entry["name"] for entry in found["accuracy"]] == sorted(
        entry["name"] for entry in found["accuracy"]
    )


@pytest.mark.slow
def test_the_files_publish_what_the_page_shows_and_nothing_else(project):
    build = project.page(f"{PAGE}\n.. verl-runs::\n   :details:\n").build()
    found, soup = files(build), build.soup()
    csv_rows = {row["id"]: row for row in csv.DictReader(found["verl-resources.csv"].splitlines())}
    runs = {run["id"]: run for run in json.loads(found["verl-resources.json"])["runs"]}
    assert runs["deepseek-v3-grpo-128-gpus"]["computed"] is None
    for name, run in runs.items():
        block, computed = soup.find("details", id=f"run-{name}-details"), run["computed"]
        text = " ".join(block.get_text().split()) if block else ""
        shown = re.search(r"Peak ([\d,]+) GiB per GPU \(range ([\d,]+) to ([\d,]+)\)", text)
        assert bool(computed) is bool(shown), name
        assert bool(computed) is bool(csv_rows[name]["computed.high_gib"]), name
        if shown:
            sizes = [float(size.replace(",", "")) for size in shown.groups()]
            found_sizes = [computed[key] for key in ("peak_gib", "low_gib", "high_gib")]
            assert sizes == pytest.approx(found_sizes, abs=0.51)  # rounded
        else:
            assert run["not_computed"]


def test_the_csv_is_flat(pages, estimated):
    found = files(pages.build())["verl-resources.csv"]
    rows = {row["id"]: row for row in csv.DictReader(found.splitlines())}
    assert list(rows) == ["a", "b"]
    assert rows["a"]["computed.peak_gib"] == str(round(estimated.peak / GIB, 3))
    recorded = [rows["a"][name] for name in ("measured.gib", "gpus.count", "gpus.type")]
    assert recorded == ["60.0", "8", "H100"]
    assert rows["b"]["computed.peak_gib"] == rows["b"]["max_batch"] == ""
