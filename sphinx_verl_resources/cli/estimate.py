"""``verl-resources estimate``: the memory of cases and recorded runs, or of a run of one's own."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..catalog.cases import BrokenCase, load_cases
from ..catalog.models.run import Run
from ..catalog.validation import load
from ..catalog.yaml_data import printable, read_yaml
from ..diagnostics import Code, Location, NoAnswerError, Severity
from ..estimator.case import estimate_case, request_of_run
from ..estimator.estimate import estimate
from ..estimator.result import failed, result_of
from ..views.estimate_text import estimates_text
from .data import data_snapshot, facts_of, read_file, watched
from .question import QuestionError, add_question_arguments, gpus_argument, placed, read_question
from .result import add_result_options
from .terminal import report

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from ..catalog.cases import CaseEntry
    from ..catalog.files import DataFile
    from ..diagnostics import Diagnostic
    from ..estimator.estimate import Estimate
    from ..estimator.registries import Registries
    from ..estimator.training import TrainingEstimate

NAME = "estimate"
HELP = "estimate the GPU memory of cases and recorded runs, or of a run of your own"
EXAMPLES = """\
examples:
  verl-resources estimate cases.yaml                 every case of a file
  verl-resources estimate cases.yaml --format json   the same for programs
  verl-resources estimate data/runs/a.yaml           a recorded run, as the page shows it
  verl-resources estimate --model Qwen/Qwen2.5-7B --gpus 8*H100 data.train_batch_size=256
  verl-resources estimate --gpus 8*H100 --script run.sh
  verl-resources estimate --model own/model --config config.json --gpus H100 --settings run.yaml

Of a run of your own the settings come from a launch script, which is read and never run, or from YAML;
key=value overrides go on top. What is not set has verl's default.

Each problem is a line on standard error: path:line:col: LEVEL: message [code].
Exit codes: 0 good, 1 problems found or something does not fit, 2 could not run. Warnings do not fail."""


@dataclass(frozen=True)
class Answer:
    """What is said of one case: an estimate, or why there is none."""

    name: str
    estimate: Estimate | TrainingEstimate | None
    error: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="FILE.yaml | KEY=VALUE",
        help="files of cases, and run files; of a run of your own, overrides as verl takes them",
    )
    own = parser.add_argument_group("a run of your own")
    own.add_argument(
        "--gpus",
        metavar="N*CARD",
        type=gpus_argument,
        help="8*H100 for example; a card alone takes the number from trainer.nnodes and n_gpus_per_node",
    )
    source = own.add_mutually_exclusive_group()
    source.add_argument("--script", metavar="FILE", help="launch script with the settings")
    source.add_argument("--settings", dest="file", metavar="FILE", help="YAML or overrides with the settings")
    add_question_arguments(parser)
    add_result_options(parser)


def run(options: argparse.Namespace) -> int:
    """Estimate and print."""
    facts, problems = facts_of(data_snapshot(options.data))
    code = 0
    if any((options.model, options.gpus, options.script, options.file, options.config)):
        answers, found, code = _own_run(options, facts)
    else:
        answers, found, code = _recorded(options.settings, facts)
    problems += found
    report(problems)
    if options.format == "json":
        print(json.dumps([_plain(answer) for answer in answers], indent=2))
    elif answers:
        print(estimates_text([(answer.name, answer.estimate) for answer in answers]))
    bad = any(problem.severity is Severity.ERROR for problem in problems)
    too_big = any(answer.estimate and answer.estimate.verdict == "does not fit" for answer in answers)
    return code or int(bad or too_big)


def _plain(answer: Answer) -> dict[str, object]:
    if answer.estimate is None:
        return failed(answer.name, answer.error)
    return result_of(answer.name, answer.estimate)


def _own_run(options: argparse.Namespace, facts: Registries) -> tuple[list[Answer], list[Diagnostic], int]:
    """The answer, what is wrong, and the exit code where nothing could be asked."""
    source = options.script or options.file
    try:
        question = read_question(options, facts, options.gpus or (None, None), source=source)
    except QuestionError as error:
        return [Answer(options.model or source or "run", None, str(error))], list(error.problems), 2
    found = list(question.problems)
    name = question.request.model
    try:
        computed = estimate(question.request, question.facts)
    except NoAnswerError as error:
        problems = question.placed(error.diagnostics)
        return [Answer(name, None, _text(problems))], found + problems, 0
    return [Answer(name, computed)], found + question.placed(computed.warnings), 0


def _recorded(names: Sequence[str], facts: Registries) -> tuple[list[Answer], list[Diagnostic], int]:
    """The answers in the order of files and cases, what is wrong, and the exit code if there are none."""
    if not names:
        raise OSError("name a file of cases or a run file, or a model with --model")
    settings = next((name for name in names if "=" in name and not os.path.lexists(name)), None)
    if settings:
        raise OSError(f"{printable(settings)}: no such file; a setting needs --model, --script or --settings")
    answers: list[Answer] = []
    problems: list[Diagnostic] = []
    # Each file for itself: a case is answered wherever it stands, and be it in two files.
    for file in [read_file(name) for name in names]:
        answered, found = _run_file(file, facts) if _is_run(file) else _cases(file, facts)
        answers += answered
        problems += sorted(found, key=lambda problem: problem.sort_key)
    return answers, problems, 0 if answers or not problems else 2


def _is_run(file: DataFile) -> bool:
    """Whether a file is meant to be that of a run: files of cases are lists."""
    data = read_yaml(file.content).data
    return isinstance(data, dict) and bool(data.keys() & {"size", "tag", "train", "infer"})


def _run_file(file: DataFile, facts: Registries) -> tuple[list[Answer], list[Diagnostic]]:
    run, document, problems = load(file, Run)
    if run is None:
        return [Answer(file.path.stem, None, _text(problems))], problems
    told: tuple[Diagnostic, ...]
    try:
        found: Estimate | None = estimate(request_of_run(run, facts), facts)
        told = found.warnings if found else ()
    except NoAnswerError as error:
        found, told = None, error.diagnostics
    about = [placed(problem, document.place(_loc(problem.place.key))) for problem in told]
    return [Answer(run.id, found, "" if found else _text(about))], [*problems, *about]


def _loc(key: str) -> tuple[str, ...]:
    """Where a run file has what the estimator calls by this key."""
    fields = {"model": ("model",), "gpus": ("gpus", "type"), "config": ("settings",)}
    return fields.get(key, ("settings", key))


def _cases(file: DataFile, facts: Registries) -> tuple[list[Answer], list[Diagnostic]]:
    cases = load_cases([file])
    answers: list[Answer] = []
    problems = list(cases.diagnostics)
    for entry in watched(cases.entries, "cases"):
        if isinstance(entry, BrokenCase):
            answers.append(Answer(entry.id, None, entry.error.text))
            continue
        answer, about = _case(entry, facts)
        answers.append(answer)
        problems += about
    return answers, problems


def _case(entry: CaseEntry, facts: Registries) -> tuple[Answer, list[Diagnostic]]:
    name = entry.case.id
    try:
        found = estimate_case(entry.case, facts)
    except NoAnswerError as error:
        problems = _diagnostics(entry, error.diagnostics)
        return Answer(name, None, _text(problems)), problems
    return Answer(name, found), _diagnostics(entry, getattr(found, "warnings", ()))


def _diagnostics(entry: CaseEntry, problems: Iterable[Diagnostic]) -> list[Diagnostic]:
    return [placed(problem, _place(entry, problem)) for problem in problems]


def _place(entry: CaseEntry, problem: Diagnostic) -> Location:
    """Where a setting of a case stands: its value, or the key where this is what is wrong."""
    key = problem.place.key
    if key.startswith("training.") or key in {"model", "config"}:
        return entry.place(*key.split("."))
    if key == "gpus":
        return entry.place("gpus", "type")
    written = next((name for name in entry.case.config or () if name.lstrip("+") == key), key)
    loc = ("config", written)
    if problem.code is Code.unknown_key:
        return entry.document.key_place(loc)
    return entry.place(*loc)


def _text(problems: Iterable[Diagnostic]) -> str:
    return "; ".join(problem.text for problem in problems if problem.severity is Severity.ERROR)
