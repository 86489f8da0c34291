"""``verl-resources plan``: how a model fits on GPUs, the fewest that it takes, and what fits on some."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..answer.answer import answer
from ..answer.export import FIELDS, answer_result
from ..diagnostics import NoAnswerError
from ..views.answer_text import answer_text
from .command import EXIT_CODES, Command, exit_code, report, screen_width
from .data import given_data, registry_problems
from .question import add_question_arguments, add_strict_option, errors_text, placed, read_question

if TYPE_CHECKING:
    import argparse

    from ..diagnostics import Diagnostic
    from .question import Asked

_WORDS = (
    "a model by its full or short name, or the path of its config.json; overrides as verl takes them. "
    "Without a model: what fits on the GPUs"
)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_question_arguments(parser, "MODEL | KEY=VALUE", _WORDS)
    add_strict_option(parser)


def _run(options: argparse.Namespace) -> int:
    """Plan and print."""
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
    if options.format == "json":
        print(json.dumps(result, indent=2))
    elif text:
        print(text)
    return code or int(bad)


def _answered(
    asked: Asked, options: argparse.Namespace, problems: list[Diagnostic]
) -> tuple[str, dict[str, Any], int]:
    """Return the answer as text and for programs, and the exit code; add what is wrong with the settings."""
    found = answer(asked.question, asked.data)
    problems += placed(found.best.estimate.warnings, asked.place)
    text = answer_text(found, verbose=options.verbose, width=screen_width())
    return text, answer_result(found), exit_code(found.verdict, strict=options.strict)


PLAN = Command(
    "plan",
    "say whether and how a model fits on GPUs, and what to change; or the fewest GPUs, or what fits on them",
    {
        "Qwen/Qwen2.5-7B --gpus 8xH100": "",
        "qwen2.5-7b --gpu H100 --count 8 --lora 32 --response 2048": "the same forms, apart",
        "Qwen/Qwen3-8B --gpus 4xH100 --format json data.train_batch_size=256": "",
    },
    EXIT_CODES,
    _add_arguments,
    _run,
    notes="What the question leaves open is as verl has it, and the answer says so; offloading, parallel "
    "sizes and the token budget are chosen so that it fits, unless key=value sets them.",
)
