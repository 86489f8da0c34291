"""What is said about an answer, on pages and elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sphinx_verl_resources.fit import words
from sphinx_verl_resources.fit.answer import answer, answer_run, answer_settings
from sphinx_verl_resources.fit.changes import Change
from sphinx_verl_resources.fit.question import TASKS, Question
from sphinx_verl_resources.fit.search import REASONS, Layout
from sphinx_verl_resources.memory.estimate import Estimate, estimate
from sphinx_verl_resources.memory.recorded import credible, figures
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import VERDICTS, Request
from sphinx_verl_resources.texts import run_title
from sphinx_verl_resources.units import GIB

DATA = EstimatorContext()


@pytest.fixture(scope="module")
def own() -> Estimate:
    config = {**TASKS["GRPO"], "actor_rollout_ref.actor.use_dynamic_bsz": True}
    return estimate(Request("Qwen/Qwen2.5-7B", config, gpus=8, gpu="H100"), DATA)


def why(own: Estimate, reason: str | None = None) -> str:
    layout = Layout(own.request, own)
    return words.why(layout, reason or layout.reason)


def sentences(own) -> dict[str, str]:
    """Return the sentences about an answer by name."""
    return {line.name: f"{line.title}: {line.plain}" for line in words.lines(own)}


def test_each_verdict_and_each_reason_has_words():
    assert set(words.LABELS) == set(VERDICTS)
    assert set(words.REASONS) == {*REASONS, "bounded", "contradicted", "positions"} - {"unknown"}


@pytest.mark.parametrize(("share", "end"), [(1.01, ""), (0.99, "is inside"), (0.1, "Even the low end")])
def test_the_reason_follows_the_figures_in_whole_gib(own, share, end):
    capacity = share * own.high
    text = why(replace(own, capacity=capacity))
    sizes = [round(size / GIB) for size in (own.peak, own.low, own.high, capacity)]
    first = "Peak {} GiB per GPU (range {} to {}); the GPU has {} GiB.".format(*sizes)
    assert text.startswith(first)
    assert end in text.removeprefix(first)
    assert bool(end) == (text != first)


def test_recorded_runs_contradict_an_estimate_that_is_too_large(own):
    small = replace(own, capacity=own.low / 2)
    assert "Recorded runs contradict this" in why(small, "ran")
    ran = replace(small, ran=True)
    assert why(ran).endswith("the estimate is too high here, or its sequences were short.")
    assert (credible(ran), figures(ran)) == (None, None)


def test_without_knowledge_there_is_no_figure(own):
    text = "Settings that determine memory cannot be read: actor.strategy: {x} is not modelled."
    assert why(replace(own, undecided=("actor.strategy: {x} is not modelled",))) == text
    assert why(replace(own, capacity=None)) == "The memory of the GPU is unknown."


def test_lengths_are_said_where_a_verdict_depends_on_them(monkeypatch, own):
    small = replace(own, capacity=own.low + 1)
    monkeypatch.setattr(Estimate, "fits_up_to_tokens", 1937.6)
    assert "It fits up to a mean of 1,900 tokens per sequence, prompt and response." in why(small)
    assert words.short(small.verdict, 1937.6) == "depends on the lengths: up to 1,900 tokens"


def test_what_ran_needed_no_more_than_its_gpu(own):
    """memory/test_accuracy.py compares the figures of all recorded runs."""
    texts = [why(replace(own, capacity=size, ran=True)) for size in (own.high, own.high - 1, own.low / 2)]
    expected = (
        "",
        "It ran, so it needed no more than the GPU's memory.",
        "It ran although the estimate is above the GPU's memory",
    )
    assert "It ran" not in texts[0]
    assert [text in line for text, line in zip(expected, texts, strict=True)] == [True, True, True]


def test_a_contested_run_is_never_shown_without_the_report():
    own = answer(Question("Qwen/Qwen2.5-32B", 8, "H20", response=1024), DATA)
    text = "Ran: Qwen2-32B, GRPO on 8×H20; another user ran out of memory (verl #3124)."
    assert sentences(own)["contested"] == text
    assert [line.name for line in words.lines(own) if "GRPO on 8×H20" in line.plain] == ["contested"]


def test_runs_are_named_by_their_evidence_word():
    config = {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.use_dynamic_bsz": True}
    ask = Request("Qwen/Qwen2.5-7B", config, 8, "H100")
    assert sentences(answer_settings(ask, DATA))["ran"] == "Ran: Qwen2-7B, GRPO on 2×H800."
    none = sentences(answer_settings(replace(ask, gpus=1, gpu="RTX-4090"), DATA))
    assert none.keys().isdisjoint({"ran", "reported", "claimed"})
    ran, reported = DATA.runs["qwen2-7b-grpo-2xh800"], DATA.runs["qwen3-8b-grpo-4xb200"]
    assert "ran" not in sentences(answer_run(ran, DATA))  # it is about this run
    assert sentences(answer_run(reported, DATA))["ran"] == "Ran: Qwen3-8B, GRPO on 4×H20."
    unknown = ran.model_copy(update={"gpus": ran.gpus.model_copy(update={"type": None})})
    assert run_title(unknown) == "Qwen2-7B, GRPO on 2 GPUs of unknown type"


def test_offloading_and_the_host_limit_are_always_said():
    few, many = (answer(Question("Qwen/Qwen2.5-7B", gpus, "H100"), DATA) for gpus in (1, 8))
    assert sentences(many)["offloaded"] == "Offloaded to host memory: nothing."
    assert re.search(
        r"about \d+ GiB per node; 1,300 GiB assumed \(twice the GPUs' memory\)", sentences(many)["host"]
    )
    assert "optimizer" in sentences(few)["offloaded"]
    assert ("CPU: slow." in sentences(few)["offloaded"]) == ("adam-on-cpu" in few.best.offloaded)
    of_512 = replace(few, best=replace(few.best, given_host_limit=512 * GIB))
    assert sentences(of_512)["host"].endswith("; 512 GiB given.")


@pytest.mark.parametrize(
    ("cases", "text"),
    [
        (7, "Checked against 7 measurements of this kind (fsdp: x; y), 5 set-ups from 4 sources: 8 % off on average, "
            "at most 16 %; 3 needed more than computed."),
        (1, "Checked against one measurement of this kind (fsdp: x; y): 8 % off."),
        (0, "This kind of run was not measured. For other kinds, mostly fine-tuning, nine in ten estimates were at most 19 % off."),
    ],
)  # fmt: skip
def test_how_sure_it_is(ask, cases, text):
    errors = {"mean_error": 0.078, "worst_error": 0.163, "needed_more": 3}
    known = (
        SimpleNamespace(name="fsdp", compared="x; y", cases=cases, sources=4, setups=5, **errors)
        if cases
        else None
    )
    own, smallest = ask(), DATA.runs["qwen2-7b-grpo-2xh800"]
    vars(own)["accuracy"] = known
    assert sentences(own)["sure"] == f"Accuracy: {text}"
    vars(own)["evidence"] = ()
    assert (
        sentences(own)["sure"]
        == f"Accuracy: {text} No comparable run used this few GPUs of this size with sequences this long."
    )
    vars(own)["undercuts"] = smallest
    more = "No comparable run on known GPUs used this little GPU memory; the smallest is Qwen2-7B, GRPO on 2×H800."
    assert sentences(own)["sure"] == f"Accuracy: {text} {more}"


def test_sequences_beyond_the_positions_of_the_model_are_not_green():
    own = answer(Question("Qwen/Qwen2.5-Math-7B", 8, "H100", response=16384), DATA)
    assert (own.best.verdict, own.verdict) == ("fits", "depends-on-lengths")
    assert words.why(own.best, own.reason).endswith(words.REASONS["positions"])


def test_another_release_with_another_verdict_is_said():
    config = {f"actor_rollout_ref.actor.fsdp_config.{part}_offload": True for part in ("param", "optimizer")}
    config |= {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.use_dynamic_bsz": True}
    request = Request("Qwen/Qwen2.5-14B", {**config, "data.train_batch_size": 256}, gpus=8, gpu="H100")
    own = answer_settings(request, DATA, version_assumed=True)
    peak = words.whole(own.other_release.estimate.peak)
    text = f"Other release: Fits with verl v0.8.0 instead of v0.9.0 (peak {peak} GiB)."
    cause = "FSDP in v0.9.0 keeps whole gradients on every GPU until the last micro-batch."
    assert sentences(own)["release"] == f"{text} {cause}"
    assert answer_settings(request, DATA).other_release is None


def test_a_change_says_what_it_leaves_and_what_it_costs():
    change = Change({}, ("a=1", "+b=2"), 61.2 * GIB, 66 * GIB, "fits", "much", ("One.", "Two."))
    text = "peak 61 GiB (up to 66): fits, costs a lot of time."
    assert words.change_text(change) == f"a=1 +b=2: {text} One. Two."
    assert words.change_text(change, "{settings}", {"One."}) == f"{{settings}}: {text} Two."


def test_a_measured_figure_stands_beside_the_estimate_of_its_counter(own):
    peak = f"estimated peak {words.whole(own.low)} to {words.whole(own.high)} GiB"
    low, high = map(words.whole, own.torch_peak_range)
    of_torch = f"{peak}, measured 3.0 GiB (allocated by PyTorch; estimated {low} to {high} GiB)"
    texts = {
        "": peak,
        "device": f"{peak}, measured 3.0 GiB (in use on the GPU)",
        "torch-max-allocated": of_torch,
    }
    for counter, text in texts.items():
        run = SimpleNamespace(measured=counter and SimpleNamespace(gib=3.0, counter=counter))
        assert words.peaks_text(run, own) == text
        too_high = replace(own, capacity=own.low / 2, ran=True)
        assert words.peaks_text(run, too_high).startswith("the estimate is above the GPU's memory")
