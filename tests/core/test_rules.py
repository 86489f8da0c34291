"""The rules of ``verl-resources check``: each fixture in ``rules`` holds the messages that it expects.

A fixture is several files in one: ``# file: NAME`` begins a file, and ``# expect: COLUMN: LEVEL: SENTENCE [code]`` is
about the line below. Without any, only the fixture ``good`` passes.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from repositories import git

from sphinx_verl_resources.check import RULES
from sphinx_verl_resources.commands import load_check, main

load_check([])  # all rules
FIXTURES = sorted(Path(__file__).parent.joinpath("rules").glob("*.yaml"))
FILE, EXPECT = "# file: ", "# expect: "


def unpack(text: str, folder: Path) -> dict[str, list[str]]:
    """Write the files of a fixture, with ``verl`` as a checkout; return the lines of each."""
    files = {}
    for part in text.split(FILE)[1:]:
        name, _, content = part.partition("\n")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, "utf-8")
        files[name] = content.splitlines()
    if (folder / "verl").is_dir():
        for words in ("init -q -b main", "add .", "commit -q -m Begin", "tag v0.4.0"):
            git(*words.split(), folder=folder / "verl")
    return files


def expected(files: dict[str, list[str]]) -> list[str]:
    """Return the messages that the fixture expects, in the order of ``check``."""
    result, waiting = [], []
    for name, lines in files.items():
        for number, line in enumerate(lines, 1):
            if line.lstrip().startswith(EXPECT):
                waiting.append(line.partition(EXPECT)[2])
            else:
                result += [f"{name}:{number}:{message}" for message in waiting]
                waiting = []
    return sorted(result)


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
def test_a_fixture_gets_exactly_the_messages_that_it_expects(fixture, tmp_path, monkeypatch, capsys):
    files = unpack(fixture.read_text("utf-8"), tmp_path)
    monkeypatch.chdir(tmp_path)
    main(["check", "data", *(["--repo", "verl"] if Path("verl").is_dir() else [])])
    lines = capsys.readouterr().err.splitlines()
    assert sorted(lines) == expected(files)
    assert bool(lines) == (fixture.stem != "good")


@pytest.mark.parametrize("code", RULES)
def test_a_rule_has_examples_a_fixture_and_its_message_in_the_documentation(code, root):
    text = inspect.getdoc(RULES[code].find)
    assert re.fullmatch(r"[A-Z].+\nBad::\n\n.+\n\nGood::\n\n.+", text, re.DOTALL)
    messages = root.joinpath("docs/examples/messages.txt").read_text("utf-8").splitlines()
    (message,) = [line for line in messages if line.endswith(f" [verl.{code}]")]
    text = FIXTURES[0].with_name(f"{code}.yaml").read_text("utf-8")
    assert message.partition(": ")[2] in text or code == "config_key"  # which a build reports, too
