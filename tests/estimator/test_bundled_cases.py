"""The bundled cases: their sources, the facts that an estimate needs, and their marks."""

from __future__ import annotations

import pytest
from case_texts import GOOD

from sphinx_verl_resources.dataset import Dataset, configured_directory
from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.estimator.cases import load_cases


@pytest.fixture(scope="module")
def bundled():
    return load_cases(Dataset().files["cases"])


def test_own_cases_are_added_to_the_bundled_ones(tmp_path, bundled):
    (tmp_path / "data/cases").mkdir(parents=True)
    (tmp_path / "data/cases/mine.yaml").write_text(GOOD)
    (tmp_path / "data/cases/notes.txt").write_text("")
    (tmp_path / "data/cases/README.md").write_text("")
    directories = [configured_directory("data", tmp_path)]
    loaded = Dataset(directories)
    assert [str(problem) for problem in loaded.problems["files"]] == [
        "data/cases/notes.txt:1:1: WARNING: the file 'notes.txt' is not read; data files are named <id>.yaml "
        "[verl.file_unexpected]"
    ]
    assert list(load_cases(loaded.files["cases"]).by_id) == [*bundled.by_id, "good"]
    assert loaded.runs, "the bundled runs stay"
    (tmp_path / "data/cases/mine.yaml").write_text(GOOD + "#")
    assert Dataset(directories).digest != loaded.digest


def test_bundled_cases_have_no_problem(bundled):
    assert [str(problem) for problem in bundled.diagnostics] == []
    assert len(bundled.by_id) >= 164
    for entry in bundled.by_id.values():
        case = entry.case
        assert case.source is not None, case.id
        assert case.confidence in {"high", "medium", "low"}, case.id
        assert case.outcome is not None, case.id
        assert (case.outcome == "measured") == (case.measured is not None), case.id
        assert case.contested is None or case.not_scored is None, case.id


def test_bundled_cases_that_are_scored_name_what_an_estimate_needs(bundled):
    catalog = Dataset([], missing=Location("conf.py"))
    for case in (entry.case for entry in bundled.by_id.values() if entry.case.is_scored):
        assert case.model in catalog.architectures, case.id
        assert case.gpus.count, case.id
        if case.gpus.type:
            assert case.gpus.type in catalog.gpus, case.id
        elif case.outcome != "measured":
            assert case.gpus.memory_gb, f"{case.id}: a run fits some memory, or none"


def test_the_contradictions_are_marked(bundled):
    assert {entry.case.id for entry in bundled.by_id.values() if entry.case.contested} == {
        "tuning-0.5b-lora-1h100",
        "tuning-32b-grpo-8h20-megatron",
        "tuning-32b-lora-4h100-bs45-x",
        "tuning-7b-lora-1h100-bs100",
        "tuning-7b-lora-1h100-bs101-x",
    }
