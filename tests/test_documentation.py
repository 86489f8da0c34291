"""What the guides print is what a reader gets."""

from __future__ import annotations

import re

import pytest

from sphinx_verl_resources.cli.data import load_all
from sphinx_verl_resources.memory.analysis import analyse
from sphinx_verl_resources.memory.printed import analysis_problems

EXAMPLE = "docs/examples/qwen2-5-7b-grpo-2xh100.yaml"


@pytest.mark.parametrize(
    ("guide", "name", "mistake"),
    [
        ("README.md", "qwen3-8b-grpo-4xh800", ("", "")),  # copied, and the id not changed yet
        ("docs/add-a-run.rst", "qwen2-5-7b-grpo-2xh100", ("model:", "modle:")),
        ("docs/install.rst", "qwen2-5-7b-grpo-2xh100", ("H100", "H1000")),
    ],
)
def test_messages(root, data, guide, name, mistake):
    data.write(f"runs/{name}.yaml", (root / EXAMPLE).read_text("utf-8").replace(*mistake, 1))
    printed = " ".join((root / guide).read_text("utf-8").split())
    (message,) = re.findall(rf"data/runs/{name}\.yaml:\d+:\d+: ERROR: [^[]*\[verl\.\w+\]", printed)
    assert message in data.problems()


def test_example_of_an_analysis(root, data):
    text = (root / "docs/examples/analysis.yaml").read_text("utf-8")
    data.write("analysis.yaml", text)
    analysis = load_all([str(data.path)])[1]
    assert analysis_problems(analysis) == ()
    assert analyse(analysis, "13B").batch_size == 64
    assert [step.name for step in analyse(analysis, "20B").steps][-1] == "paged-optimizer"
    assert list(analysis.specifications)[-2:] == ["13B", "20B"]
