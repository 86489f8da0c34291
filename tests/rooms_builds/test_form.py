"""``.. verl-what-if::`` in real builds: the form and its first answer, and the files with all answers."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from sphinx_verl_resources.fit import form

SMALL = ".. verl-what-if::\n   :models: Qwen/Qwen2.5-0.5B, Qwen/Qwen2.5-7B\n"


@pytest.fixture
def _no_answers(monkeypatch):
    """Leave out the answers besides the first, which take seconds."""
    monkeypatch.setattr(form, "answers_texts", lambda model, *_others: [json.dumps({"model": model})] * 2)


def files(build):
    """Return the files with answers in an output, by name."""
    return {path.name: path.read_text("utf-8") for path in (build.out / "_static").glob("verl-what-if-*.js")}


def shared(build, page="index.html"):
    """Return the data of the form for its script."""
    return json.loads(build.soup(page).select_one("form.verl-what-if script").string)


@pytest.mark.usefixtures("_no_answers")
@pytest.mark.parametrize("builder", ["html", "dirhtml", "singlehtml"])
def test_a_page_has_the_form_with_an_answer_and_a_file_for_each_model(project, builder):
    project.page(".. _verl-estimator:\n\nThe estimator\n=============\n\nText.\n", "more.rst")
    project.page(".. verl-runs:: 7B\n", "rows.rst")
    build = project.page(f"{SMALL}\n.. toctree::\n\n   rows\n   more\n").build(builder)
    assert build.warnings == []
    soup, data = build.soup(), shared(build)
    names = [f"verl-what-if-{name}.js" for name in data["files"]]
    (link,) = soup.select("form.verl-what-if a[href$='.json']")
    records = json.loads((build.out / link["href"]).read_text("utf-8"))
    assert [record["model"] for record in records] == ["Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B"]
    assert sorted(names) == sorted(files(build))
    for name, text in files(build).items():
        digest = re.match(r'\(globalThis\.verlWhatIf \?\?= \{\}\)\["([0-9a-f]{16})"\]=\{', text)[1]
        assert name == f"verl-what-if-{digest}.js"
    found = soup.select_one("form.verl-what-if")
    chosen = {field["name"]: field.select_one("[selected]")["value"] for field in found.select("select")}
    assert chosen == {
        "model": "Qwen/Qwen2.5-7B", "count": "8", "gpu": "H100-80GB", "lora": "0", "response": "1024",
    }  # fmt: skip
    asked = found.select_one(".verl-if-asked").get_text()
    assert asked.startswith("Qwen2.5-7B on 8 GPUs of 80 GB (H100")
    assert found.select_one(".verl-verdict").get_text() == "Fits"
    start = {"html": "rows.html", "dirhtml": "rows/", "singlehtml": ""}[builder]
    rows = [link["href"] for link in found.select(".verl-if-lines a")]
    assert rows[0] == f"{start}#run-qwen2-7b-grpo-2xh800"
    assert f'<a href="{rows[0]}">' in data["links"]["qwen2-7b-grpo-2xh800"]
    more = {"html": "more.html", "dirhtml": "more/", "singlehtml": ""}[builder]
    assert found.select(f".verl-if-actions a[href='{more}#verl-estimator']")
    assert soup.select("script[src*='verl-tables.js']"), "which copies"
    assert soup.select("link[href*='verl-what-if.css']")
    if builder == "html":
        assert not build.soup("rows.html").select("[href*='what-if'], [src*='what-if']"), "without a form"


@pytest.mark.usefixtures("_no_answers")
@pytest.mark.parametrize("builder", ["text", "latex", "epub"])
def test_elsewhere_is_the_first_answer(project, builder):
    build = project.page(SMALL).build(builder, version="1", copyright="me")
    assert build.warnings == []
    assert files(build) == {}
    pages = [path for path in build.out.rglob("*.*") if path.suffix in {".txt", ".tex", ".xhtml"}]
    text = " ".join(re.sub(r"<[^>]*>", "", " ".join(path.read_text("utf-8") for path in pages)).split())
    assert re.search(r"Fits\W", text)
    assert "Offloaded to host memory" in text
    assert "Copy the command" not in text


@pytest.mark.slow
def test_the_answers_for_a_model_are_small(project):
    """Of models without experts up to 7B; 65 kB, and 12 kB compressed."""
    build = project.page(".. verl-what-if::\n   :models: Qwen/Qwen2.5-7B\n").build()
    ((_, text),) = files(build).items()
    assert len(text) < 65_000
    assert len(gzip.compress(text.encode(), mtime=0)) < 13_000
    assert len(gzip.compress(str(build.soup().select_one("form.verl-what-if")).encode(), mtime=0)) < 8_000


@pytest.mark.usefixtures("_no_answers")
def test_a_file_that_vanished_comes_back(project):
    build = project.page(SMALL).build()
    written = files(build)
    for name in written:
        (build.out / "_static" / name).unlink()
    build = project.build()
    assert build.read == set()
    assert files(build) == written


@pytest.mark.usefixtures("_no_answers")
def test_words_are_those_of_the_language(project):
    build = project.page(SMALL).build(language="zh_CN")
    assert build.soup().select_one(".verl-verdict").get_text() == "放得下"
    assert shared(build)["titles"]["fits"] == "放得下"
