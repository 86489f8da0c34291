"""A killed process leaves a file that is old, new or absent, but never partial."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

SCRIPT = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct\n"
#: A process that forks two processes at a time, which each repeat a command until they are killed. Modules are
#: imported before the fork, so that most of the time is spent reading and writing.
WRITER = """
import contextlib, io, os, random, signal, sys, time
from sphinx_verl_resources.cli import main
COMMANDS = {
    "new": ["new", "--script", "run.sh", "--gpus", "8*H100", "--output", "data", "--force"],
    "create": ["new", "--script", "run.sh", "--gpus", "4*H100", "--output", "data"],
}
def run(name):
    with contextlib.redirect_stderr(io.StringIO()):
        return main(COMMANDS[name])
def work(name):
    while True:
        if name == "create":
            with contextlib.suppress(FileNotFoundError):
                os.remove("data/runs/qwen2-5-7b-ppo-4xh100.yaml")
        run(name)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
for name in COMMANDS:
    run(name)
names = sys.argv[1:]
for index in range(0, len(names), 2):
    children = []
    for name in names[index : index + 2]:
        child = os.fork()
        if not child:
            work(name)
        children.append(child)
    for child in children:
        time.sleep(random.Random(index + child).uniform(0, 0.4))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    sys.stderr.write(f"{index + len(children)}\\n")
    if sys.stdin.readline() != "go\\n":
        break
"""
#: Each pair runs at the same time.
PAIRS = [("new", "new"), ("create", "create"), ("new", "create")]
KILLS = 120


@pytest.mark.slow
def test_commands_killed_at_any_moment(data):
    """After each pair of kills, every data file is complete, as a command wrote it."""
    folder = data.path.parent
    (folder / "run.sh").write_text(SCRIPT)
    names = [name for pair in PAIRS * (KILLS // 6) for name in pair]
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, *names],
        cwd=folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    killed = 0
    for _ in range(KILLS // 2):
        line = writer.stderr.readline()
        assert line.strip().isdigit(), line + writer.stderr.read()
        killed = int(line)
        for path in data.path.glob("runs/[!.]*"):
            text = path.read_text()
            assert is_whole(path.stem, text), (path, text[:300])
        writer.stdin.write("go\n")
        writer.stdin.flush()
    assert writer.wait() == 0
    writer.stdin.close()
    writer.stderr.close()
    assert killed == KILLS
    left = [path.name for path in folder.rglob("*") if path.is_file()]
    known = re.compile(r"run\.sh|qwen2-5-7b-ppo-[48]xh100\.yaml|\.\S+\.yaml\.[0-9a-f]{8}\.tmp")
    assert [name for name in left if not known.fullmatch(name)] == []


def is_whole(stem: str, text: str) -> bool:
    """Return whether a file is complete."""
    return text.startswith(f"id: {stem}\n") and text.endswith("evidence:\n  - {kind: log, url: TODO}\n")


KILLED = """
import os, resource, signal, sys
from pathlib import Path
from sphinx_verl_resources.cli.files import create_file, replace_file
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
def killed(point, path):
    owner, name = {"fsync": (os, "fsync"), "link": (os, "link"), "replace": (Path, "replace"),
                   "unlink": (Path, "unlink")}.get(point, (None, ""))
    if owner:
        setattr(owner, name, die)
    else:  # the system ends it in the middle of writing
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    write = replace_file if os.path.exists(path) else create_file
    write(Path(path), Path(path).parent, "new" * 1000)
for argument in sys.argv[1:]:
    child = os.fork()
    if not child:
        killed(*argument.split(":", 1))
        os._exit(0)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]))
"""
#: The place where the process ends, and the file's content before and after.
POINTS = [
    ("write", None, None), ("fsync", None, None), ("link", None, None), ("unlink", None, "new" * 1000),
    ("write", "old", "old"), ("fsync", "old", "old"), ("replace", "old", "old"),
    ("unlink", "old", "new" * 1000),
]  # fmt: skip


def test_killed_at_every_point(data):
    paths = [data.path / f"runs/{index}.yaml" for index, _ in enumerate(POINTS)]
    for path, (_point, old, _found) in zip(paths, POINTS, strict=True):
        if old:
            path.write_text(old)
    words = [f"{point}:{path}" for path, (point, *_) in zip(paths, POINTS, strict=True)]
    process = subprocess.run(
        [sys.executable, "-c", KILLED, *words], check=True, capture_output=True, text=True
    )
    assert {int(line) for line in process.stdout.split()} == {signal.SIGKILL, signal.SIGXFSZ}
    assert len(process.stdout.split()) == len(POINTS)
    left = [path.read_text() if path.exists() else None for path in paths]
    assert left == [found for _point, _old, found in POINTS]


def test_what_a_killed_process_leaves_is_not_data(data):
    data.run("a")
    data.write("runs/.b.yaml.x1.tmp", "half a fi")
    assert data.problems() == []
    assert list(data.load().runs) == ["a"]
