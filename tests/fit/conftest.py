"""Answers from the bundled data."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.fit.answer import answer
from sphinx_verl_resources.fit.question import Question
from sphinx_verl_resources.memory.registries import EstimatorContext


@pytest.fixture(scope="session")
def ask():
    """Answer a question; further arguments are those of ``Question``."""
    data = EstimatorContext()

    def answer_to(model="Qwen/Qwen2.5-7B", gpus=8, gpu="H100", **others):
        return answer(Question(model, gpus, gpu, **others), data)

    return answer_to
