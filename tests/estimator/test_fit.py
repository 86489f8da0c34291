"""Size classes by number of GPUs."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.cli.data import read_snapshot
from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.estimator.context import EstimatorContext
from sphinx_verl_resources.estimator.fit import fit_table, size_models

DATA = EstimatorContext(read_snapshot([]))
CATALOG = DATA.catalog


@pytest.fixture(scope="module")
def table():
    def found(**changes):
        asked = {"gpu": "H100", "task": "GRPO", "sizes": (), "counts": (1, 8, 64), "config": {}}
        return fit_table(DATA, **{**asked, **changes})

    return found


def test_more_gpus_never_fit_worse(table):
    order = ["computed", "tight", "does not fit"]
    for size, cells in table(task="PPO", counts=(2, 8, 32, 128)):
        ranks = [order.index(cell.kind) for cell in cells if cell.kind in order]
        assert ranks == sorted(ranks, reverse=True), size


def test_larger_models_never_take_less(table):
    rows = dict(table(sizes=("3B", "7B", "32B"), counts=(8,)))
    peaks = [rows[size][0].peak for size in ("3B", "7B", "32B")]
    assert peaks == sorted(peaks)


def test_cells_say_what_they_rest_on(table):
    cells = [cell for _, row in table(task="GRPO-LoRA", sizes=("7B",)) for cell in row]
    assert [cell.gpus for cell in cells] == [1, 8, 64]
    assert cells[0].kind == "measured"
    assert CATALOG.runs[cells[0].run].gpus.count == 1
    for cell in cells:
        assert (cell.run is not None) is (cell.kind == "measured")
        assert 0 < cell.peak <= cell.high
        assert cell.layout


def test_sizes_of_ppo_with_megatron_are_sensible(table):
    """70B on eight GPUs: weights and gradient buffers take 6 bytes a parameter of an eighth, the rest little."""
    ((_, (cell,)),) = table(task="PPO", sizes=("70B",), counts=(8,))
    assert cell.layout == "Megatron TP 8"
    states = 6 * 70.6e9 / 8
    assert states < cell.peak < 1.4 * states


def test_settings_count(table):
    plain, other = (
        table(sizes=("7B",), counts=(8,), config=config)[0][1][0]
        for config in ({}, {"data.max_response_length": 16_000})
    )
    assert plain.peak < other.peak


def test_every_size_class_with_a_model_is_shown(table):
    models = size_models(DATA)
    assert [size for size, _ in table(counts=(8,))] == list(models)
    assert {"7B", "32B"} <= set(models)


@pytest.mark.parametrize(
    ("changes", "text"),
    [({"gpu": "H10"}, "H100"), ({"task": "GRPO-LORAX"}, "GRPO-LoRA"), ({"sizes": ("7b",)}, "'7B'")],
)
def test_unknown_names_are_refused_and_others_offered(table, changes, text):
    with pytest.raises(NoAnswerError, match=text):
        table(**changes)
