"""Names of verl's configuration keys: those of each release, and suggestions for unknown ones."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.diagnostics import Severity
from sphinx_verl_resources.estimator.context import EstimatorContext
from sphinx_verl_resources.estimator.estimate import estimate
from sphinx_verl_resources.estimator.keys import key_names, key_problem, key_warnings, settings_problems
from sphinx_verl_resources.estimator.request import Request
from sphinx_verl_resources.estimator.versions import CURRENT, LAST

WRONG = {
    "data.max_respone_length": 1024,
    "data.bananas": 1,
    "data.shuffle": "often",
    "trainer.total_epochs": 15,
}


@pytest.fixture(scope="module")
def registries():
    return EstimatorContext().registries


def test_the_two_lists_of_keys_agree(registries):
    """People wrote one from the keys that decide memory, a script the other from all keys."""
    judged = {key.name: (key, key_problem(key.name, LAST, registries)) for key in registries.config_keys}
    assert [name for name, (key, problem) in judged.items() if key.status == "active" and problem] == []
    moved = {name: problem for name, (key, problem) in judged.items() if key.status == "moved" and problem}
    assert moved
    assert {problem.code for problem in moved.values()} == {"config_key"}


def test_no_recorded_run_or_case_has_a_key_that_verl_does_not(registries):
    data = EstimatorContext()
    settings = [run.settings for run in data.runs.values()]
    settings += [entry.case.config or {} for entry in data.cases.entries if entry.case.framework == "verl"]
    found = [problem for config in settings for problem in settings_problems(config, CURRENT, registries)]
    assert len(settings) > 100
    assert [problem.text for problem in found if problem.code == "unknown_key"] == []


def test_an_estimate_says_what_is_said_of_a_run_and_is_made(registries):
    request = Request("Qwen/Qwen2.5-7B", WRONG, gpus=8, gpu="H100")
    warnings = [item for item in estimate(request, registries).warnings if item.place.key in WRONG]
    said = list(settings_problems(WRONG, CURRENT, registries))
    assert [item.text for item in warnings] == [item.text for item in said]
    assert [item.code for item in said] == ["unknown_key", "config_key", "wrong_type"]
    assert {item.severity for item in warnings} == {Severity.WARNING}


@pytest.mark.parametrize(
    "request_", [Request("a", WRONG, framework="EasyR1"), Request("a", {**WRONG, "optim.lr": 1e-5})]
)
def test_keys_of_forks_and_of_fine_tuning_are_not_judged(registries, request_):
    assert list(key_warnings(request_, registries)) == []


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        (
            "actor_rollout_ref.rollout.gpu_memory_utilisation",
            "actor_rollout_ref.rollout.gpu_memory_utilization",
        ),
        ("critic.optm.lr", "critic.optim.lr"),
        ("actor_rollout_ref.actor.engine.param_offload", None),  # next to it is a key of another backend
        ("actor_rollout_ref.model.lora_dropout", None),
        ("actor_rollout_refs.rollouts.n", "actor_rollout_ref.rollout.n"),
        ("servers.port", None),
    ],
)
def test_only_what_is_similar_is_meant(key, meant):
    assert key_names().meant_by(key) == meant
