"""analysis.yaml and config_keys.yaml: problems are reported with their places, and valid entries are used."""

from __future__ import annotations

import pytest
import yaml

from sphinx_verl_resources.analysis import analyse
from sphinx_verl_resources.commands import given_data

SPEC = "specifications:\n  - {name: 13B, parameters: 13000000000, hidden_size: 5120, layers: 40}\n"
STEP = "steps:\n  - {{name: zero, label: Zero, components: [{}], {}, text: x}}\n"
SETTINGS = "configurations:\n  - name: 8B\n    settings: {{{}: 1}}\n"


@pytest.fixture
def load(data, monkeypatch):
    """The analysis with a user's file, and its printed problems."""
    monkeypatch.chdir(data.path.parent)

    def loaded(text, name="analysis.yaml"):
        data.write(name, text)
        records = given_data(["data"])
        problems = (*records.diagnostics_of("config_keys"), *records.diagnostics_of("analysis"))
        return records.analysis, [str(problem) for problem in problems]

    return loaded


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
    assert [step.step.name for step in analyse(analysis, "3B").steps][-1] == "zero"
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
