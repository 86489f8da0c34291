"""docs/adopting.rst, followed step by step on a miniature of verl's documentation: the page's own text is run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from bs4 import BeautifulSoup

pytestmark = pytest.mark.slow

MINIATURE = Path(__file__).parent / "verl_docs"
HEADINGS = ["Tag", "Model", "Task", "Resource", "MaxBatch", "Train", "Infer", "Link", "Contributor"]
HTML = "docs/_build/html/perf/device_tuning.html"
SIZES = ["0.5B", "1.5B", "3B", "7B", "14B", "32B", "70B"]


BLOCK = re.compile(
    r"^\.\. code-block:: (?P<language>\w+)\n(?P<options>(?:   :.*\n)*)\n(?P<text>(?:(?:   .*)?\n)+)",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def guide(root) -> list[tuple[list[str], str]]:
    """The blocks of code of the page, in its order: language and classes, and the text."""
    return [
        (
            [block["language"], *re.findall(r":class: (.*)", block["options"])],
            dedent(block["text"]).strip("\n"),
        )
        for block in BLOCK.finditer((root / "docs/adopting.rst").read_text("utf-8"))
    ]


def blocks(guide, *classes: str) -> list[str]:
    return [text for names, text in guide if {*classes} <= {*names}]


def commands(guide) -> list[tuple[str, int]]:
    """The commands of the page but those that need an index, and the exit code of each."""
    found = []
    for names, text in guide:
        if "console" in names:
            code = 1 if "exit-1" in names else 0
            found += [(command, code) for command in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]
    return [(text, code) for text, code in found if not text.startswith("pip ")]


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """A function: a command in a copy of the miniature, with the programs of this environment."""
    folder = tmp_path_factory.mktemp("adopting")
    shutil.copytree(MINIATURE, folder / "docs", ignore=shutil.ignore_patterns("_build", "__pycache__"))
    programs = folder / "bin"
    programs.mkdir()
    for name, module in (("verl-resources", "sphinx_verl_resources"), ("sphinx-build", "sphinx")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "NO_COLOR": "1",
    }
    environment.pop("PYTHONWARNINGS", None)  # the themes of others

    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-ec", command], cwd=folder, env=environment, capture_output=True, text=True
        )

    run.folder = folder
    return run


def cells(page: str) -> dict[str, list[list[str]]]:
    """The rows of every table of a built page, by the heading above them, without order."""
    soup = BeautifulSoup(page, "html.parser")
    found: dict[str, list[list[str]]] = {}
    for table in soup.select("div[itemprop=articleBody] table"):
        title = table.find_previous(
            lambda tag: tag.name in {"h2", "p"} and re.match(r"[\d.]+B", tag.get_text().strip())
        )
        assert title is not None
        rows = [
            [(" ".join(cell.get_text().split()), cell.a["href"] if cell.a and "://" in cell.a["href"] else None)
             for cell in row.select("td")]
            for row in table.select("tbody tr")
        ]  # fmt: skip
        rows = [row for row in rows if any(text for text, _ in row)]
        key = re.match(r"[\d.]+B", title.get_text().strip())[0]  # 0.5B is no heading, as it is typed
        found.setdefault(key, []).extend(sorted(rows))
    return {key: rows for key, rows in found.items() if rows and len(rows[0]) == len(HEADINGS)}


def built(shell) -> tuple[str, str]:
    """The built page and the log."""
    done = shell("sphinx-build -E --keep-going docs docs/_build/html")
    assert done.returncode == 0, done.stderr
    return (shell.folder / HTML).read_text("utf-8"), done.stderr


def as_linked(rows):
    """Of the one link that is typed with ``tree`` the data make one with ``blob``, as of the others."""
    return {
        size: [[(text, link and link.replace("/tree/", "/blob/")) for text, link in row] for row in table]
        for size, table in rows.items()
    }


@pytest.fixture(scope="module")
def followed(guide, shell, needs):
    """Every step of the page, and what the pages and logs were before, after, and after the way back."""
    needs("myst_parser", "sphinx_rtd_theme")
    docs = shell.folder / "docs"
    typed_text = (docs / "perf/device_tuning.rst").read_text("utf-8")
    conf = (docs / "conf.py").read_text("utf-8")
    before, _ = built(shell)
    # 2. the lines of conf.py; 3. the import; 4. the page; 5. the build; 6. the tables
    (lines,) = blocks(guide, "python")
    (page,) = blocks(guide, "rst")
    steps = commands(guide)
    (docs / "conf.py").write_text(conf + lines, "utf-8")
    said, log = [], ""
    for command, code in steps:
        if command.startswith("sphinx-build"):
            (docs / "perf/device_tuning.rst").write_text(page, "utf-8")
        done = shell(command)
        assert done.returncode == code, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        log = done.stderr if command.startswith("sphinx-build") else log
        said += [*done.stdout.splitlines(), *done.stderr.splitlines()]
    after = (shell.folder / HTML).read_text("utf-8")
    run_file = docs / "data/runs/qwen2-7b-grpo-2xh800.yaml"
    good = run_file.read_text("utf-8")
    run_file.write_text(good.replace("tag: MIN", "tag: MAX"), "utf-8")
    _, broken_log = built(shell)
    run_file.write_text(good, "utf-8")
    tables = (docs / "perf/tables.txt").read_text("utf-8")
    intro = typed_text[: typed_text.index("0.5B\n~~~")]
    (docs / "perf/tables.txt").unlink()
    (docs / "perf/device_tuning.rst").write_text(intro + tables, "utf-8")
    (docs / "conf.py").write_text(conf, "utf-8")
    shutil.rmtree(docs / "data")
    back, back_log = built(shell)
    return {
        "steps": steps, "said": said, "before": before, "after": after, "log": log,
        "broken_log": broken_log, "back": back, "back_log": back_log, "tables": tables,
    }  # fmt: skip


def test_the_page_shows_the_commands_that_are_run(followed):
    names = [re.match(r"(\{|for|sphinx-build|verl-resources \S+)", text)[1] for text, _ in followed["steps"]]
    imported = "verl-resources import-rst"
    assert names == [
        imported, imported, "verl-resources schema", "verl-resources check", "{", "verl-resources check",
        imported, "sphinx-build", "for",
    ]  # fmt: skip


def test_what_the_page_says_is_what_the_commands_print(guide, followed):
    shown = [line for text in blocks(guide, "text", "said") for line in text.splitlines()]
    assert len(shown) == 9
    for line in shown:
        assert line in followed["said"]


def test_the_built_tables_are_the_typed_ones(followed):
    typed, ours = cells(followed["before"]), cells(followed["after"])
    assert list(typed) == SIZES
    assert sum(map(len, typed.values())) == 12
    assert ours == as_linked(typed)


def test_the_way_back_gives_the_same_cells(followed):
    assert cells(followed["back"]) == as_linked(cells(followed["before"]))
    assert "ERROR" not in followed["back_log"]
    assert followed["tables"].count(".. list-table::") == 7


def test_what_verls_ci_looks_for_in_the_log_is_not_there(followed):
    for pattern in (
        ": ERROR:", "WARNING: document isn't included in any toctree", "WARNING: Inline emphasis",
        "WARNING: Definition list ends without a blank line",
    ):  # fmt: skip
        assert pattern not in followed["log"]
    assert "verl." not in followed["log"]


def test_a_mistake_in_the_data_is_a_line_that_verls_ci_fails_on(guide, followed):
    (line,) = blocks(guide, "text", "error-in-data")
    assert [found for found in followed["broken_log"].splitlines() if ": ERROR:" in found] == [line]


def test_old_anchors_lead_to_their_sections(followed):
    soup = BeautifulSoup(followed["after"], "html.parser")
    for anchor, size in (("b", "3b"), ("id3", "7b"), ("id5", "14b"), ("id8", "32b"), ("id11", "70b"), ("id15", "405b"), ("id16", "671b")):  # fmt: skip
        (found,) = soup.select(f"[id={anchor}]")
        section = found.find_parent("section") or found
        assert section["id"] == f"size-{size}" or found.find_next("section")["id"] == f"size-{size}"
    assert soup.select("[id=hardware-resources]")


def test_the_requirement_is_the_name_of_the_package(guide, root):
    (line,) = [text for text in blocks(guide, "text") if text == "sphinx-verl-resources"]
    assert f'name = "{line}"' in (root / "pyproject.toml").read_text("utf-8")


def test_pages_of_the_miniature_keep_verls_rule(guide):
    (page,) = blocks(guide, "rst")
    for text in (page, *(path.read_text("utf-8") for path in (MINIATURE / "perf").iterdir())):
        assert "Last updated" in text
