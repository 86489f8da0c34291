"""The fewest GPUs: for a model, for size classes, and the window of the form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.fit.answer import Answers, answer
from sphinx_verl_resources.fit.fewest import (
    CELLS,
    POWERS,
    fewest_by_memory,
    fewest_tables,
    size_models,
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
def test_a_window_begins_where_the_model_does_not_fit_and_gets_no_worse(model, gpu, lora, response):
    answers = Answers(Question(model, lora=lora, response=response), DATA)
    first, fits, window = window_of(answers, gpu)
    assert [answer.request.gpus for answer in window] == [*POWERS[first : first + len(window)]]
    assert [answer.verdict == "fits" for answer in window] == [
        first + at >= fits for at in range(len(window))
    ]
    assert len(window) >= min(CELLS, len(POWERS) - first)
    assert first == 0 or window[0].reason in ("too-large", "host")


def test_a_window_where_nothing_fits_has_the_most_gpus():
    first, fits, (answer,) = window_of(Answers(Question("deepseek-ai/DeepSeek-V3"), DATA), "RTX-4090")
    assert (POWERS[first], fits, answer.verdict) == (1024, len(POWERS), "does-not-fit")


def test_the_fewest_with_and_without_offloading_and_the_runs_beside_them():
    (of_80,) = fewest_by_memory(Question("Qwen/Qwen2.5-7B"), DATA, (80,))
    assert 0 < of_80.count < of_80.without
    ran = {"id": "qwen2-7b-grpo-2xh800", "gpus": "2*H800", "word": "ran", "task": ""}
    assert (of_80.answer["verdict"], of_80.ran) == ("fits", ran)
    assert of_80.support != "unrecorded"
    (of_32b,) = fewest_by_memory(Question("Qwen/Qwen2.5-32B"), DATA, (80,))
    assert of_32b.ran == {}, "128×H800 is neither tagged MIN nor of this task"
    assert of_32b.support != "unrecorded"
    (*_, of_96) = fewest_by_memory(Question("Qwen/Qwen2.5-32B"), DATA, (96,))
    assert of_96.ran == {}, "8×H20 is contested"


@pytest.mark.parametrize(
    ("model", "memory", "why"),
    [("Qwen/Qwen2.5-7B", 16, "no bfloat16"), ("deepseek-ai/DeepSeek-V3", 24, "too little GPU memory")],
)
def test_none_has_a_reason(model, memory, why):
    (result, *_) = fewest_by_memory(Question(model), DATA, (memory,))
    assert (result.count, result.answer, result.why) == (0, {}, why)


def test_tables_have_the_answers_of_the_command_line():
    (table,) = fewest_tables(
        DATA, ("1.5B", "14B"), lambda model, rank: fewest_by_memory(Question(model, lora=rank), DATA, (40,))
    )
    assert [full.support == "unrecorded" for _size, full, _lora in table] == [True, False], (
        "1.5B only with LoRA"
    )
    for size, *both in table:
        for cell, rank in zip(both, (0, 32), strict=True):
            question = Question(size_models(DATA)[size], cell.count, cell.types[0], lora=rank)
            assert answer(question, DATA).verdict == "fits"
