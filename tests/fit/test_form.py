"""The answers of the form: its choices, its windows of numbers of GPUs, and when they are computed again."""

from __future__ import annotations

import json

import pytest

from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.fit import form
from sphinx_verl_resources.fit.answer import Answers
from sphinx_verl_resources.fit.evidence import shape_key_of
from sphinx_verl_resources.fit.fewest import size_models, window_of
from sphinx_verl_resources.fit.form import (
    RANKS,
    RESPONSES,
    answers_texts,
    form_models,
    gpu_groups,
    pieces_of,
)  # fmt: skip
from sphinx_verl_resources.fit.question import Question
from sphinx_verl_resources.memory.registries import EstimatorContext, capacity_of
from sphinx_verl_resources.units import GIB

from .test_agreement import form_texts

DATA = EstimatorContext()
GPU = """gpus:
  - name: X
    memory_gb: 5
    memory_mib: 5120
    vendor: nvidia
    kind: nominal
"""


def test_the_models_are_those_of_runs_and_sizes_once_each():
    models = form_models(DATA)
    keys = [shape_key_of(DATA, model) for model in models]
    assert len(set(keys)) == len(keys)
    wanted = {*size_models(DATA).values(), *(run.model for run in DATA.runs.values())}
    assert {shape_key_of(DATA, model) for model in wanted} == set(keys)
    assert "Qwen/Qwen2.5-7B" in models


def test_the_answer_for_a_memory_size_holds_for_each_gpu_that_is_named():
    groups = gpu_groups(DATA)
    assert {group[0].memory_gb for group in groups} == {24, 32, 40, 48, 64, 80, 96, 141, 180, 192, 288}
    for group in groups:
        assert len({(gpu.memory_gb, gpu.vendor, gpu.fast_link, gpu.bfloat16) for gpu in group}) == 1
        assert capacity_of(group[0]) == min(map(capacity_of, group))


def test_cells_have_the_numbers_for_their_texts_and_every_text_is_used():
    result = json.loads(form_texts("Qwen/Qwen2.5-0.5B")[0])
    windows, texts, words = result["windows"], result["texts"], result["words"]
    assert len(windows) == len(gpu_groups(DATA)) * len(RANKS) * len(RESPONSES)
    for _first, _fewest, *cells in windows:
        for kind, _bars, command, _low, _high, _capacity, *numbers in cells:
            pieces = [texts[index] for index in result["kinds"][kind][1:]]
            pieces += [words[index] for index in result["commands"][command]]
            assert "".join(pieces).count("{#}") == len(numbers)
    for column, name in enumerate(("kinds", "bars", "commands")):
        assert {cell[column] for _, _, *cells in windows for cell in cells} == set(range(len(result[name])))


def test_a_window_begins_with_every_number_on_which_it_might_fit():
    """On one L4 it might fit, on two not: only two shard gradients."""
    answers = Answers(Question("Qwen/Qwen2.5-7B", gpus=1, response=1024), DATA)
    first, fits, cells = window_of(answers, "L4")
    assert (first, [each.verdict for each in cells][:2]) == (0, ["borderline", "does-not-fit"])
    assert cells[fits].verdict == "fits"


def test_a_number_of_gpus_without_an_estimate_says_why(monkeypatch):
    error = NoAnswerError.because("a < b")
    monkeypatch.setattr(form, "window_of", lambda *_question: (1, 2, [error]))
    assert json.loads(answers_texts("Qwen/Qwen2.5-1.5B", DATA)[0])["windows"][0] == [1, 2, "a &lt; b"]


def test_pieces_add_up_to_the_rounded_total(ask):
    for phase in ask().best.estimate.phases:
        assert sum(pieces_of(phase)) == round(phase.total / GIB)


@pytest.mark.parametrize("parallel", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_only_what_decides_answers_computes_them_again(project, data, monkeypatch, parallel):
    """Another process computes them if there are several, so a file records which."""
    log = data.path.parent / "log"

    def fake(model, data):
        with log.open("a") as stream:
            stream.write(f"{model}\n")
        return ["{}"]

    def computed(text="", **run):
        data.run("a", model="Qwen/Qwen2.5-7B", **run)
        log.write_text("")
        page = project.page(f".. verl-what-if::\n   :models: Qwen/Qwen2.5-0.5B, Qwen/Qwen2.5-7B\n\n{text}")
        build = page.build(parallel=parallel, verl_resources_data=["../data"])
        assert build.warnings == []
        return sorted(line.rpartition("/")[2] for line in log.read_text().splitlines())

    monkeypatch.setattr(form, "answers_texts", fake)
    both = ["Qwen2.5-0.5B", "Qwen2.5-7B"]
    assert computed() == both
    assert computed("Text.") == []
    assert computed(added="2026-01-01") == ["Qwen2.5-7B"]
    data.write("gpus.yaml", GPU)
    assert computed(added="2026-01-01") == both
    (file, _other) = (project.path / "_build/doctrees").glob("verl-what-if-*")
    file.write_text(file.read_text()[:-1])
    assert len(computed("Text.", added="2026-01-01")) == 1
