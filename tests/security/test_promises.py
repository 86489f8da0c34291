"""The six promises of docs/security.rst, on real data and scripts that are changed at random."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sphinx_verl_resources.commands import main, write_file
from sphinx_verl_resources.diagnostics import FORBIDDEN

DATA = Path(__file__).parents[2] / "data"
#: Words that are special to YAML, shells, terminals, HTML and messages.
PARTS = ["null", "- ", ": ", "{", "]", ", ", "!!python/object/apply:os.system ", "&a ", "*a", "<<: ", "|", "---\n", "#", "%x", "'", '"', "`",
    "\\", "\t", "\n", "\r", " ", "x", "8", "1e400", "9" * 400, "\u202e", "\u200b", "\u200d", "\x00", "\x1b[0m", "\x85", "\U000e0041",
    "::error::", "<b>", "</script>", "TODO", "a@b.c", "[verl.x]", "a.yaml:1:1: ERROR: ", "../", "$(touch x)", "; touch x", "javascript:x",
    "|s|", "`x <javascript:y>`_", "*a*", "{{ 7*7 }}", "&lt;", "www.example.org"]  # fmt: skip
texts = st.lists(st.sampled_from(PARTS) | st.text(max_size=5), max_size=5).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)


# -- real data, changed

RUN = "qwen2-5-32b-grpo-8xh20"
REAL = {
    name: yaml.safe_load((DATA / name).read_text("utf-8"))
    for name in (f"runs/{RUN}.yaml", "gpus.yaml", "analysis.yaml", "cases/forks.yaml", "accuracy.yaml")
}


def places(value, at=()):
    """Yield the place of each value inside a value."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*at, key))


def put(value, at, new):
    """Return a value with another one at a place."""
    if not at:
        return new
    copy = value.copy()
    copy[at[0]] = put(value[at[0]], at[1:], new)
    return copy


@st.composite
def changed(draw):
    """Draw the name of a file, and its bytes with a value replaced, a key added, or some bytes overwritten."""
    name = draw(st.sampled_from(sorted(REAL)))
    kind = draw(st.sampled_from(["value", "key", "bytes"]))
    if kind == "bytes":
        content = (DATA / name).read_bytes()
        start = draw(st.integers(0, len(content)))
        new = draw(st.binary(max_size=10) | texts.map(lambda text: text.encode("utf-8", "replace")))
        return name, content[:start] + new + content[start + draw(st.integers(0, 40)) :]
    at = draw(st.sampled_from([*places(REAL[name])]))
    new = draw(values)
    if kind == "key":
        new = {**(REAL[name] if isinstance(REAL[name], dict) else {}), draw(texts): new}
        at = ()
    text = json.dumps(put(REAL[name], at, new), default=str, ensure_ascii=draw(st.booleans()))
    return name, text.encode("utf-8", "replace")


# -- what a process does


class Watch:
    """The programs that a process starts, its connections, and the files that it opens, while it is watched."""

    def __init__(self) -> None:
        self.seen: list[str] | None = None
        self.allowed, self.program = "", ""
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple) -> None:
        if self.seen is None:
            return
        if event == "subprocess.Popen" and arguments[0] == self.program:
            return
        if event.startswith(("subprocess.", "os.exec", "os.posix_spawn", "os.system", "os.fork", "socket.")):
            self.seen.append(f"{event} {arguments}")
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            path, flags = os.path.realpath(os.fsdecode(arguments[0])), arguments[2]
            writes = flags & (os.O_WRONLY | os.O_RDWR)
            if "/outside/" in path or (writes and not path.startswith(self.allowed)):
                self.seen.append(f"open {path}")

    @contextlib.contextmanager
    def on(self, allowed: str, program: str):
        """Watch, and fail at the end if anything was seen but writes inside ``allowed`` and one program."""
        self.seen, self.allowed, self.program = [], os.path.realpath(allowed), program
        try:
            yield
            assert self.seen == []
        finally:
            self.seen = None


WATCH = Watch()


def output(line: str) -> tuple[int, str, list[str]]:
    """Run a command, and return its exit code, its output and the lines of its problems."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(line.split())
    text = out.getvalue()
    assert not FORBIDDEN.search(text), text
    return code, text, err.getvalue().split("\n")[:-1]


def assert_located(lines: list[str]) -> None:
    """Each line has a place, a level, a code and nothing that commands a terminal."""
    for line in lines:
        assert line.isprintable(), line
        assert re.match(r".+:[1-9]\d*:[1-9]\d*: (?:ERROR|WARNING): .+ \[verl\.[a-z_0-9]+\]\Z", line), line


@contextlib.contextmanager
def data_folder(program: str = ""):
    """Make a data directory with a good run, and a link to a file outside; then watch the process."""
    with tempfile.TemporaryDirectory() as base:
        for name in ("data/runs", "data/cases", "outside"):
            Path(base, name).mkdir(parents=True)
        good = (DATA / "runs/qwen2-5-7b-grpo-lora-1xh100.yaml").read_text("utf-8")
        Path(base, "data/runs/good.yaml").write_text(re.sub("(?m)^id: .*", "id: good", good), "utf-8")
        Path(base, "outside/secret.yaml").write_text("id: secret\n")
        Path(base, "data/runs/secret.yaml").symlink_to("../../outside/secret.yaml")
        with WATCH.on(base, program):
            yield Path(base, "data")


@given(changed())
def test_changed_data(change):
    """Nothing runs, nothing outside is read, each problem has its place, and the other run is shown."""
    name, content = change
    with data_folder() as data:
        (data / name).write_bytes(content)
        code, _, lines = output(f"check {data}")
        assert_located(lines)
        assert [line for line in lines if "/runs/secret.yaml:1:1: ERROR: cannot be read" in line]
        assert code == 1
        _, out, lines = output(f"table {data} --format json --columns id,max_batch")
        assert_located(lines)
        assert {"id": "good", "max_batch": 16} in json.loads(out)


SCRIPT = (DATA.parent / "docs/examples/run.sh").read_text("utf-8")
LOG = (DATA.parent / "docs/examples/out-of-memory.log").read_text("utf-8")


@st.composite
def damaged(draw, text):
    """Draw a text with some of it overwritten."""
    start = draw(st.integers(0, len(text)))
    return text[:start] + draw(texts) + text[start + draw(st.integers(0, 40)) :]


@given(damaged(SCRIPT), damaged(LOG))
def test_changed_scripts_and_logs(script, log):
    """Nothing runs, nothing is written, and what is printed commands no terminal."""
    with data_folder("git") as data:  # which `new` asks for the commit
        run, text = data.with_name("run.sh"), data.with_name("run.log")
        run.write_text(script, "utf-8", "replace", newline="")
        text.write_text(log, "utf-8", "replace", newline="")
        before = {path: path.stat().st_mtime_ns for path in data.parent.rglob("*")}
        for line in (
            f"estimate --script {run} --gpus 8xH100 --verbose --data {data}",
            f"estimate --script {run} --gpus 8xH100 --format json --data {data}",
            f"diagnose {text} --script {run} --gpus 8xH100 --verbose --data {data}",
            f"new --script {run} --log {text} --dry-run",
        ):
            code, out, lines = output(line)
            assert code in (0, 1, 2)
            assert out or lines
            assert not FORBIDDEN.search("".join(lines))
        assert before == {path: path.stat().st_mtime_ns for path in data.parent.rglob("*")}


# -- pages


def skeleton(element) -> list[tuple[str, list[str]]]:
    """Return the elements inside an element, with the names of their attributes; of a command, its words."""
    inside = [inner for inner in element.find_all(True) if not inner.find_parent("pre")]
    commands = [("words", [""] * len(shlex.split(pre.get_text()))) for pre in element.find_all("pre")]
    return [(inner.name, sorted(inner.attrs)) for inner in inside] + commands


@given(st.lists(texts, min_size=30, max_size=30))
@settings(max_examples=3)
def test_any_text_on_a_page(new_project, found):
    """It is refused at its place, or shown as typed, and no element of its row or its details differs."""
    project = new_project("pages/docs")
    (project.path.parent / "data/runs").mkdir(parents=True)
    for index, text in enumerate(["plain", *PARTS, *found]):
        fields = {**REAL[f"runs/{RUN}.yaml"], "id": f"r{index}", "label": text, "task": f"GRPO ({text})"}
        fields |= {"notes": [{"code": "n", "text": text}], "settings": {"data.x": text}}
        content = json.dumps(fields, default=str, ensure_ascii=False).encode("utf-8", "replace")
        (project.path.parent / f"data/runs/r{index}.yaml").write_bytes(content)
    page = ".. verl-runs::\n   :columns: model task settings.data.x\n   :details:\n"
    build = project.page(page).build(verl_resources_data=["../data"], smartquotes=False)
    refused = {*re.findall(r"/runs/(r\d+)\.yaml:1:\d+: ERROR: ", "\n".join(build.warnings))}
    soup = build.soup()
    rows = {row["id"].removeprefix("run-"): row for row in soup.select("table [id^=run-r]")}
    assert rows.keys() | refused == {f"r{index}" for index in range(len(PARTS) + 31)}
    assert len(rows) > 20
    plain = rows["r0"].find_parent("tr"), soup.find(id="run-r0-details")
    for index, text in enumerate([*PARTS, *found], 1):
        if f"r{index}" in rows:
            elements = rows[f"r{index}"].find_parent("tr"), soup.find(id=f"run-r{index}-details")
            assert [*map(skeleton, elements)] == [*map(skeleton, plain)], text
            assert [text in element.get_text() for element in elements] == [True, True], text


# -- files are whole, or as before


def test_a_killed_write_leaves_the_old_file_or_the_new_one(tmp_path):
    """The process ends at each moment at which it asks the system for something."""
    target, link = tmp_path / "out.txt", tmp_path / "link"
    link.symlink_to("out.txt")
    found = set()
    for moment in range(1, 30):
        target.write_text("old")
        if not (child := os.fork()):
            events = iter(range(1, moment))
            sys.addaudithook(lambda *_, events=events: next(events, None) or os._exit(9))
            write_file(link, "new" * 100_000)
            os._exit(0)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        found.add((killed, target.read_text() == "old", target.read_text() == "new" * 100_000))
        assert link.is_symlink()
    assert found == {(True, True, False), (True, False, True), (False, False, True)}


# -- work grows with the input


def runs(count: int, **changes) -> dict[str, str]:
    """Return a number of run files."""
    return {
        f"data/runs/r{index}.yaml": json.dumps(
            {**REAL[f"runs/{RUN}.yaml"], "id": f"r{index}", **changes}, default=str
        )
        for index in range(count)
    }


GPU = {"vendor": "nvidia", "memory_gb": 80, "memory_mib": 81559, "kind": "reading"}
TRAIN = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct "
#: A command line, and the files that it reads, of a size.
GROWING = {
    "runs": ("table data --format json", lambda n: runs(n)),
    "runs with an unknown GPU": ("check data", lambda n: runs(n, gpus={"count": 1, "type": "H1000"})),
    "runs with an unknown model": ("check data", lambda n: runs(n, model="Qwen/Qwen2.5-32C")),
    "runs in an export": ("export data", lambda n: runs(n)),
    "GPUs": ("check data", lambda n: {"data/gpus.yaml": json.dumps({"gpus": [{"name": f"G{i}", **GPU} for i in range(10 * n)]})}),
    "unknown keys": ("check data", lambda n: {"data/runs/a.yaml": "".join(f"key{i}: 1\n" for i in range(10 * n))}),
    "settings": ("table data", lambda n: runs(1, settings={f"data.x{i}": i for i in range(10 * n)})),
    "lines of a script": ("estimate --script run.sh --gpus 8xH100", lambda n: {"run.sh": "A=$((A + 1))\n" * n + TRAIN + "data.x=$A"}),
    "branches of a script": ("estimate --script run.sh --gpus 8xH100", lambda n: {"run.sh": "if [ $U ]; then A=1; fi\n" * n + TRAIN}),
    "overrides": ("estimate --script run.sh --gpus 8xH100", lambda n: {"run.sh": TRAIN + " ".join(f"data.x{i}={i}" for i in range(n))}),
    "lines of a log": ("diagnose run.log", lambda n: {"run.log": LOG + "(TaskRunner pid=1) a line\n" * 20 * n}),
    "steps of a log": ("diagnose run.log", lambda n: {"run.log": "".join(f"step:{i} - timing_s/step:9.5\n" for i in range(10 * n)) + LOG}),
}  # fmt: skip


def calls(line: str) -> int:
    """Return the number of function calls of a command, a measure of work that no load of the machine changes."""
    count = [0]

    def counts(*_: object) -> None:
        count[0] += 1

    sys.setprofile(counts)
    try:
        output(line)
    finally:
        sys.setprofile(None)
    return count[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", GROWING)
def test_work_grows_in_proportion(name, tmp_path, monkeypatch):
    line, files = GROWING[name]
    found = []
    for size in (10, 20, 40):
        folder = tmp_path / str(size)
        for path, text in {"data/runs/x.txt": "", **files(size)}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, "utf-8")
        (folder / "data/runs/x.txt").unlink()
        monkeypatch.chdir(folder)
        output(line)  # what is read once a process
        found.append(calls(line))
    fixed, growth = 2 * found[0] - found[1], found[1] - found[0]
    assert found[2] - found[1] < 2.6 * growth, (fixed, found)
