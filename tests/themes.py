"""Build the documentation in every theme."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The colour schemes of each theme.
SCHEMES = {
    "sphinx_rtd_theme": ("light",),
    "furo": ("light", "dark"),
    "pydata_sphinx_theme": ("light", "dark"),
    "alabaster": ("light",),
}
#: The theme of this documentation; in the others, only its main pages are written.
OWN = "sphinx_rtd_theme"
#: Pages with tables, charts, forms and code.
MAIN_PAGES = ("hardware", "estimator", "memory", "registries", "contributing-a-run")


def build_once(theme: str, folder: Path, builder: str = "html") -> Path:
    """Return the documentation in a theme; the first process builds it while others wait.

    Raises:
        RuntimeError: Sphinx reports a warning or an error.
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
    """Build the documentation; all themes and builders share the pages that were read.

    Raises:
        RuntimeError: Sphinx reports a warning or an error.
    """
    options = ["-j", "auto", "-q", "-b", builder, "-d", doctrees]
    pages = [] if theme == OWN else [ROOT / "docs" / f"{name}.rst" for name in MAIN_PAGES]
    command = [
        sys.executable,
        "-m",
        "sphinx",
        *options,
        "-D",
        f"html_theme={theme}",
        ROOT / "docs",
        out,
        *pages,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # A part of the pages has no whole index, which Sphinx warns of.
    others = [line for line in done.stderr.splitlines() if "search index couldn't be loaded" not in line]
    if done.returncode or others:
        raise RuntimeError(f"{builder} in {theme}: {done.stderr}")
