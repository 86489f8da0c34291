"""Only regular files inside the data directories are read, up to a limit of number and size."""

from __future__ import annotations

import os

import pytest

from sphinx_verl_resources.commands import main
from sphinx_verl_resources.strict_yaml import MAX_BYTES

SECRET = "root-secret: 1\n"


@pytest.fixture
def outside(tmp_path):
    """A folder next to the data directory, with secret files."""
    folder = tmp_path / "outside"
    (folder / "runs").mkdir(parents=True)
    for name in ("gpus.yaml", "secret.yaml", "runs/secret.yaml"):
        (folder / name).write_text(SECRET)
    return folder


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("runs/a.yaml", "secret.yaml"),
        ("runs/a.yaml", "/etc/passwd"),
        ("runs/a.yaml", "/dev/zero"),
        ("runs", "runs"),
        ("cases", "runs"),
        ("gpus.yaml", "gpus.yaml"),
        ("analysis.yaml", "secret.yaml"),
    ],
)
def test_a_link_that_leads_out_is_not_followed(data, outside, name, target):
    place = data.path / name
    if place.is_dir():
        place.rmdir()
    place.symlink_to(outside / target)
    problems = data.problems()
    assert problems == [
        f"data/{name}:1:1: ERROR: cannot be read: the link points outside the data directory and was not followed; "
        "check it, or delete it [verl.file_unreadable]"
    ]


def test_a_relative_link_and_a_chain_of_links_lead_out_too(data, outside):
    (data.path / "runs/a.yaml").symlink_to("../../outside/secret.yaml")
    (data.path / "runs/b.yaml").symlink_to("a.yaml")
    (data.path / "runs/c.yaml").symlink_to("../../outside/../data/runs/.d.yaml")
    data.write("runs/.d.yaml", "")
    problems = data.problems()
    assert [problem.split(":")[0] for problem in problems if "points outside" in problem] == [
        "data/runs/a.yaml",
        "data/runs/b.yaml",
    ]
    assert "secret" not in "".join(problems)


def test_another_folder_that_leads_out_is_not_looked_into(data, outside):
    (data.path / "rums").symlink_to(outside)
    assert data.problems() == []


def test_links_inside_the_directory_and_to_it_are_fine(data, tmp_path):
    data.run("a").rename(data.path / "runs" / ".a.yaml")
    (data.path / "runs/a.yaml").symlink_to(".a.yaml")
    data.path.rename(tmp_path / "moved")
    data.path.symlink_to("moved")
    assert list(data.load().runs) == ["a"]
    assert data.problems() == []


def test_pipes_and_folders_are_not_opened(data):
    os.mkfifo(data.path / "runs" / "a.yaml")
    os.mkfifo(data.path / "gpus.yaml")
    (data.path / "runs" / "b.yaml").mkdir()
    problems = data.problems()
    assert len(problems) == 3
    assert all("cannot be read: not a regular file" in problem for problem in problems)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#" * (MAX_BYTES + 1), "the file is larger than 1 MiB and was not read"),
        ("a: " + "[" * 100_000, "too many nested lists or mappings"),
    ],
)
@pytest.mark.parametrize("name", ["runs/a.yaml", "gpus.yaml", "cases/a.yaml"])
def test_one_file(data, name, text, message, monkeypatch, capsys):
    data.write(name, text)
    monkeypatch.chdir(data.path.parent)
    assert main(["check", "data"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"data/{name}:")
    assert f"ERROR: {message}" in line
