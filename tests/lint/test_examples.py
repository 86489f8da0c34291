"""The examples of the documentation: each breaks its rule and no other, and the good one breaks none."""

from __future__ import annotations

import os
import shutil

import pytest

from sphinx_verl_resources.codes import Origin
from sphinx_verl_resources.diagnostics import Code
from sphinx_verl_resources.lint.check import RULES


def problems(folder, checked, verl) -> list[str]:
    """What is wrong with the data of an example."""
    shutil.copytree(folder / "data", checked.path / "data", dirs_exist_ok=True)
    repository = None
    if (folder / "verl").is_dir():
        files = [path for path in (folder / "verl").rglob("*") if path.is_file()]
        repository = verl({str(path.relative_to(folder / "verl")): path.read_text("utf-8") for path in files})
    return checked.problems(repository)


@pytest.mark.parametrize("code", [rule.code.name for rule in RULES])
def test_every_rule_has_an_example_that_breaks_it_alone(code, root, checked, verl):
    folder = root / "docs/rules" / code
    (found,) = problems(folder, checked, verl)
    if os.environ.get("UPDATE_GOLDEN"):
        (folder / "expected.txt").write_text(f"{found}\n", "utf-8")
    assert found.endswith(f"[verl.{code}]")
    assert f"{found}\n" == (folder / "expected.txt").read_text("utf-8")


def test_the_levels_are_those_listed(root):
    for rule in RULES:
        expected = (root / "docs/rules" / rule.code.name / "expected.txt").read_text("utf-8")
        assert f": {rule.severity.name}: " in expected


def test_a_good_example_breaks_none(root, checked, verl):
    assert problems(root / "docs/rules/good", checked, verl) == []


def test_no_example_is_left_of_a_rule_that_is_gone(root):
    assert {path.name for path in (root / "docs/rules").iterdir()} == {
        *(rule.code.name for rule in RULES),
        "good",
    }


def test_every_code_of_the_rules_has_one_and_only_one():
    codes = [rule.code for rule in RULES]
    assert len(codes) == len(set(codes))
    assert {code for code in Code if code.origin is Origin.CHECK} == {*codes} - {Code.id_mismatch}
