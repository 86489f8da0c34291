"""``verl-resources plan``: how many GPUs a model takes, or how large a micro-batch given ones hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..diagnostics import Code, Diagnostic, NoAnswerError, did_you_mean
from ..estimator.export import result_of
from ..estimator.planner import TASKS, layout_of, plan, task_settings
from ..views.plain_text import plan_text
from .command import Command, add_result_options, report
from .data import data_snapshot, registries_of
from .question import Question, add_question_arguments, read_question, refused

if TYPE_CHECKING:
    import argparse

    from ..estimator.planner import Plan
    from ..estimator.registries import Registries

_EXAMPLES = f"""\
examples:
  verl-resources plan --model Qwen/Qwen2.5-7B --task GRPO --gpu H100
  verl-resources plan --model Qwen/Qwen2.5-7B --task GRPO --gpu H100 --gpus 4 data.max_response_length=8192
  verl-resources plan --model Qwen/Qwen3-32B --task GRPO-LoRA --gpu H800 --format json

The tasks are {", ".join(TASKS)}, each with every memory optimisation on; key=value overrides go on top.
A plan fits when the upper end of the range does.

Each problem is a line on standard error: path:line:col: LEVEL: message [code].
Exit codes: 0 it fits, 1 it does not or there are problems, 2 could not run. Warnings do not fail."""
#: As many as a question may name; no cluster is larger.
MOST_GPUS = 100_000
#: What is taken over from the result of an estimate.
_FIGURES = (
    "verdict", "peak_gib", "low_gib", "high_gib", "capacity_gib", "binding_phase", "relief",
    "relief_saves_gib", "relief_peak_gib", "host_ram_gib_per_node", "unsupported", "warnings",
)  # fmt: skip


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="overrides as verl takes them")
    parser.add_argument("--task", required=True, help=", ".join(TASKS))
    parser.add_argument("--gpu", required=True, metavar="GPU", help="H100 for example")
    parser.add_argument(
        "--gpus", metavar="N", type=int, help="how many there are; default: find the smallest number"
    )
    add_question_arguments(parser)
    add_result_options(parser)


def _run(options: argparse.Namespace) -> int:
    """Plan and print."""
    registries, problems = registries_of(data_snapshot(options.data))
    try:
        question = _question(options, registries)
    except NoAnswerError as error:
        return _without(options, [*problems, *error.diagnostics], 2)
    problems += question.problems
    try:
        found = plan(question.request, question.registries)
    except NoAnswerError as error:
        return _without(options, problems + question.placed(error.diagnostics), 1)
    problems += question.placed(found.estimate.warnings)
    bad = report(problems)
    settings = dict(found.request.config)
    if options.format == "json":
        print(json.dumps(_plain(options, question, found, settings), indent=2))
    else:
        print(plan_text(found, question.request.model, _task(options.task), settings))
    return 0 if found.gpus and not bad else 1


def _question(options: argparse.Namespace, registries: Registries) -> Question:
    base = task_settings(options.task)
    if base is None:
        message = f"unknown task {options.task[:80]!r}"
        raise refused(Code.unknown_value, message, did_you_mean(options.task, TASKS))
    if options.gpus is not None and not 1 <= options.gpus <= MOST_GPUS:
        message = f"expected a number of GPUs from 1 to {MOST_GPUS}, got {options.gpus}"
        raise refused(Code.wrong_value, message)
    return read_question(options, registries, (options.gpus, options.gpu), base=base)


def _task(name: str) -> str:
    """Return the task as it is listed."""
    return next(task for task in TASKS if task.casefold() == name.casefold())


def _plain(
    options: argparse.Namespace, question: Question, found: Plan, settings: dict[str, Any]
) -> dict[str, Any]:
    """Return the plan for programs; ``gpus`` is the number that all figures are for, fitting or not."""
    figures = result_of("", found.estimate)
    return {
        "model": question.request.model,
        "task": _task(options.task),
        "gpu": options.gpu,
        "gpus": found.estimate.settings.gpus,
        "fits": found.gpus is not None,
        "layout": layout_of(found.estimate),
        "gpus_with_fsdp": found.with_fsdp,
        "micro_batch": found.micro_batch,
        "unit": found.unit,
        **{name: figures[name] for name in _FIGURES},
        "settings": settings,
    }


def _without(options: argparse.Namespace, problems: list[Diagnostic], code: int) -> int:
    """Report why there is no plan, and return the exit code."""
    report(problems)
    if options.format == "json":
        empty = dict.fromkeys(
            ("gpus", "fits", "layout", "gpus_with_fsdp", "micro_batch", "unit", *_FIGURES, "settings")
        )
        asked = {"model": options.model, "task": options.task, "gpu": options.gpu}
        error = "; ".join(problem.text for problem in problems if problem.is_error)
        print(json.dumps({**asked, **empty, "error": error}, indent=2))
    return code


PLAN = Command(
    "plan",
    "find the smallest number of GPUs that a model fits on, or the largest micro-batch",
    _EXAMPLES,
    _add_arguments,
    _run,
)
