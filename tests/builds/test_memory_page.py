"""The pages of the memory analysis, in every builder that people read."""

from __future__ import annotations

import re
import shutil

import pytest

from sphinx_verl_resources.analysis import analyse, judge
from sphinx_verl_resources.estimator.context import EstimatorContext

#: Each builder, and the files of its output; ``{}`` is the name of a page.
BUILDERS = [
    ("html", "{}.html"), ("text", "{}.txt"), ("latex", "projectnamenotset.tex"), ("gettext", "{}.pot"),
]  # fmt: skip
PAGES = ("memory", "original-figures")


@pytest.fixture
def page(project, root):
    """The pages of the documentation, in a project without anything else."""
    for name in ("memory.rst", "original-figures.rst", "original-figures.csv", "memory-example.md"):
        shutil.copy(root / "docs" / name, project.path)
    text = (project.path / "memory.rst").read_text("utf-8")
    text = text.replace(":doc:`the hardware page <hardware>`", "x")
    (project.path / "memory.rst").write_text(text, "utf-8")
    project.conf.update(extensions=["myst_parser"], version="1", copyright="x")
    return project.page(".. toctree::\n\n   memory\n   original-figures\n   memory-example\n")


@pytest.mark.parametrize(
    ("builder", "name"),
    [BUILDERS[0], *(pytest.param(*each, marks=pytest.mark.slow) for each in BUILDERS[1:])],
)
def test_builders(page, builder, name):
    build = page.build(builder, fresh=True)
    assert build.warnings == []
    if builder == "gettext":
        return
    texts = map(build.text, dict.fromkeys(name.format(page) for page in PAGES))
    text = "".join(texts)
    text = text.replace("\\sphinxhyphen{}", "-").replace("{,}", ",").replace("\\-", "-")
    for figure in ("58.2", "37.2", "29.2", "27.3", "18.7", "117.5", "31.9", "386.8", "72.8", "39.9", "2795"):
        assert figure in text, figure
    for word in ("too few", "never fits", "more than needed", "there is no H100 with 40 GB"):
        assert word in text, word
    plain = re.sub(r"\s+", " ", text)
    assert "batch × sequence × layers × hidden × 2 × 2 bytes = 32 × 2048 × 32 × 2560 × 4" in plain


def test_links_of_latex_land(page):
    tex = page.build("latex").text("projectnamenotset.tex")
    targets = set(re.findall(r"\\hyperref\[\\detokenize\{([^}]*)\}\]", tex))
    assert {target for target in targets if "verl-remark" in target}
    for target in targets:
        assert rf"\label{{\detokenize{{{target}}}}}" in tex, target


def test_links_of_html_land_and_ids_are_unique(page):
    build = page.build(html_theme="sphinx_rtd_theme")
    for name in ("memory.html", "original-figures.html", "memory-example.html"):
        soup = build.soup(name)
        ids = [element["id"] for element in soup.select("[id]")]
        assert len(ids) == len(set(ids))
        targets = {link["href"].removeprefix("#") for link in soup.select("a.verl-mark")}
        assert targets <= set(ids)


def test_no_figure_is_typed(root):
    """Every number on the page comes from the analysis, except for definitions of units."""
    text = (root / "docs/memory.rst").read_text("utf-8")
    text = re.sub(r":verl:memory:`[^`]*`", "", text)
    units = r"10\\ :sup:`9` bytes|2\\ :sup:`30` bytes|7 % larger"
    text = re.sub(rf"{units}|\b(?:3B|8B|32B|70B|RTX 4090|32 GPUs)\b", "", text)
    assert re.findall(r"\d+", text) == []


def test_what_the_prose_says():
    """Sentences of the page with typed numbers."""
    records = EstimatorContext()
    catalog, analysis = records, records.analysis
    for name in ("3B", "8B", "32B"):
        saved = {step.step.name: step.saved for step in analyse(analysis, name).steps}
        assert min(saved, key=saved.get) == "activation-offload" == list(analysis.priorities)[1]
        for verdict in judge(analysis, analysis.requirements[name]):
            if verdict.claim.level == "minimum":
                assert "pooled" in verdict.follows
            if verdict.claim.level == "recommended":
                assert "doubled" in verdict.follows
    by_rule = analyse(analysis, "70B", gpus=32).end.total
    assert any(
        run.size == "70B" and run.kind == "tested" and run.gpus.count == 32
        and catalog.gpus.get(run.gpus.type).memory_mib * 2**20 < by_rule
        for run in catalog.runs.values()
    )  # fmt: skip
