"""The estimator's accuracy on the recorded cases; fails if a figure is worse than recorded."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from sphinx_verl_resources.catalog.files import bundled_directory
from sphinx_verl_resources.catalog.names import CASE_GROUPS, FSDP, FSDP_TODAY, MEGATRON, TRAINING
from sphinx_verl_resources.cli.data import read_data
from sphinx_verl_resources.estimator import logits
from sphinx_verl_resources.estimator.accuracy import (
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
from sphinx_verl_resources.estimator.backtest import LENGTHS_OF, boundaries, score, verdict_counts
from sphinx_verl_resources.estimator.constants import LOGITS_IN_LOGS
from sphinx_verl_resources.estimator.estimate import widening_of

CASES = [entry.case for entry in read_data([]).cases.by_id.values()]


@pytest.fixture(scope="module")
def record(registries):
    return accuracy_of(CASES, registries)


@pytest.fixture(scope="module")
def scores(record):
    return record[0]


@pytest.fixture(scope="module")
def compared(scores):
    return [item for item in scores if item.case.is_scored and item.deviation is not None]


@pytest.fixture(scope="module")
def groups(record):
    return {summary.name: summary for summary in record[1]}


@pytest.fixture(scope="module")
def logs(compared):
    return [item for item in compared if item.group == FSDP]


def test_the_record_is_what_the_cases_give(record):
    """``make accuracy`` writes it. Together with the bounds below, this reveals every figure that gets worse."""
    assert accuracy_text(record[1]) == (bundled_directory().path / "accuracy.yaml").read_text("utf-8")


@pytest.mark.parametrize(
    ("group", "cases", "mean", "worst"),
    [
        ("training", 60, 0.01, 0.04),
        ("fsdp", 7, 0.066, 0.12),
        ("fsdp-today", 7, 0.08, 0.17),
        ("megatron", 11, 0.12, 0.35),
        ("easyr1", 6, 0.17, 0.5),
        ("other", 1, 0.25, 0.25),
    ],
)
def test_errors(groups, group, cases, mean, worst):
    found = groups[group]
    assert found.cases >= cases
    assert found.mean_error <= found.out_of_fold <= mean
    assert found.median_error <= found.worst_error <= worst


@pytest.mark.parametrize(
    ("group", "least", "most", "half_width"),
    [
        ("training", 0.9, 0.97, 0.02),
        ("fsdp", 0.85, 1, 0.12),
        ("fsdp-today", 0.85, 1, 0.14),
        ("megatron", 0.8, 0.97, 0.18),
        ("easyr1", 0.5, 1, 0.4),
    ],
)
def test_ranges(groups, group, least, most, half_width):
    """They are wide enough for cases of other sources, and no wider than necessary."""
    found = groups[group]
    assert least <= found.inside <= most
    assert found.half_width <= half_width


def test_every_kind_of_runs_has_its_record(groups):
    assert set(groups) == set(CASE_GROUPS)


def test_rows_of_plain_fsdp(scores):
    rows = [
        abs(score.deviation) for score in scores if score.case.id.startswith("fms-") and score.case.is_scored
    ]
    assert len(rows) == 59
    assert statistics.fmean(rows) <= 0.006
    assert max(rows) <= 0.02


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


def test_the_widening_of_a_kind(groups, compared):
    for kind, found in groups.items():
        own = [needed_widening(item) for item in compared if item.group == kind]
        if len(own) < 4:  # too few: all runs of verl decide
            own = [needed_widening(item) for item in compared if item.group in {FSDP, FSDP_TODAY, MEGATRON}]
        share = [needed <= found.widening for needed in own]
        assert statistics.fmean(share) >= COVERAGE
        narrower = statistics.fmean(needed <= found.widening - 0.002 for needed in own)
        assert narrower < COVERAGE or found.widening == 0.25


# -- one source at a time


def test_cases_of_one_document_or_directory_are_one_source(logs):
    assert {source_of(item.case) for item in logs} == {
        f"eric-haibin-lin/verl-data {each}" for each in ("gsm8k", "math")
    }
    easyr1 = {source_of(case) for case in CASES if case.id.startswith("easyr1-v0.3.0")}
    assert len(easyr1) == 1
    issue = next(case for case in CASES if case.source and case.source.issue)
    assert source_of(issue) == f"{issue.source.repo} {issue.source.issue}"
    bare = issue.model_copy(update={"source": None})
    assert source_of(bare) == issue.id


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


def test_a_source_is_judged_with_the_value_that_others_give(logs, groups):
    errors = [
        error_with(fitted([other for other in logs if source_of(other.case) != source_of(item.case)]), item)
        for item in logs
    ]
    assert groups[FSDP].out_of_fold == pytest.approx(statistics.fmean(errors), abs=0.0006)


def test_a_source_says_nothing_about_other_kinds(compared, groups):
    """Kinds with few cases or a single source are the exception: all runs of verl decide their ranges."""
    kinds = {TRAINING, FSDP_TODAY, MEGATRON}
    everything = {found.name: found for found in summaries(compared)}
    for source in {source_of(item.case) for item in compared}:
        touched = {item.group for item in compared if source_of(item.case) == source}
        left = summaries(item for item in compared if source_of(item.case) != source)
        found = {item.name: item for item in left}
        for kind in kinds - touched:
            assert found[kind] == everything[kind], source


def test_an_estimate_without_a_case_is_as_wide_as_the_worst_kind(registries, groups):
    assert widening_of("no such kind", registries) == max(found.widening for found in groups.values())


# -- verdicts


def test_no_run_that_fits_is_called_out_of_memory(scores):
    contradicted = [
        score.case.id
        for score in scores
        if score.case.is_scored
        and score.case.outcome in {"fits", "measured"}
        and score.verdict == "does-not-fit"
    ]
    assert contradicted == []


def test_runs_out_of_memory_are_called_so_or_borderline(scores):
    counts = {verdict: found.oom for verdict, found in verdict_counts(scores).items()}
    assert sum(counts.values()) >= 12
    assert counts["fits"] <= 1
    assert counts["does-not-fit"] >= sum(counts.values()) / 3


def test_most_runs_that_worked_are_said_to_fit_at_their_limits_or_below(scores):
    ran = {verdict: found.ran for verdict, found in verdict_counts(scores).items()}
    assert ran["fits"] + ran["depends-on-lengths"] >= 0.6 * sum(ran.values())
    assert ran["does-not-fit"] == 0
    for item in scores:
        if item.verdict == "depends-on-lengths":
            assert item.estimate.fits_up_to_tokens > 0


def test_every_scored_case_has_an_estimate(scores):
    assert [score.case.id for score in scores if score.case.is_scored and score.estimate is None] == []


def test_contested_cases_are_kept_and_do_not_count(scores):
    kept = [score for score in scores if not score.case.is_scored]
    assert kept
    counted = [score for score in scores if score.case.is_scored]
    assert summaries(scores) == summaries(counted)
    assert verdict_counts(scores) == verdict_counts(counted)


def test_the_largest_batch(registries):
    found = {boundary.name: boundary for boundary in boundaries(CASES, registries)}
    seen = next(case for case in CASES if case.id == LENGTHS_OF).observed_tokens
    assert round(seen.prompt_length_mean + seen.response_length_mean) == 371
    for name, recorded in (("tuning-14b-lora-2h100", 58), ("tuning-32b-lora-4h100", 44)):
        assert found[name].recorded == recorded
        assert abs(found[name].deviation) <= 0.13
    large = found["tuning-72b-lora-8h100"]
    assert large.recorded == 22
    assert abs(large.peak / large.capacity - 1) <= 0.2


def test_an_estimate_alone_says_what_the_record_says(registries, scores, groups):
    """Estimates print the recorded ranges."""
    for entry in groups.values():
        assert widening_of(entry.name, registries) == entry.widening
    for item in scores:
        if item.estimate:
            assert item.estimate.widening == widening_of(item.estimate.kind, registries)
