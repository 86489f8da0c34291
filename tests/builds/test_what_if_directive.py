"""``.. verl-what-if::`` in real builds: the sentence, the file with the grid, and who loads it."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from sphinx_verl_resources.sphinx_ext.assets import write_files

SMALL = ".. verl-what-if::\n   :models: Qwen/Qwen2.5-7B\n   :gpus: H100\n   :counts: 8\n   :responses: 1024 8192\n"


def grids(build):
    """The files with grids in an output, by name."""
    return {path.name: path.read_text("utf-8") for path in (build.out / "_static").glob("verl-what-if-*.js")}


def data_of(text):
    """What a file registers."""
    name, data = re.fullmatch(
        r'\(globalThis\.verlWhatIf \?\?= \{\}\)\["([0-9a-f]{12})"\]=(.*);\n', text
    ).groups()
    return name, json.loads(data)


def scripts(build, page="index.html"):
    """The scripts of ours that a page loads."""
    found = [script["src"].partition("?")[0] for script in build.soup(page).select("script[src]")]
    return [name.rpartition("/")[2] for name in found if "verl-" in name]


@pytest.mark.parametrize("builder", ["html", "dirhtml", "singlehtml"])
def test_a_page_with_a_form_loads_its_grid_and_then_the_script(project, builder):
    project.page(SMALL)
    build = project.page("Text.", "plain.rst").build(builder)
    assert build.warnings == []
    ((name, text),) = grids(build).items()
    digest, data = data_of(text)
    assert name == f"verl-what-if-{digest}.js"
    assert scripts(build) == [name, "verl-what-if.js"]
    assert f"verl-grid-{digest}" in build.soup().select_one("div.verl-what-if")["class"]
    assert {len(column) for column in data["cells"].values()} == {4}
    assert (build.out / "_static" / "verl-what-if.js").is_file()
    if builder != "singlehtml":
        plain = "plain/index.html" if builder == "dirhtml" else "plain.html"
        assert scripts(build, plain) == []


def test_the_runs_that_it_names_are_links_to_their_rows(project):
    project.page(".. verl-runs:: 7B\n", "rows.rst")
    build = project.page(SMALL.replace("counts: 8", "counts: 2 8").replace("8192", "512")).build()
    assert build.warnings == []
    links = build.soup().select("div.verl-what-if div.verl-what-if-runs a")
    data = data_of(next(iter(grids(build).values())))[1]
    assert len(links) == len(data["runs"]) > 1
    assert "rows.html#run-qwen2-7b-grpo-2xh800" in [link["href"] for link in links]


@pytest.mark.parametrize("builder", ["text", "latex", "man", "epub", "xml", "pseudoxml", "gettext"])
def test_elsewhere_stands_the_sentence_alone(project, builder):
    build = project.page(SMALL).build(builder, version="1", copyright="me")
    assert build.warnings == []
    assert grids(build) == {}
    pages = [
        path
        for path in build.out.rglob("*.*")
        if path.suffix in {".txt", ".tex", ".1", ".xhtml", ".xml", ".pseudoxml", ".pot"}
    ]
    text = " ".join(path.read_text("utf-8") for path in pages)
    assert "With JavaScript, a form" in text
    assert "<script" not in text
    assert "qwen2" not in text.replace("Qwen", ""), "a link to a run"


def test_the_sentence_says_what_to_do_without_a_script(project):
    soup = project.page(SMALL).build().soup()
    form = soup.select_one("div.verl-what-if")
    commands = [code.get_text() for code in form.select("code")]
    assert commands == [
        "verl-resources plan Qwen/Qwen2.5-7B --gpus 8xH100",
        "verl-resources plan --help",
    ]
    assert form.select("select, input, button, form") == []


@pytest.mark.slow
def test_the_grid_of_the_default_form_is_small(project):
    build = project.page(".. verl-what-if::\n").build()
    ((_, text),) = grids(build).items()
    assert len(gzip.compress(text.encode(), mtime=0)) < 20_000


def test_builds_write_the_same_and_rewrite_nothing(project):
    project.page(SMALL)
    first = grids(project.build())
    (path,) = (project.path / "_build" / "html" / "_static").glob("verl-what-if-*.js")
    before = path.stat().st_mtime_ns
    assert project.build().read == set()
    assert path.stat().st_mtime_ns == before
    build = project.build(parallel=2, fresh=True)
    assert grids(build) == first


def test_a_file_that_vanished_comes_back_and_one_that_nobody_needs_goes(project):
    build = project.page(SMALL).build()
    ((name, text),) = grids(build).items()
    (build.out / "_static" / name).unlink()
    build = project.build()
    assert build.read == set()
    assert grids(build) == {name: text}
    project.page(SMALL.replace("counts: 8", "counts: 4"))
    other = grids(project.build())
    assert len(other) == 1
    assert name not in other
    project.page("Text.")
    assert grids(project.build()) == {}


def test_pages_that_are_read_and_written_in_parallel(project):
    pages = [f"page-{number}" for number in range(6)]
    for number, page in enumerate(pages):
        project.page(SMALL.replace("counts: 8", f"counts: {1 + number % 2}"), f"{page}.rst")
    project.page(".. toctree::\n   :glob:\n\n   page-*\n")
    build = project.build(parallel=3)
    assert build.warnings == []
    assert len(grids(build)) == 2
    for page in pages:
        name, script = scripts(build, f"{page}.html")
        assert name in grids(build)
        assert script == "verl-what-if.js"


def test_another_builder_on_the_same_environment_writes_its_own(project):
    project.page(SMALL)
    assert project.build("text").warnings == []
    build = project.build("html")
    assert build.read == set()
    assert len(grids(build)) == 1


def test_the_settings_of_the_page_count(project):
    text = SMALL + "\n   actor_rollout_ref.rollout.gpu_memory_utilization: 0.9\n"
    build = project.page(text).build()
    ((_, content),) = grids(build).items()
    data = data_of(content)[1]
    assert "actor_rollout_ref.rollout.gpu_memory_utilization=0.9" in data["lines"]
    plain = data_of(next(iter(grids(project.page(SMALL).build()).values())))[1]
    assert plain["cells"]["high"][2] < data["cells"]["high"][2], "the rollout"


def test_words_are_those_of_the_language(project):
    locale = project.path / "locale" / "de" / "LC_MESSAGES"
    locale.mkdir(parents=True)
    (locale / "sphinx_verl_resources.po").write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        'msgid "fits"\nmsgstr "passt"\n\nmsgid "Rollout"\nmsgstr "Ausrollen"\n',
        "utf-8",
    )
    build = project.page(SMALL).build(language="de", locale_dirs=["locale"])
    data = data_of(next(iter(grids(build).values())))[1]
    assert data["verdicts"][0] == "Passt"
    assert "Ausrollen" in data["phases"]


BAD = [
    (":models: Qwen/Qwen2.5-7C", 3, ":models: there is no model 'Qwen/Qwen2.5-7C'; did you mean 'Qwen/Qwen2.5-7B'?"),
    (":gpus: H100, h100", 3, ":gpus: 'h100' is given twice; keep one of the two"),
    (":models: ,", 3, ":models: name at least one, or leave the option out"),
    (":gpus: H1000", 3, ":gpus: there is no GPU 'H1000'; did you mean 'H100'?"),
    (":counts: 0", 3, ":counts: must be a whole number from 1 to 100,000, got '0'"),
    (":count: 8", 3, ":count: unknown option; did you mean 'counts'?"),
    (f":counts: {' '.join(map(str, range(1, 30)))}", 3, "the choices have 19,488 combinations, and a form at most 10,000; name fewer"),
    ("\n   trainer.nnodes: 2", 5, "trainer.nnodes: the choices of the form set it; leave it out"),
    ("\n   actor_rollout_ref.rollout.n: 0", 5, "actor_rollout_ref.rollout.n: expected a whole number of at least 1, got 0"),
]  # fmt: skip


@pytest.fixture(scope="module")
def together(build_together):
    return build_together(
        {f"case-{n}.rst": f"Text.\n\n.. verl-what-if::\n   {text}\n" for n, (text, *_) in enumerate(BAD)}
    )


@pytest.mark.parametrize("number", range(len(BAD)), ids=[message.split(";")[0] for *_, message in BAD])
def test_what_is_wrong_is_said_at_its_line(together, number):
    _, line, message = BAD[number]
    problems = together.problems[f"case-{number}.rst"]
    assert list(problems) == [line], together.build.warnings
    assert problems[line].startswith(f"ERROR: verl-what-if: {message}"), problems
    assert len(together.build.soup(f"case-{number}.html").select(".verl-problem")) == 1
    assert scripts(together.build, f"case-{number}.html") == []


def test_where_something_is_wrong_no_grid_is_written(together):
    assert grids(together.build) == {}


def test_an_argument_is_refused(project):
    build = project.page(".. verl-what-if:: 7B\n").build()
    assert "takes no argument; name the models under :models:" in build.warnings[0]


def test_no_file_is_written_twice(project, monkeypatch):
    build = project.page(SMALL).build()
    from pathlib import Path

    monkeypatch.setattr(Path, "write_bytes", lambda *args: pytest.fail("written"))
    write_files(build.app, build.app.env)
    assert len(grids(build)) == 1
