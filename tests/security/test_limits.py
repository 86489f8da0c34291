"""Limits for work that must not grow with the input, and for searches."""

from __future__ import annotations

import difflib
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.cli import main
from sphinx_verl_resources.diagnostics import nearest
from sphinx_verl_resources.intake import log as log_module
from sphinx_verl_resources.lint import data_rules

GPU = "- name: G{}\n  vendor: nvidia\n  memory_gb: 80\n  memory_mib: 81559\n  kind: reading\n"
CASE = "- {{id: a{}, model: m, outcom: fits}}\n"
#: Files with 200 problems each; in the last one they come from a rule.
FLOODS = [
    ("runs/a.yaml", "id: a\n" + "".join(f"key{index}: 1\n" for index in range(193)), "unknown_key"),
    ("cases/a.yaml", "".join(CASE.format(index) for index in range(100)), "missing_key"),
    ("gpus.yaml", "gpus:\n" + "".join(GPU.format(index) + "  x: 1\n" for index in range(200)), "unknown_key"),
    (
        "gpus.yaml",
        "gpus:\n" + "".join(GPU.format(index).replace("81559", "1") for index in range(200)),
        "gpu_memory",
    ),
]


@pytest.mark.parametrize(("name", "text", "code"), FLOODS)
def test_fifty_problems_of_a_file_are_listed_whatever_finds_them(data, monkeypatch, capsys, name, text, code):
    data.good_run("b")
    data.write(name, text)
    monkeypatch.chdir(data.path.parent)
    main(["check", "data"])
    printed = [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"data/{name}:")]
    assert len(printed) == 51
    assert any(line.endswith(f"[verl.{code}]") for line in printed)
    (rest,) = [line for line in printed if "more problems" in line]
    assert "150 more problems are not listed; fix the others first" in rest
    main(["check", "--format", "json", "data"])
    problems = json.loads(capsys.readouterr().out)
    assert len([problem for problem in problems if problem["path"] == f"data/{name}"]) == 51


def test_a_build_lists_fifty_problems_of_a_file(own, data):
    data.write("gpus.yaml", FLOODS[2][1])
    warnings = own.page(".. verl-runs::").build().warnings
    assert len([line for line in warnings if "gpus.yaml:" in line]) == 51
    assert any("150 more problems are not listed" in line for line in warnings)


def test_a_hint_compares_few_names_letter_by_letter(monkeypatch):
    compared = []
    original = difflib.get_close_matches
    monkeypatch.setattr(
        difflib,
        "get_close_matches",
        lambda word, names, **how: compared.extend(names) or original(word, names, **how),
    )
    known = [f"{'ab' * 90} {index}" for index in range(4_700)]
    assert nearest("ba" * 90 + " 4699 x", known) is not None
    many = [f"alias {index}" for index in range(5_001)]
    assert (nearest("alais 7", many[1:]), nearest("alais 7", many)) == ("alias 7", None)
    assert 0 < len(compared) <= 40


NAMES = st.sampled_from(["A", "B", None])
GPUS = st.tuples(NAMES, st.integers(1, 4), st.sampled_from([None, 40, 80]))


def _context(rows):
    runs = [
        SimpleNamespace(
            tag=tag, model="m", task="t", id=str(index), train="fsdp", infer=None, settings={},
            gpus=SimpleNamespace(type=gpu, count=count, memory_gb=memory, nodes=None),
            script=script and SimpleNamespace(path=script),
            versions=SimpleNamespace(verl=verl, torch=torch) if verl or torch else None,
        )
        for index, (tag, (gpu, count, memory), (script, verl, torch)) in enumerate(rows)
    ]  # fmt: skip
    known = {"A": SimpleNamespace(name="A", memory_gb=80)}
    catalog = SimpleNamespace(gpu_of=lambda run: known.get(run.gpus.type))
    source = SimpleNamespace(value_place=lambda *loc: None)
    return SimpleNamespace(runs=[SimpleNamespace(run=run, source=source) for run in runs], catalog=catalog)


def _found(rule, context):
    return [problem.message for problem in rule.find(context)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["MIN", "RECOMMENDED"]), GPUS, st.just((None, None, None))), max_size=8
    )
)
def test_a_run_is_compared_with_the_smallest_as_with_all(rows):
    context = _context(rows)
    runs = [entry.run for entry in context.runs]
    least = [run for run in runs if run.tag == "MIN"]
    below = [
        run
        for run in runs
        if run.tag != "MIN" and least and all(data_rules._takes_less(run, other, context) for other in least)
    ]
    assert len(_found(data_rules.recommended_below_min, context)) == len(below)


def _differ(one, other):
    pairs = [(one.script and one.script.path, other.script and other.script.path)]
    if one.versions and other.versions:
        pairs += [(one.versions.verl, other.versions.verl), (one.versions.torch, other.versions.torch)]
    return any(first and second and first != second for first, second in pairs)


@given(
    st.lists(st.tuples(st.just("MIN"), st.just(("A", 1, None)), st.tuples(NAMES, NAMES, NAMES)), max_size=8)
)
def test_a_run_is_found_among_those_like_it_as_by_comparing_all(rows):
    context = _context(rows)
    runs = [entry.run for entry in context.runs]
    first = (
        next((other.id for other in runs[:index] if not _differ(run, other)), None)
        for index, run in enumerate(runs)
    )
    same = "model, GPUs, task, backend, engine and settings"
    wanted = [f"the run is the same as {other!r}: {same}" for other in first if other is not None]
    assert _found(data_rules.duplicate_run, context) == wanted


def test_a_configuration_goes_on_between_lines_of_others():
    others = "".join(f"(W pid={index}) {{'data': {{'a': 1,\n" for index in range(2, 100))
    text = f"(W pid=1) {{'data': {{'train_batch_size': 8,\n{others}(W pid=1)  'x': 2}}}}\n"
    step = "(W pid=1) step:1 - perf/max_memory_allocated_gb:71.3\n"
    found = log_module.read_log([(text + step).encode()], "run.log")
    assert found.settings == {"data.train_batch_size": 8, "data.x": 2}
    assert found.is_complete
