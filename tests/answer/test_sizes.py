"""The models in tables by size class and in the form."""

from __future__ import annotations

from sphinx_verl_resources.answer.evidence import figures_of
from sphinx_verl_resources.answer.sizes import used_models
from sphinx_verl_resources.memory.registries import EstimatorContext

DATA = EstimatorContext()
RUNS = DATA.runs


def test_models_that_are_used_come_once_each_and_the_smallest_first():
    def figures(model):
        return figures_of(DATA, model)

    found = used_models(DATA)
    sizes = [DATA.known_shape(model).parameters for model in found]
    assert sizes == sorted(sizes)
    assert len(set(map(figures, found))) == len(found) > 30
    assert {figures(run.model) for run in RUNS.values()} <= set(map(figures, found))
    # Qwen2 has the same figures as Qwen2.5, and fewer runs; no script of verl loads Llama 2.
    assert "Qwen/Qwen2.5-7B" in found
    assert not {"Qwen/Qwen2-7B", "meta-llama/Llama-2-70b-hf"} & set(found)
