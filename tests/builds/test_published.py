"""The pages of this documentation: the rows that verl published, the settings of verl's documentation, no typed figure."""

from __future__ import annotations

import re
import shutil

import pytest
from page_cases import without_answers, words

HEADINGS = ["Tag", "Model", "Task", "Resource", "MaxBatch", "Train", "Infer", "Link", "Contributor"]
COMMIT = "2239fd0ff7210c80ad63e20581924d1f66167429"
#: docs/conf.py of verl at 1dda039b9.
VERL = {
    "extensions": [
        "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.autosectionlabel",
        "sphinx.ext.napoleon", "sphinx.ext.viewcode",
    ],
    "myst_enable_extensions": ["dollarmath", "amsmath"],
    "source_suffix": {".rst": "restructuredtext", ".md": "markdown"},
    "html_theme": "sphinx_rtd_theme",
    "suppress_warnings": ["ref.duplicate", "ref.myst", "autosectionlabel"],  # two of the pages have "3B"
}  # fmt: skip
#: Figures and verdicts of the memory page.
MEMORY = (
    "58.2", "37.2", "29.2", "27.3", "18.7", "117.5", "31.9", "386.8", "72.8", "39.9", "2795", "too few",
    "never fits", "more than needed", "there is no H100 with 40 GB",
    "batch size × sequence length × layers × hidden size × 2 × 2 bytes = 32 × 2048 × 32 × 2560 × 2 × 2",
)  # fmt: skip


@pytest.fixture(scope="module")
def pages(hardware_page, new_project, root):
    """The hardware page and those of the memory analysis, with the labels that they link."""
    project = new_project("docs").page(".. toctree::\n   :glob:\n\n   *\n")
    project.page(
        ".. _verl-add-a-run:\n\nAdd a run\n---------\n\n.. _verl-estimator:\n\nBelow\n-----\n",
        "contributing-a-run.rst",
    )
    project.page("Text.\n", "out-of-memory.rst").page(hardware_page, "hardware.rst")
    for name in ("memory.rst", "original-figures.rst", "original-figures.csv"):
        shutil.copy(root / "docs" / name, project.path)
    return project


def test_html(pages, published):
    with without_answers():
        build = pages.build(**VERL)
    assert build.warnings == []
    soup = build.soup("hardware.html")
    assert len(soup.select("table.verl-runs")) == 10
    for size in dict.fromkeys(row["Size"] for row in published):
        section = soup.find(id=f"size-{size.lower().replace('.', '-')}")
        rows = [re.sub(r" \[\d+\]", "", words(row)) for row in section.select("table.verl-runs tr")]
        expected = [words_of(row) for row in published if row["Size"] == size]
        assert rows[: 1 + len(expected)] == [" | ".join(HEADINGS), *expected]
    links = {link.get_text(): link["href"] for link in soup.select("table.verl-runs td.verl-path a.external")}
    for row in published:
        assert links[row["Link"]] == f"https://github.com/verl-project/verl/blob/{COMMIT}/{row['Path']}"
    (empty,) = soup.select(".verl-empty")
    assert words(empty) == "No run is recorded for 405B yet. Add one."
    assert empty.a["href"] == "contributing-a-run.html#verl-add-a-run"
    assert len(soup.select("#size-671b tbody tr")) >= 4
    texts = "".join(words(build.soup(f"{name}.html")) for name in ("memory", "original-figures"))
    assert [figure for figure in MEMORY if figure not in texts] == []


def words_of(row):
    return re.sub(" +", " ", " | ".join(row[heading] for heading in HEADINGS)).strip()


def test_no_figure_is_typed(root):
    """Numbers on the pages come from the data, except for definitions of units, and names of models and GPUs."""
    source = (root / "docs" / "hardware.rst").read_text("utf-8")
    # The source may contain numbers in options of directives, but none of their output.
    prose = re.sub(r"^\.\. verl-\S+::.*\n(\n?   .*\n)*", "", source, flags=re.MULTILINE)
    assert len(prose) > len(source) / 2
    assert "Last updated" in prose
    assert re.findall(r"list-table|\b20\d\d-|\b\d{2,}\b(?!\*)", prose) == []
    text = re.sub(r":verl:memory:`[^`]*`", "", (root / "docs/memory.rst").read_text("utf-8"))
    units = r"10\\ :sup:`9` bytes|2\\ :sup:`30` bytes|7 % larger"
    assert re.findall(r"\d+", re.sub(rf"{units}|\b(?:3B|8B|32B|70B|RTX 4090|32 GPUs)\b", "", text)) == []
