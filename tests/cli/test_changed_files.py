"""``check --fix`` replaces only the text that it has read, and no later edits."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from random import Random
from typing import TYPE_CHECKING

import pytest

from sphinx_verl_resources.cli import files, main

if TYPE_CHECKING:
    from pathlib import Path

#: A run that --fix repairs, and a simultaneous edit of it.
BROKEN = "id: z\nsize: 7B\n"
EDIT = BROKEN + "tag: MIN\n"
OLD, NEW = "qwen2-5-7b-grpo-2xh100", "qwen2-5-7b-grpo-4xh100"


def save(path: Path, text: str) -> None:
    """Save a file as most editors do, under another name first."""
    written = path.with_name(f".{path.name}.swp")
    written.write_text(text)
    written.replace(path)


def before(monkeypatch, owner, name: str, action, *, at: int = 1) -> None:
    """Do something just before one of the calls of a function."""
    function, calls = getattr(owner, name), []

    def call(*arguments, **options):
        calls.append(1)
        if len(calls) == at:
            action()
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize(
    ("owner", "name", "edit"),
    [
        (os, "fsync", EDIT),
        (files, "refuse_changed", EDIT),
        (files, "_exchange", EDIT),
        (os, "fsync", None),
        (files, "refuse_changed", None),
    ],
)
def test_an_edit_meanwhile_stays(data, monkeypatch, capsys, owner, name, edit):
    path = data.write("runs/a.yaml", BROKEN)
    before(monkeypatch, owner, name, lambda: save(path, edit) if edit else path.unlink())
    monkeypatch.chdir(data.path.parent)
    assert main(["check", "--fix", "data"]) == (1 if edit else 0)
    assert capsys.readouterr().err.startswith(
        "data/runs/a.yaml:1:1: not repaired: the file has just been changed by another program; run the command again\n"
    )
    assert [item.read_text() for item in path.parent.iterdir()] == ([edit] if edit else [])


def test_a_file_that_became_a_link_is_left_and_others_are_repaired(data, monkeypatch, capsys):
    path, other = data.write("runs/a.yaml", BROKEN), data.write("runs/b.yaml", BROKEN)
    (data.path.parent / "outside").write_text("mine")

    def link():
        path.unlink()
        path.symlink_to("../../outside")

    before(monkeypatch, files, "refuse_leading_out", link)
    monkeypatch.chdir(data.path.parent)
    assert main(["check", "--fix", "data"]) == 1
    assert capsys.readouterr().err.startswith(
        "data/runs/a.yaml:1:1: not repaired: the file has just been changed by another program; run the command again\n"
    )
    assert (path.read_text(), other.read_text()[:6]) == ("mine", "id: b\n")


def test_an_edit_of_a_file_that_refers_to_a_renamed_run(data, monkeypatch, capsys):
    run = data.good_run(OLD, gpus={"count": 4, "type": "H100"})
    other = data.good_run("b", notes=[{"code": "compare", "text": f"See {OLD}."}])
    texts = run.read_text(), other.read_text()
    before(monkeypatch, files, "_exchange", lambda: save(other, texts[1] + "# mine\n"))
    monkeypatch.chdir(data.path.parent)
    assert main(["check", "--fix", "data"]) == 2
    assert (
        f"runs/{OLD}.yaml: not renamed: the file has just been changed by another program"
        in capsys.readouterr().err
    )
    assert (run.read_text(), other.read_text()) == (texts[0], texts[1] + "# mine\n")
    assert not (data.path / f"runs/{NEW}.yaml").exists()


def test_an_edit_of_a_run_that_is_renamed(data, monkeypatch, capsys):
    """References to it are unchanged, too."""
    run = data.good_run(OLD, gpus={"count": 4, "type": "H100"})
    other = data.good_run("b", notes=[{"code": "compare", "text": f"See {OLD}."}])
    texts = run.read_text(), other.read_text()
    before(monkeypatch, files, "_exchange", lambda: save(run, texts[0] + "# mine\n"))
    monkeypatch.chdir(data.path.parent)
    assert main(["check", "--fix", "data"]) == 2
    assert (run.read_text(), other.read_text()) == (texts[0] + "# mine\n", texts[1])
    assert not (data.path / f"runs/{NEW}.yaml").exists()


FIXER = """
import sys
from pathlib import Path

from sphinx_verl_resources.catalog.files import read_data_file
from sphinx_verl_resources.cli.files import ChangedError, replace_unchanged

path, fixed, left = Path(sys.argv[1]), 0, 0
print("ready", flush=True)
while not Path(sys.argv[2]).exists():
    try:
        file = read_data_file(path, "")
    except FileNotFoundError:
        continue
    if b"id: z" in file.content:
        try:
            replace_unchanged(file, path.parent, file.content.decode().replace("id: z", "id: a"))
            fixed += 1
        except ChangedError:
            left += 1
print(fixed, left)
"""


@pytest.mark.slow
def test_an_editor_that_saves_all_the_time_loses_nothing(tmp_path):
    """Two processes repair the file at once. After each save, the file is that edit, repaired or not."""
    path, stop = tmp_path / "a.yaml", tmp_path / "stop"
    save(path, "id: z\n")
    fixers = [
        subprocess.Popen([sys.executable, "-c", FIXER, str(path), str(stop)], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    for fixer in fixers:
        assert fixer.stdout.readline() == b"ready\n"
    random, lost, repaired = Random(20), [], 0
    for number in range(3000):
        save(path, f"id: z\nsize: {number}\n")
        time.sleep(random.uniform(0, 0.002))
        edit, repair = (f"id: {name}\nsize: {number}\n" for name in "za")
        for _ in range(1000):  # an edit is missing for a moment while a process restores it
            text = path.read_text()
            if text in (edit, repair):
                break
            time.sleep(0.002)
        else:
            lost.append((number, text))
        repaired += text == repair
    stop.write_text("")
    counts = [fixer.communicate()[0].split() for fixer in fixers]
    assert lost == []
    assert repaired > 100
    assert all(fixer.returncode == 0 for fixer in fixers)
    assert sum(int(fixed) for fixed, _left in counts) >= repaired
