"""``.. verl-what-if::`` in real builds: the form and its first answer, and the files with all answers."""

from __future__ import annotations

import gzip
import json
import re

import pytest
from page_cases import without_answers

from sphinx_verl_resources.fit.directives import MEMORIES

SMALL = ".. verl-what-if::\n   :models: Qwen/Qwen2.5-0.5B, Qwen/Qwen2.5-7B\n"
DOWNLOADS, NAMES = ".. verl-downloads::\n", ["verl-resources.json", "verl-resources.csv"]
FEWEST = ".. verl-fewest::\n   :sizes: 7B\n"
MEMORY = ".. verl-memory::\n   :run: a\n   :show: answer, chart, table\n"
#: By builder: another page with downloads, how far it is from them, and the addresses of two pages.
PLACES = {
    "html": ("in/folder.html", "../", "rows.html", "more.html"),
    "dirhtml": ("in/folder/index.html", "../../", "rows/", "more/"),
    "singlehtml": ("index.html", "", "", ""),
}


@pytest.fixture
def _no_answers():
    with without_answers():
        yield


def files(build):
    """Return the files with answers and with data in an output, by name."""
    paths = [*build.out.glob("_static/verl-what-if-*.js"), *build.out.glob("verl-resources.*")]
    return {path.relative_to(build.out).as_posix(): path.read_text("utf-8") for path in paths}


def shared(build, page="index.html"):
    """Return the data of the form for its script."""
    return json.loads(build.soup(page).select_one("form.verl-what-if script").string)


@pytest.mark.usefixtures("_no_answers")
@pytest.mark.parametrize("builder", PLACES)
def test_a_page_has_the_form_with_an_answer_and_links_to_files(project, builder):
    folder, up, rows, more = PLACES[builder]
    (project.path / "in").mkdir()
    (project.path / "in/folder.rst").write_text(f"Folder\n======\n\n{DOWNLOADS}", "utf-8")
    project.page(".. _verl-estimator:\n\nThe estimator\n=============\n\nText.\n", "more.rst")
    project.page(".. verl-runs:: 7B\n", "rows.rst")
    build = project.page(f"{SMALL}\n{DOWNLOADS}\n.. toctree::\n\n   rows\n   more\n   in/folder\n").build(
        builder
    )
    assert build.warnings == []
    soup, data = build.soup(), shared(build)
    names = [f"_static/verl-what-if-{name}.js" for name in data["files"]]
    (link,) = soup.select("form.verl-what-if a[href$='.json']")
    records = json.loads((build.out / link["href"]).read_text("utf-8"))
    assert [record["model"] for record in records] == ["Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B"]
    assert {*names, *NAMES} == {*files(build)}
    for page, prefix in ("index.html", ""), (folder, up):
        links = [link["href"] for link in build.soup(page).select("ul.verl-downloads a")]
        assert links[:2] == [prefix + name for name in NAMES]
    for name in names:
        digest = re.match(r'\(globalThis\.verlWhatIf \?\?= \{\}\)\["([0-9a-f]{16})"\]=\{', build.text(name))[
            1
        ]
        assert name == f"_static/verl-what-if-{digest}.js"
    form = soup.select_one("form.verl-what-if")
    choices = {field["name"]: field.select_one("[selected]")["value"] for field in form.select("select")}
    assert choices == {
        "model": "Qwen/Qwen2.5-7B", "count": "8", "gpu": "H100-80GB", "lora": "0", "response": "1024",
    }  # fmt: skip
    question = form.select_one(".verl-if-asked").get_text()
    assert question.startswith("Qwen2.5-7B on 8 GPUs of 80 GB (H100")
    assert form.select_one(".verl-verdict").get_text() == "Fits"
    row = f"{rows}#run-qwen2-7b-grpo-2xh800"
    assert form.select_one(".verl-if-lines a")["href"] == row
    assert f'<a href="{row}">' in data["links"]["qwen2-7b-grpo-2xh800"]
    assert form.select(f".verl-if-actions a[href='{more}#verl-estimator']")
    assert soup.select("script[src*='verl-tables.js']"), "which copies"
    assert soup.select("link[href*='verl-what-if.css']")
    if builder == "html":
        assert not build.soup("rows.html").select("[href*='what-if'], [src*='what-if']"), "without a form"


@pytest.mark.usefixtures("_no_answers")
@pytest.mark.parametrize(
    ("builder", "name"), [("text", "index.txt"), ("latex", "p.tex"), ("epub", "index.xhtml")]
)
def test_elsewhere_are_tables_and_the_first_answer_and_no_file(runs, builder, name):
    page = runs.page(f"{SMALL}\n{FEWEST}\n{MEMORY}\n{DOWNLOADS}")
    build = page.build(builder, project="p", version="1", copyright="me")
    assert (build.warnings, files(build)) == ([], {})
    text = " ".join(re.sub("<[^>]*>", "", build.text(name)).split())
    assert [part for part in ("Copy the command", "svg") if part in text] == []
    assert re.search(r"Fits\W", text)
    assert [
        part for part in ("Offloaded to host memory", "Gathered", "resources.json") if part not in text
    ] == []
    captions = [text.index(f"Fewest GPUs for GRPO, {size} GB each") for size in MEMORIES]
    assert captions == sorted(captions), "one table after the other, without tabs"
    assert builder != "epub" or not build.soup(name).select("ul.verl-downloads a")


@pytest.mark.slow
def test_the_answers_for_a_model_are_small(project):
    """Of models without experts up to 7B; 65 kB, and 12 kB compressed."""
    build = project.page(".. verl-what-if::\n   :models: Qwen/Qwen2.5-7B\n").build()
    ((_, text),) = files(build).items()
    assert len(text) < 65_000
    assert len(gzip.compress(text.encode(), mtime=0)) < 13_000
    assert len(gzip.compress(str(build.soup().select_one("form.verl-what-if")).encode(), mtime=0)) < 8_000


@pytest.mark.usefixtures("_no_answers")
def test_words_are_those_of_the_language_and_a_file_that_vanished_comes_back(project):
    build = project.page(f"{SMALL}\n{DOWNLOADS}").build(language="zh_CN")
    assert build.soup().select_one(".verl-verdict").get_text() == "放得下"
    assert shared(build)["titles"]["fits"] == "放得下"
    content = files(build)
    for name in content:
        (build.out / name).unlink()
    build = project.build()
    assert build.read == set()
    assert files(build) == content
