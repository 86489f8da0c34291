"""Problems of cases: each gives one line, and the other cases stay usable."""

from __future__ import annotations

import math
import re

import pytest
import yaml
from case_texts import GOOD, read
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sphinx_verl_resources.catalog.cases import BrokenCase
from sphinx_verl_resources.catalog.models.case import Case
from sphinx_verl_resources.catalog.yaml_data import FORBIDDEN
from sphinx_verl_resources.diagnostics import Diagnostic, Location


def case_with(lines: str) -> str:
    return "- id: a\n  model: m\n" + "".join(f"  {line}\n" for line in lines.splitlines())


#: Mistakes that make a case unusable, with the message.
ERRORS = {
    "no model": (
        "- id: a\n  config: {}\n",
        "1:3: ERROR: the key 'model' is missing; add it: Hugging Face name of the model, as in architectures.yaml, for example model: Qwen/Qwen2.5-7B-Instruct [verl.missing_key]",
    ),
    "misspelt model": (
        "- id: a\n  modle: m\n  config: {}\n",
        "2:3: ERROR: unknown key 'modle'; did you mean 'model'? [verl.unknown_key]",
    ),
    "no settings": (
        case_with("outcome: fits"),
        "1:3: ERROR: the case has no settings that determine memory; add 'config' with keys of verl's configuration, or 'training' for a "
        "plain training run [verl.missing_key]",
    ),
    "a text for a case": (
        "- just text\n",
        "1:3: ERROR: expected keys and values, got the text 'just text'; its keys are id, source, framework, version, task, "
        "model, train, infer, gpus, config, training, observed_tokens, outcome, phase, oom_message, measured, confidence, "
        "note, contested, not_scored [verl.wrong_type]",
    ),
    "settings that are a list": (
        case_with("config: [a, b]"),
        "3:11: ERROR: config: expected keys and values, got a list [verl.wrong_type]",
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
    "a key twice": (
        case_with("config:\n  a.b: 1\n  a.b: 2"),
        "5:5: ERROR: duplicate key 'a.b'; keep one of the two [verl.duplicate_key]",
    ),
    "unknown outcome": (
        case_with("config: {}\noutcome: crash"),
        "4:12: ERROR: outcome: unknown value 'crash'; allowed: measured, fits, oom [verl.unknown_value]",
    ),
    "a figure with its unit": (
        case_with("config: {}\nmeasured: {gib: 45 GiB}"),
        "4:19: ERROR: measured.gib: expected a number, got the text '45 GiB'; write 45, without quotes and unit "
        "[verl.wrong_type]",
    ),
    "a figure below nothing": (
        case_with("config: {}\nmeasured: {gib: -1}"),
        "4:19: ERROR: measured.gib: must be more than 0.0, got '-1' [verl.wrong_value]",
    ),
    "no GPU": (
        case_with("config: {}\ngpus: {count: 0}"),
        "4:17: ERROR: gpus.count: must be at least 1, got '0' [verl.wrong_value]",
    ),
    "true for a number": (
        case_with("config: {}\nobserved_tokens: {total_num_tokens: true}"),
        "4:39: ERROR: observed_tokens.total_num_tokens: expected a number, got true [verl.wrong_type]",
    ),
    "adapters of no rank": (
        case_with("training:\n  lora: {rank: 0, targets: [q_proj]}"),
        "4:18: ERROR: training.lora.rank: must be at least 1, got '0' [verl.wrong_value]",
    ),
    "a number for a version": (
        case_with("config: {}\nversion: 0.10"),
        '4:12: ERROR: version: expected text, got a number, 0.10; put it in quotes: "0.10" [verl.wrong_type]',
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
    assert broken.location == Location("cases/a.yaml", 1, 3)
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
    assert [(problem.severity.name, problem.code.name) for problem in cases.diagnostics] == [
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
        ("nothing", "1:1: ERROR: expected a list, got the text 'nothing'; write a list of cases, each beginning with '- id:' [verl.wrong_type]"),
        ("- &x {id: a}\n- *x\n", "1:3: ERROR: the anchor '&x' is not read; write the values out; data files do not support anchors, aliases, merge keys, tags and several documents [verl.yaml_feature]"),
    ],
)  # fmt: skip
def test_files_that_are_no_list(text, message):
    cases = read(text)
    assert [str(problem) for problem in cases.diagnostics] == [f"cases/a.yaml:{message}"]
    assert cases.entries == ()


def test_an_empty_list_holds_no_cases():
    assert read("[]").entries == read("[]").diagnostics == ()


def test_a_character_that_hides_belongs_to_its_case():
    cases = read(f'- {{id: a, model: m, config: {{}}, note: "\\u202e"}}\n{GOOD}')
    assert [str(problem)[:60] for problem in cases.diagnostics] == [
        "cases/a.yaml:1:39: ERROR: invisible character U+202E; delete"
    ]
    assert list(cases.by_id) == ["good"]


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.floats(allow_nan=True),
    words,
    st.just("torch max"),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
named = st.fixed_dictionaries(
    {},
    optional={
        name: values
        | st.dictionaries(st.sampled_from(["gib", "counter", "count", "rank", "lora", "a.b", "a", "where"]), values, max_size=4)
        for name in Case.model_fields
    },
)  # fmt: skip
#: Mostly plausible cases, with random values in their fields.
anything = st.lists(
    values | named | named.map(lambda fields: {"id": "x", "model": "m", "config": {}, **fields}), max_size=4
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(anything, words)
def test_no_content_stops_the_loader(items, tail):
    text = yaml.safe_dump([*items, yaml.safe_load(GOOD)[0] | {"id": "certainly good"}], allow_unicode=True)
    for content in (text, text + tail):
        cases = read(content)
        errors = [problem for problem in cases.diagnostics if problem.is_error]
        assert all(isinstance(problem, Diagnostic) for problem in cases.diagnostics)
        assert bool(errors) >= bool(cases.broken)
        for problem in cases.diagnostics:
            assert not re.search(rf"{FORBIDDEN.pattern}|\n", str(problem))
            assert problem.place.line >= 1
        for entry in cases.entries:
            if isinstance(entry, BrokenCase):
                assert entry.error in errors
            elif entry.case.measured and entry.case.measured.gib is not None:
                assert math.isfinite(entry.case.measured.gib)
    whole = read(text)
    if whole.entries:
        assert len(whole.entries) == len(items) + 1
        assert "certainly good" in whole.by_id
