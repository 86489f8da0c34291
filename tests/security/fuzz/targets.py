"""The steps for each input, as in the commands and a build, and the conditions that must always hold."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from bs4 import BeautifulSoup

from sphinx_verl_resources.catalog.files import configured_directory
from sphinx_verl_resources.cli import main
from sphinx_verl_resources.diagnostics import Code, Diagnostic, Location
from sphinx_verl_resources.lint.check import check_data
from sphinx_verl_resources.lint.context import CheckContext
from sphinx_verl_resources.lint.renames import renames
from sphinx_verl_resources.lint.repairs import decoded, encoded, repaired_files
from sphinx_verl_resources.settings.overrides import read_overrides
from sphinx_verl_resources.settings.read import read_script, read_settings
from sphinx_verl_resources.settings.result import read_yaml_settings
from sphinx_verl_resources.views.problems import problems_github, problems_json, problems_sarif

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from sphinx_verl_resources.catalog.files import Directory

TODAY = date(2026, 11, 22)
#: Messages with a place and a code, or about the command itself.
_MESSAGE = re.compile(
    r"(?:(?P<path>.+?):(?P<line>\d+):(?P<column>\d+): )?(?:ERROR|WARNING): \S.*\[verl\.\w+\]"
    r"|verl-resources: \S.*|… and \d+ more messages?; --verbose shows all"
)


@dataclass
class AnyRepository:
    """A checkout of verl with nearly every commit, and a fuzzer's script at each path."""

    scripts: tuple[str, ...]
    shown: str = "verl"
    is_shallow: bool = False

    def commit(self, ref: str) -> str | None:
        return "a" * 40 if len(ref) % 5 else None

    def paths(self, commit: str) -> tuple[str, ...]:
        return ("examples/a.sh", "docs/a.md")

    def has(self, commit: str, path: str) -> bool:
        return bool(len(path) % 5)

    def nearest(self, commit: str, path: str) -> str | None:
        return self.paths(commit)[0] if len(path) % 2 else None

    def text(self, commit: str, path: str) -> str | None:
        number = sum(map(ord, path))
        return self.scripts[number % len(self.scripts)] if number % 7 else None


def check_directories(
    files: Mapping[str, bytes], folder: Path, base: Directory, repository: AnyRepository
) -> None:
    """Check and repair data directories; ``files`` are by path below the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    names = sorted({name.partition("/")[0] for name in files})

    def context() -> CheckContext:
        directories = [configured_directory(name, folder) for name in names]
        return CheckContext(directories, bundled=base, today=TODAY, repository=repository)

    first = context()
    _check_result(first, folder)
    for source, text, repairs in list(repaired_files(first)):
        assert repairs
        assert decoded(source.file) != text
        source.file.path.write_bytes(encoded(source.file, text).encode())
    second = context()
    _check_result(second, folder)
    assert {file.shown for file in second.files} == {file.shown for file in first.files}, (
        "repairs broke a file"
    )
    assert [(file.shown, repairs) for file, _, repairs in repaired_files(second)] == [], "repaired twice"
    for found in renames(second):
        assert found.text
        assert not found.path.exists() or found.path.parent.is_dir()


def _check_result(context: CheckContext, folder: Path) -> None:
    result = check_data(context)
    lines: dict[str, list[str]] = {}
    for problem in result.problems:
        _check_problem(problem)
        path = folder / problem.place.path
        assert path.exists(), str(problem)
        if path.is_file() and problem.code is not Code.encoding:
            text = path.read_bytes().decode("utf-8-sig", "replace")
            found = lines.setdefault(problem.place.path, re.split(r"\r\n|[\r\n]", text))
            line, column = problem.place.line or 1, problem.place.column or 1
            assert line <= len(found), str(problem)
            assert column <= len(found[line - 1]) + 1, str(problem)
    assert list(result.problems) == sorted(result.problems)
    json.loads(problems_json(result.problems))
    problems_github(result.problems, "x").encode()
    json.loads(problems_sarif(result.problems, (*result.suppressed, *result.gaps), "1"))


def _check_problem(problem: Diagnostic) -> None:
    text = str(problem)
    assert _MESSAGE.fullmatch(text), text
    assert text.isprintable()
    assert len(text) < 3_000


# -- commands


def check_script(path: Path, text: str, number: int) -> None:
    """Read a launch script as ``new``, ``estimate`` and the check of a repository do."""
    other = read_settings if number % 4 else read_yaml_settings
    for found in (read_script(text, "x", {"DEVICE": "npu"}), other(text, "x")):
        assert not found.values.keys() & found.unresolved.keys()
        assert found.places.keys() == found.values.keys() | found.unresolved.keys()
        for value in found.values.values():
            items = value if isinstance(value, tuple) else (value,)
            assert all(item is None or isinstance(item, (bool, int, float, str)) for item in items)
        for problem in found.problems:
            _check_problem(problem)
            assert problem.place.path == "x"
    for problem in read_overrides(text.split("\n"), Location("x")).problems:
        _check_problem(problem)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    # The commands take longer than reading the settings.
    if number % 3 == 0:
        run(["new", "--script", str(path), "--dry-run", "--format", "json"])
    elif number % 3 == 1:
        run(["estimate", "--script", str(path), "--gpus", "8xH100", "--format", "json"])


def check_log(path: Path, content: bytes, script: Path, number: int) -> None:
    """Read a log as ``diagnose`` and ``new`` do."""
    path.write_bytes(content)
    draft = ["new", "--log", str(path), "--despite-out-of-memory", "--dry-run", "--format", "json"]
    commands = (
        ["diagnose", str(path), "--verbose"],
        ["diagnose", str(path), "--gpus", "8xH100", "Qwen/Qwen2.5-7B", "--format", "json"],
        draft,
        [*draft, "--script", str(script)],
    )
    run(commands[number % 2])
    run(commands[2 + number // 2 % 2])


def run(arguments: list[str]) -> None:
    """Run a command in this process; its messages must begin with a place."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    assert code in {0, 1, 2}
    assert all(char.isprintable() or char == "\n" for char in err.getvalue())
    for line in err.getvalue().splitlines():
        found = _MESSAGE.fullmatch(line)
        assert found, line
    assert code == 0 or err.getvalue() or out.getvalue()
    if "json" in arguments and out.getvalue():
        json.loads(out.getvalue())


# -- pages

#: Active content that a text must not become; it may be a quoted value.
_ACTIVE = re.compile(r"<script>alert|<img src=x|\son\w+=['\"]?alert|href=\"javascript:")
_LOCATED = re.compile(r"(?P<path>\S[^:]*):(?P<line>\d+)(?::\d+)?: (?:\w+: )")


def check_warnings(warnings: Iterable[str], source: Path) -> None:
    """Check that each of our problems has a page and a line."""
    for warning in warnings:
        assert "Traceback" not in warning, warning
        if "[verl." in warning:
            found = _LOCATED.match(warning)
            assert found, warning
            assert found["path"].startswith(str(source)), warning


def check_output(text: str, name: str) -> None:
    """Check that no text of the input is active on a page."""
    if _ACTIVE.search(text) is None:
        return
    soup = BeautifulSoup(text, "html.parser")
    active = [tag for tag in soup.find_all(True) if any(key.startswith("on") for key in tag.attrs)]
    active += [tag for tag in soup.select("script, img") if "alert" in tag.text or tag.get("src") == "x"]
    # docutils turns an address in the text of a page into a link.
    active += [tag for tag in soup.select("a[href^='javascript:']") if tag.text != tag["href"]]
    assert active == [], name
