"""The fewest GPUs: for a model, for size classes, and the window of the form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.fit.answer import Answers, answer
from sphinx_verl_resources.fit.fewest import (
    POWERS,
    fewest_by_memory,
    fewest_tables,
    fitting_models,
    window_of,
)
from sphinx_verl_resources.fit.question import Question
from sphinx_verl_resources.memory.registries import EstimatorContext

DATA = EstimatorContext()


@given(
    st.sampled_from(["Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen2.5-72B"]),
    st.sampled_from(["RTX-4090", "A100-40GB", "H200"]),
    st.sampled_from([0, 32]),
    st.sampled_from([1024, 16384]),
)
def test_a_window_begins_where_the_model_might_fit_and_gets_no_worse(model, gpu, lora, response):
    question = Question(model, lora=lora, response=response)
    window = window_of(Answers(question, DATA), gpu)
    first = POWERS.index(window[0].request.gpus)
    assert [found.request.gpus for found in window] == [*POWERS[first : first + 5]]
    fits = [found.verdict == "fits" for found in window]
    assert fits == sorted(fits)
    assert window[0].verdict != "does-not-fit"
    if first:
        assert Answers(question, DATA).on(POWERS[first - 1], gpu).reason in ("too-large", "host")


def test_a_window_is_empty_where_nothing_fits():
    assert window_of(Answers(Question("deepseek-ai/DeepSeek-V3"), DATA), "RTX-4090") == ()


def test_the_fewest_with_and_without_offloading_and_the_runs_beside_them():
    (of_80,) = fewest_by_memory(Question("Qwen/Qwen2.5-7B"), DATA, (80,))
    assert 0 < of_80.count < of_80.without
    assert of_80.found.request.gpus == of_80.count
    assert of_80.ran.id == "qwen2-7b-grpo-2xh800"
    assert of_80.recorded
    (of_32b,) = fewest_by_memory(Question("Qwen/Qwen2.5-32B"), DATA, (80,))
    assert of_32b.ran is None, "128×H800 is neither tagged MIN nor of this task"
    assert of_32b.recorded
    (*_, of_96) = fewest_by_memory(Question("Qwen/Qwen2.5-32B"), DATA, (96,))
    assert of_96.ran is None, "8×H20 is contested"


@pytest.mark.parametrize(
    ("model", "memory", "why"),
    [("Qwen/Qwen2.5-7B", 16, "no bfloat16"), ("deepseek-ai/DeepSeek-V3", 24, "too little GPU memory")],
)
def test_none_has_a_reason(model, memory, why):
    (found, *_) = fewest_by_memory(Question(model), DATA, (memory,))
    assert (found.count, found.found, found.why) == (0, None, why)


def test_tables_have_the_answers_of_the_command_line():
    (table,) = fewest_tables(DATA, memories=(40,), task="GRPO", sizes=("1.5B", "14B"), config={})
    assert [full.recorded for _size, full, _lora in table.rows] == [False, True], "1.5B only with LoRA"
    for _size, *both in table.rows:
        for cell, rank in zip(both, (0, 32), strict=True):
            question = Question(cell.found.request.model, cell.count, table.gpus[0], lora=rank)
            assert answer(question, DATA).verdict == "fits"


def test_the_models_that_fit_come_largest_first():
    found = fitting_models(Question("", 4, "A100-40GB"), DATA)
    sizes = [item.best.estimate.shape.parameters for item in found]
    assert sizes == sorted(sizes, reverse=True)
    assert "Qwen/Qwen2.5-14B" in [item.request.model for item in found]
