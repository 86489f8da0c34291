"""Components and chain: the figures of the three models, and properties of every model."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sphinx_verl_resources.analysis import analyse, find_shape
from sphinx_verl_resources.analysis_tables import summary_rows, waterfall_rows
from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.estimator.context import EstimatorContext
from sphinx_verl_resources.records import SIZES

ANALYSIS = EstimatorContext().analysis
MODELS = [*ANALYSIS.specifications, *sorted({entry.hf_id for entry in ANALYSIS.architectures})]
STEPS = list(ANALYSIS.steps)

models = st.sampled_from(MODELS)
gpu_counts = st.integers(1, 100_000)
batches = st.integers(1, 1_000_000)
lengths = st.integers(1, 1_000_000)
chains = st.permutations(STEPS).flatmap(lambda steps: st.integers(0, 4).map(lambda n: tuple(steps[:n])))


def test_components_of_3b(analysis):
    """Computed by hand from the assumptions: 3e9 parameters, 32 x 2048 tokens, 32 layers of 2560."""
    start = analyse(analysis, "3B").start
    assert {item.key: item.size for item in start.components} == {
        "parameters": 6e9,
        "gradients": 6e9,
        "optimizer": 12e9,
        "activations": 10 * 2**30,
        "kv-cache": 20 * 2**30,
        "overhead": 2e9,
    }


@given(models, gpu_counts, batches, lengths, chains)
def test_numbers_that_are_put_in_give_the_result(name, gpus, batch, length, steps):
    outcome = analyse(ANALYSIS, name, gpus=gpus, batch_size=batch, sequence_length=length, steps=steps)
    for breakdown in (outcome.start, *(step.after for step in outcome.steps)):
        for item in breakdown.components:
            shown = item.formula.numbers.replace(",", "").replace("×", "*").replace("÷", "/")
            assert math.isclose(eval(shown), item.size, rel_tol=1e-12)


@given(models, gpu_counts, batches, lengths, chains)
def test_total_is_the_sum_of_the_parts(name, gpus, batch, length, steps):
    outcome = analyse(ANALYSIS, name, gpus=gpus, batch_size=batch, sequence_length=length, steps=steps)
    for breakdown in (outcome.start, *(step.after for step in outcome.steps)):
        assert breakdown.total == math.fsum(item.size for item in breakdown.components)


@given(models, gpu_counts, gpu_counts, chains)
def test_more_gpus_never_raise_the_total(name, one, other, steps):
    few, many = sorted((one, other))
    totals = [analyse(ANALYSIS, name, gpus=gpus, steps=steps).end.total for gpus in (few, many)]
    assert totals[1] <= totals[0]


@given(models, gpu_counts, batches, lengths, chains)
def test_no_step_raises_the_total_and_each_changes_only_its_components(name, gpus, batch, length, steps):
    outcome = analyse(ANALYSIS, name, gpus=gpus, batch_size=batch, sequence_length=length, steps=steps)
    assert tuple(step.step.name for step in outcome.steps) == steps
    for step in outcome.steps:
        assert step.saved >= 0
        for before, after in zip(step.before.components, step.after.components, strict=True):
            assert after.size <= before.size
            assert after.size == before.size or after.key in step.step.components


@given(models, gpu_counts, st.integers(1, 500_000), lengths, chains)
def test_twice_the_batch_doubles_activations_and_kv_cache_and_nothing_else(name, gpus, batch, length, steps):
    one, two = (
        analyse(ANALYSIS, name, gpus=gpus, batch_size=size, sequence_length=length, steps=steps).end
        for size in (batch, 2 * batch)
    )
    for before, after in zip(one.components, two.components, strict=True):
        factor = 2 if after.key in {"activations", "kv-cache"} else 1
        assert math.isclose(after.size, factor * before.size, rel_tol=1e-12)


@given(models, st.permutations(STEPS))
@settings(max_examples=50)
def test_the_order_of_steps_does_not_matter_in_the_end(name, steps):
    assert math.isclose(
        analyse(ANALYSIS, name, steps=steps).end.total, analyse(ANALYSIS, name).end.total, rel_tol=1e-12
    )


@pytest.mark.parametrize("size", SIZES)
def test_every_size_class_has_a_model(analysis, size):
    billions = analyse(analysis, size).shape.parameters / 1e9
    assert 0.8 < billions / float(size[:-1]) < 1.25


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("3b", 3_000_000_000),
        ("Qwen/Qwen3-8B", 8_190_735_360),
        ("Qwen3-8B", 8_190_735_360),
        ("qwen3 8b", 8_190_735_360),
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),  # an alias
    ],
)
def test_models_go_by_many_names(analysis, name, parameters):
    assert find_shape(analysis, name).parameters == parameters


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("9B", "unknown model '9B'; the nearest is 8B"),
        ("Qwen/Qwen3-8", "did you mean 'Qwen/Qwen3-8B'?"),
        ("whatever it is", "use one of 3B, 8B, 32B,"),
    ],
)
def test_unknown_models(analysis, name, message):
    with pytest.raises(NoAnswerError) as error:
        find_shape(analysis, name)
    assert message in str(error.value)


def test_nothing_at_all_can_be_shown(analysis):
    """With every size zero, nothing is divided by zero."""
    assumed = analysis.assumptions.model_copy(
        update={name: 0 for name in type(analysis.assumptions).model_fields if name.endswith("_bytes")}
        | {"overhead_gb": 0}
    )
    outcome = analyse(replace(analysis, assumptions=assumed), "3B")
    assert outcome.start.total == outcome.end.total == outcome.share_of_total(1.0) == 0
    assert "0.0 % of the total" in waterfall_rows(outcome, lambda _subject: [], with_gib=True).astext()
    assert "0.0" in summary_rows([outcome], lambda _subject: [], with_gib=True).astext()
