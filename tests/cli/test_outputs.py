"""``--output`` replaces a whole file, keeps links, and refuses what is no file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sphinx_verl_resources.cli import main


@pytest.fixture
def here(data, monkeypatch):
    """Return a folder with data."""
    data.good_run("a")
    monkeypatch.chdir(data.path.parent)
    return data.path.parent


def test_a_pipe_is_refused_and_stays(here, capsys):
    os.mkfifo("pipe")
    assert main(["check", "data", "--output", "pipe"]) == 2
    assert capsys.readouterr().err == "verl-resources: pipe: not a regular file; give a file\n"
    assert stat.S_ISFIFO(Path("pipe").stat().st_mode)


def test_a_link_to_a_file_leads_to_the_new_one(here):
    Path("mine.txt").write_text("old")
    Path("link").symlink_to("mine.txt")
    assert main(["check", "data", "--output", "link"]) == 0
    assert Path("link").is_symlink()
    assert Path("mine.txt").read_text() == "data: 1 run, 0 errors, 0 warnings\n"


def test_what_no_encoding_has_is_escaped(here):
    Path(os.fsdecode(b"d\xff/runs")).mkdir(parents=True)
    assert main(["check", os.fsdecode(b"d\xff"), "--output", "out.txt"]) == 0
    assert Path("out.txt").read_text() == "d\\udcff: 0 runs, 0 errors, 0 warnings\n"


def test_what_a_killed_process_leaves_is_not_data(data):
    data.run("a")
    data.write("runs/.b.yaml.x1.tmp", "half a fi")
    assert data.problems() == []
    assert list(data.load().runs) == ["a"]
