"""Readers get the output that the guides show."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import pytest
import yaml

from sphinx_verl_resources.commands import main

EXAMPLE = "docs/examples/qwen2-5-7b-grpo-2xh100.yaml"


@pytest.fixture
def readme(root):
    """Return a function that returns the examples of the README in a language."""
    text = (root / "README.md").read_text("utf-8")
    return lambda language: re.findall(rf"^ *```{language}\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def clone(root, tmp_path, monkeypatch):
    """Return a folder with the data and examples of the project, which is the current one."""
    shutil.copytree(root / "data", tmp_path / "data")
    shutil.copytree(root / "docs/examples", tmp_path / "docs/examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("builder", ["html", "text"])
def test_nothing_is_said_while_it_is_built(documentation, builder):
    assert (documentation(builder=builder) / "objects.inv").is_file() == (builder == "html")


@pytest.mark.parametrize(
    ("guide", "mistake"),
    [("docs/contributing-a-run.rst", ("model:", "modle:")), ("docs/messages.rst", ("H100", "H1000"))],
)
def test_messages(root, data, guide, mistake):
    data.write("runs/qwen2-5-7b-grpo-2xh100.yaml", (root / EXAMPLE).read_text("utf-8").replace(*mistake, 1))
    text = " ".join((root / guide).read_text("utf-8").split())
    (message,) = re.findall(
        r"data/runs/qwen2-5-7b-grpo-2xh100\.yaml:\d+:\d+: ERROR: [^[]*\[verl\.\w+\]", text
    )
    assert message in data.problems()


def test_the_readme_shows_what_its_commands_print(readme, clone, monkeypatch, capsys):
    """Each command works in a clone as it is pasted, and prints the lines below it; "…" are omitted ones."""
    monkeypatch.setenv("COLUMNS", "100")
    typed = re.findall(r"verl-resources (.*)", "".join(readme("sh")))
    first, message, *others = readme("text")
    assert [words.split()[0] for words in typed] == ["new", "plan", "estimate", "diagnose"]
    for words, lines in zip(typed, [first, *others], strict=True):
        assert main(shlex.split(words)) in {0, 1}
        pattern = ".*?".join(re.escape(" ".join(part.split())) for part in lines.split("…"))
        text = " ".join(capsys.readouterr().out.split())
        assert re.match(pattern.replace(r"\ .*?", ".*?"), text), words
    assert main(["check", "data"]) == 1
    assert message.strip() in capsys.readouterr().err


def test_the_run_in_the_readme_has_no_errors(readme, data):
    (text,) = readme("yaml")
    data.write("runs/qwen2-5-7b-grpo-2xh100.yaml", text)
    assert data.problems() == []


def test_the_readme_builds_as_typed_and_with_own_runs(readme, project, root):
    (conf,) = readme("python")
    values: dict[str, list[str]] = {}
    exec(conf.replace("# verl_", "verl_"), values)
    (folder,) = values["verl_resources_data"]
    project.conf["extensions"] = values["extensions"]
    assert project.page("\n".join(readme("rst"))).build().warnings == []
    (project.path / folder / "runs").mkdir(parents=True)
    for name in ("qwen2-5-7b-grpo-lora-1xh100", "qwen2-5-14b-grpo-lora-2xh100"):
        shutil.copy(root / f"data/runs/{name}.yaml", project.path / folder / "runs")
    build = project.page(readme("rst")[0].split("\n\n")[0]).build(verl_resources_data=[folder])
    assert build.warnings == []
    sizes = re.findall(r'<section class="verl-size" id="size-([\w-]+)"', build.text("index.html"))
    assert sizes == ["7b", "14b"]


def test_the_example_of_an_analysis(root, own, data):
    data.write("analysis.yaml", (root / "docs/examples/analysis.yaml").read_text("utf-8"))
    question = ("batch size", "model names", "20B, saved by paged-optimizer")
    build = own.page("".join(f"#. :verl:memory:`{text}`\n" for text in question)).build()
    assert build.warnings == []
    batch, names, saved = (value.get_text() for value in build.soup().select(".verl-value"))
    assert (batch, names[-10:], saved[-3:]) == ("64", ", 13B, 20B", " GB")


def test_the_example_of_a_diagnosis(root, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.chdir(root)
    assert main(["diagnose", "docs/examples/out-of-memory.log", "--gpus", "8xH100"]) == 0
    assert capsys.readouterr().out == (root / "docs/examples/out-of-memory.txt").read_text("utf-8")


@pytest.mark.parametrize(
    ("pages", "words"), [("README.md", 600), ("CONTRIBUTING.md", 700), ("docs/*.[rm][sd]*", 8_000)]
)
def test_the_documentation_stays_short(root, pages, words):
    """The most words of a page, and of all pages in docs without the lists that are generated."""
    result = [*root.glob(pages)]
    assert 0 < len(result) <= 20
    assert 0 < sum(len(page.read_text("utf-8").split()) for page in result) <= words


def test_what_the_estimator_page_says_of_its_misses(root, capsys):
    """If a miss disappears or changes direction, the sentence about it must be removed."""
    results, cases = {}, {}
    for name in ("verl-logs", "easyr1"):
        path = root / f"data/cases/{name}.yaml"
        cases |= {case["id"]: case for case in yaml.safe_load(path.read_text("utf-8"))}
        main(["estimate", str(path), "--format", "json"])
        results |= {case["id"]: case for case in json.loads(capsys.readouterr().out)}
    for size in ("3b", "32b"):
        name = f"verl-data-gsm8k-qwen2.5-{size}-grpo-lora"
        assert results[name]["logged_max_allocated_gib"] > 1.05 * cases[name]["measured"]["gib"]
    three = "easyr1-v0.3.0-3b-h100-amp-mb4"
    (rollout,) = [phase for phase in results[three]["phases"] if phase["name"] == "rollout"]
    pool = max(part["gib"] for part in rollout["components"])
    assert pool > cases[three]["measured"]["gib"]
