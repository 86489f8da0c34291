"""Data directories and checkouts of verl for the rules, with registries without cases, which load fast."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from sphinx_verl_resources.check import Check
from sphinx_verl_resources.commands import MODELS, load_check
from sphinx_verl_resources.dataset import REGISTRIES, Directory, bundled_directory, configured_directory
from sphinx_verl_resources.estimator.context import EstimatorContext
from sphinx_verl_resources.git import Repository, open_repository

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sphinx_verl_resources.diagnostics import Diagnostic

load_check([])  # all rules
IDENTITY = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


@pytest.fixture(scope="session")
def base(tmp_path_factory) -> Directory:
    """The registries of the package, without its other data."""
    folder = tmp_path_factory.mktemp("package")
    for name in REGISTRIES:
        if name != "analysis.yaml":
            shutil.copy(bundled_directory().path / name, folder / name)
    return Directory(folder, "package")


@dataclass
class Checked:
    """A data directory ``data`` in a folder that may contain a checkout ``verl``."""

    path: Path
    base: Directory
    run_text: Callable[..., str]

    def write(self, name: str, text: str) -> None:
        """Write a data file."""
        file = self.path / "data" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    def run(self, name: str = "a", **changes: Any) -> None:
        """Write a valid run with changes; ``...`` removes a field."""
        self.write(f"runs/{name}.yaml", self.run_text(id=name, **changes))

    def add_schemas(self) -> None:
        """Add the schemas to the data directory."""
        for name in MODELS:
            self.write(f"schema/{name}.json", "{}")

    def check(self, repository: Repository | None = None) -> tuple[Diagnostic, ...]:
        """The problems."""
        directory = configured_directory("data", self.path)
        data = EstimatorContext([directory], bundled=self.base)
        return Check(data, [directory], repository).problems()

    def problems(self, repository: Repository | None = None) -> list[str]:
        """The printed problems."""
        return [str(problem) for problem in self.check(repository)]

    def codes(self, repository: Repository | None = None) -> list[str]:
        """The codes of the problems."""
        return [problem.code for problem in self.check(repository)]


@pytest.fixture
def checked(tmp_path, base, make_good_run_text) -> Checked:
    """An empty data directory."""
    (tmp_path / "data/runs").mkdir(parents=True)
    return Checked(tmp_path, base, make_good_run_text)


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, without the user's own configuration."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(
        command, env={**environment, **IDENTITY}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def verl_git():
    """A function that runs git in a folder."""
    return git


@pytest.fixture
def verl(tmp_path):
    """A function that creates a checkout with these files, tagged as release 0.4.0."""

    def make(files: dict[str, str], name: str = "verl") -> Repository:
        folder = tmp_path / name
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, "utf-8")
        git(folder, "init", "-q", "-b", "main")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", "Everything")
        git(folder, "tag", "v0.4.0")
        return open_repository(str(folder), name)

    return make
