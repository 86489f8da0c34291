"""The verdicts in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sphinx_verl_resources.answer.answer import Answer
from sphinx_verl_resources.answer.layouts import Layout
from sphinx_verl_resources.answer.question import SAVING, TASKS
from sphinx_verl_resources.answer.results import result_of
from sphinx_verl_resources.answer.search import Tried
from sphinx_verl_resources.memory.estimate import Estimate, estimate
from sphinx_verl_resources.memory.recorded import RAN, credible, estimate_run, figures
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import VERDICTS, Request
from sphinx_verl_resources.units import GIB, gib
from sphinx_verl_resources.views.estimate import answer, phase_rows
from sphinx_verl_resources.views.plain_text import estimates_text
from sphinx_verl_resources.views.verdicts import LABELS, REASONS, reason, short, title

DATA = EstimatorContext()


def about(found: Estimate) -> Answer:
    return Answer(found.request, DATA, Tried((Layout(found.request, found),)), (), None)


RUNS = [run for run in DATA.runs.values() if run.settings]


@pytest.fixture
def found() -> Estimate:
    asked = Request("Qwen/Qwen2.5-7B", {**SAVING, **TASKS["GRPO"]}, gpus=8, gpu="H100")
    return estimate(asked, DATA)


def text_of(nodes) -> str:
    return " ".join(node.astext() for node in nodes)


def test_each_verdict_has_its_words():
    assert set(LABELS) == set(REASONS) == set(VERDICTS)
    assert title("does-not-fit") == "Does not fit"


def test_lengths_are_told_wherever_a_verdict_is(monkeypatch, found):
    small = replace(found, capacity=found.low + 1)
    monkeypatch.setattr(Estimate, "fits_up_to_tokens", 1937.6)
    assert small.verdict == "depends-on-lengths"
    sentence = "It fits up to a mean of 1,900 tokens per sequence, prompt and response."
    assert sentence in reason(small)
    assert sentence in text_of(answer(about(small)))
    assert "depends on the lengths: up to 1,900 tokens" in estimates_text([("a", small, small.verdict)] * 2)
    assert short(small.verdict, small.fits_up_to_tokens) == "depends on the lengths: up to 1,900 tokens"
    assert result_of("a", small)["fits_up_to_tokens"] == 1937.6


def test_a_setting_that_was_not_read_leaves_no_figure(found):
    told = "actor_rollout_ref.actor.strategy: 'x' is not modelled"
    unread = replace(found, undecided=(told,))
    assert unread.verdict == "unknown"
    assert f"Unknown. Settings that determine memory cannot be read: {told}." in text_of(
        answer(about(unread))
    )
    for text in (text_of(answer(about(unread))), estimates_text([("a", unread, unread.verdict)])):
        assert "unknown" in text.lower()
        assert gib(found.peak).split()[0] not in text
    assert result_of("a", unread)["undecided"] == [told]
    assert figures(unread) is None


def test_what_a_gpu_has_must_be_recorded(found):
    unknown = replace(found, capacity=None)
    assert reason(unknown) == "The memory of the GPU is unknown."


def test_what_ran_outweighs_an_estimate_that_is_too_high(found):
    small = replace(found, capacity=found.low / 2)
    assert small.verdict == "does-not-fit"
    ran = replace(small, ran=True)
    assert ran.verdict == "borderline"
    assert reason(ran).endswith("the estimate is too high.")
    assert credible(ran) is None
    assert figures(ran) is None


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.id)
def test_no_recorded_run_is_said_not_to_fit(run):
    assert estimate_run(run, DATA).verdict != "does-not-fit"


@pytest.mark.parametrize("run", [run for run in RUNS if run.kind in RAN], ids=lambda run: run.id)
def test_what_ran_shows_no_peak_above_its_gpu(run):
    found = estimate_run(run, DATA)
    if found.undecided or found.capacity is None:
        return
    most = found.capacity / GIB
    assert figures(found)[2] <= found.capacity * (1 + 1e-9)
    shown = credible(found)
    if shown is not None:
        assert shown.peak <= found.capacity
        _, body = phase_rows(shown).children[-2:]
        totals = [float(row[1].astext()) for row in body]
        assert max(totals) <= most + 0.05
    if found.low > found.capacity:
        assert "the estimate is too high" in reason(found)
    elif found.high > found.capacity:
        assert reason(found).startswith(f"It ran, so it needed between {gib(found.low)} and the GPU's")
