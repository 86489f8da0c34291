"""The documentation in every theme, and the looks that each of them has."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: By theme, the colour schemes that it has.
SCHEMES = {
    "sphinx_rtd_theme": ("light",),
    "furo": ("light", "dark"),
    "pydata_sphinx_theme": ("light", "dark"),
    "alabaster": ("light",),
}


def build_once(theme: str, folder: Path) -> Path:
    """The documentation in a theme; whoever asks first builds it, and others wait.

    Raises:
        RuntimeError: Sphinx has something to say.
    """
    folder.mkdir(parents=True, exist_ok=True)
    out, done = folder / theme, folder / f"{theme}.done"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            build(theme, out, folder / "doctrees")
            done.touch()
    return out


def build(theme: str, out: Path, doctrees: Path) -> None:
    """Build the documentation in a theme; what has been read is shared by all of them.

    Raises:
        RuntimeError: Sphinx has something to say.
    """
    options = ["-q", "-W", "--keep-going", "-b", "html", "-d", doctrees, "-D", f"html_theme={theme}"]
    command = [sys.executable, "-m", "sphinx", *options, ROOT / "docs", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{theme}: {done.stderr}")
