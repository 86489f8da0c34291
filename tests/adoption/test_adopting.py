"""A miniature of verl's documentation builds with the changes of docs/adopting.rst, and shows the typed rows."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from bs4 import BeautifulSoup

from sphinx_verl_resources import __version__

pytestmark = pytest.mark.slow

MINIATURE = Path(__file__).parent / "verl_docs"
PAGE = "perf/device_tuning.rst"
RUN = "hardware_runs/runs/qwen2-7b-grpo-2xh800.yaml"
HEADINGS = ["Tag", "Model", "Task", "Resource", "MaxBatch", "Train", "Infer", "Link", "Contributor"]


@pytest.fixture(scope="module")
def guide(root):
    return (root / "docs/adopting.rst").read_text("utf-8")


def captioned(guide: str, caption: str) -> str:
    """Return the block with a caption."""
    (text,) = re.findall(rf"^   :caption: {re.escape(caption)}.*\n\n((?:(?:   .*)?\n)+)", guide, re.MULTILINE)
    return dedent(text).strip("\n") + "\n"


def build(docs: Path) -> tuple[BeautifulSoup, str]:
    """Return the page and the log of a fresh build."""
    out = docs.parent / "html"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "--no-color", "-E", "-b", "html", str(docs), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    page = (out / PAGE).with_suffix(".html").read_text("utf-8")
    return BeautifulSoup(page, "html.parser"), done.stderr.replace(f"{docs}/", "")


@pytest.fixture(scope="module")
def adopted(root, guide, published, tmp_path_factory, needs):
    """The page and the log with the changes of the guide, then with a mistake in a run file."""
    needs("myst_parser", "sphinx_rtd_theme")
    docs = tmp_path_factory.mktemp("verl") / "docs"
    shutil.copytree(MINIATURE, docs, ignore=shutil.ignore_patterns("_build", "__pycache__"))
    with (docs / "conf.py").open("a") as stream:
        stream.write(captioned(guide, "docs/conf.py"))
    typed = (docs / PAGE).read_text("utf-8")
    before = re.split(r"^[\d.]+B\n~+$", typed, maxsplit=1, flags=re.MULTILINE)[0]
    (docs / PAGE).write_text(before + captioned(guide, f"docs/{PAGE}"), "utf-8")
    (docs / RUN).parent.mkdir(parents=True)
    for file in (root / "data/runs").glob("*.yaml"):
        text = file.read_text("utf-8")
        if any(row["Path"] in text for row in published):
            (docs / RUN).with_name(file.name).write_text(text.split("\n", 1)[1], "utf-8")
    page, log = build(docs)
    (docs / RUN).write_text((docs / RUN).read_text("utf-8").replace("tag: MIN", "tag: MAX"), "utf-8")
    return page, log, build(docs)[1]


def test_the_built_rows_are_the_typed_ones(adopted, published):
    tables = adopted[0].select("table.verl-runs tbody tr")
    rows = [
        [re.sub(r"\s*\[\d+\]", "", cell.get_text()).strip() for cell in row.select("td")] for row in tables
    ]
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
        (found,) = adopted[0].select(f"[id={anchor}]")
        section = found.find_parent("section") or found
        assert section["id"] == f"size-{size}" or found.find_next("section")["id"] == f"size-{size}"


def test_sizes_without_a_run_lead_to_a_section_that_says_how_to_add_one(adopted):
    assert {link["href"] for link in adopted[0].select(".verl-empty a")} == {"#verl-add-a-run"}
    assert "verl-resources new --script" in adopted[0].select_one("[id=verl-add-a-run]").parent.get_text()


def test_the_requirement_is_this_package_with_a_version_or_an_address(guide, root):
    _, line = captioned(guide, "docs/requirements-docs.txt").splitlines()
    name, version = line.split("==")
    assert f'name = "{name}"' in (root / "pyproject.toml").read_text("utf-8")
    assert __version__.startswith(version.removesuffix("*"))
    assert f"{name} @ https://" in guide
    assert not re.search(rf"pip install {name}\b", guide)
