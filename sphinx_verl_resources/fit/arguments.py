"""The arguments that several commands share: files, launch scripts, and the question that they answer."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..commands import DATA, FORMAT, OUTPUT, UsageError, option, warn
from ..dataset import DataFile, read_data_file, refuse_irregular, refuse_link_in_data
from ..diagnostics import Diagnostic, Location, NoAnswerError, capped, counted, did_you_mean, warning
from ..memory.config_json import read_config_json
from ..memory.keys import is_harmless, release_for
from ..memory.registries import EstimatorContext, Model, gpu_name, known_model
from ..memory.request import MODEL, Request, parse_gpus
from ..memory.settings import TRAINER_GPUS
from ..memory.versions import version_of
from ..scripts.overrides import read_overrides
from ..scripts.read import read_settings
from ..scripts.settings import SettingsText, refusal
from ..selection import whole_number
from .names import NamedModel, algorithm_of, model_of, program_of
from .question import ESTIMATOR, TASKS, Question, named_settings, request_of, task_of
from .terminal import wrap_lines

PlaceOf = Callable[[Diagnostic], Location]

_PATH = f"{MODEL}.path"
#: The place of a problem with an argument rather than a file.
COMMAND_LINE = Location("")

# -- options


def parser_of(read: Callable[[str], Any], form: str = "") -> Callable[[str], Any]:
    """Return a function that parses an option and raises the error that argparse expects."""

    def parse(text: str) -> Any:
        try:
            value = read(text)
        except NoAnswerError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        if value is None:
            raise argparse.ArgumentTypeError(f"expected {form}, got {text[:80]!r}")
        return value

    return parse


def _variable(text: str) -> tuple[str, str] | None:
    name, sign, value = text.partition("=")
    return (name, value) if sign and name.isascii() and name.isidentifier() else None


_number = parser_of(partial(whole_number, most=100_000_000))
_version = parser_of(version_of, "a version such as 0.7.1")
_gpus = parser_of(parse_gpus)
SCRIPT = option("--script", metavar="FILE", help="launch script of the run; it is read, never run")
ENV = option(
    "--env",
    metavar="NAME=VALUE",
    type=parser_of(_variable, "NAME=VALUE, as in DEVICE=gpu"),
    action="append",
    default=[],
    help="environment variable of the script, such as DEVICE=npu; repeatable",
)
GPUS = (
    option("--gpus", metavar="NxGPU", type=_gpus, help="number and type, such as 8xH100 or 2x8xH200"),
    option("--gpu", metavar="GPU", type=_gpus, help="type of the GPUs, such as H100"),
)
#: The arguments of a question, besides its words.
QUESTION = (
    *GPUS,
    option("--task", metavar="TASK", help=", ".join(TASKS)),
    option("--lora", metavar="RANK", type=_number, help="train LoRA adapters of this rank"),
    option("--prompt", metavar="TOKENS", type=_number, help="longest prompt"),
    option("--response", metavar="TOKENS", type=_number, help="longest response"),
    option("--host-gib", metavar="GIB", type=_number, help="host memory of a node; default: twice its GPUs'"),
    option("--config", metavar="FILE", help="config.json of the model, used with its name"),
    option("--verl-version", metavar="VERSION", type=_version, help="release of verl; default: the newest"),
    DATA,
    option("--verbose", action="store_true", help="also print the peak's components and every message"),
    FORMAT,
    OUTPUT,
)


def refuse_lone_variables(options: argparse.Namespace) -> None:
    """Raise ``UsageError`` for ``--env`` without a script."""
    if options.env and not options.script:
        raise UsageError("--env sets variables of a launch script; give the script with --script")


def is_setting(word: str) -> bool:
    """Return whether a word is an override rather than a model or a file."""
    return word.startswith(("+", "~")) or ("=" in word and not os.path.lexists(word))


# -- files


def open_file(name: str) -> BinaryIO:
    """Open a file of any size that the user names.

    Raises:
        OSError: it cannot be read or is not a regular file; opening a pipe could block forever.
    """
    refuse_irregular(Path(name))
    return Path(name).open("rb")


def read_file(name: str) -> DataFile:
    """Read a file that the user names, or the first part of one that is too large.

    Raises:
        OSError: it cannot be read or is not a regular file.
    """
    refuse_link_in_data(Path(name))
    return read_data_file(Path(name), name)


def read_text(name: str) -> str:
    """Read the text of a file that the user names.

    Raises:
        OSError: it cannot be read or is not a regular file.
        UsageError: it is not text.
    """
    try:
        return read_file(name).content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}: not UTF-8 text, at byte {error.start}") from None


def read_source(source: str, options: argparse.Namespace) -> SettingsText:
    """Read a launch script with the variables of ``--env``, YAML or overrides.

    Raises:
        NoAnswerError: one of its settings cannot be read, or it has none: an answer would be wrong.
        UsageError: it cannot be read.
    """
    text = read_settings(read_text(source), source, dict(options.env))
    for name, _ in options.env:
        if name not in (names := text.variables_read):
            message = f"--env {name}: the script does not use this environment variable"
            remedy = did_you_mean(name, sorted(names)) or "correct the name, or set it in the script"
            text.problems += (warning(COMMAND_LINE, "unused_variable", message, remedy),)
    wrong = refusal(text)
    errors = [wrong] if wrong else [each for each in text.problems if each.is_error]
    if not (errors or text.values or text.unresolved):
        message, remedy = "the file contains no settings of verl", "give a launch script, YAML or overrides"
        errors = [Diagnostic(Location(source), "file_empty", message, remedy)]
    if errors:
        raise NoAnswerError(*errors)
    return text


# -- messages

#: The number of messages that are printed without ``--verbose``.
_MOST_MESSAGES = 10


def screen_width() -> int:
    """Return the terminal's width in characters, at most 100."""
    return min(100, shutil.get_terminal_size((100, 24)).columns)


def report_first(problems: Sequence[Diagnostic]) -> bool:
    """Print the first ten problems, errors first, and count the rest."""
    errors_first = sorted(problems, key=lambda problem: problem.severity)
    lines = [*map(str, errors_first[:_MOST_MESSAGES])]
    if rest := len(errors_first[_MOST_MESSAGES:]):
        lines.append(f"… and {counted(rest, 'more message')}; --verbose shows all")
    if lines:
        warn(wrap_lines(lines, screen_width() if sys.stderr.isatty() else 0, "    "))
    return any(problem.is_error for problem in problems)


def errors_text(problems: Iterable[Diagnostic]) -> str:
    """Return the errors on one line, for programs."""
    return "; ".join(problem.text for problem in capped(problems) if problem.is_error)


def registry_problems(data: EstimatorContext) -> list[Diagnostic]:
    """Return the problems of the registries, and the errors in reading the files."""
    errors = [problem for problem in data.problems["files"] if problem.is_error]
    return sorted([*errors, *data.diagnostics_of("gpus", "architectures", "config_keys", "accuracy")])


# -- the question


class Query(NamedTuple):
    """A question with the places of its settings.

    Attributes:
        question: the question; its model is empty if none is given.
        data: the data, including the user's own architecture.
        request: the estimator's request, with the settings exactly as given and verl's defaults for others.
        problems: problems of the settings.
        place_of: returns the place of the setting that a problem is about.
    """

    question: Question
    data: EstimatorContext
    request: Request
    problems: Sequence[Diagnostic]
    place_of: PlaceOf


def read_question(options: argparse.Namespace, data: EstimatorContext, source: str | None = None) -> Query:
    """Read the question from the arguments.

    Args:
        options: the options of ``QUESTION``, and words: a model and overrides.
        data: the data.
        source: launch script or YAML file with settings, which all other arguments override.

    Raises:
        NoAnswerError: the model or the GPU is unknown, or a setting cannot be read.
        UsageError: a file cannot be read.
    """
    place = Location(source or "")
    file = read_source(source, options) if source else SettingsText()
    words = read_overrides([word for word in options.words if is_setting(word)], COMMAND_LINE)
    if errors := [each for each in words.problems if each.is_error]:
        raise NoAnswerError(*errors)
    gpus, nodes = gpus_of(options, data)
    task, rank = task_of(options.task) if options.task else (None, 0)
    lora = options.lora or rank
    by_option = named_settings(task, lora, options.prompt, options.response)
    config = {**file.values, **by_option, **nodes, **words.values}
    # What the command line states is settled, whatever the file leaves open.
    stated_keys = {*words.values, *by_option, _PATH, *(TRAINER_GPUS if "gpus" in gpus else ())}
    problems = [*file.problems_besides({*stated_keys, *filter(is_harmless, file.unresolved)})]
    places = {**file.places, **words.places}
    places |= {"model": places.get(_PATH, COMMAND_LINE), "gpus": COMMAND_LINE}
    mention = model_of(data.architectures, config.get(_PATH), left_open=file.unresolved.get(_PATH))
    try:
        data, model, warnings = _model(options, data, mention, places["model"])
    except NoAnswerError as error:  # problems of the text may be the cause
        raise NoAnswerError(*problems, *error.diagnostics) from None
    release, why = (None, "") if options.verl_version else release_for({**file.values, **words.values}, data)
    if why:
        problems.append(warning(place, "config_key", why, "give --verl-version to choose another"))
    version = options.verl_version or (release if why else None)
    about = {**gpus, "version": version, "model_note": model.note, "host_gib": options.host_gib}
    about |= {"task": task, "lora": lora, "prompt": options.prompt, "response": options.response}
    question = Question(model.name, overrides={**nodes, **words.values}, **about)
    algorithm = algorithm_of(config, program_of(file))
    request = replace(
        request_of(question),
        config=config,
        task=task or (algorithm if ESTIMATOR in config or algorithm != "PPO" else None),
        backend="megatron" if "megatron" in (file.config_name or "") else None,
        unread=frozenset(file.unresolved.keys() - config.keys() - stated_keys),
        incomplete=file.incomplete,
    )
    problems += [*words.problems, *warnings]
    return Query(question, data, request, problems, lambda each: places.get(each.place.key, place))


def gpus_of(options: argparse.Namespace, data: EstimatorContext) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the question's GPUs, as in ``--gpus`` and ``--gpu``, and settings for nodes if given."""
    values, nodes = dict[str, Any](), dict[str, int]()
    for count, gpu in filter(None, (options.gpus, options.gpu)):
        if not gpu and str(count) in data.gpus:  # 4090 is a name, in any place
            count, gpu = None, str(count)
        elif count and gpu and gpu not in data.gpus:
            each, gpu = parse_gpus(gpu)
            if each:  # nodes, GPUs of a node, type
                nodes = dict(zip(TRAINER_GPUS, (count, each), strict=True))
                count *= each
        for key, value in {"gpus": count, "gpu": gpu and gpu_name(gpu, data.gpus)}.items():
            if value and values.setdefault(key, value) != value:
                message = f"--gpus is {values[key]}, but --gpu is {value}"
                raise NoAnswerError.because(message, "give one of them", code="wrong_value")
    return values, nodes


def _model(
    options: argparse.Namespace, data: EstimatorContext, mention: NamedModel, at: Location
) -> tuple[EstimatorContext, Model, tuple[Diagnostic, ...]]:
    """Return data that contain the model, the model, and the problems of its config.json.

    The name is empty if no model is given. ``mention`` is the model in the settings, and ``at`` its place.
    """
    names = [word for word in options.words if not is_setting(word)]
    if len(names) > 1:
        message = f"two models given, {names[0][:80]!r} and {names[1][:80]!r}"
        remedy = "give one model; settings are key=value, such as data.train_batch_size=256"
        raise NoAnswerError.because(message, remedy, code="wrong_value")
    name, config = next(iter(names), None), options.config
    if name and not config and data.architectures.get(name) is None:
        path = Path(name)
        if (path / "config.json").is_file():
            config = str(path / "config.json")
        elif path.suffix == ".json":  # verl expects the directory
            config, name = name, str(path.absolute().parent) if path.name == "config.json" else None
    if config:
        architecture, problems = read_config_json(read_text(config), config)
        name = name or mention.text or config
        changes = {"name": name, "hf_id": name, "aliases": (), "aliases_unverified": ()}
        return data.knowing(architecture.model_copy(update=changes)), Model(name), problems
    if mention.text and not (name or mention.model):
        how, forms = "before the settings", ", such as qwen2.5-7b or the path of its config.json"
        raise NoAnswerError(Diagnostic(at, *mention.why_none(data.architectures, how, forms)))
    return data, known_model(name, data.architectures) if name else mention.model or Model(""), ()
