"""Fixtures that run ``verl-resources estimate`` and ``plan``."""

from __future__ import annotations

import json

import pytest
import yaml

from sphinx_verl_resources.cli import main


@pytest.fixture
def estimate(tmp_path, monkeypatch, capsys):
    """Return a function that runs ``estimate`` on cases or arguments; it returns exit code, output and errors."""
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
    """Return a function that runs ``estimate`` with JSON and parses the output."""

    def run(*arguments):
        code, out, err = estimate(*arguments, "--format", "json")
        return code, json.loads(out), err.splitlines()

    return run


@pytest.fixture
def plan(tmp_path, monkeypatch, capsys):
    """Return a function that runs ``plan`` on a line; it returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(line, *words):
        code = main(["plan", *line.split(), *words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def planned(plan):
    """Return a function that runs ``plan`` with JSON and parses the output."""

    def run(line, *words):
        code, out, err = plan(line, *words, "--format", "json")
        return code, json.loads(out), err

    return run
