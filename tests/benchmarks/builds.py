"""Run builds in separate processes and measure them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Build:
    """The cost of one build.

    Attributes:
        clock: seconds from the start of the process to its end.
        processor: processor time in seconds, including child processes.
        peak_mib: peak memory of the process.
    """

    clock: float
    processor: float
    peak_mib: float


def build(project: Path, bytecode: Path, *options: str, builder: str = "html", fresh: bool = True) -> Build:
    """Run Sphinx; a fresh build starts with an empty output folder."""
    output = project / "_build" / builder
    if fresh:
        shutil.rmtree(project / "_build", ignore_errors=True)
    # Compile as pip does on installation; otherwise every build would compile the extension.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(bytecode)
    arguments = ["-q", "-W", *options, "-b", builder, "-d", str(project / "_build" / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *arguments, str(project), str(output)]
    start = time.perf_counter()
    process = subprocess.Popen(command, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    clock = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    # Linux reports kibibytes, macOS bytes.
    peak_mib = usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    return Build(clock, usage.ru_utime + usage.ru_stime, peak_mib)


def kept_mib(project: Path) -> float:
    """Return the size of the files that a build keeps for the next one: doctrees and environment."""
    return sum(path.stat().st_size for path in (project / "_build" / "doctrees").rglob("*")) / 2**20
