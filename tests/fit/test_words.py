"""What is said about an answer, on pages and elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import get_args

import pytest

from sphinx_verl_resources.fit import pages, words
from sphinx_verl_resources.fit.answer import answer, answer_run, answer_settings
from sphinx_verl_resources.fit.changes import Change
from sphinx_verl_resources.fit.evidence import Trust
from sphinx_verl_resources.fit.layouts import OFFLOADED, Layout, Reason
from sphinx_verl_resources.fit.question import TASKS, Question
from sphinx_verl_resources.memory.estimate import Estimate, estimate
from sphinx_verl_resources.memory.recorded import RAN, credible, estimate_run, figures
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import VERDICTS, Request
from sphinx_verl_resources.units import GIB

DATA = EstimatorContext()
RUNS = [run for run in DATA.runs.values() if run.settings]


@pytest.fixture(scope="module")
def found() -> Estimate:
    config = {**TASKS["GRPO"], "actor_rollout_ref.actor.use_dynamic_bsz": True}
    return estimate(Request("Qwen/Qwen2.5-7B", config, gpus=8, gpu="H100"), DATA)


def why(found: Estimate, reason: str | None = None) -> str:
    return words.why(Layout(found.request, found), reason)


def said(found) -> dict[str, str]:
    """Return the sentences about an answer by name."""
    return {line.name: f"{line.title}: {line.plain}" for line in words.lines(found)}


def test_each_verdict_and_each_reason_has_words():
    assert set(words.LABELS) == set(VERDICTS)
    assert set(words.REASONS) == {*get_args(Reason), "bounded", "contradicted"} - {"unknown"}
    assert {*words.PARTS, "adam-on-cpu"} == set(OFFLOADED)


@pytest.mark.parametrize(("share", "end"), [(1.01, ""), (0.99, "is inside"), (0.1, "Even the low end")])
def test_the_reason_follows_the_figures_in_whole_gib(found, share, end):
    capacity = share * found.high
    text = why(replace(found, capacity=capacity))
    sizes = [round(size / GIB) for size in (found.peak, found.low, found.high, capacity)]
    first = "Peak {} GiB per GPU (range {} to {}); the GPU has {} GiB.".format(*sizes)
    assert text.startswith(first)
    assert end in text.removeprefix(first)
    assert bool(end) == (text != first)


def test_recorded_runs_contradict_an_estimate_that_is_too_large(found):
    small = replace(found, capacity=found.low / 2)
    assert "Recorded runs contradict this" in why(small, "ran")
    ran = replace(small, ran=True)
    assert why(ran).endswith("the estimate is too high here, or its sequences were short.")
    assert (credible(ran), figures(ran)) == (None, None)


def test_without_knowledge_there_is_no_figure(found):
    text = "Settings that determine memory cannot be read: actor.strategy: {x} is not modelled."
    assert why(replace(found, undecided=("actor.strategy: {x} is not modelled",))) == text
    assert why(replace(found, capacity=None)) == "The memory of the GPU is unknown."


def test_lengths_are_said_where_a_verdict_depends_on_them(monkeypatch, found):
    small = replace(found, capacity=found.low + 1)
    monkeypatch.setattr(Estimate, "fits_up_to_tokens", 1937.6)
    assert "It fits up to a mean of 1,900 tokens per sequence, prompt and response." in why(small)
    assert words.short(small.verdict, 1937.6) == "depends on the lengths: up to 1,900 tokens"


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.id)
def test_what_ran_never_needs_more_than_its_gpu(run):
    found = estimate_run(run, DATA)
    assert found.verdict != "does-not-fit"
    if run.kind not in RAN or found.undecided or found.capacity is None:
        return
    shown, text = credible(found), why(found)
    if found.high <= found.capacity:
        assert "It ran" not in text
    elif shown is None:
        assert "It ran although the estimate is above the GPU's memory" in text
    else:
        assert max(shown.peak, figures(found)[2]) <= found.capacity * (1 + 1e-9)
        assert "It ran, so it needed no more than the GPU's memory." in text


def test_a_contested_run_is_never_shown_without_the_report():
    found = answer(Question("Qwen/Qwen2.5-32B", 8, "H20", response=1024), DATA)
    text = "Ran: Qwen2-32B, GRPO on 8×H20; another user ran out of memory (verl #3124)."
    assert said(found)["contested"] == text
    assert [line.name for line in words.lines(found) if "GRPO on 8×H20" in line.plain] == ["contested"]


def test_runs_are_named_by_their_evidence_word():
    config = {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.use_dynamic_bsz": True}
    ask = Request("Qwen/Qwen2.5-7B", config, 8, "H100")
    assert said(answer_settings(ask, DATA))["ran"] == "Ran: Qwen2-7B, GRPO on 2×H800."
    none = said(answer_settings(replace(ask, gpus=1, gpu="RTX-4090"), DATA))
    assert none.keys().isdisjoint({"ran", "reported", "claimed"})
    ran, reported = DATA.runs["qwen2-7b-grpo-2xh800"], DATA.runs["qwen3-8b-grpo-4xb200"]
    assert "ran" not in said(answer_run(ran, DATA))  # it is about this run
    assert said(answer_run(reported, DATA))["ran"] == "Ran: Qwen3-8B, GRPO on 4×H20."
    unknown = ran.model_copy(update={"gpus": ran.gpus.model_copy(update={"type": None})})
    assert words.run_name(unknown) == "Qwen2-7B, GRPO on 2 GPUs of unknown type"


def test_offloading_and_the_host_limit_are_always_said():
    few, many = (answer(Question("Qwen/Qwen2.5-7B", gpus, "H100"), DATA) for gpus in (1, 8))
    assert said(many)["offloaded"] == "Offloaded to host memory: nothing."
    assert re.search(
        r"about \d+ GiB per node; 1,300 GiB assumed \(twice the GPUs' memory\)", said(many)["host"]
    )
    assert "optimizer" in said(few)["offloaded"]
    assert ("CPU: slow." in said(few)["offloaded"]) == ("adam-on-cpu" in few.best.offloaded)
    assert words.host(replace(few.best, given_host_limit=512 * GIB)).endswith("; 512 GiB given.")


def test_how_sure_it_is():
    figures = {"compared": "x; y", "cases": 7, "sources": 4, "needed_more": 3}
    known = SimpleNamespace(**figures, mean_error=0.078, worst_error=0.163)
    assert words.checks(Trust(known, 0.188)) == (
        "Checked against 7 measured runs of this kind (x; y) from 4 sources: 8 % off on average, at most 16 %; 3 of 7 "
        "needed more than estimated."
    )
    known.cases = 1
    text = "Checked against one measured run of this kind (x; y): 8 % off."
    assert words.checks(Trust(known, 0.188)) == text
    text = "No run of this kind was measured; the range allows for 19 %, the error of other runs."
    assert words.checks(Trust(None, 0.188)) == text


def test_another_release_with_another_verdict_is_said():
    found = answer(Question("Qwen/Qwen2.5-7B", 8, "H100"), DATA)
    less = replace(found.best.estimate, capacity=1.0, phases=found.best.estimate.phases[-1:])
    vars(found)["other_release"] = Layout(replace(found.best.request, version=(0, 8, 0)), less)
    text = (
        f"Other release: Does not fit with verl v0.8.0 instead of v0.9.0 (peak {words.whole(less.peak)} GiB)."
    )
    cause = "FSDP in v0.9.0 keeps whole gradients on every GPU until the last micro-batch."
    assert said(found)["release"] == f"{text} {cause}"


def test_a_change_says_what_it_leaves_and_what_it_costs():
    change = Change({}, ("a=1", "+b=2"), 61.2 * GIB, 66 * GIB, "fits", "much", ("One.", "Two."))
    text = "peak 61 GiB (up to 66), costs a lot of time: fits."
    assert words.change_text(change) == f"a=1 +b=2: {text} One. Two."
    assert words.change_text(change, "{settings}", {"One."}) == f"{{settings}}: {text} Two."


def test_a_measured_figure_stands_beside_the_estimate_of_its_counter(found):
    peak = f"estimated peak {words.whole(found.low)} to {words.whole(found.high)} GiB"
    low, high = map(words.whole, found.torch_peak_range)
    of_torch = f"{peak}, measured 3.0 GiB (allocated by PyTorch; estimated {low} to {high} GiB)"
    texts = {
        "": peak,
        "device": f"{peak}, measured 3.0 GiB (in use on the GPU)",
        "torch-max-allocated": of_torch,
    }
    for counter, text in texts.items():
        run = SimpleNamespace(measured=counter and SimpleNamespace(gib=3.0, counter=counter))
        assert pages.peaks_text(run, found) == text
        too_high = replace(found, capacity=found.low / 2, ran=True)
        assert pages.peaks_text(run, too_high).startswith("the estimate is above the GPU's memory")
