"""The same question gets the same answer everywhere, tested with random questions."""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sphinx_verl_resources.answer.answer import answer, answer_settings
from sphinx_verl_resources.answer.command import command_of
from sphinx_verl_resources.answer.export import change_result
from sphinx_verl_resources.answer.grid import Axes, compute_grid
from sphinx_verl_resources.answer.question import USUAL_RANK, Question
from sphinx_verl_resources.answer.results import gib_value
from sphinx_verl_resources.answer.sizes import fewest_tables, size_models
from sphinx_verl_resources.commands import main
from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import Request
from sphinx_verl_resources.records import WORDS
from sphinx_verl_resources.settings.read import read_script
from sphinx_verl_resources.texts import run_title
from sphinx_verl_resources.views.verdicts import title
from sphinx_verl_resources.views.what_if_answers import answers_of, fields_of, first_answer, shared_data

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


def answered(question):
    try:
        return answer(question, DATA)
    except NoAnswerError:
        assume(False)


def of(found):
    """Return the parts of an answer that must be the same everywhere."""
    best = found.best.estimate
    return found.verdict, best.peak, best.low, best.high, best.capacity, best.peak_phase, best.host.total


def runs_of(found):
    """Return the relevant recorded runs."""
    return [(run.id, run.word) for run in found.evidence]


def same_runs(some, of_all, found, question):
    """Return whether the evidence is the same; for fewer GPUs it may be a part."""
    return some == of_all if found.gpus == question.gpus else set(some) <= set(of_all)


@given(with_overrides)
def test_the_command_of_an_answer_has_the_same_answer(question):
    found = answered(question)
    text = command_of(found.best, DATA).replace("$HOME", "/home/me")
    settings = read_script(text, "run.sh").values
    backend = "megatron" if found.best.is_megatron else None
    request = Request(question.model, settings, gpu=question.gpu, backend=backend)
    again = answer_settings(request, DATA)
    assert of(again) == of(found)
    assert same_runs(runs_of(again), runs_of(found), found, question)


def printed(*words):
    """Return the JSON that a command prints."""
    output = io.StringIO()
    reads = (f"sphinx_verl_resources.cli.{name}.given_data" for name in ("plan", "estimate"))
    with contextlib.ExitStack() as stack:
        for name in reads:
            stack.enter_context(mock.patch(name, return_value=DATA))
        stack.enter_context(contextlib.redirect_stdout(output))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        main([*words, "--format", "json"])
    return json.loads(output.getvalue())


def figures(result):
    """Return the figures that all commands print."""
    names = ("verdict", "peak_gib", "low_gib", "high_gib", "capacity_gib", "host_ram_gib_per_node")
    return {name: result[name] for name in (*names, "measured_runs_of_this_kind", "change")}


def runs_in(result):
    """Return the recorded runs that they print."""
    return [(run, word) for word in WORDS for run in result[word]]


def figures_of(found):
    """Return the same figures of an answer from the Python API."""
    best = found.best.estimate
    sizes = (best.peak, best.low, best.high, best.capacity, best.host.total)
    changes = [change_result(change) for change in found.changes]
    return [found.verdict, *map(gib_value, sizes), found.trust.measured_runs, changes]


@given(with_overrides)
def test_the_commands_have_the_answer_of_the_python_api(question):
    found = answered(question)
    named = {"task": question.task, "prompt": question.prompt, "response": question.response}
    options = [f"--{name}={value}" for name, value in named.items() if value]
    options += [f"--lora={question.lora}"] if question.lora else []
    options += [f"--gpus={question.gpus}x{question.gpu}"]
    options += [f"{key}={value}" for key, value in question.overrides.items()]
    planned = printed("plan", question.model, *options)
    assert list(figures(planned).values()) == figures_of(found)
    assert runs_in(planned) == runs_of(found)
    assert planned["command"] == command_of(found.best, DATA)
    assert planned["assumed"] == list(found.assumed)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "run.sh"
        script.write_text(planned["command"].replace("$HOME", "/home/me"))
        (estimated,) = printed("estimate", f"--gpu={question.gpu}", "--script", str(script))
    assert figures(estimated) == figures(planned)
    assert same_runs(runs_in(estimated), runs_in(planned), found, question)


@given(
    st.sampled_from(sorted({int(gpu.memory_gb) for gpu in DATA.gpus})),
    st.sampled_from(sorted(size_models(DATA))),
    st.sampled_from(["GRPO", "PPO", "DAPO"]),
    st.sampled_from([0, USUAL_RANK]),
)
def test_a_table_of_the_fewest_has_the_answer_of_the_command_line(memory, size, task, rank):
    """Also if the command answers for more memory sizes, and for GPUs of one size with less capacity."""
    tables = fewest_tables(DATA, memories=(memory,), task=task, sizes=(size,), config={})
    model = size_models(DATA)[size]
    options = [f"--task={task}", *([f"--lora={rank}"] if rank else [])]
    planned = {tuple(line["types"]): line for line in printed("plan", model, *options)["fewest"]}
    assert tables
    for table in tables:
        line = planned[table.gpus]
        ((_, full, lora),) = table.rows
        cell = lora if rank else full
        assert list(table.gpus) == line["types"]
        assert (cell.count or None) == line["gpus"]["count"]
        assert [cell.run] * bool(cell.run) == line["ran"] + line["reported"]
        if cell.count:
            found = answer(Question(model, cell.count, table.gpus[0], task, rank), DATA)
            assert (found.verdict, found.trust.undercuts) == ("fits", cell.undercuts)


of_the_form = st.builds(
    replace, questions, task=st.none(), prompt=st.none(), response=st.sampled_from([512, 1024, 16384])
)


@given(of_the_form, st.sampled_from(GPUS))
def test_the_form_has_the_answer_of_the_command_line(question, other):
    """Also if another GPU of the form shares the cells."""
    answered(question)
    axes = Axes((question.gpus,), (other, question.gpu), (question.response,), (question.lora,))
    cells = compute_grid(question.model, axes, {}, DATA)
    runs = {run: (run_title(DATA.runs[run]), "") for run, *_how in cells.runs}
    fields = [{**field, "first": len(field["values"]) - 1} for field in fields_of([question.model], axes)]
    form = first_answer(fields, shared_data([""], cells), answers_of(cells, runs))
    options = [f"--response={question.response}", f"--lora={question.lora}"][: 2 if question.lora else 1]
    planned = printed("plan", question.model, f"--gpus={question.gpus}x{question.gpu}", *options)
    assert form.badge == (planned["verdict"], title(planned["verdict"]))
    low, high = (
        float(size.replace(",", "")) for size in re.findall(r"[\d,.]+\d", form.lines["estimated"])[:2]
    )
    # GPUs that share a cell have the same capacity, rounded to a tenth.
    assert low == pytest.approx(planned["low_gib"], abs=0.101)
    assert high == pytest.approx(planned["high_gib"], abs=0.101)
    assert f"with {planned['strategy']};" in form.lines["estimated"]
    measured = planned["measured_runs_of_this_kind"]
    assert {0: "no", 1: "one"}.get(measured, str(measured)) in form.lines["trust"].lower()
    if planned["verdict"] == "does-not-fit":
        assert form.command == form.lines["host"] == ""
    else:
        assert form.command == planned["command"]
        host = float(form.lines["host"].split()[0].replace(",", ""))
        assert host == pytest.approx(planned["host_ram_gib_per_node"], abs=0.501)
    assert (
        form.plan
        == f"verl-resources plan {question.model} --gpus {question.gpus}x{question.gpu} "
        + " ".join(option.replace("=", " ") for option in options)
    )
