"""Completion in real shells."""

from __future__ import annotations

import builtins
import shutil
import subprocess

import pytest

from sphinx_verl_resources.cli import main
from sphinx_verl_resources.cli.main import SHELLS, build_parser, path_kind

#: Calls bash's completion function with the words typed so far, and prints the completions.
ASK = """\
source "$1"; shift
COMP_WORDS=(verl-resources "$@"); COMP_CWORD=$#
spec=$(complete -p verl-resources)
"$(sed -E 's/.* -F ([^ ]+) .*/\\1/' <<< "$spec")"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(tmp_path, capsys, needs):
    """Return a function that writes the script for a shell."""
    needs("shtab")

    def write(shell):
        assert main(["completion", shell]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        path = tmp_path / f"completion.{shell}"
        path.write_text(out, "utf-8")
        return path

    return write


@pytest.fixture
def offered(script, tmp_path):
    """Return a function that returns bash's completions after some words."""
    path = script("bash")

    def ask(*words):
        command = ["bash", "--norc", "-c", ASK, "bash", str(path), *words]
        result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
        assert result.stderr == ""
        return {line.strip() for line in result.stdout.splitlines() if line.strip()}

    return ask


def test_bash_knows_the_command(script):
    command = ["bash", "--norc", "-c", 'source "$0"; complete -p verl-resources', str(script("bash"))]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("complete ")
    assert result.stdout.endswith(" verl-resources\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ch"], {"check"}),
        (["sch"], {"schema"}),
        (["table", "--s"], {"--size", "--sort"}),
        (["table", "--tag", ""], {"MIN", "RECOMMENDED"}),
        (["table", "--format", "l"], {"latex", "list-table"}),
        (["plan", "--task", "PP"], {"PPO"}),
        (["check", "--color", "a"], {"always", "auto"}),
        (["schema", "g"], {"gpus"}),
        (["completion", "b"], {"bash"}),
    ],
)
def test_words_in_bash(offered, words, expected):
    assert offered(*words) == expected


@pytest.mark.parametrize(
    "words", [["check"], ["table", "--data"], ["estimate", "--script"], ["export", "--output"]]
)
def test_files_in_bash(offered, tmp_path, words):
    (tmp_path / "some-file.yaml").touch()
    (tmp_path / "some-folder").mkdir()
    assert {name.rstrip("/") for name in offered(*words, "some")} == {"some-file.yaml", "some-folder"}


def test_folders_in_bash(offered, tmp_path):
    (tmp_path / "some-file.yaml").touch()
    (tmp_path / "some-folder").mkdir()
    assert {name.rstrip("/") for name in offered("schema", "--output", "some")} == {"some-folder"}


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_name_every_command(script, shell):
    text = script(shell).read_text("utf-8")
    assert all(name in text for name in build_parser()[1])


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed; bash is tested")
def test_zsh_reads_its_script(script):
    command = ["zsh", "-f", "-c", 'autoload -U compinit && compinit -D && source "$0"', str(script("zsh"))]
    assert subprocess.run(command, capture_output=True, text=True).returncode == 0


def test_every_path_is_completed():
    """Every argument that is a path is recognised by its metavar, so no new option is forgotten."""
    for name, parser in build_parser()[1].items():
        for action in parser._actions:
            words = f"{action.dest} {action.metavar}".lower()
            if any(word in words for word in ("path", "file", "dir", "output", "record", "script")):
                assert path_kind(action), (name, action)


def test_without_the_library(monkeypatch, capsys):
    imported = builtins.__import__

    def missing(name, *args, **kwargs):
        if name == "shtab":
            raise ModuleNotFoundError(name)
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    assert main(["completion", "bash"]) == 2
    assert capsys.readouterr() == (
        "",
        "verl-resources: completion needs the library shtab, which is not installed; "
        "pip install 'sphinx-verl-resources[completion]'\n",
    )
