"""What command lines print, and their exit codes; and files that they write."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sphinx_verl_resources.commands import main
from sphinx_verl_resources.testing import assert_data

TABLE = yaml.safe_load(Path(__file__).with_name("commands.yaml").read_text("utf-8"))
#: Interrupts Python as Ctrl-C does, when it imports pydantic.
INTERRUPT = """\
import signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs inherit that it is ignored

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "pydantic":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""


def with_files(folder: Path) -> Path:
    """Write the files of the table into a folder."""
    for name, text in TABLE["files"].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    subprocess.run(TABLE["make"], shell=True, cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the files of the table, in which no test writes."""
    return with_files(tmp_path_factory.mktemp("commands"))


@pytest.fixture
def there(folder, monkeypatch):
    """Make that folder the current one."""
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return a folder of the test with the files of the table, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return with_files(tmp_path)


@pytest.fixture
def run(capsys):
    """Return a function that runs a line, and returns exit code, output and errors."""
    return lambda line, *words: (main([*shlex.split(line), *words]), *capsys.readouterr())


def times(folder: Path) -> dict[Path, int]:
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize(("line", "reason"), TABLE["refused"].items())
def test_what_cannot_run_takes_one_line_and_writes_nothing(there, run, line, reason):
    before = times(there)
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert err.startswith("verl-resources: ")
    assert reason in err
    assert err.count("\n") == 1
    assert times(there) == before


@pytest.mark.parametrize(("words", "ids"), TABLE["rows"].items())
def test_rows(there, run, words, ids):
    code, out, err = run(f"table --columns id --format json {words}")
    assert (code, "".join(row["id"] for row in json.loads(out)), err) == (0, ids, "")


@pytest.mark.parametrize("entry", TABLE["printed"], ids=lambda entry: entry["line"])
def test_printed(there, run, monkeypatch, entry):
    monkeypatch.chdir(entry.get("in", "."))
    code, out, err = run(entry["line"])
    assert code == entry.get("code", 0), err
    if "json" in entry:
        assert json.loads(out) == entry["json"]
    assert out == entry.get("out", out)
    assert [part for part in entry.get("parts", ()) if part not in out] == []
    for part in entry.get("err", ()):
        assert re.search(".*".join(map(re.escape, part.split(" … "))), err), err
    assert bool(err) == (" ERROR: " in err or " WARNING: " in err)


@pytest.mark.parametrize("line", ["check warned", "check bad/data --format json", "table --format csv", "export", "schema gpus",
    "plan qwen2.5-7b --gpus 8xH100", "estimate cases.yaml", "diagnose run.log"])  # fmt: skip
def test_output_goes_into_a_file_whose_link_stays(here, run, line):
    code, output, err = run(line)
    if line.startswith("schema"):
        assert run(f"{line} --output out") == (0, "", "")
        assert [file.name for file in Path("out").iterdir()] == ["gpus.json"]
        assert Path("out/gpus.json").read_text("utf-8") == output
        return
    for _ in range(2):
        assert run(f"{line} --output link") == (code, "", err)
        assert Path("link").is_symlink()
        assert Path("out.txt").read_text("utf-8") == (output or "\n")


def test_only_data_files_may_not_be_links_that_lead_out(here, run):
    Path("own/runs").mkdir(parents=True)
    for name, expected in {"own/table.txt": 0, "own/gpus.yaml": 2}.items():
        Path(name).symlink_to("../out.txt")
        assert run(f"table --output {name}")[0] == expected
        assert Path(name).is_symlink()


def test_a_file_is_replaced_whole_or_not_at_all(here, run):
    Path("out.txt").write_text("old")
    for line in ("table --tag MAX", "plan none --gpus 8xH100"):
        assert run(f"{line} --output link")[0] == 2
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        code, out, err = run("table --output link")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (code, out, err) == (2, "", "verl-resources: link: file too large\n")
    assert Path("out.txt").read_text() == "old"
    assert [path.name for path in here.iterdir() if path.name.startswith(".")] == []


def test_all_schemas(run, tmp_path, root):
    for words in ("schema", "schema run", "schema gpus"):
        name = words.removeprefix("schema").strip() or "run"
        assert run(words) == (0, (root / f"data/schema/{name}.json").read_text("utf-8"), "")
    assert run(f"schema --output {tmp_path / 'all/new'}") == (0, "", "")
    contents = {path.name: path.read_bytes() for path in (tmp_path / "all/new").iterdir()}
    assert contents == {path.name: path.read_bytes() for path in (root / "data/schema").iterdir()}


def test_export_is_what_the_page_offers(here, project, run):
    build = project.page(".. verl-downloads::\n").build(verl_resources_data=["../data"])
    for form in ("json", "csv"):
        text = build.text(f"verl-resources.{form}")
        assert run(f"export --format {form}") == (0, text, "")
        assert run(f"export --output x.{form}") == (0, "", "")
        assert Path(f"x.{form}").read_text("utf-8") == text
    runs = json.loads(build.text("verl-resources.json"))["runs"]
    assert [run["id"] for run in runs] == [*"abcdef"]
    assert runs[0]["record"] == {**yaml.safe_load(TABLE["files"]["data/runs/a.yaml"]), "added": "2025-07-12"}


def test_names_that_no_encoding_has(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"d\xff")
    Path(name, "runs").mkdir(parents=True)
    assert run("check --output out.txt", name)[0] == 0
    assert Path("out.txt").read_text() == "d\\udcff: 0 runs, 0 errors, 0 warnings\n"
    Path("data/runs").mkdir(parents=True)
    Path("run.sh").write_text(TABLE["files"]["run.sh"])
    code, _, err = run("new --script run.sh --gpus 8xH100 --task", os.fsdecode(b"a \xff"))
    assert (code, err.splitlines()[-1][:40]) == (2, "verl-resources: 'utf-8' codec can't enco")


def test_assert_data_says_what_check_prints(there, run):
    assert_data("one", warnings=True)
    assert_data(Path("warned"))
    for folder, warnings in (("bad/data", False), ("warned", True)):
        with pytest.raises(AssertionError) as raised:
            assert_data(folder, warnings=warnings)
        assert str(raised.value).splitlines()[1:] == run(f"check {folder}")[2].splitlines()
    with pytest.raises(OSError, match="No such file or directory"):
        assert_data("nowhere")
    with pytest.raises(OSError, match="contains no data"):
        assert_data("empty")


def start(root, surrounding, path=""):
    """Check bad data in an environment, and return the finished process."""
    command = [sys.executable, "-m", "sphinx_verl_resources", "check", "bäd/data"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [path, str(root)]))}
    return subprocess.run(["bash", "-c", surrounding, "-", *command], capture_output=True, env=environment)


@pytest.mark.slow
@pytest.mark.parametrize(("surrounding", "code"), TABLE["surroundings"].items())
def test_a_surrounding(here, root, surrounding, code):
    Path("bad").rename("bäd")
    result = start(root, surrounding)
    assert result.returncode == code, result.stderr
    for sign in (b"Traceback", b"Errno", b"Exception ignored"):
        assert sign not in result.stderr + result.stdout
    assert b"ERROR" not in result.stdout


def test_an_interrupt_while_modules_are_loaded(here, root):
    Path("sitecustomize.py").write_text(INTERRUPT, "utf-8")
    result = start(root, '"$@"', str(here))
    assert (result.returncode, result.stdout) == (2, b"")
    assert result.stderr == b"\nverl-resources: interrupted\n"
