"""``.. verl-what-if::`` in real builds: the form and its first answer, and the files with all answers."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from pathlib import Path

import pytest

from sphinx_verl_resources.answer import grid

SMALL = ".. verl-what-if::\n   :models: Qwen/Qwen2.5-7B\n   :gpus: H100\n   :counts: 8\n   :responses: 1024 8192\n"


def files(build):
    """Return the files with answers in an output, by name."""
    return {path.name: path.read_text("utf-8") for path in (build.out / "_static").glob("verl-what-if-*.js")}


def data_of(text):
    """Return the data that a file registers."""
    name, data = re.fullmatch(
        r'\(globalThis\.verlWhatIf \?\?= \{\}\)\["([0-9a-f]{12})"\]=(.*);\n', text
    ).groups()
    return name, json.loads(data)


def scripts(build, page="index.html"):
    """Return the scripts of the form that a page loads."""
    found = [script["src"].partition("?")[0] for script in build.soup(page).select("script[src]")]
    return [name.rpartition("/")[2] for name in found if "verl-what-if" in name]


def shared(build, page="index.html"):
    """Return the data of the form for its script."""
    return json.loads(build.soup(page).select_one("form.verl-what-if script").string)


def lines(build):
    """Return the visible lines of the first answer."""
    found = build.soup().select("form.verl-what-if .verl-if-answer > p:not([hidden])")
    return [" ".join(line.get_text().split()) for line in found]


@pytest.mark.parametrize(
    "builder", ["html", *(pytest.param(each, marks=pytest.mark.slow) for each in ("dirhtml", "singlehtml"))]
)
def test_a_page_has_the_form_with_an_answer_and_a_file_for_each_model(project, builder):
    project.page(SMALL.replace("Qwen2.5-7B", "Qwen2.5-7B, Qwen/Qwen2.5-0.5B"))
    build = project.page("Text.", "plain.rst").build(builder)
    assert build.warnings == []
    assert scripts(build) == ["verl-what-if.js"]
    assert build.soup().select("script[src*='verl-tables.js']"), "which copies"
    assert build.soup().select("link[href*='verl-what-if.css']")
    names = [f"verl-what-if-{name}.js" for name in shared(build)["files"]]
    found = files(build)
    assert sorted(names) == sorted(found)
    for name, text in found.items():
        digest, data = data_of(text)
        assert name == f"verl-what-if-{digest}.js"
        assert {len(column) for column in data["cells"].values()} == {4}
    form = build.soup().select_one("form.verl-what-if")
    chosen = {field["name"]: field.select_one("[selected]")["value"] for field in form.select("select")}
    assert chosen == {
        "model": "Qwen/Qwen2.5-7B", "count": "8", "gpu": "H100", "lora": "0", "response": "1024",
    }  # fmt: skip
    asked, verdict, *_ = lines(build)
    assert asked == "Qwen2.5-7B on 8 × H100, all parameters, responses of up to 1,024 tokens"
    assert verdict.startswith("Fits. ")
    if builder != "singlehtml":
        plain = "plain/index.html" if builder == "dirhtml" else "plain.html"
        assert scripts(build, plain) == []


def test_the_runs_that_it_names_are_links_to_their_rows(project):
    """For most rows, the script needs only the common start of their addresses."""
    project.page(".. verl-runs:: 7B\n", "rows.rst")
    build = project.page(SMALL).build()
    assert build.warnings == []
    links = build.soup().select("form.verl-what-if .verl-if-ran a")
    assert [link["href"] for link in links] == ["rows.html#run-qwen2-7b-grpo-2xh800"]
    assert shared(build)["rows"] == {"start": "rows.html#run-", "others": {}}
    sheets = [Path(link["href"]).name for link in build.soup("rows.html").select("link[href*=verl-]")]
    assert [name.partition("?")[0] for name in sheets] == ["verl-resources.css"], "that page has no form"
    alone = project.page("Text.", "rows.rst").build()
    named = [run for run, *_ in data_of(next(iter(files(alone).values())))[1]["runs"]]
    assert shared(alone)["rows"] == {"start": "", "others": dict.fromkeys(named, "")}


@pytest.mark.parametrize("builder", ["text", "latex", "epub"])
def test_elsewhere_are_the_first_answer_and_what_to_do(project, builder):
    build = project.page(SMALL).build(builder, version="1", copyright="me")
    assert build.warnings == []
    assert files(build) == {}
    pages = [
        path
        for path in build.out.rglob("*.*")
        if path.suffix in {".txt", ".tex", ".1", ".xhtml", ".xml", ".pseudoxml", ".pot"}
    ]
    text = " ".join(path.read_text("utf-8") for path in pages)
    text = " ".join(re.sub(r"<[^>]*>", "", text).split())
    assert "With JavaScript, this page answers" in text
    assert "To find settings" not in text, "a line that is not used"
    assert "Copy the command" not in text
    assert "all parameters, responses of up to 1,024 tokens" in text
    assert re.search(r"Fits\W", text)
    assert "The whole range is within" in text


def test_the_table_of_fewest_gpus_is_named_where_there_is_one(project):
    words = "The table of the fewest GPUs is on this page."
    alone = project.page(SMALL).build().soup().select_one(".verl-if-elsewhere").get_text()
    assert alone.endswith("run verl-resources plan Qwen/Qwen2.5-7B --gpus 8xH100 --response 1024.")
    project.page(f"{SMALL}\n.. table::\n   :class: verl-fewest\n\n   == ==\n   a  b\n   == ==\n")
    assert project.build().soup().select_one(".verl-if-elsewhere").get_text().endswith(words)


def test_answers_lead_to_how_figures_are_made_and_to_the_script(project):
    project.page(".. _verl-estimator:\n\nThe estimator\n=============\n\nText.\n", "more.rst")
    project.conf |= {"verl_resources_script_url": "https://scripts.example/{ref}/{path}"}
    form = project.page(SMALL).build().soup().select_one("form.verl-what-if")
    assert form.select_one(".verl-if-script")["href"].startswith("https://scripts.example/2239fd0f")
    assert [link["href"] for link in form.select(".verl-if-why a")] == ["more.html#verl-estimator"]


@pytest.mark.slow
def test_the_answers_for_a_model_are_small(project):
    """Use a model with experts, whose settings vary most, and all default choices of the form."""
    build = project.page(".. verl-what-if::\n   :models: Qwen/Qwen3-30B-A3B\n").build()
    ((_, text),) = files(build).items()
    assert len(gzip.compress(text.encode(), mtime=0)) < 12_000
    form = build.soup().select_one("form.verl-what-if")
    assert len(gzip.compress(str(form).encode(), mtime=0)) < 5_000


def test_builds_write_the_same(project):
    project.page(SMALL)
    first = files(project.build())
    assert project.build().read == set()
    build = project.build(parallel=2, fresh=True)
    assert files(build) == first


def test_a_file_that_vanished_comes_back(project):
    build = project.page(SMALL).build()
    ((name, text),) = files(build).items()
    (build.out / "_static" / name).unlink()
    build = project.build()
    assert build.read == set()
    assert files(build) == {name: text}


def test_models_are_answered_in_parallel(project, monkeypatch):
    """This process reads the page; others answer for its models."""
    answered_here = []

    def spied(model, *others, compute=grid.compute_grid):
        answered_here.append(model)
        return compute(model, *others)

    monkeypatch.setattr(grid, "compute_grid", spied)
    project.page(SMALL.replace("Qwen2.5-7B", "Qwen2.5-7B, Qwen/Qwen2.5-0.5B"))
    first = project.build()
    assert answered_here == ["Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-0.5B"]
    answered_here.clear()
    second = project.build(parallel=2, fresh=True)
    assert (second.warnings, answered_here) == ([], [])
    assert (files(second), shared(second)) == (files(first), shared(first))


def test_words_are_those_of_the_language(project):
    build = project.page(SMALL).build(language="zh_CN")
    assert lines(build)[1].startswith("放得下")
    assert shared(build)["words"]["states"][0][1] == "放得下"


def test_the_command_is_words_of_a_shell(own, data, root):
    """The name of a model may contain shell characters, the name of a GPU a blank."""
    name, gpu = "My 7B (x) & y", "H100 of ours"
    entry = (
        (root / "data/architectures.yaml")
        .read_text("utf-8")
        .partition("  - name: ")[2]
        .partition("  - name: ")[0]
    )
    entry = re.sub(r"(?m)^    (aliases|hf_id): .*\n", "", entry).partition("\n")[2]
    data.write(
        "architectures.yaml",
        f"architectures:\n  - name: {json.dumps(name)}\n    hf_id: {json.dumps(name)}\n{entry}",
    )
    data.write(
        "gpus.yaml",
        f"gpus:\n- {{name: {gpu}, vendor: nvidia, memory_gb: 80, memory_mib: 81559, kind: reading}}\n",
    )
    own.page(SMALL.replace("Qwen/Qwen2.5-7B", name).replace("H100", gpu))
    build = own.build()
    assert build.warnings == []
    plan = build.soup().select_one(".verl-if-elsewhere code").get_text()
    words = ["verl-resources", "plan", name, "--gpus", f"8x{gpu}", "--response", "1024"]
    assert shlex.split(plan) == words
    assert [
        word.format(model=name, count=8, gpu=gpu, response=1024) for word in shared(build)["words"]["plan"]
    ] == words
