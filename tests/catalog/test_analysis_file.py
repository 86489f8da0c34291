"""analysis.yaml and config_keys.yaml: problems are reported with their places, and valid entries are used."""

from __future__ import annotations

import pytest
import yaml

from sphinx_verl_resources.analysis.analysis import analyse
from sphinx_verl_resources.cli.data import read_data

SPEC = "specifications:\n  - {name: 13B, parameters: 13000000000, hidden_size: 5120, layers: 40}\n"
STEP = "steps:\n  - {{name: zero, label: Zero, components: [{}], {}, text: x}}\n"
SETTINGS = "configurations:\n  - name: 8B\n    settings: {{{}: 1}}\n"
REMARK = "remarks:\n  - {{name: a, about: [{}], text: x, sources: [{{path: a/b.py}}]}}\n"
CLAIM = (
    "requirements:\n  - name: 8B\n    claims:\n"
    "      - {{level: {}, text: x, count: 2, gpus: [{}]}}\n"
)  # fmt: skip


@pytest.fixture
def load(data, monkeypatch):
    """The analysis with a user's file, and its printed problems."""
    monkeypatch.chdir(data.path.parent)

    def loaded(text, name="analysis.yaml"):
        data.write(name, text)
        records = read_data(["data"])
        problems = (*records.config_keys.diagnostics, *records.analysis.diagnostics)
        return records.analysis, [str(problem) for problem in problems]

    return loaded


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("assumptions: [", "1:15: ERROR: a value is missing here"),
        ("specifications:\n  - name: [3B\n", "2:11: ERROR: the bracket that opens here is not closed"),
        ("", "1:1: ERROR: the file is empty; begin the file with the key 'assumptions' [verl.file_empty]"),
        ("- a\n", "1:1: ERROR: expected keys and values, got a list; its keys are assumptions, specifications,"),
        ("assumption: {}\n", "1:1: ERROR: unknown key 'assumption'; did you mean 'assumptions'? [verl.unknown_key]"),
        ("assumptions: {batch_size: 0}\n", "1:27: ERROR: assumptions.batch_size: must be at least 1, got '0'"),
        ("assumptions: {batch_size: many}\n", "1:27: ERROR: assumptions.batch_size: expected a whole number, got the text 'many'"),
        ("assumptions: {bach_size: 1}\n", "1:15: ERROR: unknown key 'bach_size'; did you mean 'batch_size'?"),
        ("assumptions: 3\n", "1:14: ERROR: assumptions: expected keys and values, got"),
        ("specifications:\n  - {name: 12B, parameters: 12}\n", "2:5: ERROR: specifications.0: hidden_size, layers missing; add them, or set 'model' [verl.missing_key]"),
        ("specifications:\n  - {name: 12B, model: Qwen/Qwen3-8B, layers: 3}\n", "2:5: ERROR: specifications.0: give either 'model' or parameters"),
        ("specifications:\n  - {name: 12B, model: Qwen/Qwen3-8}\n", "2:24: ERROR: specifications.0.model: unknown model 'Qwen/Qwen3-8'; did you mean 'Qwen/Qwen3-8B'? If not, add it to architectures.yaml [verl.unknown_model]"),
        (SPEC + SPEC[16:], "3:5: ERROR: '13B' is also a name of entry 1 of 'specifications'"),
        (STEP.format("parameter", "divide_by: 2"), "2:44: ERROR: steps.0.components.0: unknown value 'parameter'; did you mean 'parameters'?"),
        (STEP.format("", "divide_by: 2"), "2:43: ERROR: steps.0.components: expected at least one item"),
        (STEP.format("optimizer, optimizer", "divide_by: 2"), "2:43: ERROR: steps.0.components: duplicate entry 'optimizer'"),
        (STEP.format("parameters", "divide_by: gpu"), "2:68: ERROR: steps.0.divide_by: expected 'gpus', or a number from 1 to 1000, got 'gpu'"),
        (STEP.format("parameters", "divide_by: 0.5"), "2:68: ERROR: steps.0.divide_by: expected 'gpus', or a number from 1 to 1000, got '0.5'"),
        (STEP.format("parameters", "multiply_by: 1.5"), "2:70: ERROR: steps.0.multiply_by: must be at most 1"),
        (STEP.format("parameters", "divide_by: 2, multiply_by: 0.5"), "2:5: ERROR: steps.0: a step needs either 'divide_by' or 'multiply_by', not both"),
        (CLAIM.format("minimal", "A100"), "4:17: ERROR: requirements.0.claims.0.level: unknown value 'minimal'; did you mean 'minimum'?"),
        (CLAIM.format("minimum", "A1000"), "4:52: ERROR: requirements.0.claims.0.gpus.0: unknown GPU 'A1000'; did you mean 'A100'? If not, add it to gpus.yaml [verl.unknown_gpu]"),
        (REMARK.format("activation"), "2:23: ERROR: remarks.0.about.0: unknown name 'activation'; did you mean 'activations'?"),
        ("priorities:\n  - {name: fsdq, advice: a, reason: b}\n", "2:12: ERROR: priorities.0.name: unknown name 'fsdq'; did you mean 'fsdp'?"),
        ("commands:\n  - {name: a, purpose: b, command: 'c\n\n      d'}\n", "2:36: ERROR: commands.0.command: expected one line without tabs"),
        ("configurations:\n  - {name: 8B, settings: {a.b: 1, a.b.c: 2}}\n", "2:5: ERROR: configurations.0: 'a.b' has both a value and keys below it"),
    ],
)  # fmt: skip
def test_errors(load, text, message):
    _, problems = load(text)
    assert len(problems) == 1, problems
    assert problems[0].startswith(f"data/analysis.yaml:{message}"), problems


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("actor_rollout_ref.actor.megatron.grad_offload", "is ignored by verl; Stored but never read"),
        ("actor_rollout_ref.actor.ppo_micro_batch_size", "is deprecated; use 'actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu'"),
        ("actor_rollout_ref.rollout.update_weights_bucket_megabytes", "was renamed; use 'actor_rollout_ref.rollout.checkpoint_engine."),
        ("actor_rollout_ref.rollout.gpu_memory_utilisation", "did you mean 'actor_rollout_ref.rollout.gpu_memory_utilization'?"),
        ("nothing.like.it", "unknown key 'nothing.like.it' of verl's configuration; correct it, or add it to config_keys.yaml"),
    ],
)  # fmt: skip
def test_keys_that_verl_does_not_take(load, key, message):
    _, problems = load(SETTINGS.format(key))
    assert len(problems) == 1
    assert problems[0].startswith("data/analysis.yaml:3:16: WARNING: ")
    assert message in problems[0]
    assert problems[0].endswith(" [verl.config_key]")


def test_a_key_that_the_project_adds_is_known(load, data):
    entry = {
        "name": "nothing.like.it", "group": "actor", "type": "int", "default": 1, "phases": [],
        "effect": "None.", "status": "active",
    }  # fmt: skip
    data.write("config_keys.yaml", yaml.safe_dump({"config_keys": [entry]}))
    assert load(SETTINGS.format("nothing.like.it"))[1] == []


def test_another_assumption(load):
    analysis, problems = load("assumptions: {batch_size: 64}\n")
    assert problems == []
    assert analysis.assumptions.sequence_length == 2048
    assert analyse(analysis, "3B").batch_size == 64


def test_entries_override_by_name_and_keep_their_place(load):
    analysis, problems = load(
        "specifications:\n  - {name: 8B, parameters: 8000000000, hidden_size: 4096, layers: 36}\n" + SPEC[16:]
    )
    assert problems == []
    assert list(analysis.specifications)[:3] == ["3B", "8B", "32B"]
    assert list(analysis.specifications)[-1] == "13B"
    assert analyse(analysis, "8B").shape.layers == 36
    assert analyse(analysis, "13B").gpus == 8


def test_names_are_alike_whatever_their_case(load):
    analysis, problems = load(
        "specifications:\n  - {name: 8b, parameters: 9000000000, hidden_size: 4096, layers: 36}\n"
    )
    assert problems == []
    assert "8B" not in analysis.specifications
    assert analyse(analysis, "8B").shape.layers == analyse(analysis, "8b").shape.layers == 36


def test_an_empty_value_keeps_the_earlier_one(load):
    analysis, problems = load("assumptions:\n  batch_size: 16\n  sequence_length:\n")
    assert problems == []
    assert (analysis.assumptions.batch_size, analysis.assumptions.sequence_length) == (16, 2048)


def test_good_assumptions_beside_bad_ones_count(load):
    analysis, problems = load("assumptions: {batch_size: 16, sequence_length: 0}\n")
    assert len(problems) == 1
    assert (analysis.assumptions.batch_size, analysis.assumptions.sequence_length) == (16, 2048)


def test_a_step_of_ones_own(load):
    analysis, problems = load(STEP.format("optimizer", "multiply_by: 0.25"))
    assert problems == []
    assert [step.name for step in analyse(analysis, "3B").steps][-1] == "zero"
    assert analyse(analysis, "3B", steps=["zero"]).end.of(["optimizer"]) == 3e9


def test_good_entries_of_a_file_with_errors_are_used(load):
    analysis, problems = load(SPEC + "  - {name: 14B}\nassumptions: {batch_size: 0}\nfoo: 1\n")
    assert len(problems) == 3
    assert analyse(analysis, "13B").batch_size == 32


def test_a_name_of_an_entry_with_errors_is_no_second_mistake(load):
    _, problems = load("specifications:\n  - {name: 99B}\nrequirements:\n  - {name: 99B, claims: []}\n")
    assert len(problems) == 1


def test_config_keys_with_errors(load, data):
    data.write("config_keys.yaml", "config_keys:\n  - {name: a.b, status: gone}\n")
    _, problems = load("verl: null\n")
    assert [problem.split(": ", 2)[0] for problem in problems] == ["data/config_keys.yaml:2:5"] * 5 + [
        "data/config_keys.yaml:2:25"
    ]
