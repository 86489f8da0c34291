"""``import-rst`` as a command: the files that it writes, existing files, and its options."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sphinx_verl_resources.cli import files, main

if TYPE_CHECKING:
    from pathlib import Path


HEADINGS = ("Tag", "Model", "Task", "Resource", "Train", "Infer")
ROWS = (
    ("MIN", "Qwen/Qwen2.5-7B-Instruct", "GRPO", "2*H800", "fsdp", "vllm0.8.2"),
    ("MIN", "Qwen2-14B", "GRPO", "4*H800", "fsdp", "vllm0.8.2"),
    ("MIN", "Qwen/Qwen2-7B-Instruct", "PPO", "8*H100", "fsdp", "vllm0.8.2"),
)
NAMES = ["qwen2-14b-grpo-4xh800.yaml", "qwen2-5-7b-grpo-2xh800.yaml", "qwen2-7b-ppo-8xh100.yaml"]
FULL_ID = "qwen2-5-coder-14b-grpo-4xh800"
MODEL = "Qwen2-14B=Qwen/Qwen2.5-Coder-14B-Instruct"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Return a folder with a page of three rows, one of which needs ``--model``."""
    lines = []
    for size, rows in (("7B", ROWS[::2]), ("14B", ROWS[1:2])):
        lines += [size, "~~~", "", ".. list-table::", ""]
        for row in (HEADINGS, *rows):
            lines += [f"   {'  -' if index else '* -'} {cell}" for index, cell in enumerate(row)]
        lines.append("")
    (tmp_path / "page.rst").write_text("\n".join(lines) + "\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def imported(folder, capsys):
    """Return a function that runs the command on the page; it returns exit code, output and messages."""

    def run(*options: str, output: str = "data") -> tuple[int, str, str]:
        code = main(["import-rst", "page.rst", "--output", output, *options])
        return code, *capsys.readouterr()

    return run


def written(folder: Path) -> dict[str, str]:
    return {
        path.name: path.read_text("utf-8") for path in sorted(folder.glob("data/runs/*")) if path.is_file()
    }


def test_a_folder_that_is_not_there_is_made(folder, imported):
    code, out, err = imported()
    assert (code, sorted(written(folder))) == (1, NAMES)
    assert out.splitlines()[-1] == "page.rst: 3 rows, 3 run files written, 1 error, 0 warnings"
    assert err.count("\n") == 1
    assert "unknown model 'Qwen2-14B'" in err
    assert imported("--check")[1].startswith("page.rst: 3 rows, data: 2 runs, 1 difference, 2 errors")


def test_run_files_name_their_schema_where_there_is_one(folder, imported):
    imported()
    assert all(text.startswith("id: ") for text in written(folder).values())
    (folder / "data/schema").mkdir()
    (folder / "data/schema/run.json").write_text("{}")
    imported("--force")
    line = "# yaml-language-server: $schema=../schema/run.json\nid: "
    assert all(text.startswith(line) for text in written(folder).values())


def test_other_files_of_the_folder_stay(folder, imported):
    (folder / "data").mkdir()
    (folder / "data/README").write_text("hello")
    imported()
    assert (folder / "data/README").read_text() == "hello"


def test_nothing_is_written_where_one_of_several_is_in_the_way(folder, imported):
    path = folder / "data/runs" / NAMES[1]
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    code, out, err = imported()
    assert (code, out, written(folder)) == (2, "", {NAMES[1]: "mine"})
    assert err == (
        f"verl-resources: nothing was written; already exists: data/runs/{NAMES[1]}; --force replaces run files\n"
    )
    assert imported("--force")[0] == 1
    whole = written(folder)
    assert sorted(whole) == NAMES
    path.unlink()
    assert "1 run file written, 2 unchanged" in imported()[1]
    assert written(folder) == whole


def test_a_directory_in_the_way_is_not_replaced(folder, imported):
    (folder / "data/runs" / NAMES[2]).mkdir(parents=True)
    code, _, err = imported("--force")
    assert (code, written(folder)) == (2, {})
    assert f"nothing was written; already exists: data/runs/{NAMES[2]}" in err


@pytest.mark.parametrize("name", ["file", "file/data"])
def test_a_file_where_the_folder_belongs(folder, imported, name):
    (folder / "file").write_text("")
    code, _, err = imported(output=name)
    assert (code, (folder / "file").read_text()) == (2, "")
    assert err.splitlines()[-1].endswith(": cannot be written: not a directory")


def test_a_folder_that_cannot_be_written(folder, imported, monkeypatch):
    def refuse(*_arguments, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files.Path, "mkdir", refuse)
    code, _, err = imported()
    assert (code, written(folder)) == (2, {})
    assert "2-5-7b-grpo-2xh800.yaml: cannot be written: permission denied\n" in err


def test_the_same_command_writes_the_rest_after_the_disk_was_full(folder, imported, monkeypatch):
    real, calls = files.os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        code, _, err = imported()
    assert (code, len(written(folder))) == (2, 2)
    assert err.splitlines()[-1].endswith(": cannot be written: no space left on device")
    assert "1 run file written, 2 unchanged" in imported()[1]


@pytest.mark.parametrize("options", [(), ("--force",)])
def test_killed_while_writing(folder, imported, options):
    program = (
        "import os, sys, signal\n"
        "real, calls = os.fsync, []\n"
        "def killed(descriptor):\n"
        "    calls.append(descriptor)\n"
        "    len(calls) == 2 and os.kill(os.getpid(), signal.SIGKILL)\n"
        "    real(descriptor)\n"
        "os.fsync = killed\n"
        "from sphinx_verl_resources.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    words = ["import-rst", "page.rst", "--output", "data", *options]
    done = subprocess.run([sys.executable, "-c", program, *words], cwd=folder, check=False)
    assert done.returncode == -signal.SIGKILL
    assert [name for name in written(folder) if not name.startswith(".")] == [NAMES[1]]
    assert "2 run files written, 1 unchanged" in imported()[1]
    fresh = folder / "fresh"
    imported(output="fresh")
    assert {path.name: path.read_text("utf-8") for path in fresh.glob("runs/*")} == {
        name: text for name, text in written(folder).items() if not name.startswith(".")
    }


def test_files_of_rows_whose_checkpoint_was_not_known_before_are_named(folder, imported):
    imported()
    code, _, err = imported("--model", MODEL)
    assert code == 1
    assert err.splitlines() == [
        f"data/runs/{NAMES[0]}:1:1: ERROR: 'model' is TODO, and no row of the page has this id; "
        "delete this file if its row now has another id [verl.todo]"
    ]
    assert f"{FULL_ID}.yaml" in written(folder)
    (folder / "data/runs" / NAMES[0]).unlink()
    assert imported("--model", MODEL)[::2] == (0, "")
    assert imported("--check", "--model", MODEL)[::2] == (0, "")


@pytest.mark.parametrize(("options", "said"), [
    (("--ref", "main"), "--ref: 'main' is neither a commit nor a release; give one of these"),
    (("--ref", "x y"), "--ref: 'x y' is neither a commit nor a release; give one of these"),
    (("--model", "Qwen2-14B=Qwen/Qwen2.5-Codr-14B-Instruct"),
     "--model: unknown model 'Qwen/Qwen2.5-Codr-14B-Instruct'; did you mean "
     "'Qwen/Qwen2.5-Coder-14B-Instruct'? If not, add it to architectures.yaml first"),
    (("--model", "Qwen2-14B"), "--model: expected LABEL=CHECKPOINT, as in Qwen2-70B=Qwen/Qwen2-72B-Instruct"),
])  # fmt: skip
def test_options_that_cannot_be_meant(folder, imported, options, said):
    assert imported(*options) == (2, "", f"verl-resources: {said}\n")
    assert not (folder / "data").exists()


def test_without_a_folder_nothing_is_written_or_compared(folder, capsys):
    for options in ((), ("--check",)):
        assert main(["import-rst", "page.rst", *options]) == 2
        assert "give the data directory with --output DIR" in capsys.readouterr().err
    (folder / "data").mkdir()  # without data
    assert main(["import-rst", "page.rst", "--dry-run", "--format", "json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert [run["id"] for run in result["runs"]] == [
        "qwen2-5-7b-grpo-2xh800",
        "qwen2-7b-ppo-8xh100",
        "qwen2-14b-grpo-4xh800",
    ]
    assert {problem["path"] for problem in result["problems"]} == {"page.rst"}
