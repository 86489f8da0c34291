"""The grid of the form: its cells are answers, in the form's order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sphinx_verl_resources.answer.answer import answer
from sphinx_verl_resources.answer.command import SEPARATOR, command_of
from sphinx_verl_resources.answer.grid import CHOSEN, Axes, compute_grid
from sphinx_verl_resources.answer.question import Question
from sphinx_verl_resources.answer.sizes import fewest_tables
from sphinx_verl_resources.commands import given_data
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import VERDICTS
from sphinx_verl_resources.units import gib_number

DATA = EstimatorContext()
SMALL, MODEL = "Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B"
AXES = Axes((1, 2, 8), ("RTX-4090", "H100", "H800", "B200"), (512, 16384))
TP = {"actor_rollout_ref.rollout.tensor_model_parallel_size": 4}


@pytest.fixture(scope="module")
def cells():
    return compute_grid(MODEL, AXES, {}, DATA)


def asked(run, gpu, model=MODEL):
    """Answer the question of one combination alone."""
    count, lora, response = run
    return Question(model, count, gpu, lora=lora, response=response)


def cell_of(cells, number, gpu):
    """Return the numbers of a cell."""
    place = number * (max(cells.gpus) + 1) + cells.gpus[AXES.gpus.index(gpu)]
    return {name: column[place] for name, column in cells.columns.items()}


def text_of(tenths):
    return f"{tenths / 10:,.1f}"


def test_each_cell_is_what_the_answer_says(cells):
    verdicts, named = set(), set()
    for number, run in enumerate(AXES.runs):
        for place, gpu in enumerate(AXES.gpus):
            found, cell = answer(asked(run, gpu), DATA), cell_of(cells, number, gpu)
            best = found.best.estimate
            assert VERDICTS[cell["verdict"]] == found.verdict
            assert (text_of(cell["low"]), text_of(cell["high"])) == (
                gib_number(best.low),
                gib_number(best.high),
            )
            assert cells.phases[cell["phase"]] == best.peak_phase.name
            assert cells.layouts[cell["layout"]] == found.best.name
            assert cells.commands[cell["command"]] == tuple(command_of(found.best, DATA).split(SEPARATOR))
            trust = cells.trusts[cell["trust"]]
            assert (trust.measured_runs, trust.undercuts) == (
                found.trust.measured_runs,
                found.trust.undercuts,
            )
            runs = [cells.runs[index] for index in cells.nearest[cells.evidence[place][number]]]
            bearing = [(run.id, run.word, True) for run in found.evidence if run.word != "claimed"]
            smallest = found.trust.smallest
            instead = [(smallest.id, smallest.word, False)] if smallest else []
            assert runs == (bearing[:2] or instead)
            named |= {bears for *_, bears in runs}
            verdicts.add(found.verdict)
    assert verdicts >= {"fits", "does-not-fit"}
    assert named == {True, False}


def test_gpus_that_offer_the_same_memory_share_their_cells(cells):
    assert cells.gpus == (2, 1, 1, 0)
    assert len(cells.columns["verdict"]) == AXES.size * 3 // 4
    assert cells.offered[1] == cells.offered[2] == 791
    other = replace(AXES, counts=(8,), gpus=("L20", "RTX-A6000", "A40"))
    assert compute_grid(SMALL, other, {}, DATA).gpus == (1, 0, 1)


def test_where_no_run_bears_on_the_question_the_smallest_is_named(data):
    """As in the table of the fewest GPUs, which has shorter sequences and more GPUs."""
    data.run("short", model=MODEL, gpus={"count": 2, "type": "H100"})
    records = given_data([data.path])
    (table,) = fewest_tables(records, memories=(80,), task="GRPO", sizes=("7B",), config={})
    ((_size, full, _lora),) = table.rows
    assert (full.run, full.count, full.undercuts) == ("short", 1, True)
    found = compute_grid(MODEL, Axes((1, 8), ("H100",), (512, 1024), (0,)), {}, records)
    assert set(found.runs) == {("short", "ran", True), ("short", "ran", False)}
    (evidence,) = found.evidence
    named = [[found.runs[run] for run in found.nearest[index]] for index in evidence]
    assert [bears for ((_run, _word, bears),) in named] == [False, False, True, False]
    undercuts = [found.trusts[trust].undercuts for trust in found.columns["trust"]]
    assert undercuts == [True, True, False, False]


def test_a_cell_without_an_estimate_says_why():
    axes = replace(AXES, counts=(2, 8), gpus=("H100",), responses=(1024,))
    found = compute_grid(MODEL, axes, TP, DATA)
    assert [verdict >= len(VERDICTS) for verdict in found.columns["verdict"]] == [True, True, False, False]
    (reason,) = found.reasons
    assert reason.endswith("tensor_model_parallel_size: 4 does not divide the 2 GPUs")
    assert found.columns["high"][0] == 0
    assert found.errors == ()


def test_without_any_estimate_there_are_errors():
    found = compute_grid(SMALL, replace(AXES, counts=(8,)), TP, DATA)
    (error,) = found.errors
    assert "does not divide the model's 14 attention heads" in error.message


def test_a_number_of_gpus_of_which_some_are_of_no_use_says_how_many_it_takes():
    large, axes = "Qwen/Qwen2.5-72B-Instruct", Axes((9,), ("H200",), (1024,))
    found = compute_grid(large, axes, {}, DATA)
    assert [answer(asked(run, "H200", large), DATA).gpus for run in axes.runs] == [
        used or 9 for used in found.columns["used"]
    ]
    assert 8 in found.columns["used"]


@pytest.mark.parametrize("axis", ["counts", "loras", "responses"])
def test_each_choice_makes_a_difference(cells, axis):
    by_rest: dict[tuple[object, ...], set[tuple[int, ...]]] = {}
    place = ["counts", "loras", "responses"].index(axis)
    for number, run in enumerate(AXES.runs):
        cell = cell_of(cells, number, "H100")
        by_rest.setdefault(run[:place] + run[place + 1 :], set()).add((cell["high"], cell["command"]))
    assert all(len(found) > 1 for found in by_rest.values())


def test_no_key_that_a_choice_sets_is_free(cells):
    chosen = {key.split(".")[-1] for key in CHOSEN}
    assert chosen == {"max_response_length", "path", "lora_rank", "rank", "nnodes", "n_gpus_per_node"}
