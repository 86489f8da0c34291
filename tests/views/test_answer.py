"""An answer in sentences: related runs, and its accuracy."""

from __future__ import annotations

import pytest
from docutils import nodes

from sphinx_verl_resources.answer.answer import answer_run, answer_settings
from sphinx_verl_resources.answer.evidence import Trust
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import Request
from sphinx_verl_resources.views.answer import evidence_items, trust_text

DATA = EstimatorContext()
RUNS = DATA.runs
RAN = "qwen2-7b-grpo-2xh800"


@pytest.mark.parametrize(
    ("trust", "text"),
    [
        (Trust(0), "No run of this kind was measured."),
        (Trust(1, 0.034), "One run of this kind was measured; its estimate was 3 % off."),
        (
            Trust(12, 0.09, RUNS[RAN], undercuts=False),
            "12 runs of this kind were measured; their estimates were 9 % off on average.",
        ),
        (
            Trust(0, None, RUNS[RAN], undercuts=True),
            "No run of this kind was measured. No such run of this model used so little GPU memory; the "
            "smallest is Qwen2-7B, GRPO on 2×H800.",
        ),
    ],
)
def test_how_sure_it_is(trust, text):
    assert trust_text(trust) == text


def named(found, own=None):
    """Return the items with the shown runs."""
    return [
        item.astext()
        for item in evidence_items(found, own, lambda run, text: nodes.reference("", text, refid=run))
    ]


def test_settings_of_ones_own_name_the_nearest_runs():
    config = {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.use_dynamic_bsz": True}
    found = answer_settings(Request("Qwen/Qwen2.5-7B", config, 8, "H100"), DATA)
    first, *_ = named(found)
    assert first.startswith("Ran: Qwen2-7B, GRPO on 2×H800")
    assert named(answer_settings(Request("Qwen/Qwen2.5-7B", config, 1, "RTX-4090"), DATA)) == []


def test_a_run_that_ran_names_no_other():
    run = "qwen2-5-0-5b-ppo-8xl20-vllm"
    found = answer_run(RUNS[run], DATA)
    assert [run.word for run in found.evidence] == ["ran", "ran", "claimed"]
    assert named(found, run) == []
    ran, claimed = named(found)
    assert ran.startswith("Ran: Qwen2.5-0.5B, PPO on 8×L20, Qwen2.5-0.5B, PPO on 8×L20")
    assert claimed.startswith("Claimed: ")


def test_a_run_that_was_reported_names_others_and_not_itself():
    run = "qwen3-8b-grpo-4xb200"
    assert named(answer_run(RUNS[run], DATA), run) == ["Ran: Qwen3-8B, GRPO on 4×H20"]
