"""``verl-resources plan``: how many GPUs a model takes, or how large a micro-batch given ones hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..catalog.names import MOST_GPUS
from ..diagnostics import Code, NoAnswerError
from ..estimator.export import result_of
from ..estimator.planner import layout_of, plan
from ..estimator.tasks import TASKS, known_task, task_settings
from ..views.plain_text import plan_text
from .command import Command, add_result_options, report
from .data import given_data, registry_problems
from .question import (
    Question,
    add_question_arguments,
    errors_text,
    on_command_line,
    placed,
    read_question,
    refused,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from ..estimator.planner import Plan
    from ..estimator.registries import Registries

#: The fields of a plan for programs; ``gpus`` is the number that all figures are for, fitting or not.
_FIELDS: Mapping[str, Callable[[Plan], Any]] = {
    "gpus": lambda found: found.estimate.settings.gpus,
    "fits": lambda found: found.gpus is not None,
    "layout": lambda found: layout_of(found.estimate),
    "gpus_with_fsdp": lambda found: found.with_fsdp,
    "micro_batch": lambda found: found.micro_batch,
    "unit": lambda found: found.unit,
}
#: The fields of an estimate that follow them.
_FIGURES = (
    "verdict", "peak_gib", "low_gib", "high_gib", "capacity_gib", "binding_phase", "relief",
    "relief_saves_gib", "relief_peak_gib", "host_ram_gib_per_node", "unsupported", "warnings",
)  # fmt: skip


_NO_PLAN = dict.fromkeys((*_FIELDS, *_FIGURES, "settings"))


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
    data = given_data(options.data)
    problems = registry_problems(data)
    question, found, task = None, None, options.task
    try:
        with on_command_line():
            task = known_task(task)
        question = _question(options, task, data.registries)
        problems += question.problems
        found = plan(question.request, question.registries)
        problems += placed(found.estimate.warnings, question.place)
    except NoAnswerError as error:
        problems += placed(error.diagnostics, question.place) if question else error.diagnostics
    bad = report(problems)
    asked = {
        "model": question.request.model if question else options.model,
        "task": task,
        "gpu": options.gpu,
    }
    if options.format == "json":
        answer = _plain(found) if found else {**_NO_PLAN, "error": errors_text(problems)}
        print(json.dumps({**asked, **answer}, indent=2))
    elif found:
        print(plan_text(found, asked["model"], asked["task"], dict(found.request.config)))
    if found and found.gpus and not bad:
        return 0
    return 1 if question else 2


def _question(options: argparse.Namespace, task: str, registries: Registries) -> Question:
    if options.gpus is not None and not 1 <= options.gpus <= MOST_GPUS:
        message = f"expected a number of GPUs from 1 to {MOST_GPUS}, got {options.gpus}"
        raise refused(Code.wrong_value, message)
    return read_question(options, registries, (options.gpus, options.gpu), base=task_settings(task))


def _plain(found: Plan) -> dict[str, Any]:
    """Return the plan for programs."""
    figures = result_of("", found.estimate)
    return {
        **{name: value(found) for name, value in _FIELDS.items()},
        **{name: figures[name] for name in _FIGURES},
        "settings": dict(found.request.config),
    }


PLAN = Command(
    "plan",
    "find the smallest number of GPUs that a model fits on, or the largest micro-batch",
    {
        "--model Qwen/Qwen2.5-7B --task GRPO --gpu H100": "",
        "--model Qwen/Qwen2.5-7B --task GRPO --gpu H100 --gpus 4 data.max_response_length=8192": "",
        "--model Qwen/Qwen3-32B --task GRPO-LoRA --gpu H800 --format json": "",
    },
    "0 it fits, 1 it does not or there are problems, 2 could not run. Warnings do not fail.",
    _add_arguments,
    _run,
    notes=f"The tasks are {', '.join(TASKS)}, each with every memory optimisation on; key=value "
    "overrides go on top. A plan fits when the upper end of the range does.",
)
