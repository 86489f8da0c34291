"""The same question gets the same answer everywhere, tested with random questions."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sphinx_verl_resources.commands import main
from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.fit.answer import Answers, answer, answer_settings
from sphinx_verl_resources.fit.command import command_of
from sphinx_verl_resources.fit.evidence import contested_by
from sphinx_verl_resources.fit.fewest import POWERS, fewest_by_memory, fewest_tables, size_models
from sphinx_verl_resources.fit.form import RANKS, RESPONSES, answers_texts, gpu_groups
from sphinx_verl_resources.fit.question import USUAL_RANK, Question
from sphinx_verl_resources.fit.results import FEWEST_FIELDS, change_result, gib_value
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import Request
from sphinx_verl_resources.records import WORDS
from sphinx_verl_resources.scripts.read import read_script
from sphinx_verl_resources.units import GIB

DATA = EstimatorContext()
MODELS = sorted({run.model for run in DATA.runs.values()} | {"meta-llama/Llama-3.1-8B-Instruct"})
GPUS = sorted(gpu.name for gpu in DATA.gpus)

A, R = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
overrides = st.fixed_dictionaries(
    {},
    optional={
        f"{A}.strategy": st.sampled_from(["fsdp", "fsdp2", "megatron"]),
        f"{A}.ppo_max_token_len_per_gpu": st.sampled_from([8192, 65536]),
        f"{A}.fsdp_config.param_offload": st.booleans(),
        f"{A}.megatron.tensor_model_parallel_size": st.sampled_from([1, 4]),
        f"{R}.gpu_memory_utilization": st.sampled_from([0.3, 0.9]),
        f"{R}.quantization": st.just("fp8"),
        "data.train_batch_size": st.sampled_from([64, 4096]),
        "trainer.total_epochs": st.just(3),
    },
)
questions = st.builds(
    Question,
    model=st.sampled_from(MODELS),
    gpus=st.sampled_from([1, 2, 3, 4, 8, 12, 16, 32, 64, 96, 128]),
    gpu=st.sampled_from(GPUS),
    task=st.sampled_from([None, "GRPO", "PPO", "DAPO"]),
    lora=st.sampled_from([0, 0, 8, 64]),
    prompt=st.sampled_from([None, 256, 2048]),
    response=st.sampled_from([None, 512, 4096, 20000]),
)
with_overrides = st.builds(replace, questions, overrides=overrides)


def answer_of(question):
    try:
        return answer(question, DATA)
    except NoAnswerError:
        assume(False)


def of(own):
    """Return the parts of an answer that must be the same everywhere."""
    best = own.best.estimate
    sizes = (best.peak, best.low, best.high, best.capacity, best.host.total)
    return own.verdict, own.best.offloaded, best.peak_phase.name, *map(gib_value, sizes)


@given(with_overrides)
def test_a_plan_never_contradicts_an_estimate_of_its_own_command(question):
    """Nor is a fit without a margin: the whole range, which allows for the known error, is within the GPU."""
    own = answer_of(question)
    settings = read_script(command_of(own.best, DATA).replace("$HOME", "/home/me"), "run.sh").values
    backend = "megatron" if own.best.is_megatron else None
    again = answer_settings(Request(question.model, settings, gpu=question.gpu, backend=backend), DATA)
    assert of(again)[1:] == of(own)[1:]
    assert again.best.reason == own.best.reason
    assert {run.id for run in again.evidence} <= {run.id for run in own.evidence}
    best = own.best.estimate
    if own.verdict == "fits":
        assert best.peak + best.errors[0] * best.peak_phase.counted <= best.capacity


def result_of(*words):
    """Return the JSON that a command prints."""
    output = io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch("sphinx_verl_resources.fit.commands.given_data", return_value=DATA))
        stack.enter_context(contextlib.redirect_stdout(output))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        main([*words, "--format", "json"])
    return json.loads(output.getvalue())


def figures(result):
    """Return the figures that the commands print, as ``of`` does."""
    names = ("peak_gib", "low_gib", "high_gib", "capacity_gib", "host_ram_gib_per_node")
    phase = result["peak_phase"] if "peak_phase" in result else result["binding_phase"]
    return result["verdict"], tuple(result["offloaded"]), phase, *(result[name] for name in names)


@given(with_overrides)
def test_the_commands_have_the_answer_of_the_python_api(question):
    own = answer_of(question)
    named = {"task": question.task, "prompt": question.prompt, "response": question.response}
    options = [f"--{name}={value}" for name, value in named.items() if value]
    options += [f"--lora={question.lora}"] if question.lora else []
    options += [f"--gpus={question.gpus}x{question.gpu}"]
    options += [f"{key}={value}" for key, value in question.overrides.items()]
    planned = result_of("plan", question.model, *options)
    assert figures(planned) == of(own)
    runs = [(run, word) for word in WORDS for run in planned[word]]
    assert runs == [(run.id, run.word) for run in own.evidence]
    contested = {run.id: url for run in own.evidence if (url := contested_by(run))}
    assert planned["contested"] == [{"run": run, "url": url} for run, url in contested.items()]
    assert planned["measured_runs_of_this_kind"] == (own.accuracy.cases if own.accuracy else 0)
    assert planned["change"] == [change_result(change) for change in own.changes]
    assert planned["command"] == own.command
    assert planned["assumed"] == list(own.assumed)
    if planned["command"]:
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "run.sh"
            script.write_text(planned["command"].replace("$HOME", "/home/me"))
            (estimate,) = result_of("estimate", f"--gpu={question.gpu}", "--script", str(script))
        assert figures(estimate)[1:] == figures(planned)[1:]


@pytest.mark.slow
@given(
    st.sampled_from(sorted({int(gpu.memory_gb) for gpu in DATA.gpus})),
    st.sampled_from(sorted(size_models(DATA))),
    st.sampled_from(["GRPO", "PPO", "DAPO"]),
    st.sampled_from([0, USUAL_RANK]),
)
def test_a_table_of_the_fewest_has_the_answer_of_the_command_line(memory, size, task, rank):
    """Also if the command answers for more memory sizes."""
    tables = fewest_tables(
        DATA,
        (size,),
        lambda model, rank: fewest_by_memory(Question(model, None, None, task, rank), DATA, (memory,)),
    )
    model = size_models(DATA)[size]
    options = [f"--task={task}", *([f"--lora={rank}"] if rank else [])]
    planned = {tuple(line["types"]): line for line in result_of("plan", model, *options)["fewest"]}
    assert tables
    for table in tables:
        ((_size, full, lora),) = table
        cell = lora if rank else full
        line = planned[tuple(cell.types)]
        assert (cell.count or None) == line["gpus"]["count"]
        assert ([cell.ran["id"]] if cell.ran else []) == line["ran"] + line["reported"]
        if cell.count:
            own = answer(Question(model, cell.count, cell.types[0], task, rank), DATA)
            assert (own.verdict, own.undercuts is not None) == ("fits", cell.support == "undercuts")


@cache
def form_texts(model):
    """Return the answers of the form for a model, which take seconds."""
    return answers_texts(model, DATA)


@given(st.sampled_from(["Qwen/Qwen2.5-0.5B", "Qwen/Qwen3-30B-A3B"]), st.data())
def test_the_form_has_the_answer_of_the_python_api(model, choices):
    answers, *records = map(json.loads, form_texts(model))
    groups = gpu_groups(DATA)
    place, at = (
        choices.draw(st.integers(0, most - 1)) for most in (len(groups), len(RANKS) * len(RESPONSES))
    )
    first, fits, *cells = answers["windows"][place * len(RANKS) * len(RESPONSES) + at]
    number = choices.draw(st.integers(0, len(cells) - 1))
    rank, response = RANKS[at // len(RESPONSES)], RESPONSES[at % len(RESPONSES)]
    question, gpu = Question(model, lora=rank, response=response), groups[place][0].name
    count = POWERS[first + number]
    own, cell = Answers(question, DATA).on(count, gpu), cells[number]
    verdict, _script, *_lines = answers["kinds"][cell[0]]
    best = own.best.estimate
    assert verdict == own.verdict
    assert cell[3:5] == [round(best.low / GIB), round(best.high / GIB)]
    assert (verdict == "fits") == (first + number >= fits)
    about = {"gpus": {"count": count, "type": gpu}, "lora_rank": rank, "response": response}
    (record,) = (each for each in records if about.items() <= each.items())
    options = [f"--gpus={count}x{gpu}", f"--response={response}", *([f"--lora={rank}"] if rank else [])]
    planned = result_of("plan", model, *options)
    assert record == about | {name: planned[name] for name in ("model", *FEWEST_FIELDS)}
