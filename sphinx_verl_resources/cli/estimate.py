"""``verl-resources plan``, ``estimate`` and ``export``: whether a model, settings, cases or runs fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..commands import DATA, OUTPUT, PATHS, UsageError, command, given_data, load_runs, option
from ..diagnostics import NoAnswerError, counted, printable
from ..fit import results, terminal
from ..fit.answer import Answers, answer, answer_run, answer_settings
from ..fit.fewest import fewest_by_memory, fewest_of, fitting_models
from ..fit.question import assumptions
from ..memory.recorded import estimate_case
from ..memory.resolve import AT_KEY
from ..memory.settings import TRAINER_GPUS
from ..records import Run
from ..units import GIB
from ..validation import validated
from . import question as arguments

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator

    from ..diagnostics import Diagnostic, Location
    from ..fit.answer import Answer
    from ..memory.cases import Case
    from ..memory.registries import EstimatorContext
    from ..memory.request import Verdict
    from ..strict_yaml import Document
    from .question import Asked

    Work = Callable[[Asked, argparse.Namespace], "Result"]
    PlaceOf = Callable[[Diagnostic], Location]

STRICT = option("--strict", action="store_true", help="exit with 1 unless the verdict is that the run fits")
#: GPUs per node, verl's default.
_NODE = 8
#: The places of values in a file of cases or of a run, by the key of a problem.
_PLACES = {"model": ("model",), "training": ("training",), "gpus": ("gpus", "type")}


class Result(NamedTuple):
    """A result of a command.

    Attributes:
        values: the result for programs; empty if there are only problems.
        problems: the problems.
        text: the result for people; empty for cases, which are rows of a table.
        code: the exit code.
    """

    values: dict[str, Any]
    problems: list[Diagnostic]
    text: str = ""
    code: int = 0


@command(
    option(
        "words", nargs="*", metavar="MODEL | KEY=VALUE", help="model, by name or config.json; verl's settings"
    ),
    *arguments.QUESTION,
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
    result = _answered(options, data, _planned)
    if "error" in result.values:
        result = result._replace(
            values={**dict.fromkeys(results.ANSWER_FIELDS), "error": result.values["error"]}
        )
    return _reported(options, data, result.values, [result])


@command(
    option(
        "words", nargs="*", metavar="MODEL | KEY=VALUE | FILE.yaml", help="as for plan; or cases and runs"
    ),
    option("--script", "--settings", metavar="FILE", help="launch script, YAML or overrides; only read"),
    arguments.ENV,
    *arguments.QUESTION,
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
    files = [word for word in options.words if _is_file(word)]
    if not any((options.words, options.script, options.config, options.gpus, options.gpu)):
        raise UsageError("give a model, a launch script with --script, a file of cases or a run file")
    found = list(_recorded(options, files, data)) if files else [_answered(options, data, _estimated)]
    return _reported(options, data, [item.values for item in found if item.values], found)


def _is_file(word: str) -> bool:
    """Return whether a word is a file of cases or of a run rather than a model or a setting."""
    if arguments.is_setting(word) or word.endswith(".json"):
        return False
    return word.endswith((".yaml", ".yml")) or Path(word).is_file()


def _reported(
    options: argparse.Namespace, data: EstimatorContext, values: Any, found: list[Result]
) -> tuple[str, int]:
    """Print the problems; return the results as text or JSON, and the exit code."""
    problems = [*arguments.registry_problems(data), *(problem for item in found for problem in item.problems)]
    bad = arguments.report_first(problems, everything=options.verbose)
    code = max((item.code for item in found), default=0) or int(bad)
    if bad and not values:
        code = 2
    if options.format == "json":
        return json.dumps(values, indent=2), code
    shown = [item for item in found if item.values]
    if len(shown) == 1 and (shown[0].text or shown[0].code == 2):
        return shown[0].text, code
    return terminal.estimates_text(
        [item.values for item in shown], arguments.screen_width()
    ) if shown else "", code


def _exit_code(verdict: Verdict, options: argparse.Namespace) -> int:
    """Return the exit code of a verdict: 0 fits, 1 does not fit; “may fit” gives 0, or 1 if strict."""
    return int(verdict != "fits" and (options.strict or verdict == "does-not-fit"))


def _placed(problems: Iterable[Diagnostic], place_of: PlaceOf) -> list[Diagnostic]:
    """Return the estimator's problems with the places of their settings in a file."""
    return [replace(problem, place=replace(place_of(problem), key=problem.place.key)) for problem in problems]


# -- questions


def _answered(options: argparse.Namespace, data: EstimatorContext, work: Work) -> Result:
    """Read the question and answer it by ``work``; without an answer, the result has the errors."""
    source, asked = getattr(options, "script", None), None
    try:
        asked = arguments.read_question(options, data, source)
        result = work(asked, options)
    except NoAnswerError as error:
        problems = _placed(error.diagnostics, asked.place) if asked else list(error.diagnostics)
        words = (word for word in options.words if not arguments.is_setting(word))
        name = (asked.question.model if asked else next(words, "")) or source or "run"
        result = Result(results.failed(name, arguments.errors_text(problems)), problems, code=2)
    return result._replace(problems=[*(asked.problems if asked else ()), *result.problems])


def _estimated(asked: Asked, options: argparse.Namespace) -> Result:
    """Answer whether the settings fit as they are."""
    question, data = asked.question, asked.data
    if not question.model:
        remedy = "give it before the settings, such as qwen2.5-7b or the path of its config.json"
        raise NoAnswerError.because("no model given", remedy, code="missing_key")
    found = answer_settings(asked.request, data, version_assumed=question.version is None)
    if question.host_gib:
        layout = replace(found.best, given_host_limit=question.host_gib * GIB)
        found = replace(found, layouts=(layout,))
    return _shown(found, results.settings_result(question.model, found), asked.place, options)


def _shown(found: Answer, values: dict[str, Any], place_of: PlaceOf, options: argparse.Namespace) -> Result:
    """Return an answer with its text; a script or a run file needs no command."""
    problems = _placed(found.best.estimate.warnings, place_of)
    is_file = getattr(options, "script", None) or any(map(_is_file, options.words))
    text = terminal.answer_text(found, arguments.screen_width(), verbose=options.verbose, command=not is_file)
    return Result(values, problems, text, _exit_code(found.verdict, options))


def _planned(asked: Asked, options: argparse.Namespace) -> Result:
    """Answer with the settings that fit, with the fewest GPUs, or with the models that fit."""
    question, data, width, note = asked.question, asked.data, arguments.screen_width(), ""
    if question.model and question.gpu:
        nodes, each = (question.overrides.get(key) for key in TRAINER_GPUS)
        if question.gpus is None and nodes is each is None:
            fewest = fewest_of(Answers(question, data), question.gpu)
            question = replace(question, gpus=fewest.gpus if fewest else _NODE)
            note = f"{counted(question.gpus or 0, 'GPU')}{', the fewest that fit' if fewest else ''}"
        found = answer(question, data)
        found = replace(found, assumed=(note, *found.assumed)) if note else found
        return _shown(found, results.answer_result(found), asked.place, options)
    if question.model and question.gpus:
        message = f"{counted(question.gpus, 'GPU')} given, but not their type"
        remedy = f"write --gpus {question.gpus}xH100 for example, or leave the number out"
        raise NoAnswerError.because(message, remedy, code="missing_key")
    if not question.model and not question.gpu:
        remedy = "give a model such as qwen2.5-7b, or GPUs such as --gpus 8xH100"
        raise NoAnswerError.because("no model and no GPU given", remedy, code="missing_key")
    question = replace(question, gpus=question.gpus or _NODE)
    assumed = assumptions(question, data)
    if question.model:
        sizes = fewest_by_memory(replace(question, gpus=None), data)
        plain = [results.fewest_result(item) for item in sizes]
        values: dict[str, Any] = {"model": question.model, "fewest": plain, "assumed": list(assumed)}
        text = terminal.fewest_text(question, sizes, assumed, width)
        return Result(values, [], text, int(not any(item.found for item in sizes)))
    models = fitting_models(question, data)
    gpus = {"count": question.gpus, "type": question.gpu}
    values = {"gpus": gpus, "fits": [*map(results.answer_result, models)], "assumed": list(assumed)}
    return Result(values, [], terminal.fitting_text(question, models, assumed, width), int(not models))


# -- files of cases and runs


def _recorded(options: argparse.Namespace, files: list[str], data: EstimatorContext) -> Iterator[Result]:
    """Yield the results in the order of the files."""
    from ..memory.cases import load_cases  # pydantic needs time for the models of cases

    others = [word for word in options.words if word not in files]
    names = ("gpus", "gpu", "task", "script", "env")
    if others := [*others, *(f"--{name}" for name in names if getattr(options, name))]:
        message = f"{printable(files[0])} contains its own models, GPUs and settings"
        raise UsageError(f"{message}; leave out {printable(others[0])}, or the file")
    # Read each file separately: a case is answered in every file that contains it.
    for file in map(arguments.read_file, files):
        document = file.document
        if isinstance(document.data, dict) and document.data.keys() & {"size", "tag", "train", "infer"}:
            run, problems = validated(document, Run)
            if run:
                yield Result({}, problems)
                yield _result(run, document, data, options)
            else:
                yield Result(results.failed(file.path.stem, arguments.errors_text(problems)), problems)
            continue
        cases = load_cases([file])
        yield Result({}, list(cases.problems))
        for entry in cases.entries:
            if entry.case:
                yield _result(entry.case, entry.document, data, options)
            else:
                yield Result(results.failed(entry.id, entry.error), [])


def _result(
    record: Run | Case, document: Document, data: EstimatorContext, options: argparse.Namespace
) -> Result:
    """Answer about a run, or estimate a case."""
    section, settings = (
        ("settings", record.settings) if isinstance(record, Run) else ("config", record.config or {})
    )

    def place_of(problem: Diagnostic) -> Location:
        """Return the place of a setting: its value, or its key if the problem is about the key."""
        key = problem.place.key
        written = next((name for name in settings if name.lstrip("+") == key), key)
        find = document.key_place if problem.code in AT_KEY else document.place
        return find(_PLACES.get(key, (section, written)))

    try:
        if isinstance(record, Run):
            found = answer_run(record, data)
            return _shown(found, results.settings_result(record.id, found), place_of, options)
        estimate = estimate_case(record, data)
    except NoAnswerError as error:
        problems = _placed(error.diagnostics, place_of)
        return Result(results.failed(record.id, arguments.errors_text(problems)), problems)
    values = results.case_result(record, estimate)
    return Result(values, _placed(estimate.warnings, place_of), code=_exit_code(values["verdict"], options))


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
    form = options.format or Path(options.result_file or "").suffix
    _contents, text = results.export_files(data)[
        results.CSV if form.lower() in {"csv", ".csv"} else results.JSON
    ]
    return text.rstrip("\n"), code
