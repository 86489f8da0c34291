"""``--output`` to a pipe, a terminal or standard output writes there and replaces no file."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sphinx_verl_resources.cli import main
from sphinx_verl_resources.cli.files import write_result

#: Every command that can write its result to a file, with its arguments.
LINES = {
    "check": ["check", "data", "--output"],
    "table": ["table", "data", "--output"],
    "export": ["export", "data", "--output"],
    "estimate": ["estimate", "Qwen/Qwen2.5-7B", "--gpus", "8*H100", "--output"],
    "plan": ["plan", "Qwen/Qwen2.5-7B", "--gpus", "8xH100", "--output"],
    "diagnose": ["diagnose", "run.log", "--output"],
}


@pytest.fixture
def here(data, root, monkeypatch):
    """Return a folder with data, a log and a file of cases."""
    data.good_run("a")
    folder = data.path.parent
    (folder / "run.log").write_bytes((root / "docs/examples/run.log").read_bytes())
    cases = root / "data/cases/out-of-memory.yaml"
    (folder / "cases.yaml").write_bytes(cases.read_bytes())
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("name", LINES)
def test_a_pipe_is_written_to(here, name):
    os.mkfifo("pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe").read_bytes()), daemon=True)
    reader.start()
    try:
        assert main([*LINES[name], "pipe"]) in (0, 1)
    finally:
        if stat.S_ISFIFO(Path("pipe").stat().st_mode):
            os.close(os.open("pipe", os.O_RDWR | os.O_NONBLOCK))  # if nothing was written
        reader.join(20)
    assert stat.S_ISFIFO(Path("pipe").stat().st_mode)
    assert len(read[0]) > 20
    assert sorted(path.name for path in here.iterdir() if ".tmp" in path.name) == []


def test_files_of_a_folder_may_be_pipes(here):
    Path("out").mkdir()
    os.mkfifo("out/run.json")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(Path("out/run.json").read_bytes()), daemon=True)
    reader.start()
    assert main(["schema", "run", "--output", "out"]) == 0
    reader.join(20)
    assert read[0].startswith(b"{")
    assert stat.S_ISFIFO(Path("out/run.json").stat().st_mode)


def test_a_device_is_written_to():
    """The device is a terminal, since wrong code run by a superuser would replace the null device."""
    leader, follower = os.openpty()
    try:
        write_result(Path(os.ttyname(follower)), "text\n")
        assert os.read(leader, 100).strip() == b"text"
        assert stat.S_ISCHR(Path(os.ttyname(follower)).stat().st_mode)
    finally:
        os.close(leader)
        os.close(follower)


@pytest.mark.parametrize("place", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"])
@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_standard_output_is_written_to(here, place, kind):
    """If it is a file, the file and other programs' output in it are kept."""
    Path("link").symlink_to("/dev/stdout")
    words = [sys.executable, "-m", "sphinx_verl_resources", "check", "data", "--output", place]
    if kind == "pipe":
        written = subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout.decode()
    else:
        Path("out.txt").write_text("before\n")
        with Path("out.txt").open("a") as stream:
            before = os.fstat(stream.fileno()).st_ino
            subprocess.run(words, stdout=stream, check=True)
        assert Path("out.txt").stat().st_ino == before
        written = Path("out.txt").read_text().removeprefix("before\n")
    assert written == "data: 1 run, 0 errors, 0 warnings\n"


def test_what_follows_in_a_file_of_standard_output_comes_after_it(here):
    line = '"$0" -m sphinx_verl_resources check data --output /dev/stdout; echo after'
    with Path("out.txt").open("w") as stream:
        subprocess.run(["bash", "-c", line, sys.executable], stdout=stream, check=True)
    assert Path("out.txt").read_text() == "data: 1 run, 0 errors, 0 warnings\nafter\n"


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
