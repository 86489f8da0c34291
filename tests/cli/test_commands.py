"""What every command shares: exit codes, streams, files, data; and ``check``, ``table``, ``export``, ``schema``."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

# -- what cannot run

_FOLDER = "; give a folder that contains runs/"
_WHOLE = "must be a whole number from 1 to"
_NEITHER = "argument --gpus: expected a number and a GPU, as in 8*H100, got "
REFUSED = [
    ("", "the following arguments are required: COMMAND; see verl-resources --help"),
    ("chek", "argument COMMAND: invalid choice: 'chek' (choose from "),
    ("check --fromat=json", "unrecognized arguments: --fromat=json; see verl-resources check --help"),
    ("schema run gpus", "unrecognized arguments: gpus"),
    ("table --format jsn", "argument --format: invalid choice: 'jsn' (choose from "),
    # data
    ("check nowhere", "nowhere: no such file or directory"),
    ("check data/none.yaml", "data/none.yaml: no such file or directory"),
    (["check", "a\nb"], "a\\nb: no such file or directory"),
    ("check empty", f"empty: contains no data{_FOLDER}"),
    ("check --repo=", "--repo is empty; give the path of a git checkout of verl"),
    ("table nowhere", "nowhere: no such file or directory"),
    ("table data/runs/a.yaml", "data/runs/a.yaml: not a directory"),
    ("table --data empty", f"empty: contains no data{_FOLDER}"),
    ("export --data data --data nowhere", "nowhere: no such file or directory"),
    ("plan qwen2.5-7b --data /dev/null", "/dev/null: not a directory"),
    ("estimate qwen2.5-7b --data empty", f"empty: contains no data{_FOLDER}"),
    ("diagnose run.log --data nowhere", "nowhere: no such file or directory"),
    ("new --blank --output run.log", "run.log: not a directory; give a data directory with --output"),
    # values
    ("table --size 9B", "unknown size class '9B'; the nearest is 7B"),
    ("table --gpu H1000", "unknown value 'H1000'; did you mean 'H100'?"),
    ("table --columns modle", "unknown field 'modle'; did you mean 'model'?"),
    ("table --sort estimate.peak", "'estimate.peak' is computed"),
    ("plan qwen2.5-7b --gpus 0*H100", f"argument --gpus: {_WHOLE} 100,000, got '0'"),
    ("plan qwen2.5-7b --lora 0", f"argument --lora: {_WHOLE}"),
    ("plan qwen2.5-7b --response x", f"argument --response: {_WHOLE}"),
    *((f"estimate qwen2.5-7b --gpus={text}", f"{_NEITHER}{text!r}") for text in ("", "*H100", "8*")),
    (
        "estimate qwen2.5-7b --verl-version newest",
        "argument --verl-version: expected a version such as 0.7.1",
    ),
    *(
        (f"new --script run.sh --id={name}", "argument --id: invalid id")
        for name in ("../x", "A", "", "a" * 81)
    ),
    *(
        (f"{words} --env {text}", f"argument --env: expected NAME=VALUE, as in DEVICE=gpu, got {text!r}")
        for words in ("estimate --script run.sh", "new --script run.sh", "diagnose run.log --script run.sh")
        for text in ("DEVICE", "1A=2")
    ),
    *(
        (f"{words} --env A=1", "--env sets variables of a launch script; give the script with --script")
        for words in ("estimate qwen2.5-7b", "new --blank", "diagnose run.log")
    ),
    # files
    ("estimate none.yaml", "none.yaml: no such file or directory"),
    ("estimate", "give a model, a launch script with --script, a file of cases or a run file"),
    (
        "estimate cases.yaml qwen2.5-7b",
        "cases.yaml contains its own models, GPUs and settings; leave out qwen2.5",
    ),
    ("estimate cases.yaml a.b=8", "cases.yaml contains its own models, GPUs and settings; leave out a.b=8"),
    (
        "estimate cases.yaml --gpu H100",
        "cases.yaml contains its own models, GPUs and settings; leave out --gpu",
    ),
    ("estimate qwen2.5-7b --script image", "image: not UTF-8 text, at byte 0"),
    ("estimate qwen2.5-7b --config none.json", "none.json: no such file or directory"),
    ("diagnose data", "data: not a regular file"),
    ("diagnose pipe", "pipe: not a regular file"),
    ("diagnose run.log --script none.sh", "none.sh: no such file or directory"),
    ("new", "give a launch script with --script FILE, or write a template with --blank"),
    ("new --blank --log run.log", "--blank cannot be combined with --script or --log"),
    ("new --script none.sh", "none.sh: no such file or directory"),
    ("new --log data", "data: not a regular file"),
    *(
        (f"{words} --output {file}", f"{file}: {reason}")
        for words in ("check", "table --size 7B")
        for file, reason in {
            "pipe": "not a regular file",
            "/dev/null": "not a regular file",
            "data": "not a regular file",
            "no/such/file": "no such file or directory",
        }.items()
    ),
    ("schema --output run.log", "run.log: file exists"),
]


@pytest.fixture
def here(data, tmp_path, script):
    """Return a folder with data, a script, a log, an empty folder and a pipe."""
    data.good_run("a")
    (tmp_path / "empty").mkdir()
    (tmp_path / "run.log").write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    (tmp_path / "cases.yaml").write_text("[]\n")
    (tmp_path / "image").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.mark.parametrize(("line", "reason"), REFUSED, ids=str)
def test_what_cannot_run_takes_one_line(here, run, line, reason):
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    code, out, err = run(line) if isinstance(line, str) else run("", *line)
    assert (code, out) == (2, "")
    assert err.startswith(f"verl-resources: {reason}")
    assert err.count("\n") == 1
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before


# -- check


@pytest.mark.parametrize(
    ("folder", "line", "places", "out"),
    [
        (".", "check", ["data/runs/a.yaml", "data/runs/b.yaml"], "data: 2 runs, 2 errors, 0 warnings"),
        (".", "check data/runs/b.yaml", ["data/runs/b.yaml"], "data: 2 runs, 1 error, 0 warnings"),
        (".", "check data more", ["data/runs/a.yaml", "data/runs/b.yaml"], "data, more: 3 runs, 2 errors, 0 warnings"),
        ("data", "check .", ["runs/a.yaml", "runs/b.yaml"], ".: 2 runs, 2 errors, 0 warnings"),
        ("data/runs", "check", ["../runs/a.yaml", "../runs/b.yaml"], "..: 2 runs, 2 errors, 0 warnings"),
        ("data/runs", "check b.yaml", ["../runs/b.yaml"], "..: 2 runs, 1 error, 0 warnings"),
    ],
)  # fmt: skip
def test_check(data, run, monkeypatch, make_good_run_text, tmp_path, folder, line, places, out):
    (tmp_path / "more/runs").mkdir(parents=True)
    (tmp_path / "more/runs/c.yaml").write_text(make_good_run_text(id="c"), "utf-8")
    for name in "ab":
        data.good_run(name, tag="X", gpus={"count": 2 if name == "a" else 4, "type": "H100"})
    monkeypatch.chdir(folder)
    text = ":4:6: ERROR: tag: unknown value 'X'; allowed: MIN, RECOMMENDED [verl.unknown_value]\n"
    assert run(line) == (1, f"{out}\n", "".join(f"{place}{text}" for place in places))


def test_check_of_good_data_and_of_warnings(data, run):
    data.good_run("a")
    assert run("check") == (0, "data: 1 run, 0 errors, 0 warnings\n", "")
    data.write("runs/b.txt", "")
    code, out, err = run("check")
    assert (code, out) == (0, "data: 1 run, 0 errors, 1 warning\n")
    assert err == (
        "data/runs/b.txt:1:1: WARNING: the file 'b.txt' is not read; data files are named <id>.yaml "
        "[verl.file_unexpected]\n"
    )
    assert run("check --strict") == (1, out, err)


def test_check_for_programs(data, result):
    for name in "ab":
        data.good_run(name, tag="X", gpus={"count": 2 if name == "a" else 4, "type": "H100"})
    code, (problem, _), err = result("check data/runs/a.yaml --strict data/runs/b.yaml")
    assert (code, err) == (1, [])
    assert problem == {
        "path": "data/runs/a.yaml", "line": 4, "column": 6, "level": "ERROR", "code": "verl.unknown_value",
        "message": "tag: unknown value 'X'", "hint": "allowed: MIN, RECOMMENDED",
    }  # fmt: skip


def test_check_of_all_kinds_of_files(data, run):
    cases = "# yaml-language-server: $schema=../schema/cases.json\n- id: x\n  model: Qwen/Qwen2.5-7B\n  gpus: {count: eight}\n  config: {}\n"
    data.write("cases/mine.yaml", cases)
    data.write("accuracy.yaml", "accuracy:\n- {name: training, cases: 0.5}\n")
    (data.path / "runs").rmdir()
    code, out, err = run("check")
    assert (code, out[:14]) == (1, "data: 0 runs, ")
    places = [line.split(": ERROR: ")[0] for line in err.splitlines()]
    assert {"data/accuracy.yaml:2:27", "data/cases/mine.yaml:4:17"} <= {*places}
    assert len(run("check data/cases")[2].splitlines()) == 1
    assert "data/accuracy.yaml" in run("check data/accuracy.yaml")[2], "a registry without runs beside it"


def test_the_bundled_data_are_the_default(run):
    assert run("check")[1].startswith("sphinx_verl_resources/data: ")
    Path("data").mkdir()  # of other programs
    for line in ("table --columns id", "export"):
        assert "qwen2-5-7b-grpo-lora-1xh100" in run(line)[1]


# -- table, export, schema


@pytest.fixture
def runs(data, run):
    """Return runs that differ in every field with a filter."""
    data.run("a", max_batch=64)
    data.run("b", size="3B", tag="RECOMMENDED", gpus={"count": 8, "type": "H800"}, max_batch=256)
    data.run("c", task="PPO LoRA", train="megatron", infer={"engine": "sglang"}, model="Qwen/Qwen3-8B")
    data.run("d", kind="stated", gpus={"count": 16, "type": "H100"})
    return data


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", "bacd"),
        ("--size 7B", "acd"),
        ("--size 7b,3B", "acdb"),  # in the order of --size, like the sections of the directive
        ("--size 7B --size 3B", "acdb"),
        ("--gpu H800,H100 --tag MIN", "acd"),
        ("--task ppo-lora", "c"),
        ("--infer vllm0.8.3 --kind stated", "d"),
        ("--model Qwen/Qwen3-8B", "c"),
        ("--sort=-gpus", "dbac"),
        ("--sort=-max_batch,id", "bacd"),
    ],
)
def test_rows(runs, result, words, expected):
    code, rows, err = result(f"table --columns id {words}")
    assert (code, "".join(row["id"] for row in rows), err) == (0, expected, [])


@pytest.mark.parametrize("form", ["plain", "github", "list-table", "csv", "json"])
def test_formats(data, run, form):
    data.run("a", label="a_b*c", settings={"data.train_batch_size": 64}, kind="stated")
    columns = "model,id,resource,max_batch,gpus.count,estimate.peak"
    code, out, err = run(f"table --columns {columns} --format {form}")
    assert (code, err) == (0, "")
    if form == "json":
        row = {"model": "a_b*c", "id": "a", "gpus": "2*H100", "max_batch": None, "gpus.count": 2}
        assert json.loads(out) == [{**row, "estimate.peak": None}]
    elif form == "csv":
        _, row = csv.reader(io.StringIO(out))
        assert row == ["a_b*c (claimed)", "a", "2*H100", "", "2", ""]
    elif form == "list-table":
        assert out.splitlines()[-6:-3] == [r"   * - a\_b\*c (claimed)", "     - a", r"     - 2\*H100"]
    else:
        assert "2*H100" in out
        assert "Resource" in out


@pytest.mark.parametrize("line", ["table --columns id --format csv", "export --format csv"])
def test_where_the_data_lie(data, run, tmp_path, line):
    data.run("a")
    (tmp_path / "other").mkdir()
    (data.path / "runs").rename(tmp_path / "other/runs")
    data.run("b")
    for words, expected in {
        "other": "a",
        "--data other": "a",
        "--data data --data other": "ab",
        "": "b",
    }.items():
        code, out, _ = run(f"{line} {words}")
        assert (code, "".join(row.partition(",")[0] for row in out.splitlines()[1:])) == (0, expected)


def test_export_is_what_the_page_offers(own, runs, run, tmp_path):
    build = own.page(".. verl-downloads::\n").build()
    for form in ("json", "csv"):
        text = build.text(f"verl-resources.{form}")
        assert run(f"export --format {form}") == (0, text, "")
        assert run(f"export --output x.{form}") == (0, "", "")
        assert (tmp_path / f"x.{form}").read_text("utf-8") == text
    assert run("export")[1] == build.text("verl-resources.json")


def test_runs_with_errors_are_left_out_and_told(runs, run):
    runs.run("broken", tag="X")
    for line in ("table", "export"):
        code, out, err = run(line)
        assert (code, "broken" in out) == (1, False)
        assert err.startswith("data/runs/broken.yaml:3:6: ERROR: ")


def test_schema(run, tmp_path, root):
    text = (root / "data/schema/gpus.json").read_text("utf-8")
    assert run("schema gpus") == (0, text, "")
    assert run("schema")[1] == run("schema run")[1] != text
    assert run("schema gpus --output one") == run("schema --output all/new") == (0, "", "")
    assert (tmp_path / "one/gpus.json").read_text("utf-8") == text
    names = ["accuracy", "analysis", "architectures", "cases", "config_keys", "gpus", "run"]
    assert sorted(path.stem for path in (tmp_path / "all/new").iterdir()) == names


# -- files that are written


@pytest.mark.parametrize(
    "line", ["check", "table --format csv", "export", "plan qwen2.5-7b --gpus 8xH100", "estimate cases.yaml", "diagnose run.log"]
)  # fmt: skip
def test_output_goes_into_a_file(here, run, line):
    code, printed, err = run(line)
    assert run(f"{line} --output out.txt") == (code, "", err)
    assert (here / "out.txt").read_text("utf-8") == (printed or "\n")


def test_a_file_is_replaced_whole_and_its_link_stays(here, run, monkeypatch):
    Path("mine.txt").write_text("old")
    Path("link").symlink_to("mine.txt")
    assert run("table --output link --tag MAX")[0] == 2
    assert run("plan none --gpus 8xH100 --output link")[0] == 2

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        assert run("check --output link") == (2, "", "verl-resources: link: no space left on device\n")
    assert Path("mine.txt").read_text() == "old"
    assert run("check --output link")[0] == 0
    assert Path("link").is_symlink()
    assert Path("mine.txt").read_text() == "data: 1 run, 0 errors, 0 warnings\n"
    assert stat.S_ISFIFO(Path("pipe").stat().st_mode)
    assert not list(here.glob(".*.tmp"))


def test_what_a_killed_process_leaves_is_not_data(data):
    data.run("a")
    data.write("runs/.b.yaml.x1.tmp", "half a fi")
    assert data.problems() == []
    assert list(data.load().runs) == ["a"]


def test_what_no_encoding_has_is_escaped(run, tmp_path):
    (tmp_path / os.fsdecode(b"d\xff/runs")).mkdir(parents=True)
    assert run("check", os.fsdecode(b"d\xff"), "--output", "out.txt")[0] == 0
    assert Path("out.txt").read_text() == "d\\udcff: 0 runs, 0 errors, 0 warnings\n"


def test_an_argument_that_is_not_utf_8(data, run, script):
    code, _, err = run("new --script run.sh --task", os.fsdecode(b"a \xff"))
    assert (code, err.splitlines()[-1][:40]) == (2, "verl-resources: 'utf-8' codec can't enco")


# -- processes

#: Shell commands by the name of the environment, with the exit code; ``$@`` is the command, which finds an error.
SURROUNDINGS = {
    "no output": ('"$@" >&-', 1),
    "no errors": ('"$@" 2>&-', 1),
    "no streams": ('"$@" <&- >&- 2>&-', 1),
    "a full disk": ('"$@" >/dev/full', 2),
    "nobody reads": ('"$@" | true; exit ${PIPESTATUS[0]}', 1),
    "nobody reads the errors": ('"$@" 2>&1 | true; exit ${PIPESTATUS[0]}', 2),
    "a deleted directory": ('mkdir gone && cd gone && rmdir ../gone && "$@"', 2),
    "no letters": ('LC_ALL=C LANG= PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 PYTHONIOENCODING=ascii "$@"', 1),
}
#: Runs at the start of Python and interrupts it as Ctrl-C does, when a module is imported.
INTERRUPTS = """\
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs inherit that it is ignored

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ.get("INTERRUPTED_AT"):
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""


@pytest.fixture
def start(data, tmp_path, root):
    """Return a function that checks bad data in an environment and returns the result."""
    (data.path / "runs/a.yaml").write_text("id: Ü\n", "utf-8")

    def started(surrounding, **environment):
        command = [sys.executable, "-m", "sphinx_verl_resources", "check", "data"]
        return subprocess.run(
            ["bash", "-c", surrounding, "-", *command],
            capture_output=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(root), **environment},
        )  # fmt: skip

    return started


@pytest.mark.slow
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_a_surrounding(start, name):
    surrounding, code = SURROUNDINGS[name]
    found = start(surrounding)
    assert found.returncode == code, found.stderr
    for sign in (b"Traceback", b"Errno", b"Exception ignored"):
        assert sign not in found.stderr + found.stdout
    if name in {"no errors", "no output"}:
        assert b"ERROR" not in found.stdout


@pytest.mark.parametrize("module", ["pydantic", "sphinx_verl_resources.print_commands"])
def test_an_interrupt_while_modules_are_loaded(start, tmp_path, root, module):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS, "utf-8")
    path = os.pathsep.join([str(tmp_path), str(root)])
    found = start('"$@"', PYTHONPATH=path, INTERRUPTED_AT=module)
    assert (found.returncode, found.stdout) == (2, b"")
    assert found.stderr == b"\nverl-resources: interrupted\n"
