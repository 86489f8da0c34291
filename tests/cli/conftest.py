"""Functions that run ``verl-resources`` in a folder."""

from __future__ import annotations

import json

import pytest

from sphinx_verl_resources.commands import main


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function that runs a line, and words with spaces; it returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def call(line, *words):
        return main([*line.split(), *words]), *capsys.readouterr()

    return call


@pytest.fixture
def result(run):
    """Return a function that runs a line with JSON; it returns exit code, result and lines of errors."""

    def call(line, *words):
        code, out, err = run(line, *words, "--format", "json")
        return code, json.loads(out), err.splitlines()

    return call
