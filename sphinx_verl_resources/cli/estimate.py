"""``verl-resources estimate``: the memory of cases and recorded runs, or of a run of one's own."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..catalog.cases import BrokenCase, load_cases
from ..catalog.models.run import Run
from ..catalog.validation import load
from ..catalog.yaml_data import printable, read_yaml
from ..diagnostics import Code, Location, NoAnswerError
from ..estimator.estimate import estimate
from ..estimator.export import failed, result_of
from ..estimator.recorded import estimate_case, estimate_run
from ..views.plain_text import estimates_text
from .command import Command, UsageError, add_result_options, progress, report
from .data import given_data, registry_problems
from .files import read_file
from .question import add_question_arguments, errors_text, gpus_argument, placed, read_question

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from ..catalog.cases import CaseEntry
    from ..catalog.files import DataFile
    from ..diagnostics import Diagnostic
    from ..estimator.peak import AnyEstimate
    from ..estimator.registries import Registries


class Answer(NamedTuple):
    """An estimate of one case, or the reason why there is none."""

    name: str
    estimate: AnyEstimate | None
    error: str = ""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="FILE.yaml | KEY=VALUE",
        help="files of cases, and run files; of a run of your own, overrides as verl takes them",
    )
    own = parser.add_argument_group("a run of your own")
    own.add_argument(
        "--gpus",
        metavar="N*GPU",
        type=gpus_argument,
        help="8*H100 for example; a GPU alone takes the number from trainer.nnodes and n_gpus_per_node",
    )
    source = own.add_mutually_exclusive_group()
    source.add_argument("--script", metavar="FILE", help="launch script with the settings")
    source.add_argument("--settings", dest="file", metavar="FILE", help="YAML or overrides with the settings")
    add_question_arguments(parser)
    add_result_options(parser)


def _run(options: argparse.Namespace) -> int:
    """Estimate and print."""
    data = given_data(options.data)
    is_own = any((options.model, options.gpus, options.script, options.file, options.config))
    answers, found, code = (_own_run if is_own else _recorded)(options, data.registries)
    bad = report([*registry_problems(data), *found])
    if options.format == "json":
        print(json.dumps([_plain(answer) for answer in answers], indent=2))
    elif answers:
        print(estimates_text([(answer.name, answer.estimate) for answer in answers]))
    too_big = any(answer.estimate and answer.estimate.verdict == "does-not-fit" for answer in answers)
    return code or int(bad or too_big)


def _plain(answer: Answer) -> dict[str, object]:
    if answer.estimate is None:
        return failed(answer.name, answer.error)
    return result_of(answer.name, answer.estimate)


def _own_run(
    options: argparse.Namespace, registries: Registries
) -> tuple[list[Answer], list[Diagnostic], int]:
    """Return the answer, what is wrong, and exit code 2 where the options ask no question."""
    source = options.script or options.file
    try:
        question = read_question(options, registries, options.gpus or (None, None), source=source)
    except NoAnswerError as error:
        name = options.model or source or "run"
        return [Answer(name, None, str(error))], list(error.diagnostics), 2
    request = question.request
    answer, problems = _ask(request.model, lambda: estimate(request, question.registries), question.place)
    return [answer], [*question.problems, *problems], 0


def _ask(
    name: str,
    ask: Callable[[], AnyEstimate],
    place_of: Callable[[Diagnostic], Location],
) -> tuple[Answer, list[Diagnostic]]:
    """Ask the estimator; return the answer, and what is wrong with the settings at their places."""
    try:
        found = ask()
    except NoAnswerError as error:
        problems = placed(error.diagnostics, place_of)
        return Answer(name, None, errors_text(problems)), problems
    return Answer(name, found), placed(found.warnings, place_of)


def _recorded(
    options: argparse.Namespace, registries: Registries
) -> tuple[list[Answer], list[Diagnostic], int]:
    """Return the answers in the order of the files, what is wrong, and exit code 2 if no case is read."""
    names = options.settings
    if not names:
        raise UsageError("name a file of cases or a run file, or a model with --model")
    settings = next((name for name in names if "=" in name and not os.path.lexists(name)), None)
    if settings:
        message = "no such file; a setting needs --model, --script or --settings"
        raise UsageError(f"{printable(settings)}: {message}")
    answers: list[Answer] = []
    problems: list[Diagnostic] = []
    # Each file on its own: a case is answered in every file that has it.
    for file in [read_file(name) for name in names]:
        answered, found = (_run_file if _is_run(file) else _cases)(file, registries)
        answers += answered
        problems += sorted(found)
    return answers, problems, 0 if answers or not problems else 2


def _is_run(file: DataFile) -> bool:
    """Return whether a file is meant to be that of a run: files of cases are lists."""
    data = read_yaml(file.content).data
    return isinstance(data, dict) and bool(data.keys() & {"size", "tag", "train", "infer"})


def _run_file(file: DataFile, registries: Registries) -> tuple[list[Answer], list[Diagnostic]]:
    run, document, problems = load(file, Run)
    if run is None:
        return [Answer(file.path.stem, None, errors_text(problems))], problems
    fields = {"model": ("model",), "gpus": ("gpus", "type"), "config": ("settings",)}

    def place_of(problem: Diagnostic) -> Location:
        key = problem.place.key
        return document.place(fields.get(key, ("settings", key)))

    answer, found = _ask(run.id, lambda: estimate_run(run, registries), place_of)
    return [answer], [*problems, *found]


def _cases(file: DataFile, registries: Registries) -> tuple[list[Answer], list[Diagnostic]]:
    cases = load_cases([file], registries.gpus)
    answers: list[Answer] = []
    problems = list(cases.diagnostics)
    for entry in progress(cases.entries, "cases"):
        if isinstance(entry, BrokenCase):
            answers.append(Answer(entry.id, None, entry.error.text))
            continue
        ask = partial(estimate_case, entry.case, registries)
        answer, found = _ask(entry.case.id, ask, partial(_place_in_case, entry))
        answers.append(answer)
        problems += found
    return answers, problems


def _place_in_case(entry: CaseEntry, problem: Diagnostic) -> Location:
    """Return the place of a setting of a case: its value, or its key where the key is what is wrong."""
    key = problem.place.key
    if key.startswith("training.") or key in {"model", "config"}:
        return entry.place(*key.split("."))
    if key == "gpus":
        return entry.place("gpus", "type")
    written = next((name for name in entry.case.config or () if name.lstrip("+") == key), key)
    if problem.code is Code.unknown_key:
        return entry.document.key_place(("config", written))
    return entry.place("config", written)


ESTIMATE = Command(
    "estimate",
    "estimate the GPU memory of cases and recorded runs, or of a run of your own",
    {
        "cases.yaml": "every case of a file",
        "cases.yaml --format json": "the same for programs",
        "data/runs/a.yaml": "a recorded run, as the page shows it",
        "--model Qwen/Qwen2.5-7B --gpus 8*H100 data.train_batch_size=256": "",
        "--gpus 8*H100 --script run.sh": "",
        "--model own/model --config config.json --gpus H100 --settings run.yaml": "",
    },
    "0 good, 1 problems found or something does not fit, 2 could not run. Warnings do not fail.",
    _add_arguments,
    _run,
    notes="The settings of your own run come from a launch script, which is read and never run, or "
    "from YAML; key=value overrides go on top. Unset options use verl's defaults.",
)
