"""Follow docs/adopting.rst on a checkout of verl: ``python tools/rehearse_adoption.py CHECKOUT``.

The guide's commands run in a temporary clone of the last commit; the checkout is not changed. Python needs
this package, beautifulsoup4 and the requirements of verl's documentation, but not verl. ``--full-page`` also
builds this project's hardware page instead of verl's.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, NamedTuple

from bs4 import BeautifulSoup

if TYPE_CHECKING:
    from collections.abc import Callable

    from bs4 import Tag

ROOT = Path(__file__).resolve().parent.parent
GUIDE = ROOT / "docs/adopting.rst"
PAGE = "docs/perf/device_tuning.rst"
OUTPUT = "docs/_build"
COLUMNS = 9

_BLOCK = re.compile(
    r"^\.\. code-block:: (?P<language>\w+)\n(?P<options>(?:   :.*\n)*)\n(?P<text>(?:(?:   .*)?\n)+)",
    re.MULTILINE,
)
#: The first heading of a size class; the rest of the page contains only tables.
_TABLES = re.compile(r"^[\d.]+B\n~+$", re.MULTILINE)
_WHO = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Jane Doe"), ("EMAIL", "jane@example.org"))
}


class Block(NamedTuple):
    """A code block of the guide: language and classes, caption, and text."""

    names: frozenset[str]
    caption: str
    text: str


class Build(NamedTuple):
    """A build: the hardware page, the log, and the processor time in seconds."""

    page: str
    log: str
    seconds: float


def read_guide() -> list[Block]:
    """Return the code blocks of the guide in order."""
    found = []
    for block in _BLOCK.finditer(GUIDE.read_text("utf-8")):
        options = dict(re.findall(r":(\w+): (.*)", block["options"]))
        names = frozenset({block["language"], *options.get("class", "").split()})
        found.append(Block(names, options.get("caption", ""), dedent(block["text"]).strip("\n")))
    return found


class Rehearsal:
    """A git work tree with verl's documentation, and the output of the guide's commands."""

    def __init__(self, tree: Path) -> None:
        """Create programs that use this Python next to the tree.

        Args:
            tree: the work tree, with at least one commit.
        """
        self.tree = tree
        self.guide = read_guide()
        self.printed: list[str] = []
        self.commands: list[str] = []
        programs = tree.parent / "bin"
        programs.mkdir()
        for name, module in (("verl-resources", "sphinx_verl_resources"), ("sphinx-build", "sphinx")):
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
            (programs / name).chmod(0o755)
        own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        own.pop("PYTHONWARNINGS", None)  # themes may warn
        settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "NO_COLOR": "1"}
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**own, **_WHO, **settings, "PATH": path}
        (tree / ".git/info/exclude").write_text(f"/{OUTPUT}/\n")

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command at the top of the tree.

        Raises:
            RuntimeError: it fails.
        """
        done = subprocess.run(
            ["bash", "-ec", command], cwd=self.tree, env=self._environment, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return done

    def build(self) -> Build:
        """Build the documentation from scratch."""
        shutil.rmtree(self.tree / OUTPUT, ignore_errors=True)
        start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        log = self.run(f"sphinx-build -b html docs {OUTPUT}/html").stderr
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start
        page = self.tree / OUTPUT / "html" / Path(PAGE).relative_to("docs").with_suffix(".html")
        return Build(page.read_text("utf-8"), log, seconds)

    def follow(self, *classes: str) -> None:
        """Follow the guide's steps with these classes, in order; without classes, the main steps."""
        special = {"way-back", "tables"}
        for block in self.guide:
            if special & block.names != {*classes}:
                continue
            path, _, where = block.caption.partition(", ")
            if where == "at the end":
                self._edit(path, lambda text, end=block.text: f"{text}\n{end}\n")
            elif where == "from the first size on":
                self._edit(path, lambda text, end=block.text: _TABLES.split(text)[0] + end + "\n")
            elif "console" in block.names:
                self._run_all(block.text)

    def _edit(self, path: str, change: Callable[[str], str]) -> None:
        """Change the text of a file and keep its line endings, such as CR LF in verl's conf.py."""
        file = self.tree / path
        content = file.read_bytes().decode()
        end = "\r\n" if "\r\n" in content else "\n"
        file.write_bytes(change(content.replace("\r\n", "\n")).replace("\n", end).encode())

    def _run_all(self, text: str) -> None:
        """Run the commands of a block, except those that need a package index."""
        for command in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            if not command.startswith(("pip ", "sphinx-build ")):
                done = self.run(command)
                self.commands.append(command)
                self.printed += [*done.stdout.splitlines(), *done.stderr.splitlines()]

    def put_tables_back(self) -> Build:
        """Build the page with the tables that the guide's commands write, then restore the tree."""
        self.follow("tables")
        conf = self.run("git show HEAD~1:docs/conf.py").stdout
        page = self.run(f"git show HEAD~1:{PAGE}").stdout
        (self.tree / "docs/conf.py").write_text(conf, "utf-8")
        tables = (self.tree / "docs/perf/tables.txt").read_text("utf-8")
        (self.tree / PAGE).write_text(_TABLES.split(page)[0] + tables, "utf-8")
        built = self.build()
        self.run("git reset -q --hard && git clean -fdq")
        return built

    def files(self) -> dict[str, bytes | None]:
        """Return the content of every file of the tree by path, None for folders, without build output."""
        found: dict[str, bytes | None] = {}
        for folder, folders, names in os.walk(self.tree):
            folders[:] = [name for name in folders if name not in {".git", "_build", "__pycache__"}]
            found[Path(folder).relative_to(self.tree).as_posix()] = None
            for name in names:
                path = Path(folder, name)
                content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
                found[path.relative_to(self.tree).as_posix()] = content
        return found


def cells(page: str) -> dict[str, list[list[tuple[str, str | None]]]]:
    """Return the text and link of each cell of a built page by size class, with rows sorted by text."""
    soup = BeautifulSoup(page, "html.parser")
    found: dict[str, list[list[tuple[str, str | None]]]] = {}
    for table in soup.select("div[itemprop=articleBody] table"):
        # A heading whose underline is too short is a paragraph.
        title = table.find_previous(lambda tag: tag.name in {"h2", "h3", "p"} and _size(tag.get_text()))
        rows = [[_cell(cell) for cell in row.select("td")] for row in table.select("tbody tr")]
        rows = [row for row in rows if len(row) == COLUMNS and any(text for text, _ in row)]
        if title is not None and rows:
            rows.sort(key=lambda row: [text for text, _ in row])
            found.setdefault(_size(title.get_text()), []).extend(rows)
    return found


def _size(title: str) -> str:
    """Return the size class at the beginning of a heading, or an empty text."""
    match = re.match(r"[\d.]+B", title.strip())
    return match[0] if match else ""


def _cell(cell: Tag) -> tuple[str, str | None]:
    link = cell.a["href"] if cell.a and ":" in cell.a["href"] else None
    return " ".join(cell.get_text().split()), link


def flat(tables: dict[str, list[list[tuple[str, str | None]]]]) -> list[tuple[str, str, str | None]]:
    """Return all cells: size class, text and link."""
    return [(size, *cell) for size, rows in tables.items() for row in rows for cell in row]


def anchors(page: str) -> set[str]:
    """Return the ids of the article of a page."""
    return {item["id"] for item in BeautifulSoup(page, "html.parser").select("[itemprop=articleBody] [id]")}


def warnings(build: Build) -> Counter[str]:
    """Return the warnings and errors of a build without line numbers, which differ."""
    lines = [line for line in build.log.splitlines() if re.search(r"(WARNING|ERROR|CRITICAL):", line)]
    return Counter(re.sub(r":\d+: ", ": ", line) for line in lines)


def report(before: Build, after: Build) -> list[str]:
    """Return lines that compare two builds of the page."""
    typed, ours = flat(cells(before.page)), flat(cells(after.page))
    same = [old[:2] == new[:2] for old, new in zip(typed, ours, strict=False)]
    links = Counter(
        f"{_kind(old)} became {_kind(new)}"
        for (*_, old), (*_, new) in zip(typed, ours, strict=False)
        if old != new
    )
    new = warnings(after) - warnings(before)
    return [
        f"cells: {sum(same)} of {len(typed)} equal, {len(ours)} now",
        "; ".join([f"links: {sum(links.values())} differ", *(f"{links[what]} {what}" for what in links)]),
        f"old anchors lost: {', '.join(sorted(anchors(before.page) - anchors(after.page))) or 'none'}",
        f"warnings: {sum(warnings(before).values())} before, {sum(warnings(after).values())} after",
        *(f"  new: {line}" for line in new),
        f"processor time: {before.seconds:.1f} s before, {after.seconds:.1f} s after",
    ]


def _kind(link: str | None) -> str:
    """Return the kind of a link, for comparing old and new links."""
    if link is None:
        return "no link"
    parts = re.split("[:/]", link)
    return next((kind for kind in ("mailto", "tree", "blob") if kind in parts), "another link")


def rehearse(tree: Path, *, full_page: bool) -> list[str]:
    """Follow the guide in a work tree and return the report."""
    rehearsal = Rehearsal(tree)
    original = rehearsal.files()
    before = rehearsal.build()
    rehearsal.follow()
    after = rehearsal.build()
    lines = ["tables from data", *report(before, after)]
    stat = rehearsal.run("git diff --stat HEAD~1").stdout
    if full_page:
        shutil.copy(ROOT / "docs/hardware.rst", tree / PAGE)
        lines += ["", "this project's hardware page", *report(before, rehearsal.build())]
        rehearsal.run(f"git checkout -q {PAGE}")
    tables = rehearsal.put_tables_back()
    lines += ["", "tables written out again", *report(before, tables)[:1]]
    said = [line for line in rehearsal.printed if ": WARNING: " not in line and not line.startswith("wrote ")]
    rehearsal.follow("way-back")
    now = rehearsal.files()
    differ = sorted({path for path, _ in original.items() ^ now.items()})
    same = f"no, {', '.join(differ)}" if differ else f"yes, {len(now)} files and folders"
    return [*lines, "", f"the way back restores every byte: {same}", "", *said, "", stat]


def main() -> None:
    """Clone, rehearse, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("checkout", type=Path, help="git checkout of verl; its last commit is cloned")
    parser.add_argument("--full-page", action="store_true", help="also build this project's hardware page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "verl"
        checkout = str(options.checkout.resolve())
        subprocess.run(["git", "clone", "--quiet", "--shared", checkout, str(tree)], check=True)
        lines = rehearse(tree, full_page=options.full_page)
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
