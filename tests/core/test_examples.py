"""The examples of the documentation: each breaks only its rule, and the good one breaks none.

A comment at the end of an example has the message of ``check``. ``UPDATE_GOLDEN=1`` rewrites it.
"""

from __future__ import annotations

import os
import shutil

import pytest

from sphinx_verl_resources.check import RULES

MESSAGE = "# verl-resources check: "


def problems(folder, checked, verl) -> list[str]:
    """The problems of an example's data."""
    shutil.copytree(folder / "data", checked.path / "data", dirs_exist_ok=True)
    repository = None
    if (folder / "verl").is_dir():
        files = [path for path in (folder / "verl").rglob("*") if path.is_file()]
        repository = verl({str(path.relative_to(folder / "verl")): path.read_text("utf-8") for path in files})
    return checked.problems(repository)


def message_of(folder) -> str:
    """The message in the comment of an example."""
    (text,) = [text for path in folder.rglob("*.yaml") if MESSAGE in (text := path.read_text("utf-8"))]
    return text.partition(MESSAGE)[2].removesuffix("\n")


def write_message(folder, message) -> None:
    """Write a message at the end of its file."""
    file = folder / message.partition(":")[0]
    file.write_text(file.read_text("utf-8").partition(MESSAGE)[0] + f"{MESSAGE}{message}\n", "utf-8")


@pytest.mark.parametrize("code", RULES)
def test_every_rule_has_an_example_that_breaks_it_alone(code, root, checked, verl):
    folder = root / "docs/rules" / code
    (found,) = problems(folder, checked, verl)
    if os.environ.get("UPDATE_GOLDEN"):
        write_message(folder, found)
    assert found.endswith(f"[verl.{code}]")
    assert found == message_of(folder)


def test_the_levels_are_those_listed(root):
    for rule in RULES.values():
        assert f": {rule.severity.name}: " in message_of(root / "docs/rules" / rule.code)


def test_a_good_example_breaks_none(root, checked, verl):
    assert problems(root / "docs/rules/good", checked, verl) == []


def test_no_example_is_left_of_a_rule_that_is_gone(root):
    assert {path.name for path in (root / "docs/rules").iterdir()} == {
        *RULES,
        "good",
    }
