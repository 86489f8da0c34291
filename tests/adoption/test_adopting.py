"""Follow docs/adopting.rst step by step on a miniature of verl's documentation, running the page's own code."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from modules import module_at

from sphinx_verl_resources import __version__

pytestmark = pytest.mark.slow

MINIATURE = Path(__file__).parent / "verl_docs"
SIZES = ["0.5B", "1.5B", "3B", "7B", "14B", "32B", "70B"]
PAGE = "docs/perf/device_tuning.rst"
RUN = "docs/hardware_runs/runs/qwen2-7b-grpo-2xh800.yaml"


@pytest.fixture(scope="module")
def tool(root):
    """The script that rehearses adoption on a checkout of verl."""
    return module_at(root / "tools/rehearse_adoption.py")


@pytest.fixture(scope="module")
def guide(tool):
    return tool.read_guide()


def texts(guide, *names: str) -> list[str]:
    """Return the code blocks with a language and classes."""
    return [block.text for block in guide if {*names} <= block.names]


def captioned(guide, caption: str) -> str:
    """Return the block with a caption."""
    (text,) = [block.text for block in guide if block.caption.startswith(caption)]
    return text


def built_with(rehearsal, path: str, old: str, new: str):
    """Build with a changed file, and restore it afterwards."""
    file = rehearsal.tree / path
    good = file.read_text("utf-8")
    assert old in good
    file.write_text(good.replace(old, new), "utf-8")
    built = rehearsal.build()
    file.write_text(good, "utf-8")
    return built


@pytest.fixture
def checkout(tool, tmp_path, needs) -> Path:
    """The miniature in git."""
    return new_checkout(tool, tmp_path, needs).tree


def new_checkout(tool, folder, needs):
    """A rehearsal on the miniature in git, before its first step."""
    needs("myst_parser", "sphinx_rtd_theme")
    tree = folder / "verl"
    shutil.copytree(MINIATURE, tree / "docs", ignore=shutil.ignore_patterns("_build", "__pycache__"))
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    rehearsal = tool.Rehearsal(tree)
    rehearsal.run("git add -A && git commit -q -m Miniature")
    return rehearsal


@pytest.fixture(scope="module")
def followed(tool, tmp_path_factory, needs):
    """Every step of the page, with the pages and logs before, after, and after undoing it."""
    rehearsal = new_checkout(tool, tmp_path_factory.mktemp("adopting"), needs)
    tree = rehearsal.tree
    found = {"files": rehearsal.files(), "before": rehearsal.build()}
    rehearsal.follow()
    found |= {"changed": rehearsal.run("git diff --name-status HEAD~1").stdout, "after": rehearsal.build()}
    found["broken"] = built_with(rehearsal, RUN, "tag: MIN", "tag: MAX")
    added = "added: 2025-06-25"
    (rehearsal.tree / RUN).write_text((tree / RUN).read_text("utf-8").replace(added, "added: 2025-06-26"))
    found["newer"] = rehearsal.run("verl-resources check docs/hardware_runs")
    rehearsal.run("git checkout -q .")
    found["tables"] = rehearsal.put_tables_back()
    found["status"] = rehearsal.run("git status --porcelain").stdout
    rehearsal.follow("way-back")
    return {**found, "files after": rehearsal.files(), "rehearsal": rehearsal}


def test_the_commands_of_the_page_are_run(followed):
    names = [re.match(r"for|git \S+|verl-resources \S+", text)[0] for text in followed["rehearsal"].commands]
    assert names == [
        "verl-resources import-rst", "verl-resources check", "verl-resources import-rst",
        "git add", "git commit", "git diff", "for", "git revert",
    ]  # fmt: skip


def test_what_the_page_says_is_what_the_commands_print(guide, followed):
    shown = [line for text in texts(guide, "text", "said") for line in text.splitlines()]
    assert len(shown) == 4
    for line in shown:
        assert line in [printed.strip() for printed in followed["rehearsal"].printed]


def test_the_merge_request_is_small_and_holds_nothing_generated(guide, followed):
    changed = dict(line.split("\t")[::-1] for line in followed["changed"].splitlines())
    added = {path for path, kind in changed.items() if kind == "A"}
    assert {path for path, kind in changed.items() if kind == "M"} == {
        PAGE, "docs/conf.py", "docs/requirements-docs.txt",
    }  # fmt: skip
    assert len(added) == 12
    assert all(re.fullmatch(r"docs/hardware_runs/runs/[a-z0-9-]+\.yaml", path) for path in added)
    (stat,) = [
        line for text in texts(guide, "text", "said") for line in text.splitlines() if "insert" in line
    ]
    files, insertions, _ = map(int, re.findall(r"\d+", stat))
    assert files == len(changed) <= 15
    assert insertions <= 300


def test_the_built_tables_are_the_typed_ones(tool, followed):
    typed, ours = tool.cells(followed["before"].page), tool.cells(followed["after"].page)
    assert list(typed) == list(ours) == SIZES
    assert sum(map(len, typed.values())) == 12
    assert [cell[:2] for cell in tool.flat(ours)] == [cell[:2] for cell in tool.flat(typed)]
    assert tool.report(followed["before"], followed["after"])[:4] == [
        "cells: 108 of 108 equal, 108 now",
        "links: 13 differ; 12 mailto became no link; 1 tree became blob",
        "old anchors lost: none",
        "warnings: 1 before, 1 after",
    ]


def test_the_report_names_what_differs(tool, followed):
    """The report can also be negative."""
    before, after = followed["before"], followed["after"]
    page = after.page.replace(">2*H800<", ">3*H800<").replace('id="id3"', 'id="other"')
    page = re.sub(r'href="https://github.com/[^"]*7b_grpo_2_h800[^"]*"', 'href="#"', page)
    other = tool.Build(page, after.log + "\na.rst:3: WARNING: something\n", 1.0)
    report = tool.report(before, other)
    assert report[0] == "cells: 107 of 108 equal, 108 now"
    assert (
        report[1] == "links: 14 differ; 12 mailto became no link; 1 blob became no link; 1 tree became blob"
    )
    assert report[2:5] == [
        "old anchors lost: id3",
        "warnings: 1 before, 2 after",
        "  new: a.rst: WARNING: something",
    ]


def test_the_way_back_restores_every_byte(followed):
    assert followed["status"] == ""
    assert followed["files after"] == followed["files"]
    assert "docs/data/transfer_queue.md" in followed["files"]


def test_the_tables_can_be_written_out_again(tool, followed):
    def texts(build):
        return [cell[:2] for cell in tool.flat(tool.cells(build.page))]

    assert texts(followed["tables"]) == texts(followed["before"])
    assert "ERROR" not in followed["tables"].log
    links = [link for *_, link in tool.flat(tool.cells(followed["tables"].page)) if link]
    assert links == [link for *_, link in tool.flat(tool.cells(followed["after"].page)) if link]


def test_the_script_reports_on_a_checkout_and_leaves_it_alone(root, checkout):
    (checkout / "mine.txt").write_text("not committed")

    def files():
        return sorted(path for path in checkout.rglob("*") if ".git" not in path.parts)

    before = files()
    command = [sys.executable, str(root / "tools/rehearse_adoption.py"), str(checkout)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert files() == before
    lines = done.stdout.splitlines()
    assert lines[:2] == ["tables from data", "cells: 108 of 108 equal, 108 now"]
    assert any(line.startswith("the way back restores every byte: yes, ") for line in lines)
    assert any(" 15 files changed, " in line for line in lines)


def test_what_verls_ci_looks_for_in_the_log_is_not_there(followed):
    log = followed["after"].log
    for pattern in (
        ": ERROR:", "WARNING: document isn't included in any toctree", "WARNING: Inline emphasis",
        "WARNING: Definition list ends without a blank line", "verl.",
    ):  # fmt: skip
        assert pattern not in log


def test_a_mistake_in_the_data_is_a_line_that_verls_ci_fails_on(guide, followed):
    (line,) = texts(guide, "text", "error-in-data")
    assert [found for found in followed["broken"].log.splitlines() if ": ERROR:" in found] == [line]


def test_a_new_row_with_the_same_gaps_is_warned_of(followed):
    assert followed["newer"].stderr.count("WARNING") == 2
    assert "12 runs, 0 errors, 2 warnings" in followed["newer"].stdout


def test_old_anchors_lead_to_their_sections(followed):
    soup = BeautifulSoup(followed["after"].page, "html.parser")
    for anchor, size in (("b", "3b"), ("id3", "7b"), ("id5", "14b"), ("id8", "32b"), ("id11", "70b"), ("id15", "405b"), ("id16", "671b")):  # fmt: skip
        (found,) = soup.select(f"[id={anchor}]")
        section = found.find_parent("section") or found
        assert section["id"] == f"size-{size}" or found.find_next("section")["id"] == f"size-{size}"


def test_sizes_without_a_run_lead_to_a_section_that_says_how_to_add_one(followed):
    soup = BeautifulSoup(followed["after"].page, "html.parser")
    links = {link["href"] for link in soup.select(".verl-empty a")}
    assert links == {"#verl-add-a-run"}
    assert "verl-resources new --script" in soup.select_one("[id=verl-add-a-run]").parent.get_text()


def test_the_requirement_is_this_package_with_a_version_or_an_address(guide, root):
    _, line = captioned(guide, "docs/requirements-docs.txt").splitlines()
    name, version = line.split("==")
    assert f'name = "{name}"' in (root / "pyproject.toml").read_text("utf-8")
    assert __version__.startswith(version.removesuffix("*"))
    requirements = [
        line for text in texts(guide, "text") for line in text.splitlines() if line.startswith(name)
    ]
    assert all(re.match(rf"{name}(==| @ https://)", line) for line in requirements)
    assert not re.search(rf"pip install {name}\b", (root / "docs/adopting.rst").read_text("utf-8"))


def test_the_size_of_the_package_is_about_what_the_page_says(root):
    text = (root / "docs/adopting.rst").read_text("utf-8")
    said = int(re.search(r"about ([\d,]+) lines of Python", text)[1].replace(",", ""))
    files = (root / "sphinx_verl_resources").rglob("*.py")
    assert said == pytest.approx(sum(path.read_bytes().count(b"\n") for path in files), rel=0.1)


def test_pages_of_the_miniature_keep_verls_rule():
    for path in (*MINIATURE.glob("perf/*"), *MINIATURE.glob("data/*")):
        assert "Last updated" in path.read_text("utf-8")
