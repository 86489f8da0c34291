"""Runs of ``verl-resources estimate``, for the tests of its two kinds of questions."""

from __future__ import annotations

import json

import pytest
import yaml

from sphinx_verl_resources.cli import main


@pytest.fixture
def estimate(tmp_path, monkeypatch, capsys):
    """Runs the command on a file of the cases given, or on arguments; returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        words = []
        for argument in arguments:
            if isinstance(argument, str):
                words.append(argument)
            else:
                (tmp_path / "cases.yaml").write_text(yaml.safe_dump(argument, sort_keys=False), "utf-8")
                words.append("cases.yaml")
        code = main(["estimate", *words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def answers(estimate):
    """The same with JSON, which is read."""

    def run(*arguments):
        code, out, err = estimate(*arguments, "--format", "json")
        return code, json.loads(out), err.splitlines()

    return run


@pytest.fixture
def plan(tmp_path, monkeypatch, capsys):
    """Runs the command on a line; returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(line, *words):
        code = main(["plan", *line.split(), *words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def planned(plan):
    """The same with JSON, which is read."""

    def run(line, *words):
        code, out, err = plan(line, *words, "--format", "json")
        return code, json.loads(out), err

    return run
