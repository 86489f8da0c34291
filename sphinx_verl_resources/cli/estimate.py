"""``verl-resources estimate``: whether settings fit as they are, also cases and recorded runs; ``export``."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..answer.answer import answer_run, answer_settings
from ..answer.export import CSV, JSON, export_files, settings_result
from ..answer.results import failed, result_of
from ..commands import DATA, OUTPUT, PATHS, UsageError, command, given_data, load_runs, option, report
from ..diagnostics import Diagnostic, Location, NoAnswerError, printable
from ..intake.recorded_names import NamedModel
from ..memory.cases import load_cases
from ..memory.recorded import estimate_case
from ..memory.resolve import AT_KEY
from ..records import Run
from ..validation import validated
from ..views.answer_text import answer_text
from ..views.plain_text import case_text, estimates_text
from .files import read_file
from .question import (
    COMMAND_LINE,
    ENV,
    NAMING,
    QUESTION,
    STRICT,
    errors_text,
    exit_code,
    is_setting,
    placed,
    read_question,
    refuse_lone_variables,
    registry_problems,
    report_first,
    screen_width,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from ..answer.answer import Answer
    from ..dataset import DataFile
    from ..memory.cases import Case
    from ..memory.estimate import Estimate
    from ..memory.registries import EstimatorContext
    from ..memory.request import Verdict
    from ..strict_yaml import Document


class Found(NamedTuple):
    """The result for one case or run, or the reason why there is none.

    Attributes:
        name: the name of the case or model.
        answer: the answer for settings or a run.
        estimate: the estimate of the answer or the case.
        error: the reason why there is no estimate.
    """

    name: str
    answer: Answer | None = None
    estimate: Estimate | None = None
    error: str = ""

    @property
    def verdict(self) -> Verdict:
        """The verdict of the answer or the estimate."""
        if self.answer:
            return self.answer.verdict
        return self.estimate.verdict if self.estimate else "unknown"

    @property
    def result(self) -> dict[str, Any]:
        """The result as plain values, for programs."""
        if self.answer:
            return settings_result(self.name, self.answer)
        return result_of(self.name, self.estimate) if self.estimate else failed(self.name, self.error)


@command(
    option(
        "words",
        nargs="*",
        metavar="MODEL | FILE.yaml | KEY=VALUE",
        help="model by its full or short name, or the path of its config.json, and overrides in verl's "
        "syntax; or files of cases and run files",
    ),
    option("--script", "--settings", metavar="FILE", help="launch script, YAML or overrides; only read"),
    ENV,
    *QUESTION,
    STRICT,
)
def estimate(options: argparse.Namespace) -> tuple[str, int]:
    """Check whether a run fits with exactly its settings; or estimate cases and recorded runs.

    Examples:
      verl-resources estimate Qwen/Qwen2.5-7B --gpus 8xH100 data.train_batch_size=256
      verl-resources estimate --gpus 8xH100 --script run.sh                  # settings from a launch script
      verl-resources estimate --gpus 8xH100 --script run.sh --env NNODES=1   # with a variable of the script
      verl-resources estimate config.json --gpu H100 --settings run.yaml     # your own model
      verl-resources estimate data/runs/a.yaml                               # a recorded run
      verl-resources estimate cases.yaml --format json                       # all cases of a file

    Settings come from a launch script (read, never run) or from YAML. --task, --lora, --prompt and
    --response override them, and key=value overrides everything. Unset settings use verl's defaults.

    Exit codes: 0 fits or may fit (borderline, depends on the lengths, unknown), 1 does not fit, has
    errors, or with --strict may fit, 2 no answer. Warnings do not change the exit code.
    """
    data = given_data(options.data)
    files = [word for word in options.words if _is_file(word)]
    found, problems, code = _recorded(options, files, data) if files else _own(options, data)
    problems = [*registry_problems(data), *problems]
    bad = report(problems) if options.verbose or files else report_first(problems)
    codes = [exit_code(item.verdict, strict=options.strict) for item in found if not item.error]
    as_json = options.format == "json"
    text = json.dumps([item.result for item in found], indent=2) if as_json else _text(found, options.verbose)
    return text, code or int(bad or any(codes))


def _text(found: list[Found], verbose: bool) -> str:
    width = screen_width()
    if len(found) != 1:
        rows = [(item.name, item.estimate, item.verdict) for item in found]
        return estimates_text(rows, width) if rows else ""
    (only,) = found
    if only.answer:
        return answer_text(only.answer, verbose=verbose, width=width)
    if only.estimate:
        return case_text(only.name, only.estimate, width, verbose=verbose)
    return f"No answer: {only.name}."


def _is_file(word: str) -> bool:
    """Return whether a word is a file of cases or of a run rather than a model or a setting."""
    if is_setting(word) or word.endswith(".json"):
        return False
    return word.endswith((".yaml", ".yml")) or Path(word).is_file()


def _own(options: argparse.Namespace, data: EstimatorContext) -> tuple[list[Found], list[Diagnostic], int]:
    """Return the answer for the user's settings, the problems, and exit code 2 if there is no answer."""
    source = options.script
    refuse_lone_variables(options)
    if not any((options.words, source, options.config, options.gpus, options.gpu)):
        raise UsageError("give a model, a launch script with --script, a file of cases or a run file")
    asked = None
    try:
        asked = read_question(options, data, options.words, source)
        request = asked.request
        if not request.model:
            raise NoAnswerError(
                Diagnostic(COMMAND_LINE, *NamedModel().why_none(asked.data.architectures, *NAMING))
            )
        found = answer_settings(request, asked.data)
    except NoAnswerError as error:
        problems = placed(error.diagnostics, asked.place) if asked else list(error.diagnostics)
        words = (word for word in options.words if not is_setting(word))
        name = (asked.question.model if asked else next(words, "")) or source or "run"
        noted = asked.problems if asked else ()
        return [Found(name, error=errors_text(problems))], [*noted, *problems], 2
    estimate = found.best.estimate
    problems = [*asked.problems, *placed(estimate.warnings, asked.place)]
    return [Found(request.model, found, estimate)], problems, 0


def _recorded(
    options: argparse.Namespace, files: list[str], data: EstimatorContext
) -> tuple[list[Found], list[Diagnostic], int]:
    """Return the answers in the order of the files, the problems, and exit code 2 if no case can be read."""
    others = [word for word in options.words if word not in files]
    names = ("gpus", "gpu", "task", "script", "env")
    named = [f"--{name}" for name in names if getattr(options, name)]
    if others or named:
        message = f"{printable(files[0])} contains its own models, GPUs and settings"
        raise UsageError(f"{message}; leave out {printable([*others, *named][0])}, or the file")
    found: list[Found] = []
    problems: list[Diagnostic] = []
    # Read each file separately: a case is answered in every file that contains it.
    for file in [read_file(name) for name in files]:
        answered, wrong = (_run_file if _is_run(file) else _cases)(file, data)
        found += answered
        problems += sorted(wrong)
    return found, problems, 0 if found or not problems else 2


def _is_run(file: DataFile) -> bool:
    """Return whether a file looks like a run file; a file of cases is a list."""
    data = file.document.data
    return isinstance(data, dict) and bool(data.keys() & {"size", "tag", "train", "infer"})


def _run_file(file: DataFile, data: EstimatorContext) -> tuple[list[Found], list[Diagnostic]]:
    document = file.document
    run, problems = validated(document, Run)
    if run is None:
        return [Found(file.path.stem, error=errors_text(problems))], problems
    fields = {"model": ("model",), "gpus": ("gpus", "type"), "config": ("settings",)}

    def place_of(problem: Diagnostic) -> Location:
        key = problem.place.key
        find = document.key_place if problem.code in AT_KEY else document.place
        return find(fields.get(key, ("settings", key)))

    try:
        found = answer_run(run, data)
    except NoAnswerError as error:
        wrong = placed(error.diagnostics, place_of)
        return [Found(run.id, error=errors_text(wrong))], [*problems, *wrong]
    estimate = found.best.estimate
    return [Found(run.id, found, estimate)], [*problems, *placed(estimate.warnings, place_of)]


def _cases(file: DataFile, data: EstimatorContext) -> tuple[list[Found], list[Diagnostic]]:
    cases = load_cases([file])
    found: list[Found] = []
    problems = list(cases.problems)
    for entry in cases.entries:
        if entry.case is None:
            found.append(Found(entry.id, error=entry.error))
            continue
        place_of: Callable[[Diagnostic], Location] = partial(_place_in_case, entry.case, entry.document)
        try:
            estimate = estimate_case(entry.case, data)
        except NoAnswerError as error:
            wrong = placed(error.diagnostics, place_of)
            found.append(Found(entry.id, error=errors_text(wrong)))
        else:
            wrong = placed(estimate.warnings, place_of)
            found.append(Found(entry.id, estimate=estimate))
        problems += wrong
    return found, problems


def _place_in_case(case: Case, document: Document, problem: Diagnostic) -> Location:
    """Return the place of a case's setting: its value, or its key if the problem is about the key."""
    key = problem.place.key
    if key in {"model", "training"}:
        return document.place((key,))
    if key == "gpus":
        return document.place(("gpus", "type"))
    written = next((name for name in case.config or () if name.lstrip("+") == key), key)
    return (document.key_place if problem.code in AT_KEY else document.place)(("config", written))


@command(
    PATHS,
    DATA,
    option("--format", choices=("json", "csv"), help="default: by the name of the file, otherwise json"),
    OUTPUT,
)
def export(options: argparse.Namespace) -> tuple[str, int]:
    """Export every recorded run with its estimate, for programs and spreadsheets.

    Examples:
      verl-resources export                               # print JSON
      verl-resources export --format csv                  # print a table for spreadsheets
      verl-resources export docs/data --output runs.csv   # write it to a file

    The results are verl-resources.json and verl-resources.csv, the downloads of the verl-downloads
    directive.

    Exit codes: 0 success, 1 runs with errors are missing from the export, 2 could not run.
    """
    data, code = load_runs(options)
    form = options.format or Path(options.result_file or "").suffix
    _contents, text = export_files(data)[CSV if form.lower() in {"csv", ".csv"} else JSON]
    return text.rstrip("\n"), code
