"""Deeply nested scripts are read, or rejected with a place and a remedy."""

from __future__ import annotations

import re

import pytest

from sphinx_verl_resources.commands import main
from sphinx_verl_resources.settings.read import read_script
from sphinx_verl_resources.settings.unread import unread_settings

TRAINS = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct a.b=$A trainer.nnodes=2\n"
#: The opening, the inside and the closing.
NESTS = {
    "subshells": ("( ", "true", " )"),
    "tests": ("[[ ! ", "a = b", " ]]"),
    "if": ("if true; then ", "true", "; fi"),
    "loops": ("while true; do ", "true", "; done"),
    "case": ("case a in a) ", "true", ";; esac"),
    "functions": ("f() { ", "true", "; }"),
    "defaults": ("A=${a:-", "x", "}"),
    "sums": ("A=$((", "1", "))"),
    "commands": ("A=$(", "echo", ")"),
    "mixed": ('A="$( ( { ${a:-', "x", '} } ) )"'),
    "arrays": ("A=(", "x", ")"),
    "braces": ("A={x,", "y", "}"),
}
#: Text to repeat.
ROWS = {
    "exclamation marks of a test": ("[[ ", "! ", "a = b ]] && A=1"),
    "negations": ("", "! ", "true"),
    "signs of a sum": ("A=$((", "-", "1))"),
    "elif": ("if a; then :; ", "elif b; then :; ", "fi"),
    "hexadecimal digits": ("A=$((0x", "f", "))"),
    "open quotes": ("A=", "'\"", ""),
}


def scripts(times: int) -> dict[str, str]:
    nests = {name: one * times + inside + end * times for name, (one, inside, end) in NESTS.items()}
    return nests | {name: before + one * times + after for name, (before, one, after) in ROWS.items()}


@pytest.mark.parametrize("name", [*NESTS, *ROWS])
def test_a_script_without_end(name):
    """Realistic nesting is read; nesting that is too deep is rejected at its place."""
    for times in (3, 1_000):
        text = f"{scripts(times)[name]}\n{TRAINS}"
        read = read_script(text, "run.sh", {})
        problems = [*read.problems, *unread_settings(text, read, "run.sh")]
        is_read = read.values.get("trainer.nnodes") == 2
        assert is_read or any(problem.is_error for problem in problems)
        for problem in problems:
            assert re.match(r"run\.sh:\d+:\d+: (ERROR|WARNING): .+; .+ \[verl\.\w+\]", str(problem))


@pytest.mark.parametrize("name", ["mixed"])
def test_no_command_stops_at_it(name, data, tmp_path, monkeypatch, capsys):
    (tmp_path / "run.sh").write_text(f"{scripts(1_000)[name]}\n{TRAINS}", "utf-8")
    monkeypatch.chdir(tmp_path)
    for words in (["new", "--dry-run", "--gpus", "8*H100"], ["estimate", "--gpus", "8*H100"]):
        code = main([*words, "--script", "run.sh"])
        said = capsys.readouterr()
        assert code in {0, 1, 2}
        assert said.err.startswith("run.sh:1:") or "Qwen2.5-7B" in said.out
