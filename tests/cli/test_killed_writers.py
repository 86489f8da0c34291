"""A killed process leaves a file that is old, new or absent, but never partial."""

from __future__ import annotations

import signal
import subprocess
import sys

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
