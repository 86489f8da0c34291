"""``verl-resources plan``, ``estimate`` and ``export``: whether a model, settings, cases or runs fit."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..commands import DATA, OUTPUT, PATHS, UsageError, command, given_data, load_runs, option, report
from ..diagnostics import Diagnostic, Location, NoAnswerError, printable
from ..memory.cases import Case, load_cases
from ..memory.keys import AT_KEY
from ..memory.recorded import estimate_case
from ..memory.registries import EstimatorContext
from ..records import Run
from ..strict_yaml import Document
from ..validation import validated
from . import arguments, results, terminal
from .answer import Answer, answer, answer_run, answer_settings
from .arguments import QUESTION, PlaceOf, Query, is_setting, read_question
from .fewest import fewest_by_memory, fitting_models
from .question import assumptions

Work = Callable[[Query, argparse.Namespace], "Result"]

STRICT = option("--strict", action="store_true", help="exit with 1 unless the verdict is that the run fits")
#: The options that files of cases and runs rule out.
_OF_QUESTION = ("gpus", "gpu", "task", "lora", "prompt", "response", "host_gib", "config", "verl_version",
                "script", "env")  # fmt: skip
#: The places of values in a file of cases or of a run, by the key of a problem.
_PLACES = {"model": ("model",), "training": ("training",), "gpus": ("gpus", "type")}


class Result(NamedTuple):
    """A result of a command.

    Attributes:
        values: the result for programs; empty if there are only problems.
        problems: the problems.
        text: the result for people; None for cases, which are rows of a table.
        code: the exit code, unless it follows from the verdict.
    """

    values: dict[str, Any]
    problems: Sequence[Diagnostic]
    text: str | None = None
    code: int = 0


@command(
    option("words", nargs="*", metavar="MODEL | KEY=VALUE", help="name or config.json; verl's settings"),
    *QUESTION,
    STRICT,
)
def plan(options: argparse.Namespace) -> tuple[str, int]:
    """Find settings with which a model fits on GPUs, the fewest GPUs for a model, or the models that fit.

    Examples:
      verl-resources plan Qwen/Qwen2.5-7B --gpus 8xH100
      verl-resources plan qwen2.5-7b --gpus 2x8xH100   # 2 nodes of 8 GPUs
      verl-resources plan qwen2.5-7b --gpus 8xH100 --lora 32 --response 2048
      verl-resources plan Qwen/Qwen2.5-32B   # the fewest GPUs of each memory size
      verl-resources plan --gpus 8xRTX4090   # the models that fit, largest first
      verl-resources plan Qwen/Qwen3-8B --gpus 4xH100 data.train_batch_size=256

    A model is given by its full or short name, or by the path of its config.json.
    plan chooses offloading, parallel sizes and the token budget to make the run
    fit; it never changes key=value settings. Unset lengths and settings use
    verl's defaults, and the answer lists its assumptions.

    Exit codes: 0 fits or may fit (borderline, depends on the lengths, unknown),
    1 does not fit, has errors, or with --strict may fit, 2 no answer. Warnings
    do not change the exit code.
    """
    data = given_data(options.data)
    result = _answer(options, data, _make_plan)
    if error := result.values.get("error"):
        result = result._replace(values={**dict.fromkeys(results.ANSWER_FIELDS), "error": error})
    return _report(options, data, [result], result.values)


@command(
    option("words", nargs="*", metavar="MODEL | KEY=VALUE | FILE.yaml", help="as for plan; cases or runs"),
    option("--script", "--settings", metavar="FILE", help="launch script, YAML or overrides; only read"),
    arguments.ENV,
    *QUESTION,
    STRICT,
)
def estimate(options: argparse.Namespace) -> tuple[str, int]:
    """Check whether a run fits with exactly its settings; or estimate cases and recorded runs.

    Examples:
      verl-resources estimate qwen2.5-7b --gpus 8xH100 data.train_batch_size=256
      verl-resources estimate --gpus 8xH100 --script run.sh   # of a launch script
      verl-resources estimate --gpus 8xH100 --script run.sh --env NNODES=1
      verl-resources estimate config.json --gpu H100 --settings run.yaml
      verl-resources estimate data/runs/a.yaml                # a recorded run
      verl-resources estimate cases.yaml --format json        # all cases of a file

    Settings come from a launch script (read, never run) or from YAML. --task,
    --lora, --prompt and --response override them, and key=value overrides
    everything. Unset settings use verl's defaults.

    Exit codes: 0 fits or may fit (borderline, depends on the lengths, unknown),
    1 does not fit, has errors, or with --strict may fit, 2 no answer. Warnings
    do not change the exit code.
    """
    data = given_data(options.data)
    arguments.refuse_lone_variables(options)
    names = [word for word in options.words if not (is_setting(word) or word.endswith(".json"))]
    files = [name for name in names if name.endswith((".yaml", ".yml")) or Path(name).is_file()]
    items = [*_answer_files(options, files, data)] if files else [_answer(options, data, _check_settings)]
    return _report(options, data, items, [item.values for item in items if item.values])


def _report(
    options: argparse.Namespace, data: EstimatorContext, items: Sequence[Result], values: Any
) -> tuple[str, int]:
    """Print the problems; return the results as text or JSON, and the exit code."""
    problems = [*arguments.registry_problems(data), *(each for item in items for each in item.problems)]
    has_errors = (report if options.verbose else arguments.report_first)(problems)
    verdicts = {item.values.get("verdict", "fits") for item in items}
    fails = "does-not-fit" in verdicts or (options.strict and verdicts != {"fits"})
    code = 2 if has_errors and not values else max(int(has_errors or fails), *(item.code for item in items))
    if options.format == "json":
        return json.dumps(values, indent=2), code
    text, *others = [item.text for item in items if item.values] or [""]
    if text is None or others:
        text = terminal.estimates_text(values, arguments.screen_width())
    return text, code


def _with_places(result: Result, place_of: PlaceOf, before: Iterable[Diagnostic] = ()) -> Result:
    """Return a result with its problems at the places of their settings, after other ones."""
    problems = (replace(each, place=replace(place_of(each), key=each.place.key)) for each in result.problems)
    return result._replace(problems=[*before, *problems])


def _result(answer: Answer, values: dict[str, Any], options: argparse.Namespace, *, command: bool) -> Result:
    """Return an answer with its text, which may contain the command."""
    text = terminal.answer_text(answer, arguments.screen_width(), verbose=options.verbose, command=command)
    return Result(values, answer.best.estimate.warnings, text)


# -- questions


def _answer(options: argparse.Namespace, data: EstimatorContext, work: Work) -> Result:
    """Read the question and answer it by ``work``; without an answer, the result has the errors."""
    file, source = getattr(options, "script", None), None
    try:
        source = read_question(options, data, file)
        result = work(source, options)
    except NoAnswerError as error:
        words = (word for word in options.words if not is_setting(word))
        name = (source.question.model if source else next(words, "")) or file or "run"
        reasons = error.diagnostics
        result = Result(results.failure(name, arguments.errors_text(reasons)), reasons, text="", code=2)
    return _with_places(result, source.place_of, source.problems) if source else result


def _check_settings(source: Query, options: argparse.Namespace) -> Result:
    """Answer whether the settings fit as they are."""
    question = source.question
    if not question.model:
        remedy = "give its name, such as qwen2.5-7b, its config.json, a file of cases or runs, or --script"
        raise NoAnswerError.because("no model given", remedy, code="missing_key")
    is_open = question.version is None
    own = answer_settings(source.request, source.data, version_assumed=is_open, host_gib=question.host_gib)
    return _result(own, results.settings_result(question.model, own), options, command=not options.script)


def _make_plan(source: Query, options: argparse.Namespace) -> Result:
    """Answer with the settings that fit, with the fewest GPUs, or with the models that fit."""
    question, data, width = source.question, source.data, arguments.screen_width()
    if question.model and question.gpu:
        own = answer(question, data)
        return _result(own, results.answer_result(own), options, command=True)
    if not question.gpu and (question.gpus or not question.model):
        remedy = f"write --gpus {question.gpus or 8}xH100, or give a model alone for the fewest GPUs"
        raise NoAnswerError.because("no type of GPU given", remedy, code="missing_key")
    question = replace(question, gpus=question.gpus or 8)
    defaults = assumptions(question, data)
    if question.model:
        sizes = fewest_by_memory(replace(question, gpus=None), data)
        values: dict[str, Any] = {"model": question.model, "fewest": [item.result for item in sizes]}
        text = terminal.fewest_text(question, sizes, defaults, width)
        fits = any(item.count for item in sizes)
    else:
        models = fitting_models(question, data)
        gpus = {"count": question.gpus, "type": question.gpu}
        values = {"gpus": gpus, "fits": [*map(results.answer_result, models)]}
        text = terminal.fitting_text(question, models, defaults, width)
        fits = bool(models)
    return Result({**values, "assumed": [*defaults]}, [], text, int(not fits))


# -- files of cases and runs


def _answer_files(options: argparse.Namespace, files: list[str], data: EstimatorContext) -> Iterator[Result]:
    """Yield the results in the order of the files."""
    others = [word for word in options.words if word not in files]
    others += [f"--{name.replace('_', '-')}" for name in _OF_QUESTION if getattr(options, name)]
    if others:
        message = f"{printable(files[0])} contains its own models, GPUs and settings"
        raise UsageError(f"{message}; leave out {printable(others[0])}, or the file")
    # Read each file separately: a case is answered in every file that contains it.
    for file in map(arguments.read_file, files):
        document = file.document
        entries: Sequence[tuple[str, Document, Run | Case | None, str]]
        problems: Sequence[Diagnostic]
        if isinstance(document.data, dict) and document.data.keys() & {"size", "tag", "train", "infer"}:
            run, problems = validated(document, Run)
            entries = [(file.path.stem, document, run, arguments.errors_text(problems))]
        else:
            entries, problems = load_cases([file])
        yield Result({}, problems)
        for name, part, record, error in entries:
            yield _judge(record, part, data, options) if record else Result(results.failure(name, error), [])


def _judge(
    record: Run | Case, document: Document, data: EstimatorContext, options: argparse.Namespace
) -> Result:
    """Answer about a run, or estimate a case."""
    section = "settings" if isinstance(record, Run) else "config"

    def place_of(problem: Diagnostic) -> Location:
        """Return the place of a setting: its value, or its key if the problem is about the key."""
        key = problem.place.key
        spelling = next((name for name in document.data.get(section) or () if name.lstrip("+") == key), key)
        find = document.key_place if problem.code in AT_KEY else document.place
        return find(_PLACES.get(key, (section, spelling)))

    try:
        if isinstance(record, Run):
            own = answer_run(record, data)
            result = _result(own, results.settings_result(record.id, own), options, command=False)
        else:
            estimate = estimate_case(record, data)
            result = Result(results.case_result(record, estimate), estimate.warnings)
    except NoAnswerError as error:
        reasons = error.diagnostics
        result = Result(results.failure(record.id, arguments.errors_text(reasons)), reasons)
    return _with_places(result, place_of)


@command(
    PATHS,
    DATA,
    option("--format", choices=("json", "csv"), help="default: by the name of the file, otherwise json"),
    OUTPUT,
)
def export(options: argparse.Namespace) -> tuple[str, int]:
    """Export every recorded run with its estimate, for programs and spreadsheets.

    Examples:
      verl-resources export                   # print JSON
      verl-resources export --format csv      # print a table for spreadsheets
      verl-resources export docs/data --output runs.csv

    The results are verl-resources.json and verl-resources.csv, the downloads of
    the verl-downloads directive.

    Exit codes: 0 success, 1 runs with errors are missing from the export, 2 could not run.
    """
    data, code = load_runs(options)
    form = options.format or Path(options.result_file or "").suffix.lower().lstrip(".")
    _contents, text = results.export_files(data)[results.CSV if form == "csv" else results.JSON]
    return text.rstrip("\n"), code
