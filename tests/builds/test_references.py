"""References to runs, size classes, GPUs and models: roles, ``:any:``, indices, inventory and search."""

from __future__ import annotations

import json
import re

import pytest
from sphinx.testing.util import SphinxTestApp
from sphinx.util.inventory import InventoryFile

ROLES = """\
See {run}`b`, {run}`this <b>`, {size}`7b`, {gpu}`H100 80GB`,
{model}`Qwen/Qwen2.5-7B-Instruct` and {model}`~Qwen/Qwen2.5-7B-Instruct`.
"""
RST = {name: f":verl:{name}:" for name in ("run", "size", "gpu", "model")}
MYST = {name: f"{{verl:{name}}}" for name in ("run", "size", "gpu", "model")}
#: Text and target of each link that the roles make.
LINKS = [
    ("My model, GRPO-LoRA on 2×H100", "shown.html#run-b"),
    ("this", "shown.html#run-b"),
    ("7b", "shown.html#size-7b"),
    ("H100 80GB", "shown.html#gpu-h100-80gb"),
    ("Qwen/Qwen2.5-7B-Instruct", "shown.html#model-qwen-qwen2-5-7b"),
    ("Qwen2.5-7B-Instruct", "shown.html#model-qwen-qwen2-5-7b"),
]


@pytest.fixture
def shown(own, data):
    """A project with a page that shows some objects of each kind."""
    data.run("a", script={"ref": "abc", "path": "examples/x_y_z.sh"})
    data.run("b", label="My model", task="GRPO-LoRA")
    data.run("c", size="0.5B", label="Qwen2.5-7B-Instruct")
    own.conf["extensions"] = ["myst_parser"]
    text = ".. verl-runs:: 0.5B 7B\n\n.. verl-gpus::\n\n.. verl-models:: Qwen/Qwen2.5-7B, Qwen/Qwen3-8B\n"
    own.page(text, "shown.rst")
    return own


def links(build, name="index.html"):
    found = [reference.find_parent("a") for reference in build.soup(name).select("a > .xref.verl")]
    return [(link.get_text(), link["href"]) for link in found]


@pytest.mark.parametrize(("name", "roles"), [("index.rst", RST), ("index.md", MYST)])
def test_roles(shown, name, roles):
    build = shown.page(ROLES.format(**roles), name).build()
    assert build.warnings == []
    assert links(build) == LINKS
    ids = {element["id"] for element in build.soup("shown.html").select("[id]")}
    assert {target.partition("#")[2] for _, target in LINKS} <= ids
    assert all(re.fullmatch(r"[a-z0-9-]+", found) for found in ids)


@pytest.mark.parametrize(
    ("target", "link"),
    [
        ("b", "run-b"),
        ("7B", "size-7b"),
        ("H100-80GB", "gpu-h100-80gb"),
        ("Qwen/Qwen3-8B", "model-qwen-qwen3-8b"),
    ],
)
def test_any(shown, target, link):
    build = shown.page(f"See :any:`{target}` and :any:`this <{target}>`.").build()
    assert build.warnings == []
    assert [href for _, href in links(build)] == [f"shown.html#{link}"] * 2
    assert links(build)[1][0] == "this"


@pytest.mark.parametrize(
    ("role", "message"),
    [
        (":verl:run:`bb`", "verl:run: unknown run 'bb'; did you mean 'b'? If not, record it, or fix the name"),
        (":verl:run:`nothing-like-it`", "verl:run: unknown run 'nothing-like-it'; record it, or fix the name"),
        (":verl:gpu:`H1000`", "verl:gpu: unknown GPU 'H1000'; did you mean 'H100'? If not, add it to gpus.yaml"),
        (":verl:model:`Qwen/Qwen2.5-7`", "verl:model: unknown model 'Qwen/Qwen2.5-7'; did you mean "
         "'Qwen/Qwen2.5-7B'? If not, add it to architectures.yaml"),
        (":verl:size:`8B`", "verl:size: unknown size class '8B'; the nearest is 7B; the size classes are "
         "0.5B, 1.5B, 3B, 7B, 14B, 32B, 70B, 122B, 235B, 405B, 671B"),
        (":verl:model:`Qwen/Qwen2.5-32B`", "verl:model: no page shows the model "
         "'Qwen/Qwen2.5-32B'; add '.. verl-models::' to a page"),
        (":verl:size:`32b`", "verl:size: no page shows the size class '32b'; add "
         "'.. verl-runs::' to a page"),
    ],
)  # fmt: skip
def test_missing(shown, role, message):
    build = shown.page(f"Text.\n\nSee {role}.\n").build()
    assert build.warnings == [f"{shown.path}/index.rst:6: WARNING: {message} [verl.reference]"]
    assert role.split("`")[1] in build.soup().get_text(), "the text stays"


def test_tables_of_the_registries(shown):
    soup = shown.page("Text.").build().soup("shown.html")
    gpu = [
        cell.get_text(" ", strip=True)
        for cell in soup.select_one("#gpu-h100-80gb").find_parent("tr").select("td")
    ]
    assert gpu[:4] == ["H100-80GB", "NVIDIA", "80", "79.6"]
    assert "H100" in gpu[-1].split(", ")
    model = soup.select_one("#model-qwen-qwen3-8b").find_parent("tr")
    assert [cell.get_text(" ", strip=True) for cell in model.select("td")][:7] == [
        "Qwen/Qwen3-8B", "8.19", "", "36", "4096", "32/8", "151,936",
    ]  # fmt: skip
    assert len(soup.select("table.verl-models tbody tr")) == 2


def test_general_index(shown):
    soup = shown.page("Text.").build().soup("genindex.html")
    entries = {link.get_text(): link["href"] for link in soup.select("table.indextable a")}
    assert entries == {
        "GRPO on 2×H100": "shown.html#run-a",
        "GRPO-LoRA on 2×H100": "shown.html#run-b",
        "[1]": "shown.html#run-c",
    }


def test_index_of_runs(shown):
    build = shown.page("See :ref:`verl-runindex`.").build()
    soup = build.soup("verl-runindex.html")
    assert soup.h1.get_text() == "Recorded runs"
    assert build.soup().select_one("a[href='verl-runindex.html']").get_text() == "Recorded runs"
    rows = [row.get_text(" ", strip=True) for row in soup.select("table.indextable tr:not(.pcap)")]
    assert rows == [
        "0.5B",
        "Qwen2.5-7B-Instruct, GRPO on 2×H100 (c)",
        "7B",
        "My model, GRPO-LoRA on 2×H100 (b)",
        "Qwen2.5-7B-Instruct, GRPO on 2×H100 (a)",
    ]


def inventory(build):
    """Return by type and name the address of each object."""
    with (build.out / "objects.inv").open("rb") as stream:
        found = InventoryFile.load(stream, "", lambda base, path: path)
    # Before Sphinx 8.2 it was a tuple, now it is a class.
    return {
        kind: {name: getattr(entry, "uri", None) or entry[2] for name, entry in items.items()}
        for kind, items in found.items()
    }


def test_inventory_is_the_same_after_an_incremental_build(shown, data):
    shown.page("Text.").page(".. verl-runs:: 7B", "again.rst").build()
    data.run("d", size="14B")
    shown.page("Text.\n\n.. verl-runs:: 14B")
    build = shown.build()
    found = (build.out / "objects.inv").read_bytes()
    objects = inventory(build)
    assert objects["verl:run"] == {
        "a": "shown.html#run-a",
        "b": "shown.html#run-b",
        "c": "shown.html#run-c",
        "d": "index.html#run-d",
    }
    assert objects["verl:model"]["Qwen/Qwen3-8B"] == "shown.html#model-qwen-qwen3-8b"
    assert (shown.build(fresh=True).out / "objects.inv").read_bytes() == found


def test_another_project_reaches_a_run(shown, tmp_path):
    build = shown.page("Text.").build()
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
    found = re.findall(r'href="https://example\.org/docs/([^"]+)"', page)
    assert found == [
        "shown.html#run-b", "shown.html#run-c", "shown.html#gpu-h100-80gb", "shown.html#model-qwen-qwen3-8b",
    ]  # fmt: skip


def test_search_knows_model_gpu_and_script(shown):
    text = shown.page("Text.").build().text("searchindex.js")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    page = index["docnames"].index("shown")
    for word in ("model", "h100", "x_y_z"):
        pages = index["terms"][word]
        assert page == pages or page in pages, word
    # Sphinx stores the part before the last dot of a name separately, and joins it again for display.
    runs = {entry[-1]: entry[3] for entry in index["objects"][""] if entry[-1] in {"a", "b", "c"}}
    assert runs == {"a": "-", "b": "-", "c": "-"}, "the page turns it into run-a"
    assert ["verl", "run", "verl run"] in index["objnames"].values()
    assert [entry[-1] for entry in index["objects"]["0"]] == ["5B"]


def test_a_page_that_refers_follows_the_row(shown, data):
    shown.page("See :verl:run:`c`.").page(".. verl-runs:: 405B", "other.rst").build()
    shown.page(".. verl-runs:: 0.5B 405B", "other.rst")
    shown.page(".. verl-gpus::", "shown.rst")
    build = shown.build()
    assert build.read == {"other", "shown"}
    assert links(build) == [("Qwen2.5-7B-Instruct, GRPO on 2×H100", "other.html#run-c")]
    data.run("c", size="0.5B", label="New name")
    build = shown.build()
    assert links(build) == [("New name, GRPO on 2×H100", "other.html#run-c")]


def test_where_several_pages_show_a_run(shown):
    shown.page(".. verl-runs:: 7B\n\nSee :verl:run:`a` and :verl:run:`c`.").page(
        "See :verl:run:`a`.", "far.rst"
    )
    build = shown.build()
    assert [href for _, href in links(build)] == ["#run-a", "shown.html#run-c"], "the own page first"
    assert [href for _, href in links(build, "far.html")] == ["shown.html#run-a"], (
        "then the one with most runs"
    )
