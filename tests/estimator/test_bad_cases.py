"""Problems of cases: each gives one line, and the other cases stay usable."""

from __future__ import annotations

import pytest
from case_texts import GOOD, read

from sphinx_verl_resources.estimator.cases import BrokenCase


def case_with(lines: str) -> str:
    return "- id: a\n  model: m\n" + "".join(f"  {line}\n" for line in lines.splitlines())


#: Mistakes that make a case unusable, with the message.
ERRORS = {
    "no settings": (
        case_with("outcome: fits"),
        "1:3: ERROR: the case has no settings that determine memory; add 'config' with keys of verl's configuration, or 'training' for a "
        "plain training run [verl.missing_key]",
    ),
    "a text for a case": (
        "- just text\n",
        "1:3: ERROR: expected keys and values, got 'just text'; its keys are id, source, framework, version, task, "
        "model, train, infer, gpus, config, training, observed_tokens, outcome, phase, oom_message, measured, confidence, "
        "note, contested, not_scored [verl.wrong_type]",
    ),
    "a setting that is a list of mappings": (
        case_with("config:\n  a.b:\n    - {c: 1}"),
        "5:7: ERROR: config.a.b: expected text, a number, true, false, null or a list of these [verl.wrong_type]",
    ),
    "a nested setting of two lines": (
        case_with('config:\n  a: {b: "x\\ny"}'),
        "4:12: ERROR: config.a.b: expected one line without tabs and without spaces around it [verl.wrong_value]",
    ),
    "a setting twice": (
        case_with("config:\n  a.b: 1\n  a: {b: 2}"),
        "4:5: ERROR: config: duplicate key 'a.b', dotted and nested; keep one of the two [verl.duplicate_key]",
    ),
    "unknown outcome": (
        case_with("config: {}\noutcome: crash"),
        "4:12: ERROR: outcome: unknown value 'crash'; allowed: measured, fits, oom [verl.unknown_value]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_a_bad_case_is_reported_and_the_others_stay(name):
    text, message = ERRORS[name]
    cases = read(text + GOOD)
    assert [str(problem) for problem in cases.diagnostics] == [f"cases/a.yaml:{message}"]
    broken, good = cases.entries
    assert isinstance(broken, BrokenCase)
    assert broken.id == ("case 1" if name == "a text for a case" else "a")
    assert broken.error is cases.diagnostics[0]
    assert list(cases.by_id) == ["good"] == [good.case.id]


def test_unknown_keys_are_warnings():
    text = """\
- id: a
  model: m
  confg: {}
  config: {}
  measured: {gib: 1, peak_gib: 2}
  gpus: {count: 2, kind: fast}
"""
    cases = read(text)
    assert [str(problem) for problem in cases.diagnostics] == [
        "cases/a.yaml:3:3: WARNING: unknown key 'confg'; did you mean 'config'? [verl.unknown_key]",
        "cases/a.yaml:5:22: WARNING: unknown key 'peak_gib'; allowed: gib, counter, counter_kind, reserved_gib, steady_gib, nvidia_smi_mib, host_ram_gib [verl.unknown_key]",
        "cases/a.yaml:6:20: WARNING: unknown key 'kind'; allowed: count, type, nodes, memory_gb, memory_note, note "
        "[verl.unknown_key]",
    ]
    assert cases.by_id["a"].case.measured.gib == 1.0
    assert cases.broken == ()


def test_an_error_beside_an_unknown_key():
    cases = read("- {id: a, model: m, config: {}, extra: 1, outcome: 7}\n")
    assert [(problem.severity.name, problem.code) for problem in cases.diagnostics] == [
        ("WARNING", "unknown_key"), ("ERROR", "unknown_value"),
    ]  # fmt: skip
    assert cases.broken[0].error.is_error


def test_a_measured_case_without_a_figure_is_doubtful():
    cases = read("- {id: a, model: m, config: {}, outcome: measured}\n")
    assert [str(problem) for problem in cases.diagnostics] == [
        "cases/a.yaml:1:42: WARNING: the outcome is 'measured', but no figure is given; add measured: {gib: …, counter: …} "
        "[verl.missing_key]"
    ]
    assert list(cases.by_id) == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1:1: ERROR: the file is empty; write a list of cases, each beginning with '- id:' [verl.file_empty]"),
        ("id: a\nmodel: m\n", "1:1: ERROR: expected a list, got keys and values; write a list of cases, each beginning with '- id:' [verl.wrong_type]"),
        ("nothing", "1:1: ERROR: expected a list, got 'nothing'; write a list of cases, each beginning with '- id:' [verl.wrong_type]"),
        ("- &x {id: a}\n- *x\n", "1:3: ERROR: the anchor 'x' is not read; write the values out; data files have no anchors, aliases, tags and several documents [verl.yaml_feature]"),
    ],
)  # fmt: skip
def test_files_that_are_no_list(text, message):
    cases = read(text)
    assert [str(problem) for problem in cases.diagnostics] == [f"cases/a.yaml:{message}"]
    assert cases.entries == ()


def test_an_empty_list_holds_no_cases():
    assert read("[]").entries == read("[]").diagnostics == ()


def test_a_file_that_is_not_strict_yaml_has_no_cases():
    cases = read(f'- {{id: a, model: m, config: {{}}, note: "\\u202e"}}\n{GOOD}')
    assert [str(problem)[:60] for problem in cases.diagnostics] == [
        "cases/a.yaml:1:39: ERROR: invisible character U+202E; delete"
    ]
    assert list(cases.by_id) == []
