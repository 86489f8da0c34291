"""Shared fixtures: small data directories, and real Sphinx builds of small projects."""

from __future__ import annotations

import csv
import gc
import importlib.util
import io
import logging
import os
import re
import sys
from dataclasses import dataclass, field, replace
from email.message import Message
from functools import lru_cache, partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sphinx.jinja2glue
import sphinx.locale
import sphinx.util.template
from hypothesis import settings
from jinja2 import FileSystemBytecodeCache
from jinja2.sandbox import SandboxedEnvironment
from sphinx.testing.util import SphinxTestApp

from sphinx_verl_resources import dataset
from sphinx_verl_resources.dataset import configured_directory
from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.strict_yaml import read_yaml

# The command line's tables are as wide as the terminal.
os.environ["COLUMNS"] = "100"
# Helpers are next to the tests and not in a package.
sys.path.insert(0, str(Path(__file__).parent))
from run_texts import good_run_text, run_text
from themes import build_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bs4 import BeautifulSoup

    from sphinx_verl_resources.strict_yaml import Document

# Sphinx makes a record of every event, which takes a tenth of a build.
logging.disable(logging.DEBUG)

ROOT = Path(__file__).resolve().parent.parent

# A slow machine is not an error. Examples are the same on every machine, so that no test fails by chance;
# `make test-all HYPOTHESIS=random` tries new ones.
settings.register_profile("few", deadline=None, max_examples=12, derandomize=True)
settings.register_profile("many", deadline=None, max_examples=50, derandomize=True)
settings.register_profile("random", deadline=None, max_examples=200)
settings.load_profile("few")

#: Minimum size of a registry; run files are smaller.
REGISTRY_BYTES = 5_000


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--without``; a missing package fails a test unless this option lists it."""
    parser.addoption(
        "--without",
        action="append",
        default=[],
        metavar="MODULE",
        help="a package that is left out on purpose; tests that need it are skipped",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Reject packages in ``--without`` that are installed."""
    for name in config.getoption("--without"):
        if importlib.util.find_spec(name):
            raise pytest.UsageError(f"--without {name}: {name} is installed; leave the option out")


def pytest_collection_finish() -> None:
    """Keep the garbage collector from scanning the imported modules again."""
    gc.freeze()
    gc.set_threshold(5_000, 20, 50)


@pytest.fixture(scope="session", autouse=True)
def _templates_compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile templates of Sphinx and its themes once; they are a quarter of a small build's work."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (sphinx.jinja2glue, sphinx.util.template):
            cache = FileSystemBytecodeCache(str(tmp_path_factory.mktemp("templates")))
            patch.setattr(module, "SandboxedEnvironment", partial(SandboxedEnvironment, bytecode_cache=cache))
        yield


@pytest.fixture(scope="session", autouse=True)
def _registries_parsed_once() -> Iterator[None]:
    """Parse equal registries once per process, since parsing them is most of a small test's work."""
    cached_reader = lru_cache(maxsize=32)(read_yaml)

    def read(content: bytes, label: str = "") -> Document:
        if len(content) < REGISTRY_BYTES:
            return read_yaml(content, label)
        document = cached_reader(content, label)
        return replace(document, problems=[*document.problems])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "read_yaml", read)
        yield


@pytest.fixture(scope="session", autouse=True)
def _package_without_repository() -> Iterator[None]:
    """Hide the project's addresses, which a built wheel has and a clone has not; pages link to the form."""
    real = metadata.metadata
    with pytest.MonkeyPatch.context() as patch:
        own = "sphinx-verl-resources"
        patch.setattr(metadata, "metadata", lambda name: Message() if name == own else real(name))
        yield


@pytest.fixture(scope="session")
def left_out(pytestconfig: pytest.Config) -> frozenset[str]:
    """Return the modules that ``--without`` leaves out."""
    return frozenset(pytestconfig.getoption("--without"))


@pytest.fixture(scope="session")
def needs(left_out: frozenset[str]) -> Callable[..., None]:
    """Return a function that skips the test if one of the given modules was left out."""
    return partial(skip_without, left_out)


def skip_without(left_out: frozenset[str], *modules: str) -> None:
    """Skip the test if one of the modules was left out."""
    if missing := left_out.intersection(modules):
        pytest.skip(f"needs {', '.join(sorted(missing))}, which was left out")


@dataclass
class Data:
    """A data directory under construction."""

    path: Path

    def write(self, name: str, text: str | bytes) -> Path:
        """Write a file, for example ``runs/a.yaml``."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def run(self, name: str, **changes: Any) -> Path:
        """Write a valid run file."""
        return self.write(f"runs/{name}.yaml", run_text(id=name, **changes))

    def good_run(self, name: str, **changes: Any) -> Path:
        """Write a run file that has no problem of any rule except through the changes."""
        return self.write(f"runs/{name}.yaml", good_run_text(id=name, **changes))

    def load(self) -> EstimatorContext:
        """Load the runs, with paths shown relative to the parent directory."""
        base = self.path.parent
        directories = [configured_directory(self.path.name, base)]
        context = EstimatorContext(directories, missing=Location("conf.py"))
        _ = context.runs
        return context

    def problems(self) -> list[str]:
        """Return every problem as printed."""
        return [str(problem) for problem in self.load().diagnostics_of("runs")]


@pytest.fixture
def data(tmp_path: Path) -> Data:
    """Return an empty data directory called ``data``."""
    folder = tmp_path / "data"
    (folder / "runs").mkdir(parents=True)
    return Data(folder)


@dataclass
class Build:
    """The result of one build."""

    app: SphinxTestApp
    read: set[str]
    warnings: list[str]

    @property
    def out(self) -> Path:
        """The output directory."""
        return Path(self.app.outdir)

    def text(self, name: str) -> str:
        """Return the text of an output file."""
        return (self.out / name).read_text("utf-8")

    def soup(self, name: str = "index.html") -> BeautifulSoup:
        """Return a parsed HTML page."""
        from bs4 import BeautifulSoup

        return BeautifulSoup(self.text(name), "html.parser")


@dataclass
class Project:
    """A small documentation project."""

    path: Path
    left_out: frozenset[str]
    conf: dict[str, Any] = field(default_factory=dict)

    def page(self, text: str, name: str = "index.rst") -> Project:
        """Write a page with a title."""
        title = Path(name).stem
        head = f"# {title}\n\n" if name.endswith(".md") else f"{title}\n{'=' * len(title)}\n\n"
        orphan = "---\norphan: true\n---\n\n" if name.endswith(".md") else ":orphan:\n\n"
        (self.path / name).write_text(orphan * (not name.startswith("index")) + head + text, "utf-8")
        return self

    def build(self, builder: str = "html", *, parallel: int = 0, fresh: bool = False, **conf: Any) -> Build:
        """Build with the given settings; the environment is kept between calls."""
        self.conf.update(conf)
        parser = ["myst_parser"] if any(self.path.rglob("*.md")) else []
        skip_without(self.left_out, self.conf.get("html_theme", "alabaster"), *parser)
        settings = {"extensions": [], **self.conf}
        extensions = [name for name in settings["extensions"] if name not in self.left_out]
        settings["extensions"] = [*extensions, "sphinx_verl_resources"]
        # An extension that adds a suffix, such as MyST, changes Sphinx's own default for the whole process.
        settings.setdefault("source_suffix", {".rst": "restructuredtext"})
        lines = [f"{key} = {value!r}" for key, value in settings.items()]
        (self.path / "conf.py").write_text("\n".join(lines) + "\n", "utf-8")
        status, warning = io.StringIO(), io.StringIO()
        how = {"freshenv": fresh, "parallel": parallel, "status": status, "warning": warning}
        app = SphinxTestApp(builder, srcdir=self.path, **how)
        read: set[str] = set()
        app.connect("env-before-read-docs", lambda app, env, docnames: read.update(docnames), priority=900)
        try:
            app.build()
        finally:
            app.cleanup()
            # Sphinx keeps the language of a process's first build.
            sphinx.locale.translators.clear()
        lines = re.sub(r"\x1b\[[0-9;]*m", "", warning.getvalue()).splitlines()
        return Build(app, read, [line for line in lines if line.strip()])


@pytest.fixture
def project(tmp_path: Path, left_out: frozenset[str]) -> Project:
    """Return a project with the bundled dataset; its directory is next to ``data``."""
    folder = tmp_path / "docs"
    folder.mkdir()
    return Project(folder, left_out)


@pytest.fixture(scope="session")
def new_project(
    tmp_path_factory: pytest.TempPathFactory, left_out: frozenset[str]
) -> Callable[[str], Project]:
    """Return a function that creates a project for many tests, in a named folder inside a new one."""

    def make(name: str) -> Project:
        folder = tmp_path_factory.mktemp("project") / name
        folder.mkdir(parents=True)
        return Project(folder, left_out)

    return make


@pytest.fixture(scope="session")
def hardware_page(root: Path) -> str:
    """Return docs/hardware.rst with a form of few choices and tables of one size class, which is faster."""
    source = (root / "docs" / "hardware.rst").read_text("utf-8")
    form, fewest = ".. verl-what-if::\n", ".. verl-fewest::\n"
    assert form in source
    assert fewest in source
    few = "   :models: Qwen/Qwen2.5-7B\n"
    return source.replace(form, form + few).replace(fewest, f"{fewest}   :sizes: 7B\n")


@pytest.fixture(scope="session")
def documentation(
    tmp_path_factory: pytest.TempPathFactory, needs: Callable[..., None]
) -> Callable[..., Path]:
    """Return a function that builds this documentation in a theme, once for all test processes."""
    # Each process of pytest-xdist has a folder next to the others.
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "popen-gw" in base.name else base) / "documentation"

    def build(theme: str = "sphinx_rtd_theme", builder: str = "html") -> Path:
        needs("myst_parser", theme)
        return build_once(theme, folder, builder)

    return build


@pytest.fixture
def own(project: Project, data: Data) -> Project:
    """Return a project with the data directory of the test."""
    project.conf["verl_resources_data"] = ["../data"]
    return project


@pytest.fixture(scope="session")
def published() -> list[dict[str, str]]:
    """Return the twelve rows of verl's page of 2026-08-22, in its order."""
    with (ROOT / "tests" / "published_rows.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the root of the checkout."""
    return ROOT
