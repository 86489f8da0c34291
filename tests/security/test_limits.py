"""Limits for work that must not grow with the input, and for searches."""

from __future__ import annotations

import difflib
import json

import pytest

from sphinx_verl_resources.commands import main
from sphinx_verl_resources.diagnostics import nearest
from sphinx_verl_resources.intake import log as log_module

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


def test_a_configuration_goes_on_between_lines_of_others():
    others = "".join(f"(W pid={index}) {{'data': {{'a': 1,\n" for index in range(2, 100))
    text = f"(W pid=1) {{'data': {{'train_batch_size': 8,\n{others}(W pid=1)  'x': 2}}}}\n"
    step = "(W pid=1) step:1 - perf/max_memory_allocated_gb:71.3\n"
    found = log_module.read_log([(text + step).encode()], "run.log")
    assert found.settings == {"data.train_batch_size": 8, "data.x": 2}
    assert found.is_complete
