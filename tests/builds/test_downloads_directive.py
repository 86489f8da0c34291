"""``.. verl-downloads::`` in real builds: two files made from the data, and links to them."""

from __future__ import annotations

import csv
import json
import re

import pytest

from sphinx_verl_resources import __version__
from sphinx_verl_resources.dataset import Dataset
from sphinx_verl_resources.estimator.export import gib_value
from sphinx_verl_resources.estimator.recorded import credible
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
    (runs.path / "in" / "folder.rst").write_text(f"Folder\n======\n\n{PAGE}", "utf-8")
    return runs.page(f".. toctree::\n\n   in/folder\n\n{PAGE}")


@pytest.mark.parametrize(
    ("builder", "page", "prefix"),
    [
        ("html", "index.html", ""),
        ("html", "in/folder.html", "../"),
        ("dirhtml", "index.html", ""),
        ("dirhtml", "in/folder/index.html", "../../"),
        ("singlehtml", "index.html", ""),
    ],
)
def test_links_lead_to_the_files_from_every_page(pages, builder, page, prefix):
    build = pages.build(builder)
    assert build.warnings == []
    assert links(build.soup(page))[:2] == [prefix + name for name in NAMES]
    for link in links(build.soup(page)):
        assert (build.out / page).parent.joinpath(link).resolve().is_file()


@pytest.mark.parametrize("builder", ["text", "latex", "epub", "linkcheck"])
def test_elsewhere_the_names_stand_there_and_no_file(pages, builder):
    build = pages.build(builder, version="1", copyright="me", linkcheck_report_timeouts_as_broken=False)
    assert build.warnings == []
    assert files(build) == {}
    if builder == "epub":
        assert links(build.soup("index.xhtml")) == []
        assert NAMES[0] in build.text("index.xhtml")
    if builder == "text":
        assert NAMES[0] in build.text("index.txt")


def test_the_json_says_what_is_recorded_and_computed(pages, estimated):
    text = files(pages.build())["verl-resources.json"]
    found = json.loads(text)
    assert (found["schema"], found["extension_version"]) == (1, __version__)
    assert [run["id"] for run in found["runs"]] == ["a", "b"]
    a, b = found["runs"]
    expected = estimated()
    assert a["computed"] == {
        "verdict": expected.verdict,
        "fits_up_to_tokens": expected.fits_up_to_tokens,
        "peak_gib": gib_value(min(expected.peak, expected.capacity)),
        "low_gib": gib_value(expected.low),
        "high_gib": gib_value(min(expected.high, expected.capacity)),
        "capacity_gib": gib_value(expected.capacity),
        "binding_phase": credible(expected).peak_phase.name,
        "measured_runs_of_this_kind": a["computed"]["measured_runs_of_this_kind"],
    }
    assert a["computed"]["measured_runs_of_this_kind"] > 0
    assert (a["not_computed"], a["word"]) == (None, "ran")
    assert (b["computed"], b["row_id"], b["status"], b["gpu"]) == (None, "run-b", "tested", "H100-80GB")
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
        shown = re.search(r"estimated ([\d.,]+) to ([\d.,]+)", block.summary.get_text()) if block else None
        assert bool(computed) is bool(shown), name
        assert bool(computed) is bool(csv_rows[name]["computed_high_gib"]), name
        phase = block and block.select_one("table.verl-memory strong")
        assert bool(computed and computed["binding_phase"]) is bool(phase), name
        if shown:
            assert [f"{computed[end]:,.1f}" for end in ("low_gib", "high_gib")] == [*shown.groups()]
        else:
            assert run["not_computed"]


def test_the_csv_is_flat(pages, estimated):
    found = files(pages.build())["verl-resources.csv"]
    rows = {row["id"]: row for row in csv.DictReader(found.splitlines())}
    assert list(rows) == ["a", "b"]
    assert rows["a"]["computed_peak_gib"] == str(round(estimated().peak / GIB, 3))
    assert (rows["a"]["measured_gib"], rows["a"]["gpu_count"], rows["a"]["gpu"]) == ("60.0", "8", "H100")
    assert rows["b"]["computed_peak_gib"] == rows["b"]["max_batch_prompts"] == ""


def test_equal_data_give_equal_files_that_are_not_written_again(pages, monkeypatch):
    build = pages.build()
    before = files(build)
    times = [(build.out / name).stat().st_mtime_ns for name in NAMES]
    monkeypatch.setattr(Dataset, "runs", property(lambda self: pytest.fail("loaded")))
    build = pages.build()
    assert build.read == set()
    assert [(build.out / name).stat().st_mtime_ns for name in NAMES] == times
    monkeypatch.undo()
    assert files(pages.build(parallel=2, fresh=True)) == before


def test_runs_that_go_vanish_and_files_go_with_the_last_page(pages, data):
    assert '"id": "b"' in files(pages.build())[NAMES[0]]
    (data.path / "runs" / "b.yaml").unlink()
    build = pages.build()
    assert build.read == {"index", "in/folder"}
    assert '"id": "b"' not in files(build)[NAMES[0]]
    assert "\nb," not in files(build)[NAMES[1]]
    pages.page("Text.")
    (pages.path / "in" / "folder.rst").unlink()
    assert files(pages.build()) == {}


def test_an_argument_an_option_and_text_are_refused(project, problems):
    build = project.page(
        ".. verl-downloads:: x\n\n.. verl-downloads::\n   :file: x\n\n.. verl-downloads::\n\n   x\n"
    ).build()
    found = problems(build)
    assert found[4].startswith("ERROR: verl-downloads: the directive takes no argument; leave it out")
    assert found[6].startswith("ERROR: verl-downloads: :file: unknown option; the directive has no options")
    assert found[9].startswith("ERROR: verl-downloads: the directive takes no text")
    assert files(build) == {}
