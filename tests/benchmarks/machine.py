"""Describe the machine of a comparison."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

#: The packages in the comparison, by their names in pip.
PACKAGES = (
    "sphinx", "docutils", "sphinx-verl-resources", "sphinx-needs", "sphinxcontrib-datatemplates",
)  # fmt: skip


def describe() -> dict[str, str]:
    """Return the machine, the versions and the date, without names of persons or places."""
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": platform.system(),
        "Python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def _processor() -> str:
    """Return the model of the processor, if the system gives it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
