"""What a comparison ran on."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

#: What takes part, as pip calls it.
PACKAGES = (
    "sphinx", "docutils", "sphinx-verl-resources", "sphinx-needs", "sphinxcontrib-datatemplates",
)  # fmt: skip


def describe() -> dict[str, str]:
    """The machine, the versions and the day; nothing that names a person or a place."""
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": platform.system(),
        "Python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def _processor() -> str:
    """The model, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
