"""The built wheel in environments of its own: supported versions, and nothing but the extension.

Run by ``make matrix``: each test makes a virtual environment and installs into it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.matrix

#: Interpreter and versions; the first of each Python is the oldest that is supported there.
COMBINATIONS = {
    "3.10 oldest": ("3.10", ["sphinx==7.4.7", "docutils==0.20.1", "myst-parser==4.0.1"]),
    "3.10 as verl's CI": ("3.10", ["sphinx==8.1.3", "docutils==0.21.2", "myst-parser==4.0.1"]),
    "3.11 as verl's Read the Docs": ("3.11", ["sphinx==9.0.4", "docutils==0.22.4", "myst-parser==5.2.0"]),
    "3.12": ("3.12", ["sphinx==9.1.1", "docutils==0.22.4", "myst-parser==5.2.0"]),
    "3.13 newest": ("3.13", ["sphinx==9.2.0", "docutils==0.22.4", "myst-parser==5.2.0"]),
}


def interpreter(version: str) -> str | None:
    """A Python of this version: on the path, or one that pyenv keeps."""
    candidates = [shutil.which(f"python{version}")]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates += sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python")), reverse=True)
    check = f"import sys; sys.exit('%d.%d' % sys.version_info[:2] != {version!r})"
    for candidate in candidates:
        if candidate and subprocess.run([candidate, "-c", check], capture_output=True).returncode == 0:
            return candidate
    return None


def run(*command: str | Path, cwd: Path | None = None) -> str:
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PYTHON"))
    }
    result = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, errors="replace"
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-6000:]
    return result.stdout + result.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, root) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, root)
    (path,) = folder.glob("*.whl")
    return path


def make_environment(folder: Path, python: str, *packages: str | Path) -> Path:
    """A fresh environment with these packages; returns its directory of programs."""
    run(python, "-m", "venv", folder)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return folder / "bin"


@pytest.mark.parametrize("name", COMBINATIONS)
def test_the_suite_passes(name, wheel, root, tmp_path):
    version, pins = COMBINATIONS[name]
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not on this machine")
    programs = make_environment(tmp_path / "venv", python, f"{wheel}[test]", *pins)
    # The program, not the module: that one would put the checkout before the installed wheel.
    tests = ("-m", "not matrix", root / "tests")
    output = run(programs / "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *tests, cwd=root)
    assert " passed" in output


def test_the_wheel_alone_builds_the_page(wheel, tmp_path):
    programs = make_environment(tmp_path / "venv", sys.executable, wheel)
    project = tmp_path / "project"
    project.mkdir()
    (project / "conf.py").write_text('extensions = ["sphinx_verl_resources"]\n', "utf-8")
    (project / "index.rst").write_text("Page\n====\n\n.. verl-runs::\n\n.. verl-memory:: 8B\n", "utf-8")
    run(programs / "sphinx-build", "-W", "-b", "html", project, project / "out", cwd=project)
    page = (project / "out/index.html").read_text("utf-8")
    assert 'id="run-qwen2-5-7b-grpo-lora-1xh100"' in page
    assert page.count('class="verl-runs') >= 8
    assert "117.5 GB" in page
    assert "runs, 0 errors" in run(programs / "verl-resources", "check", cwd=tmp_path)
