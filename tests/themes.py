"""The documentation as it is built, in every theme, and the looks that each of them has."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: By theme, the colour schemes that it has.
SCHEMES = {
    "sphinx_rtd_theme": ("light",),
    "furo": ("light", "dark"),
    "pydata_sphinx_theme": ("light", "dark"),
    "alabaster": ("light",),
}


def build_once(theme: str, folder: Path, builder: str = "html") -> Path:
    """The documentation in a theme; whoever asks first builds it, and others wait.

    Raises:
        RuntimeError: Sphinx has something to say.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{builder}-{theme}"
    out, done = folder / name, folder / f"{name}.done"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            _build(theme, builder, out, Path(os.environ.get("VERL_TEST_DOCTREES", folder / "doctrees")))
            done.touch()
    return out


def _build(theme: str, builder: str, out: Path, doctrees: Path) -> None:
    """Build the documentation; what has been read is shared by all themes and builders.

    Raises:
        RuntimeError: Sphinx has something to say.
    """
    options = [
        "-j",
        "auto",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        builder,
        "-d",
        doctrees,
        "-D",
        f"html_theme={theme}",
    ]
    command = [sys.executable, "-m", "sphinx", *options, ROOT / "docs", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{builder} in {theme}: {done.stderr}")
