"""Readers get the output that the guides show."""

from __future__ import annotations

import re
import shlex
import shutil

import pytest

from sphinx_verl_resources.analysis import analyse
from sphinx_verl_resources.commands import given_data, main
from sphinx_verl_resources.estimator.backtest import score
from sphinx_verl_resources.estimator.context import EstimatorContext

EXAMPLE = "docs/examples/qwen2-5-7b-grpo-2xh100.yaml"


@pytest.mark.slow
@pytest.mark.parametrize("builder", ["html", "text"])
def test_nothing_is_said_while_it_is_built(documentation, builder):
    assert (documentation(builder=builder) / "objects.inv").is_file() == (builder == "html")


@pytest.mark.parametrize(
    ("guide", "name", "mistake"),
    [
        ("docs/contributing-a-run.rst", "qwen2-5-7b-grpo-2xh100", ("model:", "modle:")),
        ("docs/messages.rst", "qwen2-5-7b-grpo-2xh100", ("H100", "H1000")),
    ],
)
def test_messages(root, data, guide, name, mistake):
    data.write(f"runs/{name}.yaml", (root / EXAMPLE).read_text("utf-8").replace(*mistake, 1))
    printed = " ".join((root / guide).read_text("utf-8").split())
    (message,) = re.findall(rf"data/runs/{name}\.yaml:\d+:\d+: ERROR: [^[]*\[verl\.\w+\]", printed)
    assert message in data.problems()


@pytest.fixture
def readme(root):
    """Return a function that returns the examples of the README in a language."""
    text = (root / "README.md").read_text("utf-8")
    return lambda language: re.findall(rf"^ *```{language}\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)


def test_the_readme_shows_what_its_commands_print(readme, root, tmp_path, monkeypatch, capsys):
    """Each command works in a clone as it is pasted, and prints the lines below it; "…" are omitted ones."""
    shutil.copytree(root / "data", tmp_path / "data")
    shutil.copytree(root / "docs/examples", tmp_path / "docs/examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    lines = "".join(readme("sh")).splitlines()
    typed = [line.split("verl-resources ")[1] for line in lines if "verl-resources " in line]
    *shown, message = readme("text")
    assert [words.split()[0] for words in typed] == ["plan", "estimate", "diagnose", "new"]
    for words, lines in zip(typed, shown, strict=True):
        assert main(shlex.split(words)) in {0, 1}
        pattern = ".*?".join(re.escape(" ".join(part.split())) for part in lines.split("…"))
        printed = " ".join(capsys.readouterr().out.split())
        assert re.match(pattern.replace(r"\ .*?", ".*?"), printed), words
    assert main(["check", "data"]) == 1
    assert message.strip() in capsys.readouterr().err


def configuration(text):
    values = {}
    exec(text, values)
    return {name: value for name, value in values.items() if not name.startswith("__")}


def test_the_readme_builds_as_typed(readme, project):
    (conf,) = readme("python")
    project.conf.update(configuration(conf))
    assert set(project.conf) == {"extensions"}
    build = project.page("\n".join(readme("rst"))).build()
    assert build.warnings == []


def test_the_readme_builds_with_own_runs(readme, project, root):
    """The page has only the size classes with a run."""
    (conf,) = readme("python")
    project.conf.update(configuration(conf.replace("# verl_", "verl_")))
    (folder,) = project.conf["verl_resources_data"]
    (project.path / folder / "runs").mkdir(parents=True)
    for name in ("qwen2-5-7b-grpo-lora-1xh100", "qwen2-5-14b-grpo-lora-2xh100"):
        shutil.copy(root / f"data/runs/{name}.yaml", project.path / folder / "runs")
    build = project.page(readme("rst")[0].split("\n\n")[0]).build()
    assert build.warnings == []
    assert re.findall(r'<section id="size-([\w-]+)"', build.text("index.html")) == ["7b", "14b"]


def test_example_of_an_analysis(root, data):
    text = (root / "docs/examples/analysis.yaml").read_text("utf-8")
    data.write("analysis.yaml", text)
    loaded = given_data([str(data.path)])
    analysis = loaded.analysis
    assert loaded.diagnostics == ()
    assert analyse(analysis, "13B").batch_size == 64
    assert [step.step.name for step in analyse(analysis, "20B").steps][-1] == "paged-optimizer"
    assert list(analysis.specifications)[-2:] == ["13B", "20B"]


def test_the_example_of_a_diagnosis(root, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.chdir(root)
    assert main(["diagnose", "docs/examples/out-of-memory.log", "--gpus", "8xH100"]) == 0
    assert capsys.readouterr().out == (root / "docs/examples/out-of-memory.txt").read_text("utf-8")


def test_what_the_estimator_page_says_of_its_misses():
    """If a miss disappears or changes direction, the sentence about it must be removed."""
    facts = EstimatorContext().registries
    cases = {entry.case.id: entry.case for entry in EstimatorContext().cases.entries}
    scores = {name: score(case, facts) for name, case in cases.items()}
    logs = "verl-data-gsm8k-qwen2.5-{}-grpo-lora"
    for size in ("3b", "32b"):
        assert scores[logs.format(size)].deviation > 0.1
    three = scores["easyr1-v0.3.0-3b-h100-amp-mb4"]
    (rollout,) = [phase for phase in three.estimate.phases if phase.name == "rollout"]
    assert rollout.engine[0].size > three.observed


@pytest.mark.parametrize(
    ("pages", "words"), [("README.md", 600), ("CONTRIBUTING.md", 700), ("docs/*.[rm][sd]*", 10_000)]
)
def test_the_documentation_stays_short(root, pages, words):
    """The most words of a page, and of all pages in docs without the lists that are generated."""
    assert 0 < sum(len(page.read_text("utf-8").split()) for page in root.glob(pages)) <= words
