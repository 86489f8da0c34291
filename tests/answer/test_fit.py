"""Size classes by numbers of GPUs: each cell is an answer."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.answer.answer import answer
from sphinx_verl_resources.answer.evidence import figures_of
from sphinx_verl_resources.answer.question import Question
from sphinx_verl_resources.answer.sizes import fit_cell, fit_table, size_models, used_models
from sphinx_verl_resources.cli.data import read_data
from sphinx_verl_resources.diagnostics import NoAnswerError

DATA = read_data([])
RUNS = DATA.catalog.runs
ORDER = ["fits", "borderline", "no"]
MODEL = "Qwen/Qwen2.5-7B"
KINDS = {"ran": "tested", "reported": "measured", "claimed": "stated"}


@pytest.fixture(scope="module")
def table():
    def found(**changes):
        asked = {"gpu": "H100", "task": "GRPO", "sizes": (), "counts": (1, 8, 64), "config": {}}
        return fit_table(DATA, **{**asked, **changes})

    return found


def cell_of(count, *evidence, gpu="H100", model=MODEL):
    """Return the cell of an answer with this evidence."""
    found = answer(Question(model, count, gpu), DATA)
    runs = (RUNS[run].model_copy(update={"kind": KINDS[word], "evidence": ()}) for run, word in evidence)
    object.__setattr__(found, "evidence", tuple(runs))
    return fit_cell(found, count, DATA.registries)


def test_more_gpus_never_fit_worse(table):
    for size, cells in table(task="PPO", counts=(2, 8, 32, 128)):
        ranks = [ORDER.index(cell.kind) for cell in cells if cell.kind in ORDER]
        assert ranks == sorted(ranks, reverse=True), size


def test_the_figure_is_what_the_gpu_has_left(table):
    ((_, cells),) = table(sizes=("70B",), counts=(1, 8))
    for count, cell in zip((1, 8), cells, strict=True):
        best = answer(Question(dict(size_models(DATA))["70B"], count, "H100"), DATA).best.estimate
        assert cell.spare == best.capacity - (best.low if cell.kind == "no" else best.high)
        assert (cell.kind, cell.spare > 0) == (("no", False) if count == 1 else ("fits", True))
        assert cell.layout.startswith("Megatron")


def test_a_run_that_ran_is_named_with_its_gpus_where_they_are_others():
    run = "qwen2-7b-grpo-2xh800"
    assert str(RUNS[run].gpus) == "2*H800"
    there, more = cell_of(2, (run, "ran"), gpu="H800"), cell_of(4, (run, "ran"), gpu="H800")
    assert (there.kind, there.run, there.on) == ("ran", run, "")
    assert (more.kind, more.run, more.on) == ("ran", run, "2*H800")
    assert cell_of(2, (run, "ran")).on == "2*H800"


def test_what_is_reported_counts_where_nothing_else_fits():
    run = "qwen2-7b-grpo-2xh800"
    assert cell_of(8, (run, "reported")).kind == "fits"
    assert cell_of(8, (run, "reported")).run is None
    tight = cell_of(1, (run, "reported"), gpu="RTX-4090")
    assert (tight.kind, tight.run, tight.on) == ("reported", run, "2*H800")
    assert cell_of(1, (run, "claimed"), gpu="RTX-4090").kind == "no"


def test_settings_count(table):
    short, long = (
        table(sizes=("7B",), counts=(8,), gpu="RTX-4090", config=config)[0][1][0]
        for config in ({}, {"data.max_response_length": 32_000})
    )
    assert (short.kind, long.kind) == ("fits", "borderline")


def test_every_size_class_with_a_model_is_shown(table):
    models = size_models(DATA)
    assert [size for size, _ in table(counts=(8,))] == list(models)
    assert {"7B", "32B"} <= set(models)


def test_models_that_are_used_come_once_each_and_the_smallest_first():
    def figures(model):
        return figures_of(DATA.catalog, DATA.registries, model)

    found = used_models(DATA)
    sizes = [DATA.registries.known_shape(model).parameters for model in found]
    assert sizes == sorted(sizes)
    assert len(set(map(figures, found))) == len(found) > 30
    assert {figures(run.model) for run in RUNS.values()} <= set(map(figures, found))
    # Qwen2 has the same figures as Qwen2.5, and fewer runs; no script of verl loads Llama 2.
    assert "Qwen/Qwen2.5-7B" in found
    assert not {"Qwen/Qwen2-7B", "meta-llama/Llama-2-70b-hf"} & set(found)


def test_a_number_of_gpus_without_an_estimate_is_unknown(table):
    ((_, cells),) = table(
        sizes=("3B",), counts=(2, 8), config={"actor_rollout_ref.rollout.tensor_model_parallel_size": 4}
    )
    assert [cell.kind for cell in cells] == ["unknown", "fits"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [({"gpu": "H10"}, "H100"), ({"task": "GRPO-LORAX"}, "GRPO-LoRA"), ({"sizes": ("7b",)}, "'7B'")],
)
def test_unknown_names_are_refused_and_others_offered(table, changes, text):
    with pytest.raises(NoAnswerError, match=text):
        table(**changes)
