"""A miniature of verl's documentation builds with the changes of docs/adopting.rst, and shows the typed rows."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from repositories import ENVIRONMENT, git

pytestmark = pytest.mark.slow

MINIATURE = Path(__file__).parent / "verl_docs"
PAGE = "perf/device_tuning.rst"
RUN = "hardware_runs/runs/qwen2-7b-grpo-2xh800.yaml"
HEADINGS = ["Tag", "Model", "Task", "Resource", "MaxBatch", "Train", "Infer", "Link", "Contributor"]


@pytest.fixture(scope="module")
def guide(root):
    return (root / "docs/adopting.rst").read_text("utf-8")


def build(docs: Path) -> tuple[BeautifulSoup, str]:
    """Return the page and the log of a fresh build."""
    out = docs.parent / "html"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "--no-color", "-E", "-b", "html", str(docs), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    page = (out / PAGE).with_suffix(".html").read_text("utf-8")
    return BeautifulSoup(page, "html.parser"), done.stderr.replace(f"{docs}/", "")


def adopt(root: Path, checkout: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "tools/adopt.py"), str(checkout)]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)


@pytest.fixture(scope="module")
def branch(root, tmp_path_factory):
    """A checkout whose conf.py and requirements have CR LF, and what the tool printed about its branch."""
    checkout = tmp_path_factory.mktemp("verl")
    shutil.copytree(MINIATURE, checkout / "docs", ignore=shutil.ignore_patterns("_build", "__pycache__"))
    for name in ("conf.py", "requirements-docs.txt"):
        path = checkout / "docs" / name
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    git("init", "-q", "-b", "main", folder=checkout)
    git("add", "-A", folder=checkout)
    git("commit", "-q", "-m", "All", folder=checkout)
    done = adopt(root, checkout)
    assert done.returncode == 0, done.stderr
    return checkout, done.stdout


@pytest.fixture(scope="module")
def adopted(branch, needs):
    """The page and the log with the changes of the tool, then with a mistake in a run file."""
    needs("myst_parser", "sphinx_rtd_theme")
    docs = branch[0] / "docs"
    page, log = build(docs)
    text = (docs / RUN).read_text("utf-8")
    (docs / RUN).write_text(text.replace("tag: MIN", "tag: MAX"), "utf-8")
    wrong = build(docs)[1]
    (docs / RUN).write_text(text, "utf-8")
    return page, log, wrong


def test_the_branch(branch, guide, root, published):
    checkout, output = branch
    assert re.match(r"\[doc\] feat: \w", git("log", "-1", "--format=%s", folder=checkout))
    changed = git("diff", "--name-only", "main", folder=checkout).split()
    assert len([name for name in changed if "/runs/" in name]) == len(published)
    assert {name for name in changed if "/runs/" not in name} == {
        f"docs/{PAGE}", "docs/conf.py", "docs/requirements-docs.txt",
    }  # fmt: skip
    for name in ("conf.py", "requirements-docs.txt"):
        content = (checkout / "docs" / name).read_bytes()
        assert content.count(b"\n") == content.count(b"\r\n")
        added = git("diff", "main", "--", f"docs/{name}", folder=checkout).splitlines()
        lines = [line[1:].rstrip("\r") for line in added if re.match(r"\+[^+\r]", line)]
        assert lines
        assert all(line in guide for line in lines)
    page = (checkout / "docs" / PAGE).read_text("utf-8")
    assert "run_<model>_<train-backend>.sh" in page
    assert "[gpunums]" not in page
    assert "git switch main && git branch -D doc-hardware-runs" in output
    assert adopt(root, checkout).returncode == 2, "it is adopted already"


def test_the_built_rows_are_the_typed_ones(adopted, published):
    tables = adopted[0].select("table.verl-runs tbody tr")
    rows = [[re.sub(r"\s*\[\d+\]", "", cell.text).strip() for cell in row.select("td")] for row in tables]
    assert sorted(rows) == sorted([row[heading] for heading in HEADINGS] for row in published)


def test_what_verls_ci_looks_for_in_the_log_is_not_there(adopted):
    for pattern in (
        ": ERROR:", "WARNING: document isn't included in any toctree", "WARNING: Inline emphasis",
        "WARNING: Definition list ends without a blank line", "verl.",
    ):  # fmt: skip
        assert pattern not in adopted[1]


def test_a_mistake_in_the_data_is_a_line_that_verls_ci_fails_on(guide, adopted):
    (line,) = (line for line in adopted[2].splitlines() if ": ERROR:" in line)
    assert line in guide


def test_old_anchors_lead_to_their_sections(adopted):
    for anchor, size in (("b", "3b"), ("id3", "7b"), ("id5", "14b"), ("id8", "32b"), ("id11", "70b"), ("id15", "405b"), ("id16", "671b")):  # fmt: skip
        (result,) = adopted[0].select(f"[id={anchor}]")
        section = result.find_parent("section") or result
        assert section["id"] == f"size-{size}" or result.find_next("section")["id"] == f"size-{size}"


def test_sizes_without_a_run_lead_to_a_section_that_says_how_to_add_one(adopted):
    assert {link["href"] for link in adopted[0].select(".verl-empty a")} == {"#verl-add-a-run"}
    assert "verl-resources new --script" in adopted[0].select_one("[id=verl-add-a-run]").parent.get_text()


def test_the_way_back(branch):
    checkout, _ = branch
    git("revert", "--no-edit", "HEAD", folder=checkout)
    assert git("diff", "--stat", "main", folder=checkout) == ""


def test_never_by_name_alone(guide):
    assert "sphinx-verl-resources @ https://" in guide
    assert not re.search(r"pip install sphinx-verl-resources\b", guide)
