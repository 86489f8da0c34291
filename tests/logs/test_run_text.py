"""Written run files: their layout is that of the recorded ones, and they load as written."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sphinx_verl_resources.dataset import bundled_directory
from sphinx_verl_resources.diagnostics import FORBIDDEN
from sphinx_verl_resources.logs.run_file import run_text, suggested_id
from sphinx_verl_resources.records import SLUG, size_class
from sphinx_verl_resources.strict_yaml import read_yaml

RUNS = sorted((bundled_directory().path / "runs").glob("*.yaml"))

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40).filter(
    lambda text: not FORBIDDEN.search(text)
)
SCALARS = st.one_of(TEXTS, st.integers(-(10**9), 10**9), st.booleans(), st.none(), st.floats(1e-6, 1e6))
RECORDS = st.dictionaries(TEXTS, SCALARS | st.lists(SCALARS, max_size=3).map(tuple), max_size=4)


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_recorded_runs_are_laid_out_so(path):
    text = path.read_text("utf-8")
    # A contributed file may keep the hints behind its values.
    assert run_text(read_yaml(text.encode()).data) == re.sub("  # .*", "", text)


@given(
    fields=st.fixed_dictionaries(
        {},
        optional={
            "id": TEXTS, "tag": SCALARS, "gpus": RECORDS, "infer": RECORDS, "script": RECORDS, "settings": RECORDS,
            "evidence": st.lists(RECORDS.filter(bool), min_size=1, max_size=2).map(tuple),
            "notes": st.lists(RECORDS.filter(bool), min_size=1, max_size=2).map(tuple),
            "other": SCALARS,
        },
    )
)  # fmt: skip
@example(fields={"id": "-"})
@example(fields={"other": 0.00012345678901234567})
@example(fields={"notes": ({"text": 0}, {"": None, "text": ""})})
def test_whatever_is_written_reads_back(fields):
    document = read_yaml(run_text(fields).encode())
    assert document.problems == []
    assert (document.data or {}) == fields


@pytest.mark.parametrize(
    "value", ["no", "1_000", "0.10", "2025-06-12x", "a: b", "#", "null", "12:30", "", " x", "- a", "a #b"]
)
def test_text_stays_text(value):
    assert read_yaml(run_text({"label": value}).encode()).data == {"label": value}


@given(
    model=st.text(max_size=120),
    task=st.text(max_size=120),
    gpus=st.integers(1, 100_000),
    gpu=st.none() | TEXTS,
)
def test_ids_are_valid(model, task, gpus, gpu):
    name = suggested_id({"model": model, "task": task, "gpus": {"count": gpus, "type": gpu}})
    assert re.fullmatch(SLUG, name)
    assert len(name) <= 80


def test_tested_runs_are_called_so():
    for path in RUNS:
        run = read_yaml(path.read_bytes()).data
        if run.get("kind", "tested") == "tested":
            first = suggested_id(run)
            assert run["id"] in {first, f"{first}-{run['infer']['engine']}"}, (
                "the engine tells two of a kind apart"
            )


@pytest.mark.parametrize(
    ("parameters", "size"), [(0.49e9, "0.5B"), (4e9, "3B"), (30.5e9, "32B"), (1e15, "671B"), (1, "0.5B")]
)
def test_size_class(parameters, size):
    assert size_class(parameters) == size


def test_what_looks_like_a_number_is_in_quotes():
    fields = {
        "infer": {"engine": "vllm", "version": "1.0"},
        "versions": {"verl": "0.8", "torch": "2.8"},
        "evidence": [{"kind": "script", "ref": "abc", "lines": "4"}],
        "settings": {"version": "x"},
    }
    lines = run_text(fields).splitlines()[1:]
    assert lines == [
        'infer: {engine: vllm, version: "1.0"}',
        'versions: {verl: "0.8", torch: "2.8"}',
        "settings:",
        "  version: x",
        "evidence:",
        '  - {kind: script, ref: abc, lines: "4"}',
    ]
