"""The grid of the form, whose cells are estimates in the order it counts in."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from sphinx_verl_resources.catalog.names import VERDICTS
from sphinx_verl_resources.cli.data import read_data
from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.estimator.estimate import estimate
from sphinx_verl_resources.estimator.grid import (
    CHOSEN,
    Axes,
    cell_settings,
    compute_grid,
)
from sphinx_verl_resources.estimator.registries import capacity_of
from sphinx_verl_resources.estimator.request import Request
from sphinx_verl_resources.estimator.tasks import fitted
from sphinx_verl_resources.sphinx_ext.directives.sweeps import DEFAULT_GPUS, DEFAULT_SIZES, LENGTHS
from sphinx_verl_resources.units import gib_number

AXES = Axes(
    ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B", "meta-llama/Llama-3.1-70B"), (1, 8, 64), ("RTX-4090", "H100", "H800", "B200")
)  # fmt: skip
ROLLOUT = "actor_rollout_ref.rollout"


@pytest.fixture(scope="module")
def cells():
    return compute_grid(AXES, LENGTHS, read_data([]).registries)


def combinations(axes):
    """What is chosen in each cell, and its number, as the form counts."""
    runs = product(axes.models, axes.counts, axes.tasks, axes.tokens, axes.offloads, axes.loras)
    return [(run, gpu) for run in runs for gpu in axes.gpus]


def number_of(cells, axes, index):
    """The number of the cell of a combination: GPUs that are alike share one."""
    run, gpu = divmod(index, len(axes.gpus))
    return run * (max(cells.gpus) + 1) + cells.gpus[gpu]


def request_of(run, gpu, config=LENGTHS):
    """The question of a combination, asked by itself."""
    model, count, *chosen = run
    return Request(model, cell_settings(*chosen, config), count, gpu)


def text_of(tenths):
    return f"{tenths / 10:,.1f}"


def check(cells, cell, found):
    """A cell says what an estimate says, as the pages write it."""
    assert VERDICTS[cells.verdicts[cell]] == found.verdict
    assert text_of(cells.peaks[cell]) == gib_number(found.peak)
    assert text_of(cells.lows[cell]) == gib_number(found.low)
    assert text_of(cells.highs[cell]) == gib_number(found.high)
    assert cells.phases[cells.bindings[cell]] == found.peak_phase.name
    totals = {
        name: text_of(column[cell]) for name, column in zip(cells.phases, cells.totals, strict=True) if column[cell]
    }  # fmt: skip
    assert totals == {phase.name: gib_number(phase.total) for phase in found.phases}


def test_each_cell_is_what_the_estimator_says_by_itself(cells, registries):
    for index, (run, gpu) in list(enumerate(combinations(AXES)))[::7]:
        found = estimate(fitted(request_of(run, gpu), registries), registries)
        check(cells, number_of(cells, AXES, index), found)


def test_equal_gpus_share_their_cells(cells):
    assert cells.gpus == (0, 1, 1, 2)
    assert len(cells.verdicts) == AXES.size * 3 // 4
    assert cells.offered[1] == cells.offered[2] == 791


@pytest.mark.parametrize(
    "config",
    [
        {f"{ROLLOUT}.free_cache_engine": False},
        {f"{ROLLOUT}.name": "sglang"},
        {f"{ROLLOUT}.name": "sglang", f"{ROLLOUT}.multi_stage_wake_up": False},
        {f"{ROLLOUT}.name": "trtllm"},
    ],
    ids=["never asleep", "sglang", "awake at once", "trtllm"],
)
def test_what_the_engine_holds_follows_the_card_in_every_phase(config, registries):
    asked = Request("Qwen/Qwen2.5-7B", {"algorithm.adv_estimator": "grpo", **config}, 8, "H100")
    capacity = capacity_of(registries.gpus.get("B200"))
    moved = estimate(asked, registries).on_gpu(capacity)
    alone = estimate(Request(asked.model, asked.config, 8, "B200"), registries)
    assert moved.capacity == capacity
    assert [(phase.name, phase.total) for phase in moved.phases] == [
        (phase.name, phase.total) for phase in alone.phases
    ]
    assert (moved.peak, moved.low, moved.high, moved.verdict) == (
        alone.peak, alone.low, alone.high, alone.verdict,
    )  # fmt: skip


def test_more_tokens_or_less_offloading_never_take_less_in_any_phase(cells):
    every = {key: number_of(cells, AXES, index) for index, key in enumerate(combinations(AXES))}
    compared = 0
    for ((model, count, task, tokens, offload, lora), gpu), cell in every.items():
        others = [
            (model, count, task, more, offload, lora)
            for less, more in pairwise(AXES.tokens)
            if less == tokens
        ]
        others += [(model, count, task, tokens, "none", lora)] if offload == "all" else []
        for other in others:
            for name, column in zip(cells.phases, cells.totals, strict=True):
                # With one micro-batch per mini-batch no undivided gradients wait.
                if other[3] == tokens or not name.startswith(("update", "critic")):
                    assert column[cell] <= column[every[other, gpu]], (name, other)
                    compared += 1
    assert compared > 1000


def test_no_key_that_a_choice_sets_is_free():
    for task, tokens, offload, lora in product(AXES.tasks, AXES.tokens, AXES.offloads, AXES.loras):
        constant = {
            "actor_rollout_ref.model.enable_gradient_checkpointing",
            "actor_rollout_ref.model.use_remove_padding",
            "actor_rollout_ref.actor.use_dynamic_bsz",
            "actor_rollout_ref.rollout.n",
        }
        assert set(cell_settings(task, tokens, offload, lora, {})) <= CHOSEN | constant


def test_a_cell_without_an_estimate_says_why(registries):
    axes = Axes(("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B"), (8,), ("H100", "B200"))
    found = compute_grid(axes, {f"{ROLLOUT}.tensor_model_parallel_size": 4}, registries)
    half = len(found.verdicts) // 2
    assert set(found.verdicts[:half]) == {len(VERDICTS)}
    assert set(found.verdicts[half:]) <= set(range(len(VERDICTS)))
    (reason,) = found.reasons
    assert "which does not divide the model's 14 attention heads" in reason
    assert set(found.peaks[:half]) == {0}


def test_no_cell_with_an_estimate_is_an_error(registries):
    axes = Axes(("Qwen/Qwen2.5-0.5B",), (8,), ("H100",))
    with pytest.raises(NoAnswerError, match="14 attention heads"):
        compute_grid(axes, {f"{ROLLOUT}.tensor_model_parallel_size": 4}, registries)


def test_megatron_is_refused(registries):
    axes = Axes(("Qwen/Qwen2.5-7B",), (8,), ("H100",))
    with pytest.raises(NoAnswerError, match="computed with FSDP"):
        compute_grid(axes, {"actor_rollout_ref.actor.strategy": "megatron"}, registries)


def test_the_grid_of_the_form_is_not_too_large():
    axes = Axes(("m",) * len(DEFAULT_SIZES), (1,) * 8, DEFAULT_GPUS)
    assert axes.size == 21_504


@pytest.mark.parametrize("axis", range(7), ids=["model", "count", "task", "tokens", "offload", "lora", "gpu"])
def test_each_choice_makes_a_difference(cells, axis):
    every = {
        (*run, gpu): number_of(cells, AXES, index) for index, (run, gpu) in enumerate(combinations(AXES))
    }
    by_rest: dict[tuple[object, ...], set[tuple[int, ...]]] = {}
    for key, cell in every.items():
        rest = key[:axis] + key[axis + 1 :]
        by_rest.setdefault(rest, set()).add(tuple(column[cell] for column in cells.totals))
    assert any(len(found) > 1 for found in by_rest.values())
