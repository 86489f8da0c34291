"""Problems of settings: keys of other releases and misspelt ones, wrong types; the releases that keys allow."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.memory.estimate import estimate
from sphinx_verl_resources.memory.keys import key_problem, key_warnings, release_for, settings_problems
from sphinx_verl_resources.memory.recorded import version_of_run
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import Request
from sphinx_verl_resources.memory.versions import CURRENT, LAST, version_of

REGISTRIES = EstimatorContext()
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
SCHEDULER, SUMMON = f"{ROLLOUT}.chat_scheduler", f"{ROLLOUT}.layered_summon"
WRAP = f"{ACTOR}.fsdp_config.wrap_policy.transformer_layer_cls_to_wrap"
PAD, FORMER = f"{ACTOR}.pad_to_length", "critic.model.fsdp_config.param_offload"
OPEN = f"{ACTOR}.megatron.override_transformer_config"
GONE = "; remove it, or correct the version"
OWN = "remove it, or add it to config_keys.yaml if it belongs to your own recipe"
#: Keys, versions, and the end of the message; empty for keys that the version reads.
KEYS = [
    (SCHEDULER, "0.4.0", ""),
    (SCHEDULER, "0.5.0", f"verl v0.5.0 has no such key; v0.4.0 was the last release with it{GONE}"),
    (PAD, "0.7.1", f"verl v0.7.1 has no such key; v0.9.0 is the first release with it{GONE}"),
    (PAD, "0.8.0", ""),  # the main branch after it
    (PAD, "99.0.0", ""),
    (FORMER, "0.7.1", ""),
    (FORMER, "0.8.0", "verl v0.8.0 has another name for this key; write 'critic.fsdp.param_offload'"),
    ("critic.fsdp.param_offload", "0.4.0", ""),  # settings may use today's names
    (WRAP, "0.9.0", ""),  # with a plus sign
    (WRAP, "0.5.0", ""),
    (f"{ROLLOUT}.engine_kwargs.vllm.any", "0.3.0", ""),
    (f"{ROLLOUT}.engine_kwargs.vllm.max_model_len", "0.3.0", ""),
    (f"{OPEN}.any.any", "0.9.0", ""),
    (f"{ACTOR}.fsdp_config.turbo_config.distributed.expert_parallel_size", "0.5.0", ""),
    (f"{OPEN}.recompute_granularty", "0.9.0", f"verl has no such key; did you mean '{OPEN}.recompute_granularity'?"),
    ("model_engine", "0.9.0", ""),
    ("engine", "0.9.0", ""),
    ("model@actor", "0.9.0", ""),
    (f"{ACTOR}.fsdp_config.mixed_precision.any", "0.9.0", ""),
    (f"{ROLLOUT}.gpu_memory_utilisation", "0.9.0", f"verl has no such key; did you mean '{ROLLOUT}.gpu_memory_utilization'?"),
    ("critic.optm.lr", "0.9.0", "verl has no such key; did you mean 'critic.optim.lr'?"),
    ("actor_rollout_refs.rollouts.n", "0.9.0", f"verl has no such key; did you mean '{ROLLOUT}.n'?"),
    ("rollout.response_length", "0.9.0", f"verl has no such key; did you mean '{ROLLOUT}.response_length'? If not, {OWN}"),
    (f"{ACTOR}.fsdp.param_offload", "0.9.0", f"verl has no such key; did you mean '{ACTOR}.fsdp_config.param_offload'? If not, {OWN}"),
    (WRAP.replace("actor.", "ref."), "0.9.0", f"verl has no such key; did you mean '{WRAP}'? If not, {OWN}"),
    ("actor_rollout_ref.model.lora_dropout", "0.9.0", f"verl has no such key; {OWN}"),
    ("servers.port", "0.9.0", f"verl has no such key; {OWN}"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "version", "message"), KEYS)
def test_the_name_of_a_setting(key, version, message):
    problem = key_problem(key, version_of(version), REGISTRIES)
    assert (problem.text if problem else "") == (message and f"{key}: {message}")
    if problem:
        sure = "did you mean" in message and "If not" not in message
        assert problem.code == ("unknown_key" if sure else "config_key")
        assert problem.is_error == (sure and OPEN not in key)


MINI, BATCH = f"{ACTOR}.ppo_mini_batch_size", {"data.train_batch_size": 64}
REJECTS = "verl rejects a mini-batch of {}, larger than data.train_batch_size, 64; correct one of the two"
#: Settings and the message about the first.
VALUES = [
    ({"data.shuffle": "often"}, "expected true or false, got 'often'; correct it"),
    ({"data.shuffle": 1}, "expected true or false, got '1'; correct it"),
    ({"data.shuffle": "${x}"}, ""),
    ({"data.shuffle": None}, ""),
    ({"data.train_batch_size": True}, "expected a number, got 'True'; correct it"),
    ({"data.train_batch_size": 0.5}, ""),
    ({f"{ROLLOUT}.name": 7}, ""),
    ({MINI: 65, **BATCH}, REJECTS.format(65)),
    ({"critic.ppo_mini_batch_size": 1024, **BATCH}, REJECTS.format("1,024")),
    ({MINI: 64, **BATCH}, ""),
    ({MINI: 65, f"{ACTOR}.use_dynamic_bsz": True, **BATCH}, ""),
    ({MINI: 65, "data.train_batch_size": "64"}, ""),
]


@pytest.mark.parametrize(("settings", "message"), VALUES)
def test_the_value_of_a_setting(settings, message):
    key = next(iter(settings))
    texts = [each.text for each in settings_problems(settings, CURRENT, REGISTRIES) if each.place.key == key]
    assert texts == ([f"{key}: {message}"] if message else [])


WRONG = {
    "data.max_respone_length": 1024,
    "data.bananas": 1,
    "data": {"shuffle": "often"},
    "trainer.total_epochs": 15,
}


def test_an_estimate_warns_of_what_is_wrong_with_a_run():
    problems = [*settings_problems(WRONG, CURRENT, REGISTRIES)]
    assert [each.code for each in problems] == ["unknown_key", "config_key", "wrong_type"]
    assert [each.is_error for each in problems] == [True, False, False]
    request = Request("Qwen/Qwen2.5-7B", WRONG, gpus=8, gpu="H100")
    warnings = [each for each in estimate(request, REGISTRIES).warnings if each.place.key.startswith("data.")]
    assert [(each.text, each.is_error) for each in warnings] == [(each.text, False) for each in problems]
    assert [*key_warnings(request, REGISTRIES, problems)] == [], "they are noted already"
    for other in (Request("a", WRONG, framework="EasyR1"), Request("a", {**WRONG, "optim.lr": 1e-5})):
        assert [*key_warnings(other, REGISTRIES)] == []


#: Keys, the newest release up to the current one with all of them, and a part of the reason if it is older.
RELEASES = [
    ([], CURRENT, ""),
    (["data.train_batch_size", "own.key"], CURRENT, ""),
    (
        [SCHEDULER],
        (0, 4, 0),
        f"v0.4.0 is assumed: {SCHEDULER}: verl v0.4.1 has no such key; v0.4.0 was the last",
    ),
    ([SCHEDULER, PAD], CURRENT, ""),  # they contradict each other
    ([SUMMON, PAD], CURRENT, ""),
    ([FORMER], (0, 7, 1), f"v0.7.1 is assumed: {FORMER}: verl v0.8.0 has another name for this key"),
    (["critic.fsdp.param_offload"], CURRENT, ""),
    ([WRAP], CURRENT, ""),
    ([f"+{SCHEDULER}"], CURRENT, ""),
    ([f"{ACTOR}.use_fused_kernels"], CURRENT, ""),  # scripts add it
]


@pytest.mark.parametrize(("keys", "release", "why"), RELEASES)
def test_keys_decide_the_release(keys, release, why):
    result, reason = release_for(dict.fromkeys(keys), REGISTRIES)
    assert (result, why in reason, bool(reason)) == (release, True, bool(why))


def test_recorded_runs_and_cases():
    """Their keys exist, and allow the release that they ran with."""
    pairs = [(run.settings, version_of_run(run)) for run in REGISTRIES.runs.values()]
    pairs += [
        (case.config or {}, version_of(case.version))
        for case in REGISTRIES.cases.by_id.values()
        if case.framework == "verl"
    ]
    assert len(pairs) > 100
    dated = [(settings, version) for settings, version in pairs if version]
    assert [each.text for pair in dated for each in settings_problems(*pair, REGISTRIES)] == []
    problems = [each for settings, _ in pairs for each in settings_problems(settings, CURRENT, REGISTRIES)]
    assert [each.text for each in problems if each.code == "unknown_key"] == []


def test_the_two_lists_of_keys_agree():
    """People wrote one from the keys that decide memory, a script the other from all keys."""
    judged = [(key, key_problem(key.name, LAST, REGISTRIES)) for key in REGISTRIES.config_keys]
    assert [key.name for key, problem in judged if problem and key.status == "active"] == []
    assert {problem.code for key, problem in judged if problem} == {"config_key"}
