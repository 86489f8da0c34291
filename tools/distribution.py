"""Build wheel and sdist and check them: ``make dist``.

The wheel is built from the sdist, as an installer does.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

from packaging.metadata import ExceptionGroup, Metadata
from readme_renderer import markdown

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
#: Kinds of files in the wheel, and the folders that they come from and go to.
KINDS = {".css", ".jinja", ".js", ".md", ".mo", ".py", ".txt", ".typed", ".yaml"}
FOLDERS = {"sphinx_verl_resources": "sphinx_verl_resources", "data": "sphinx_verl_resources/data"}
#: An address that GitHub uses for a repository, in a browser or in git.
GITHUB = re.compile(r"(?:https://|ssh://git@|git@)github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?")


class WrongDistributionError(Exception):
    """A distribution that must not be published; each argument is a line of the message."""


def repository(name: str) -> str:
    """Return the address of the repository on GitHub; by default the remote ``origin``.

    Raises:
        WrongDistributionError: there is no address.
    """
    remote = ["git", "remote", "get-url", "origin"]
    named = (
        name or subprocess.run(remote, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    )
    if match := GITHUB.fullmatch(named):
        return f"https://github.com/{match[1]}"
    message = (
        f"the repository {named!r} has no address on GitHub" if named else "the repository has no address"
    )
    raise WrongDistributionError(f"{message}; run make dist REPOSITORY=https://github.com/OWNER/NAME")


def build(folder: Path, address: str) -> None:
    """Build both into a folder, which is emptied first."""
    for old in folder.glob("*"):
        old.unlink()
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    environment = {**os.environ, "VERL_RESOURCES_REPOSITORY": address}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


def check(folder: Path) -> str:
    """Check both distributions and return a line with the size of each.

    Raises:
        WrongDistributionError: a distribution is wrong.
    """
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        (place,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(place)
    with tarfile.open(sdist) as packed:
        (stem,) = {name.split("/")[0] for name in packed.getnames()}
        information = packed.extractfile(f"{stem}/PKG-INFO")
        assert information
        same = information.read() == metadata
    problems = [*content_problems(names), *metadata_problems(metadata)]
    if not same:
        problems.append("METADATA differs from PKG-INFO of the sdist; see tools/repository_metadata.py")
    if problems:
        raise WrongDistributionError(*(f"{wheel.name}: {problem}" for problem in problems))
    return "\n".join(f"{path.name}: {path.stat().st_size / 1024:,.0f} KiB" for path in (wheel, sdist))


def content_problems(names: list[str]) -> Iterator[str]:
    """Yield missing and superfluous files of the wheel."""
    expected = {
        f"{target}/{path.relative_to(ROOT / source).as_posix()}"
        for source, target in FOLDERS.items()
        for path in (ROOT / source).rglob("*")
        if path.suffix in KINDS and path.name != "glossary.md"
    }
    packed = {name for name in names if ".dist-info/" not in name}
    remedy = "see tool.hatch.build.targets.wheel in pyproject.toml"
    for name in sorted(expected - packed):
        yield f"{name} is missing; {remedy}"
    for name in sorted(packed - expected):
        yield f"{name} does not belong in the wheel; {remedy}"


def metadata_problems(text: bytes) -> Iterator[str]:
    """Yield errors of the metadata, and parts of the README that a package index cannot show."""
    try:
        metadata = Metadata.from_email(text, validate=True)
    except ExceptionGroup as group:
        yield from (f"metadata: {problem}; see project in pyproject.toml" for problem in group.exceptions)
        return
    if not metadata.project_urls:
        yield "no Project-URL; run make dist REPOSITORY=https://github.com/OWNER/NAME"
    warnings = io.StringIO()
    html = markdown.render(metadata.description or "", stream=warnings)
    if html is None or warnings.getvalue():
        yield f"README.md is empty, or an index cannot render it: {warnings.getvalue().strip()}"
    for address in re.findall('(?:href|src)="([^"]*)"', html or ""):
        if not address.startswith(("https://", "http://", "#")):
            yield f"README.md: the link {address!r} is broken on an index; see tools/repository_metadata.py"


def main(name: str, folder: str) -> None:
    """Build into a folder and check."""
    address = repository(name)
    build(Path(folder), address)
    sys.stdout.write(f"repository: {address}\n{check(Path(folder))}\n")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except WrongDistributionError as wrong:
        sys.exit("\n".join(wrong.args))
