"""Record the two minutes of the page "Contributing a run": ``make transcript``.

It starts with a launch script and its log, and ends with the row on the built page. Everything happens in a
fresh clone of the last commit, with the current environment; installation is not included.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "contributing-a-run.txt"

SCRIPT = "../verl/examples/tuning/run_7b_fsdp.sh"
RUN = "qwen2-5-7b-grpo-2xh100"
FILE = f"data/runs/{RUN}.yaml"
#: The commands to type, in order; the last two take most of the time.
COMMANDS = (
    f"verl-resources new --script {SCRIPT} --log ../run.log",
    "sed -i -e 's|^tag: TODO|tag: MIN|' -e 's|log, url: TODO|log, url: https://example.org/run.log|' \\\n"
    f"    -e 's|{{name: TODO, url: TODO}}|{{name: Jane Doe, url: https://github.com/janedoe}}|' {FILE}",
    f"verl-resources check {FILE}",
    "sphinx-build -q -j auto docs docs/_build/html",
    f"grep -o 'id=\"run-{RUN}\"' docs/_build/html/hardware.html",
)


class Step(NamedTuple):
    """A command, its output and its duration."""

    command: str
    output: str
    seconds: float


def prepare(clone: Path) -> None:
    """Create a checkout of verl with the script committed, and the log, next to a clone."""
    scratch = clone.parent
    script = (clone / SCRIPT).resolve()
    script.parent.mkdir(parents=True)
    script.write_bytes((ROOT / "docs" / "examples" / "run.sh").read_bytes())
    (scratch / "run.log").write_bytes((ROOT / "docs" / "examples" / "run.log").read_bytes())
    verl = scratch / "verl"
    package = verl / "verl/__init__.py"  # identifies a checkout of verl
    package.parent.mkdir()
    package.touch()
    _git(verl, "init", "--quiet")
    _git(verl, "add", ".")
    _git(verl, "commit", "--quiet", "--message", "A script")


def run(command: str, clone: Path) -> Step:
    """Run a command in the clone, with the clone's code."""
    words = shlex.split(command.replace("\\\n", ""))
    program = {
        "verl-resources": [sys.executable, "-m", "sphinx_verl_resources"],
        "sphinx-build": [sys.executable, "-m", "sphinx"],
    }.get(words[0], [words[0]])
    start = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(clone), "COLUMNS": "100"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run([*program, *words[1:]], cwd=clone, env=environment, text=True, **streams)
    return Step(command, done.stdout.rstrip(), time.perf_counter() - start)


def text_of(steps: list[Step]) -> str:
    """Return the transcript as shown on the page."""
    lines = [
        "\n".join(filter(None, (f"$ {step.command}", step.output, f"({step.seconds:.1f} s)\n")))
        for step in steps
    ]
    total = sum(step.seconds for step in steps)
    return "\n".join(lines) + f"\n({total:.0f} s of machine time in all, on {os.cpu_count()} processors)\n"


def without_times(text: str) -> str:
    """Return a transcript without times and dates, for comparisons."""
    return re.sub(r"(?m)^\([\d.]+ s.*\)$|\b20\d\d-\d\d-\d\d\b", "", text)


def _git(folder: Path, *arguments: str) -> None:
    """Run git so that commits have the same id on every day."""
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in _WHO.items()}
    settings = ["-c", "core.autocrlf=false", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *settings, *arguments], cwd=folder, env={**os.environ, **who}, check=True)


_WHO = {"NAME": "Jane Doe", "EMAIL": "", "DATE": "2026-11-20T12:00:00Z"}


def main() -> None:
    """Write the transcript."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        _git(ROOT, "clone", "--quiet", str(ROOT), str(clone))
        prepare(clone)
        steps = [run(command, clone) for command in COMMANDS]
    TARGET.write_text(text_of(steps), "utf-8")


if __name__ == "__main__":
    main()
