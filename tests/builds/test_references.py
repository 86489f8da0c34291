"""What other pages and projects can reach: the index of runs, the inventory and the search; ``pages.yaml`` has the roles."""

from __future__ import annotations

import json
import re

import pytest
from page_cases import words
from sphinx.testing.util import SphinxTestApp
from sphinx.util.inventory import InventoryFile


@pytest.fixture
def project_with_runs(own, data):
    """A project with a page that shows some objects of each kind."""
    data.run("a", script={"ref": "abc", "path": "examples/x_y_z.sh"})
    data.run("b", label="My; model", task="GRPO-LoRA")
    data.run("c", size="0.5B", label="Qwen2.5-7B-Instruct")
    text = ".. verl-runs:: 0.5B 7B\n\n.. verl-gpus::\n\n.. verl-models:: Qwen/Qwen2.5-7B, Qwen/Qwen3-8B\n"
    return own.page(text, "shown.rst").page("Text.")


def test_index_of_runs(project_with_runs):
    build = project_with_runs.build()
    soup = build.soup("verl-runindex.html")
    assert words(soup.h1) == "Recorded runs"
    assert [words(row).strip("| ") for row in soup.select("table.indextable tr:not(.pcap)")] == [
        "0.5B", "Qwen2.5-7B-Instruct, GRPO on 2×H100 (c)", "7B", "My; model, GRPO-LoRA on 2×H100 (b)",
        "Qwen2.5-7B-Instruct, GRPO on 2×H100 (a)",
    ]  # fmt: skip


def test_search_knows_model_gpu_and_script(project_with_runs):
    text = project_with_runs.build().text("searchindex.js")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    page = index["docnames"].index("shown")
    for word in ("model", "h100", "x_y_z"):
        pages = index["terms"][word]
        assert page == pages or page in pages, word
    # Sphinx stores the part before the last dot of a name separately, and joins it again for display.
    runs = {entry[-1]: entry[3] for entry in index["objects"][""] if entry[-1] in {"a", "b", "c"}}
    assert runs == {"a": "-", "b": "-", "c": "-"}, "the page turns it into run-a"
    assert ["verl", "run", "verl run"] in index["objnames"].values()


def test_an_output_that_leaves_out_the_page_shows_text(project_with_runs):
    build = project_with_runs.page("See :verl:run:`a` and :any:`b`.").build(
        "latex", nitpicky=True, project="p"
    )
    assert build.warnings == []
    assert re.search(r"See .*\{a\}.* and .*\{b\}", build.text("p.tex"))


def inventory(build) -> dict[str, dict[str, str]]:
    """Return by type and name the address of each object."""
    with (build.out / "objects.inv").open("rb") as stream:
        result = InventoryFile.load(stream, "", lambda base, path: path)
    # Before Sphinx 8.2 it was a tuple, now it is a class.
    return {
        kind: {name: getattr(entry, "uri", None) or entry[2] for name, entry in items.items()}
        for kind, items in result.items()
    }


def test_other_projects_reach_objects(project_with_runs, tmp_path):
    build = project_with_runs.page(".. verl-runs:: 7B", "again.rst").build()
    objects = inventory(build)
    assert objects["verl:run"] == {name: f"shown.html#run-{name}" for name in "abc"}
    assert objects["verl:size"] == {"0.5B": "shown.html#size-0-5b", "7B": "shown.html#size-7b"}
    assert objects["verl:model"]["Qwen/Qwen3-8B"] == "shown.html#model-qwen-qwen3-8b"
    other = tmp_path / "other"
    other.mkdir()
    mapping = {"verl": ("https://example.org/docs", str(build.out / "objects.inv"))}
    conf = f"extensions = ['sphinx_verl_resources', 'sphinx.ext.intersphinx']\nintersphinx_mapping = {mapping!r}\n"
    (other / "conf.py").write_text(conf, "utf-8")
    text = ":verl:run:`b`, :external:verl:run:`c`, :external+verl:verl:gpu:`H100` and :any:`Qwen/Qwen3-8B`."
    (other / "index.rst").write_text(f"Page\n====\n\n{text}\n", "utf-8")
    app = SphinxTestApp(srcdir=other)
    try:
        app.build()
        assert app.warning.getvalue() == ""
    finally:
        app.cleanup()
    page = (other / "_build/html/index.html").read_text("utf-8")
    assert re.findall(r'href="https://example\.org/docs/([^"]+)"', page) == [
        "shown.html#run-b", "shown.html#run-c", "shown.html#gpu-h100-80gb", "shown.html#model-qwen-qwen3-8b",
    ]  # fmt: skip
