"""The estimator's accuracy on the recorded cases; fails if a figure is worse than recorded."""

from __future__ import annotations

import statistics
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sphinx_verl_resources.dataset import bundled_directory
from sphinx_verl_resources.estimator import logits
from sphinx_verl_resources.estimator.architectures import CASE_GROUPS, FSDP, FSDP_TODAY, MEGATRON, TRAINING
from sphinx_verl_resources.estimator.backtest import score
from sphinx_verl_resources.estimator.constants import LOGITS_IN_LOGS
from sphinx_verl_resources.estimator.context import EstimatorContext
from sphinx_verl_resources.estimator.estimate import widening_of

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
from accuracy import (
    CANDIDATES,
    COVERAGE,
    _ends,
    accuracy_of,
    accuracy_text,
    error_with,
    fitted,
    needed_widening,
    source_of,
    summaries,
)
from training import score_any

CASES = [entry.case for entry in EstimatorContext().cases.by_id.values()]


@pytest.fixture(scope="module")
def scores(registries):
    return [score_any(case, registries) for case in CASES]


@pytest.fixture(scope="module")
def record(registries):
    return accuracy_of(CASES, registries)


@pytest.fixture(scope="module")
def compared(scores):
    return [item for item in scores if item.case.is_scored and item.deviation is not None]


@pytest.fixture(scope="module")
def groups(record):
    return {summary.name: summary for summary in record}


@pytest.fixture(scope="module")
def logs(compared):
    return [item for item in compared if item.group == FSDP]


def test_the_record_is_what_the_cases_give(record):
    """``make accuracy`` writes it. Together with the bounds below, this reveals every figure that gets worse."""
    assert accuracy_text(record) == (bundled_directory().path / "accuracy.yaml").read_text("utf-8")


#: By kind: the fewest cases, the largest mean and worst error, the share inside the range, its largest half width.
BOUNDS = {
    "training": (60, 0.01, 0.04, (0.9, 0.97), 0.02),
    "fsdp": (7, 0.066, 0.12, (0.85, 1), 0.12),
    "fsdp-today": (7, 0.08, 0.17, (0.85, 1), 0.14),
    "megatron": (11, 0.12, 0.35, (0.8, 0.97), 0.18),
    "easyr1": (6, 0.17, 0.5, (0.5, 1), 0.4),
    "other": (1, 0.25, 0.25, (0, 1), 1),
}


@pytest.mark.parametrize("group", CASE_GROUPS)
def test_errors_and_ranges(groups, group):
    """Ranges are wide enough for cases of other sources, and no wider than necessary."""
    found, (cases, mean, worst, (least, most), half_width) = groups[group], BOUNDS[group]
    assert found.cases >= cases
    assert found.mean_error <= found.out_of_fold <= mean
    assert found.median_error <= found.worst_error <= worst
    assert least <= found.inside <= most
    assert found.half_width <= half_width


def test_measured_values_are_inside_their_ranges(compared):
    assert len(compared) > 90
    assert statistics.fmean(item.inside for item in compared) >= COVERAGE
    widths = [(item.high - item.low) / 2 / item.computed for item in compared]
    assert statistics.median(widths) <= 0.05


def test_the_smallest_range_that_holds_what_was_observed(compared):
    """The required share of a kind's ranges contain it; narrower ranges would contain fewer."""

    def held(item, widening):
        low, high = _ends(item, widening)
        return low <= item.observed <= high

    for item in compared:
        needed = needed_widening(item)
        assert held(item, needed) or needed == pytest.approx(8)
        assert needed < 0.001 or not held(item, needed - 0.001)


def test_the_widening_of_a_kind(groups, compared, registries):
    for kind, found in groups.items():
        own = [needed_widening(item) for item in compared if item.group == kind]
        if len(own) < 4:  # too few: all runs of verl decide
            own = [needed_widening(item) for item in compared if item.group in {FSDP, FSDP_TODAY, MEGATRON}]
        share = [needed <= found.widening for needed in own]
        assert statistics.fmean(share) >= COVERAGE
        narrower = statistics.fmean(needed <= found.widening - 0.002 for needed in own)
        assert narrower < COVERAGE or found.widening == 0.25
        assert widening_of(kind, registries) == found.widening, "estimates print the recorded ranges"
    assert widening_of("no such kind", registries) == max(found.widening for found in groups.values())


# -- one source at a time


def test_cases_of_one_document_or_directory_are_one_source(logs):
    assert {source_of(item.case) for item in logs} == {
        f"eric-haibin-lin/verl-data {each}" for each in ("gsm8k", "math")
    }
    issue = next(case for case in CASES if case.source and case.source.issue)
    assert source_of(issue) == f"{issue.source.repo} {issue.source.issue}"


def test_what_is_fitted_is_what_all_logs_give(logs):
    assert fitted(logs) == LOGITS_IN_LOGS.value
    errors = {each: statistics.fmean(error_with(each, item) for item in logs) for each in CANDIDATES}
    assert min(errors, key=errors.__getitem__) == LOGITS_IN_LOGS.value


@pytest.mark.parametrize("each", CANDIDATES)
def test_the_error_with_another_value_is_that_of_an_estimate_with_it(logs, registries, monkeypatch, each):
    other = replace(LOGITS_IN_LOGS, value=each)
    monkeypatch.setattr(logits, "LOGITS_IN_LOGS", other)
    for item in logs:
        assert error_with(each, item) == pytest.approx(abs(score(item.case, registries).deviation))


@pytest.mark.slow
def test_a_source_says_nothing_about_other_kinds(compared, groups):
    """Kinds with few cases or a single source are the exception: all runs of verl decide their ranges."""
    everything = {found.name: found for found in summaries(compared)}
    for source in {source_of(item.case) for item in compared}:
        touched = {item.group for item in compared if source_of(item.case) == source}
        left = summaries(item for item in compared if source_of(item.case) != source)
        found = {item.name: item for item in left}
        for kind in {TRAINING, FSDP_TODAY, MEGATRON} - touched:
            assert found[kind] == everything[kind], source


# -- verdicts


def test_verdicts_agree_with_outcomes(scores):
    """No run that worked is called out of memory; runs out of memory are called so, or borderline."""
    counted = [item for item in scores if item.case.is_scored]
    assert all(item.estimate for item in counted)
    assert [item.case.id for item in counted if item.case.outcome != "oom" and item.agrees is False] == []
    of_verl = [item for item in counted if item.group != TRAINING]
    oom = [item.verdict for item in of_verl if item.case.outcome == "oom"]
    assert len(oom) >= 12
    assert oom.count("fits") <= 1
    assert oom.count("does-not-fit") >= len(oom) / 3
    ran = [item.verdict for item in of_verl if item.case.outcome != "oom"]
    assert ran.count("fits") + ran.count("depends-on-lengths") >= 0.6 * len(ran)


def test_contested_cases_do_not_count(scores):
    counted = [item for item in scores if item.case.is_scored]
    assert len(counted) < len(scores)
    assert summaries(scores) == summaries(counted)
