"""The supported versions, each in an environment of its own with the built package: ``make matrix``.

``nox -l`` lists the sessions, ``nox -s 'suite(3.10-oldest)'`` runs one. ``-r`` keeps the environments of the
last time and ``-R`` does not look for other packages either; the package is a new one in any case. Sessions
tagged ``ends`` are those of ``.ci/run``. They install the packages of ``requirements/*.txt``, which
``make upgrade`` renews.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import nox
from nox.command import CommandFailed

ROOT = Path(__file__).parent

# A Python that is not there is an error; with `--no-error-on-missing-interpreters` its sessions are skipped.
nox.options.error_on_missing_interpreters = True
nox.options.download_python = "never"
nox.options.default_venv_backend = "virtualenv"

# nox sees only the versions of pyenv that are switched on; the others stand in its directory.
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], *map(str, sorted(PYENV.glob("versions/3.*/bin")))])

PYTHONS = nox.project.python_versions(nox.project.load_toml("pyproject.toml"))
#: Of each stack: its Python, the file with its packages, changes to them, and modules that are left out.
OLDEST = nox.param("3.10", "oldest", [], [], id="3.10-oldest", tags=["ends"])
NEWEST = nox.param("3.13", "development", [], [], id="3.13-newest")
STACKS = [
    OLDEST,
    *(nox.param(python, "development", [], [], id=python) for python in PYTHONS[:-1]),
    NEWEST,
    # The theme of Read the Docs does not take this docutils yet.
    nox.param("3.13", "development", ["docutils==0.23"], ["sphinx_rtd_theme"], id="3.13-docutils-0.23"),
]
WITHOUT_MYST = nox.param("3.13", "development", [], ["myst_parser"], id="3.13-without-myst")

#: How uv chooses the packages of each file in requirements/.
RESOLUTIONS = {
    "development": ("--all-extras",),
    "package": ("--extra", "scripts", "--constraint", "requirements/development.txt"),
    "oldest": ("--all-extras", "--resolution", "lowest-direct"),
}

#: The builders that share what Sphinx has read, which takes ten times as long as to write it.
BUILDERS = ("html", "text", "latex", "man", "texinfo", "xml", "epub")
#: The one that does not.
READS_ALONE = "gettext"

#: What other packages warn of by themselves; everything else that warns is an error.
OTHERS = [
    # Its ``include`` asks for the application in a way that Sphinx 9 deprecates.
    "ignore::PendingDeprecationWarning:myst_parser.mocking",
]
STRICT = {"PYTHONWARNINGS": ",".join(["error", *OTHERS])}
QUIET = ("-q", "-n", "auto", "--dist", "worksteal")
#: Every test, but those that need a browser or TeX.
UNATTENDED = ("-m", "not matrix and not browser")


def requirements(name: str) -> Path:
    """The file with the packages of an environment."""
    return ROOT / "requirements" / f"{name}.txt"


def distributions(session: nox.Session) -> Path:
    """The folder with the wheel and the sdist."""
    return session.cache_dir / "dist"


def install(session: nox.Session, packages: Path, changes: list[str], without: list[str]) -> None:
    """Install the wheel between the packages of a file; with the oldest ones the sdist, which they build."""
    session.install("--require-hashes", "--requirement", str(packages))
    if changes:
        session.install("--no-deps", *changes)
    if without:
        session.run("python", "-m", "pip", "uninstall", "--quiet", "--yes", *without)
    (file,) = distributions(session).glob("*.tar.gz" if packages == requirements("oldest") else "*.whl")
    # pip keeps a package of the same version, which an environment that is used again has.
    session.install("--no-deps", "--no-build-isolation", "--force-reinstall", str(file))


@nox.session(venv_backend="none", tags=["ends"])
def build(session: nox.Session) -> None:
    """Build and check the distributions that the other sessions install; nobody publishes these."""
    tool = (sys.executable, str(ROOT / "tools/distribution.py"))
    session.run(*tool, "https://github.com/OWNER/NAME", str(distributions(session)), silent=True)


@nox.session(requires=["build"])
@nox.parametrize("python, packages, changes, without", [*STACKS, WITHOUT_MYST])
def suite(session: nox.Session, packages: str, changes: list[str], without: list[str]) -> None:
    """Run every test but those in a browser, or what ``-- -m …`` selects, on the package; write the docs."""
    install(session, requirements(packages), changes, without)
    test(session, *UNATTENDED, *(f"--without={name}" for name in without), *session.posargs)
    if "myst_parser" not in without:  # some pages are Markdown
        documentation(session, "alabaster" if "sphinx_rtd_theme" in without else "sphinx_rtd_theme")


def test(session: nox.Session, *options: str) -> None:
    """Run tests on the installed package."""
    # Neither this program nor the directory that it runs in puts the checkout before the wheel.
    folder = Path(session.create_tmp()).resolve()
    command = ("pytest", *QUIET, "-o", f"cache_dir={folder / 'cache'}", *options, str(ROOT / "tests"))
    with session.chdir(folder):
        session.run(*command, env=STRICT)


def documentation(session: nox.Session, theme: str) -> None:
    """Write this documentation with every builder, references checked."""
    folder = Path(session.create_tmp()).resolve() / "documentation"
    shutil.rmtree(folder, ignore_errors=True)
    builders = (*BUILDERS, READS_ALONE) if session.python == PYTHONS[-1] else BUILDERS
    for builder in builders:
        doctrees = folder / (READS_ALONE if builder == READS_ALONE else "doctrees")
        options = ("-j", "auto", "-n", "-W", "--keep-going", "-q", "-b", builder, "-d", str(doctrees))
        out = str(folder / builder)
        session.run("sphinx-build", *options, "-D", f"html_theme={theme}", "docs", out, env=STRICT)


@nox.session(requires=["build"])
@nox.parametrize("python", [PYTHONS[0], nox.param(PYTHONS[-1], tags=["ends"])])
def wheel(session: nox.Session) -> None:
    """With nothing beside it, the wheel builds a project whose conf.py is one line, and its command works."""
    install(session, requirements("package"), [], [])
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
@nox.parametrize(
    "python, packages, changes, without", [nox.param("3.10", "oldest", [], [], id="3.10-oldest"), NEWEST]
)
def pdf(session: nox.Session, packages: str, changes: list[str], without: list[str]) -> None:
    """What LaTeX makes of the pages; skipped, with the reason, where there is no TeX."""
    for program in ("latexmk", "pdftotext", "pdfinfo"):
        if not shutil.which(program):
            session.skip(f"{program} is not installed")
    install(session, requirements(packages), changes, without)
    test(session, "-m", "matrix")


def resolve(session: nox.Session, packages: str, target: Path, *upgrades: str) -> None:
    """Write the exact packages for every supported Python, as pyproject.toml allows them.

    Args:
        session: a session with uv.
        packages: the name of the file below requirements/.
        target: the file to write; what it has stays, but for ``upgrades``.
        upgrades: ``--upgrade``, or ``--upgrade-package`` and a name.
    """
    build_system = nox.project.load_toml("pyproject.toml")["build-system"]
    backend = Path(session.create_tmp()) / "backend.txt"
    backend.write_text("\n".join(build_system["requires"]), "utf-8")
    session.run(
        "uv", "pip", "compile", "--quiet", "--universal", "--python-version", PYTHONS[0], "--generate-hashes",
        "--no-annotate", "--custom-compile-command", "make upgrade", *RESOLUTIONS[packages], *upgrades,
        "--output-file", str(target), "pyproject.toml", str(backend), silent=True,
    )  # fmt: skip


@nox.session(default=False)
def upgrade(session: nox.Session) -> None:
    """Renew requirements/*.txt: ``make upgrade``."""
    session.install("uv")
    for packages in RESOLUTIONS:
        resolve(session, packages, requirements(packages), "--upgrade")


def pins(file: Path) -> dict[str, str]:
    """The version of each package in a file; several if it depends on the Python."""
    found: dict[str, list[str]] = {}
    for name, version in re.findall(r"(?m)^([\w.-]+)==(\S+)", file.read_text("utf-8")):
        found.setdefault(name, []).append(version)
    return {name: "/".join(versions) for name, versions in found.items()}


def passes(session: nox.Session, file: Path, *options: str) -> bool:
    """Return whether the tests pass with the packages of a file."""
    install(session, file, [], [])
    try:
        test(session, *UNATTENDED, *options)
    except CommandFailed:
        return False
    return True


@nox.session(requires=["build"], default=False)
@nox.parametrize(
    "python, packages",
    [
        nox.param(python, packages, id=f"{python}-{packages}")
        for python, packages in (("3.10", "oldest"), ("3.10", "development"), ("3.13", "development"))
    ],
)
def weekly(session: nox.Session, packages: str) -> None:
    """Run the tests with what ``make upgrade`` would install; if some fail, say which package does it.

    Those that fail are then run with the known packages, and with one new package at a time.
    """
    known, new, one = requirements(packages), session.cache_dir / "new.txt", session.cache_dir / "one.txt"
    session.install("uv")
    shutil.copy(known, new)
    resolve(session, packages, new, "--upgrade")
    if passes(session, new, *session.posargs):
        return
    memory = Path(session.create_tmp()) / "cache/v/cache/lastfailed"
    failed = memory.read_text("utf-8") if memory.exists() else "{}"  # none if pytest did not start

    def still_passes(file: Path) -> bool:
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(failed, "utf-8")  # pytest forgets a failure once the test passes
        return passes(session, file, "--last-failed", *session.posargs)

    if not still_passes(known):
        session.error(f"Tests fail with {known.name}, too.")
    before, after, guilty = pins(known), pins(new), []
    for name in sorted(name for name in after if before.get(name) != after[name]):
        shutil.copy(known, one)
        resolve(session, packages, one, "--upgrade-package", name)
        changes = [
            f"{other} {before.get(other, 'none')} -> {version}"
            for other, version in pins(one).items()
            if before.get(other) != version
        ]
        if changes and not still_passes(one):
            guilty.append(", ".join(changes))
    session.error("\n".join(["Tests fail with", *guilty]) if guilty else "No package alone makes tests fail.")
