"""What the guides print is what a reader gets."""

from __future__ import annotations

import re

import pytest

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
