"""The supported versions, each in an environment of its own with the built wheel: ``make matrix``.

``nox -l`` lists the sessions, ``nox -s 'suite(3.10-oldest)'`` runs one. ``-r`` keeps the environments of the
last time and ``-R`` does not look for other packages either; the wheel is a new one in any case. Sessions
tagged ``ends`` are those of ``.ci/run``.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nox
from packaging.requirements import Requirement

ROOT = Path(__file__).parent

# A Python that is not there is an error; with `--no-error-on-missing-interpreters` its sessions are skipped.
nox.options.error_on_missing_interpreters = True
nox.options.download_python = "never"
nox.options.default_venv_backend = "virtualenv"

# nox sees only the versions of pyenv that are switched on; the others stand in its directory.
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], *map(str, sorted(PYENV.glob("versions/3.*/bin")))])

#: The oldest of everything that pyproject.toml allows.
OLDEST = [
    "sphinx==7.4.7",
    "docutils==0.20.1",
    "myst-parser==4.0.1",
    "pydantic==2.11.2",
    "PyYAML==6.0",
    "tabulate==0.9",
]
NEWEST = ["sphinx==9.2.0", "docutils==0.22.4", "myst-parser==5.2.0"]
#: Of each stack: its Python, what is pinned, and which packages of the extras are left out.
STACKS = [
    nox.param("3.10", OLDEST, [], id="3.10-oldest", tags=["ends"]),
    nox.param("3.10", ["sphinx==8.1.3", "docutils==0.21.2", "myst-parser==4.0.1"], [], id="3.10-sphinx-8.1"),
    nox.param("3.11", ["sphinx==9.0.4", "docutils==0.22.4", "myst-parser==5.2.0"], [], id="3.11-sphinx-9.0"),
    nox.param("3.12", ["sphinx==9.1.1", "docutils==0.22.4", "myst-parser==5.2.0"], [], id="3.12-sphinx-9.1"),
    nox.param("3.13", NEWEST, [], id="3.13-newest", tags=["ends"]),
    # The theme of Read the Docs does not take this docutils yet.
    nox.param("3.13", ["sphinx==9.2.0", "docutils==0.23"], ["sphinx-rtd-theme"], id="3.13-docutils-0.23"),
]
#: Whose LaTeX is compiled, of which `.ci/run` takes the newest.
COMPILED = [
    nox.param("3.10", OLDEST, [], id="3.10-oldest"),
    nox.param("3.13", NEWEST, [], id="3.13-newest", tags=["ends"]),
]
WITHOUT_MYST = nox.param("3.13", NEWEST[:2], ["myst-parser"], id="3.13-without-myst")

THEMES = ("sphinx-rtd-theme", "furo", "pydata-sphinx-theme", "alabaster")
#: What only `make test` needs: what a browser does with a page does not depend on these versions.
ONCE = {"playwright"}
#: Colours of code, which conf.py names.
STYLES = "accessible-pygments"
#: The builders beside html that share what Sphinx has read, which takes ten times as long as to write it.
BUILDERS = ("text", "latex", "man", "texinfo", "xml", "epub")
#: The one that does not.
READS_ALONE = "gettext"

#: What other packages warn of by themselves; everything else that warns is an error.
OTHERS = [
    # Its ``include`` asks for the application in a way that Sphinx 9 deprecates.
    "ignore::PendingDeprecationWarning:myst_parser.mocking",
]
STRICT = {"PYTHONWARNINGS": ",".join(["error", *OTHERS])}
QUIET = ("-q", "-n", "auto", "--dist", "worksteal", "-p", "no:cacheprovider")


def module(name: str) -> str:
    """What a package of the extras is imported as."""
    return name.replace("-", "_")


def extras(without: list[str]) -> list[str]:
    """The requirements of the documentation, of what is optional and of the tests, save some."""
    listed = nox.project.load_toml("pyproject.toml")["project"]["optional-dependencies"]
    left_out = {"sphinx-verl-resources", *ONCE, *without}
    texts = [text for name in ("docs", "completion", "test") for text in listed[name]]
    return [text for text in texts if Requirement(text).name not in left_out]


def distributions(session: nox.Session) -> Path:
    """The folder with the wheel and the sdist."""
    return session.cache_dir / "dist"


def install(session: nox.Session, *requirements: str) -> None:
    """Install the wheel that was built last, and what is asked for beside it."""
    (wheel,) = distributions(session).glob("*.whl")
    session.install(str(wheel), *requirements)
    # pip keeps a wheel of the same version, which an environment that is used again has.
    session.run("python", "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel))


@nox.session(tags=["ends"])
def build(session: nox.Session) -> None:
    """Build and check the distributions that the other sessions install; nobody publishes these."""
    session.install("build", "readme-renderer[md]")
    tool = str(ROOT / "tools/distribution.py")
    session.run("python", tool, "https://github.com/OWNER/NAME", str(distributions(session)), silent=True)


@nox.session(requires=["build"])
@nox.parametrize("python, pins, without", [*STACKS, WITHOUT_MYST])
def suite(session: nox.Session, pins: list[str], without: list[str]) -> None:
    """Run every test but those in a browser on the wheel, or those that ``-- -m …`` selects."""
    install(session, *extras(without), *pins)
    # Neither this program nor the directory that it runs in puts the checkout before the wheel.
    session.chdir(session.create_tmp())
    absent = [f"--without={module(name)}" for name in without]
    selected = ("-m", "not matrix and not browser")
    session.run("pytest", *QUIET, *selected, *absent, str(ROOT / "tests"), *session.posargs, env=STRICT)


@nox.session(requires=["build"])
@nox.parametrize("python, pins, without", STACKS)
def documentation(session: nox.Session, pins: list[str], without: list[str]) -> None:
    """This documentation in every theme and builder, references checked."""
    themes = [name for name in THEMES if name not in without]
    install(session, "myst-parser", STYLES, *themes, *pins)
    folder = Path(session.create_tmp()).resolve()
    shutil.rmtree(folder)
    folder.mkdir()
    builds = [("html", theme) for theme in themes] + [(builder, themes[0]) for builder in BUILDERS]
    if pins is NEWEST:
        builds.append((READS_ALONE, themes[0]))
    for builder, theme in builds:
        doctrees = folder / (READS_ALONE if builder == READS_ALONE else "doctrees")
        options = ("-j", "auto", "-n", "-W", "--keep-going", "-q", "-b", builder, "-d", str(doctrees))
        out = str(folder / f"{builder}-{theme}")
        session.run("sphinx-build", *options, "-D", f"html_theme={module(theme)}", "docs", out, env=STRICT)


@nox.session(requires=["build"], python=["3.10", "3.13"], tags=["ends"])
def wheel(session: nox.Session) -> None:
    """The wheel, then the sdist, with nothing beside them build a page, and their command works."""
    install(session)
    works_alone(session)
    (sdist,) = distributions(session).glob("*.tar.gz")
    session.run("python", "-m", "pip", "uninstall", "--quiet", "--yes", "sphinx-verl-resources")
    session.install(str(sdist))
    works_alone(session)


def works_alone(session: nox.Session) -> None:
    """Build a project whose conf.py is one line, and run the command."""
    project = Path(session.create_tmp()).resolve()
    (project / "conf.py").write_text('extensions = ["sphinx_verl_resources"]\n', "utf-8")
    (project / "index.rst").write_text("Page\n====\n\n.. verl-runs::\n\n.. verl-memory:: 8B\n", "utf-8")
    with session.chdir(project):
        session.run("sphinx-build", "-E", "-W", "-q", "-b", "html", ".", "out", env=STRICT)
        version = session.run("verl-resources", "--version", env=STRICT, silent=True)
        checked = session.run("verl-resources", "check", env=STRICT, silent=True)
    page = (project / "out/index.html").read_text("utf-8")
    assert 'id="run-qwen2-5-7b-grpo-lora-1xh100"' in page
    assert page.count('class="verl-runs') >= 8
    assert "117.5 GB" in page
    assert version.startswith("verl-resources ")
    assert "runs, 0 errors" in checked


@nox.session(requires=["build"])
@nox.parametrize("python, pins, without", COMPILED)
def pdf(session: nox.Session, pins: list[str], without: list[str]) -> None:
    """What LaTeX makes of the pages; skipped, with the reason, where there is no TeX."""
    for program in ("latexmk", "pdftotext", "pdfinfo"):
        if not shutil.which(program):
            session.skip(f"{program} is not installed")
    install(session, *extras(without), *pins)
    session.chdir(session.create_tmp())
    session.run("pytest", *QUIET, "-m", "matrix", str(ROOT / "tests/matrix"), env=STRICT)
