"""``verl-resources plan``: how a model fits on GPUs, the fewest GPUs it needs, and which models fit."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..answer.answer import Answers, answer
from ..answer.export import FIELDS, answer_result, fewest_result
from ..answer.fewest import fewest_by_memory, fewest_of, fitting_models
from ..answer.question import assumed, task_text
from ..commands import command, given_data, option, report
from ..diagnostics import NoAnswerError, counted
from ..memory.settings import TRAINER_GPUS
from ..units import crossed, gib_number, short_number
from ..views.answer_text import answer_text
from ..views.plain_text import plain_table, wrapped
from ..views.verdicts import label
from .question import (
    QUESTION,
    STRICT,
    errors_text,
    exit_code,
    placed,
    read_question,
    refused,
    registry_problems,
    screen_width,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ..answer.answer import Answer
    from ..answer.fewest import Fewest
    from ..answer.question import Question
    from ..diagnostics import Diagnostic
    from ..memory.registries import EstimatorContext
    from .question import Asked

#: GPUs per node, verl's default.
_NODE = 8


@command(
    option(
        "words",
        nargs="*",
        metavar="MODEL | KEY=VALUE",
        help="model by its full or short name, or the path of its config.json, and overrides in verl's "
        "syntax; without a model, the models that fit on the GPUs are listed",
    ),
    *QUESTION,
    STRICT,
)
def plan(options: argparse.Namespace) -> tuple[str, int]:
    """Find settings with which a model fits on GPUs, the fewest GPUs for a model, or the models that fit.

    Examples:
      verl-resources plan Qwen/Qwen2.5-7B --gpus 8xH100
      verl-resources plan qwen2.5-7b --gpus 8xH100 --lora 32 --response 2048
      verl-resources plan Qwen/Qwen2.5-32B   # the fewest GPUs of each memory size
      verl-resources plan --gpus 8xRTX4090   # the models that fit, largest first
      verl-resources plan Qwen/Qwen3-8B --gpus 4xH100 --format json data.train_batch_size=256

    plan chooses offloading, parallel sizes and the token budget to make the run fit; it never changes
    key=value settings. Unset lengths and settings use verl's defaults, and the answer lists its
    assumptions.

    Exit codes: 0 fits or may fit (borderline, depends on the lengths, unknown), 1 does not fit, has
    errors, or with --strict may fit, 2 no answer. Warnings do not change the exit code.
    """
    data = given_data(options.data)
    problems, asked = registry_problems(data), None
    try:
        asked = read_question(options, data, options.words)
        problems += asked.problems
        text, result, code = _answered(asked, options, problems)
    except NoAnswerError as error:
        problems += placed(error.diagnostics, asked.place) if asked else error.diagnostics
        text, code = "", 2
        result = {**dict.fromkeys(FIELDS), "error": errors_text(problems)}
    bad = report(problems)
    return json.dumps(result, indent=2) if options.format == "json" else text, code or int(bad)


def _answered(
    asked: Asked, options: argparse.Namespace, problems: list[Diagnostic]
) -> tuple[str, dict[str, Any], int]:
    """Return the answer as text and for programs, and the exit code; add the problems of the settings."""
    question, data, width = asked.question, asked.data, screen_width()
    if not question.model:
        return _fits(question, data, width)
    if not question.gpu:
        return _fewest(question, data, width)
    note = ""
    if question.gpus is None:
        count, note = _count(question, data)
        question = replace(question, gpus=count)
    found = answer(question, data)
    if note:
        found = replace(found, assumed=(note, *found.assumed))
    problems += placed(found.best.estimate.warnings, asked.place)
    text = answer_text(found, verbose=options.verbose, width=width)
    return text, answer_result(found), exit_code(found.verdict, strict=options.strict)


def _count(question: Question, data: EstimatorContext) -> tuple[int, str]:
    """Return the number of GPUs in the settings or the fewest that fit, and the assumption made.

    If no number fits, return the GPUs of one node.
    """
    nodes, each = (question.overrides.get(key) for key in TRAINER_GPUS)
    if type(nodes) is int or type(each) is int:
        return (nodes if type(nodes) is int else 1) * (each if type(each) is int else _NODE), ""
    fewest = fewest_of(Answers(question, data), question.gpu)
    if fewest is None:
        return _NODE, counted(_NODE, "GPU")
    return fewest.gpus, f"{counted(fewest.gpus, 'GPU')}, the fewest that fit"


def _fewest(question: Question, data: EstimatorContext, width: int) -> tuple[str, dict[str, Any], int]:
    """Return the fewest GPUs of each memory size."""
    if question.gpus:
        message = f"{counted(question.gpus, 'GPU')} given, but not their type"
        remedy = f"write --gpus {question.gpus}xH100 for example, or leave the number out"
        raise refused("missing_key", message, remedy)
    found = fewest_by_memory(question, data)
    left_open = assumed(replace(question, gpus=_NODE), data)  # their number is the question
    result = {
        "model": question.model,
        "fewest": [fewest_result(item) for item in found],
        "assumed": list(left_open),
    }
    return fewest_text(question, found, left_open, width), result, int(not any(item.found for item in found))


def _fits(question: Question, data: EstimatorContext, width: int) -> tuple[str, dict[str, Any], int]:
    """Return the models that fit on the GPUs."""
    if not question.gpu:
        raise refused(
            "missing_key",
            "no model and no GPU given",
            "give a model such as qwen2.5-7b, or GPUs such as --gpus 8xH100",
        )
    question = replace(question, gpus=question.gpus or _NODE)
    found, left_open = fitting_models(question, data), assumed(question, data)
    result = {
        "gpus": {"count": question.gpus, "type": question.gpu},
        "fits": [answer_result(item) for item in found],
        "assumed": list(left_open),
    }
    return fitting_text(question, found, left_open, width), result, int(not found)


_FEWEST = "GB> | GPU | Fewest> | Best with | GiB per GPU | Host GiB/node> | Recorded on"
_FIRST = "Each line is for its first GPU, which has the least memory."
_FITS = "Model | Verdict | Best with | GiB per GPU | Host GiB/node> | Recorded on"


def fewest_text(question: Question, found: Sequence[Fewest], assumed: Sequence[str], width: int = 100) -> str:
    """Return the fewest GPUs of each memory size.

    Args:
        question: the model and the task.
        found: the result for each memory size.
        assumed: the assumptions, in words.
        width: characters per line.
    """
    counts = [f"{item.found.gpus}×{short_number(item.memory_gb)} GB" for item in found if item.found]
    fewest = ", ".join(dict.fromkeys(counts)) or "none of the tried numbers fits"
    head = f"Fewest GPUs for {question.model}, {task_text(question)}: {fewest}."
    recorded = [item.ran for item in found if item.ran]
    smallest = min(recorded, key=lambda run: run.gpus.count, default=None)
    reason = "The figures are estimated; no run of this model is recorded on these GPUs."
    if smallest:
        runs = "it ran" if smallest.word == "ran" else "it is reported to run"
        reason = f"The figures are estimated; {runs} on {crossed(smallest.gpus)}: {smallest.id}."
    lines = [head, reason, f"Assumed: {', '.join(assumed)}."]
    table = plain_table(_FEWEST, map(_fewest_row, found), width)
    return "\n\n".join(["\n".join(wrapped(lines, width)), table, *wrapped([_FIRST], width)])


def fitting_text(
    question: Question, found: Sequence[Answer], assumed: Sequence[str], width: int = 100
) -> str:
    """Return the models that fit on the GPUs, one per line; arguments as for ``fewest_text``."""
    gpus = f"{question.gpus}×{question.gpu}"
    models = f"{len(found)} recorded models" if len(found) != 1 else "1 recorded model"
    head = f"Fits on {gpus}, {task_text(question)}: {models}, the largest first."
    if not found:
        head = f"None of the recorded models fits on {gpus}, {task_text(question)}."
    recorded = sum(_recorded(item) != "" for item in found) or "none"
    lines = [
        head,
        f"Models with a recorded run on as little memory: {recorded}. The figures are estimated.",
        f"Assumed: {', '.join(assumed)}.",
    ]
    parts = ["\n".join(wrapped(lines, width))]
    if found:
        parts.append(plain_table(_FITS, map(_fitting_row, found), width))
    return "\n\n".join(parts)


def _fewest_row(item: Fewest) -> tuple[str, ...]:
    names = ", ".join(gpu.name for gpu in item.gpus)
    ran = crossed(item.ran.gpus) if item.ran else ""
    if item.found is None:
        return (short_number(item.memory_gb), names, "none fits", "", "", "", ran)
    count = short_number(item.found.gpus)
    return (short_number(item.memory_gb), names, count, *_figures(item.found), ran)


def _fitting_row(found: Answer) -> tuple[str, ...]:
    return (found.asked.model, label(found.verdict), *_figures(found), _recorded(found))


def _figures(found: Answer) -> tuple[str, str, str]:
    best = found.best.estimate
    span = f"{gib_number(best.peak)} ({gib_number(best.low)} to {gib_number(best.high)})"
    return (found.best.name, span, gib_number(best.host.total))


def _recorded(found: Answer) -> str:
    return next((crossed(run.gpus) for run in found.evidence if run.word != "claimed"), "")
