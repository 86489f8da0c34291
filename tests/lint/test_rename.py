"""``check --fix`` renames a run whose id has a different model or GPU, with its references, or changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from sphinx_verl_resources.cli import main

OLD, NEW = "qwen-grpo-2xh100", "qwen-grpo-4xh100"
FOUR = {"count": 4, "type": "H100"}
EXCUSED = f"{{code: no_date, files: [runs/{OLD}.yaml], reason: Nobody knows the day of it.}}"


@pytest.fixture
def fix(checked, monkeypatch, capsys):
    """A function that runs the command and returns its exit code and its lines on standard error."""
    monkeypatch.chdir(checked.path)

    def run(*words: str) -> tuple[int, list[str]]:
        code = main(["check", "--fix", *words])
        return code, capsys.readouterr().err.splitlines()

    return run


def files(checked) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in (checked.path / "data").rglob("*.yaml")}


def test_the_file_its_id_and_what_refers_to_it(checked, fix):
    checked.run(OLD, gpus=FOUR, added=...)
    note = {"code": "compare", "text": f"See {OLD}, not {OLD}-again; https://example.org/{OLD}."}
    checked.run("b", notes=[note])
    checked.suppress(EXCUSED)
    before = files(checked)
    (checked.path / f"data/runs/{OLD}.yaml").chmod(0o640)
    assert fix() == (
        0,
        [
            f"data/runs/{OLD}.yaml:1: repaired: renamed to data/runs/{NEW}.yaml; change the pages that refer to the run {OLD!r}",
            f"data/runs/b.yaml:17: repaired: {OLD!r} changed to {NEW!r}, the run's new id",
            f"data/exceptions.yaml:3: repaired: {OLD!r} changed to {NEW!r}, the run's new id",
        ],
    )  # fmt: skip
    after = files(checked)
    assert after.pop(f"{NEW}.yaml") == before.pop(f"{OLD}.yaml").replace(OLD, NEW)
    assert after.pop("exceptions.yaml") == before.pop("exceptions.yaml").replace(OLD, NEW)
    assert after.pop("b.yaml") == before.pop("b.yaml").replace(f"See {OLD},", f"See {NEW},")
    assert after == before == {}
    assert (checked.path / f"data/runs/{NEW}.yaml").stat().st_mode & 0o777 == 0o640
    assert fix() == (0, [])


def test_two_runs_of_one_exception(checked, fix):
    other = OLD.replace("grpo", "ppo")
    checked.run(OLD, gpus=FOUR, added=...)
    checked.run(other, gpus=FOUR, added=..., task="PPO")
    checked.suppress(EXCUSED.replace("runs/", f"runs/{other}.yaml, runs/", 1))
    assert fix()[0] == 0
    assert sorted(files(checked)) == ["exceptions.yaml", f"{NEW}.yaml", f"{NEW.replace('grpo', 'ppo')}.yaml"]


def test_only_what_is_asked_for_is_renamed(checked, fix):
    checked.run(OLD, gpus=FOUR)
    checked.run("b", gpus={"count": 8, "type": "H100"})
    assert fix("data/runs/b.yaml") == (0, [])
    assert sorted(files(checked)) == ["b.yaml", f"{OLD}.yaml"]


def test_a_name_that_is_taken_stays(checked, fix):
    checked.run(OLD, gpus=FOUR)
    checked.run(NEW, gpus=FOUR, task="PPO")
    before = files(checked)
    code, lines = fix()
    assert code == 0
    assert lines[0] == f"data/runs/{OLD}.yaml:1: not renamed: data/runs/{NEW}.yaml exists"
    assert lines[1].endswith("[verl.stale_id]")
    assert files(checked) == before


@pytest.mark.parametrize("broken", ["exceptions.yaml", f"{OLD}.yaml"])
def test_nothing_is_left_half_done(checked, fix, monkeypatch, broken):
    """Writing the file that refers to the run, or removing the old file, fails."""
    checked.run(OLD, gpus=FOUR, added=...)
    checked.run("b", notes=[{"code": "compare", "text": f"See {OLD}."}])
    checked.suppress(EXCUSED)
    before = files(checked)
    refused: list[Path] = []

    def refuse(method):
        def write(path, *arguments, **options):
            if Path(*(arguments or [path])).name == broken and not refused:
                refused.append(path)
                raise PermissionError(13, "Permission denied")
            return method(path, *arguments, **options)

        return write

    monkeypatch.setattr("sphinx_verl_resources.cli.files._exchange", lambda *_: False)
    monkeypatch.setattr(Path, "unlink", refuse(Path.unlink))
    monkeypatch.setattr(Path, "replace", refuse(Path.replace))
    code, (line,) = fix()
    assert refused
    assert code == 2
    assert "not renamed" in line
    assert "ermission denied" in line
    assert files(checked) == before
