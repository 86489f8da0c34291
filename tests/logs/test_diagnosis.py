"""Diagnoses: the first actions, what the log measured, and what contradicts the estimate."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from oom_reports import first_action, load_reports

from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.logs.actions import actions_for, size_in
from sphinx_verl_resources.logs.diagnose import PHASES, diagnosis_text
from sphinx_verl_resources.logs.diagnosis import diagnose
from sphinx_verl_resources.logs.facts import Figures, Line, metrics_in
from sphinx_verl_resources.logs.failure import Failure
from sphinx_verl_resources.logs.log import Log
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import Request

GIB = 2**30
SECTIONS = ("actor.", "rollout.", "model.", "ref.")
#: A run that fits with room to spare.
CONFIG = {
    "model.path": "Qwen/Qwen2.5-7B-Instruct",
    "algorithm.adv_estimator": "grpo",
    "data.max_prompt_length": 1024,
    "data.max_response_length": 4096,
    "trainer.nnodes": 1,
    "trainer.n_gpus_per_node": 8,
    "actor.use_dynamic_bsz": True,
    "actor.use_kl_loss": True,
    "actor.ppo_max_token_len_per_gpu": 32768,
    "rollout.gpu_memory_utilization": 0.6,
    "rollout.log_prob_use_dynamic_bsz": True,
    "rollout.max_num_seqs": 1024,
    "rollout.max_model_len": 5120,
    "rollout.enforce_eager": False,
    "rollout.name": "vllm",
}


def whole(settings):
    """Return settings with whole keys."""
    prefixed = {
        f"{'actor_rollout_ref.' if key.startswith(SECTIONS) else ''}{key}": value
        for key, value in settings.items()
    }
    return {key: tuple(value) if isinstance(value, list) else value for key, value in prefixed.items()}


@pytest.fixture(scope="module")
def data():
    return EstimatorContext()


@pytest.fixture
def diagnose_log(data):
    """Return a function that diagnoses a failure of a run on eight H100."""

    def diagnosed(
        phase,
        form="cuda",
        *,
        settings=None,
        sizes=None,
        versions=None,
        gpu="H100",
        sleep=None,
        figures=None,
        **facts,
    ):
        in_bytes = {name: round(size * GIB) for name, size in (sizes or {}).items()}
        facts = {
            name: frozenset(value) if name == "traits" else tuple(value) if name == "phases" else value
            for name, value in facts.items()
        }
        failure = phase and Failure(
            phase, "message", form, Location("run.log", 9), "", sizes=in_bytes, **facts
        )
        config = {} if settings == {} else whole({**CONFIG, **(settings or {})})
        slept = {name: size * GIB for name, size in (sleep or {}).items()}
        log = Log("run.log", figures or Figures(), config, versions or {}, failure=failure, sleep=slept)
        request = Request(config.get("actor_rollout_ref.model.path", ""), config, gpu=gpu or None)
        return diagnose(log, request, data)

    return diagnosed


CASES = yaml.safe_load((Path(__file__).parent / "diagnoses.yaml").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["about"] for case in CASES])
def test_the_first_actions(diagnose_log, case):
    facts = {key: value for key, value in case.items() if key not in ("about", "steps", "more")}
    actions = actions_for(diagnose_log(**facts))
    assert len(actions) <= 4
    if "more" not in case:
        assert len(actions) == len(case["steps"]), actions
    for action, right in zip(actions, case["steps"], strict=False):
        if isinstance(right, str):
            assert (right in action.sentence, action.overrides) == (True, {})
        elif right:
            assert {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in action.overrides.items()
            } == whole(right)


@pytest.mark.parametrize("phase", [*PHASES, "unknown"])
def test_no_phase_without_an_answer(diagnose_log, phase):
    for settings in (None, {}, {"algorithm.adv_estimator": "gae"}):
        diagnosis = diagnose_log(phase, settings=settings)
        actions = actions_for(diagnosis)
        assert len({str(action.overrides or action.sentence) for action in actions}) == len(actions)
        of_critic = {key.startswith("critic.") for action in actions for key in action.overrides}
        assert of_critic <= {phase.startswith("critic-")} or phase == "host"
        if (
            phase in ("update-forward", "update-backward", "old-log-prob", "optimizer-step")
            and settings is None
        ):
            assert all(
                size_in(action.after, diagnosis.failure) < size_in(diagnosis.estimate, diagnosis.failure)
                for action in actions
            )
        text = diagnosis_text(diagnosis)
        assert ("What to do" in text) == bool(actions)
        assert ("no step is sure" in text or "No setting lowers" in text) != bool(actions)


def test_what_the_log_measured_comes_first(diagnose_log):
    sizes = {"capacity": 79, "free": 1, "in_use": 77, "allocated": 10, "reserved_unallocated": 2, "tried": 2}
    text = diagnosis_text(diagnose_log("update-backward", sizes=sizes, sleep={"freed": 0.0, "left": 63}))
    places = [
        text.index(words)
        for words in (
            "besides PyTorch 65.0 GiB",
            "sleep freed",
            "Estimate of this phase",
            "It assumes",
            "What to do",
        )
    ]
    assert places == sorted(places)
    assert "other processes" not in text
    assert diagnose_log("update-backward", sizes={"in_use": 77, "allocated": 83}).holders == {}


def test_phases_that_passed_bound_the_lengths(diagnose_log):
    settings = {
        "actor.ppo_max_token_len_per_gpu": 300_000,
        "data.max_response_length": 100_000,
        "rollout.max_model_len": 101_024,
    }
    diagnosis = diagnose_log("update-backward", settings=settings)
    passed = diagnosis.estimate.of_phase("update-forward", "rollout")
    assert diagnosis.bound < 101_024
    assert passed.low <= diagnosis.estimate.capacity
    assert "since the phases before it passed" in " ".join(diagnosis.assumed)
    assert diagnose_log("update-backward").bound is None


@pytest.mark.parametrize(
    ("phase", "facts", "words"),
    [
        (
            "optimizer-step",
            {"sizes": {"capacity": 79, "free": 0, "tried": 2}},
            "the settings explain at most",
        ),
        ("optimizer-step", {"sizes": {"capacity": 79, "free": 75, "tried": 2}}, "The run needed only"),
        (
            "update-backward",
            {"gpu": "A100-40GB", "sizes": {"capacity": 79, "free": 0}},
            "Check the GPU given",
        ),
        ("critic-backward", {}, "not the settings of the failed run"),  # GRPO has no critic
    ],
)
def test_contradictions(diagnose_log, phase, facts, words):
    assert words in " ".join(diagnose_log(phase, **facts).differences())


def test_nothing_is_compared_with_an_unknown_gpu(diagnose_log):
    diagnosis = diagnose_log("rollout", gpu="", sizes={"capacity": 70, "free": 0, "tried": 2})
    assert [*diagnosis.differences()] == []


@pytest.mark.parametrize(
    ("facts", "release"),
    [
        ({}, "the version of verl (assumed: v0.9.0)"),
        ({"traits": ["old-workers"]}, "the version of verl (assumed: v0.7.1 by its workers)"),
        ({"versions": {"vllm": "0.10.1"}}, "the version of verl (assumed: v0.6.0 by vLLM 0.10.1)"),
        ({"settings": {"rollout.chat_scheduler": None}}, "the version of verl (assumed: v0.4.0 by its keys)"),
        ({"settings": {}}, "the version of verl"),
    ],
)
def test_the_log_bounds_the_release(diagnose_log, facts, release):
    assert release in diagnose_log("update-backward", **facts).missing
    assert diagnose_log("update-backward", versions={"verl": "0.8.0"}).request.version == (0, 8, 0)


def test_the_gpu_is_known_by_its_memory(diagnose_log):
    diagnosis = diagnose_log("update-backward", gpu="", sizes={"capacity": 47.4})
    assert diagnosis.request.memory_gb == 48
    assert any("48 GB" in text for text in diagnosis.missing)
    assert diagnose_log("host", "ray-memory", gpu="", sizes={"capacity": 47.4}).request.memory_gb is None


def test_possible_phases_that_the_run_does_not_have_are_left_out(diagnose_log):
    assert (
        diagnose_log("unknown", phases=("update-backward", "critic-backward")).failure.phase
        == "update-backward"
    )


def test_a_log_without_a_failure(diagnose_log):
    figures = Figures()
    figures.add(metrics_in(Line("step:7 - perf/max_memory_allocated_gb:60")))
    diagnosis = diagnose_log(None, figures=figures)
    assert (diagnosis.failure, diagnosis.missing[0], actions_for(diagnosis)) == (
        None,
        "an out-of-memory failure",
        (),
    )
    assert "Its last figures are from step 7" in diagnosis_text(diagnosis)


# -- public reports


def test_first_actions_for_public_reports(data):
    """The first action is the confirmed fix, except for reports with a reason in the data."""
    reports = [report for report in load_reports() if "fix" in report]
    hits = {report["report"] for report in reports if is_fix(report, first_action(report, data))}
    assert hits == {report["report"] for report in reports if "missed" not in report}
    assert (len(hits), len(reports)) == (3, 15)


def is_fix(report, action):
    """Return whether an action sets or names the settings of a fix; a newer engine is not a setting."""
    if action is None:
        return False
    words = " ".join([*action.overrides, action.sentence])
    newer = any("newer vLLM" in text for text in report["fix"]) and "or newer" in words
    return newer or any(key.rpartition(".")[2] in words for key in report.get("fix_settings", ()))
