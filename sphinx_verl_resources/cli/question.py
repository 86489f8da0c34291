"""Read a question from the arguments: model, GPUs, task, lengths and verl's settings; report on it."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..commands import DATA, FORMAT, OUTPUT, UsageError, option
from ..dataset import read_data_file, refuse_irregular, refuse_link_in_data
from ..diagnostics import (
    Diagnostic,
    Location,
    NoAnswerError,
    capped,
    counted,
    did_you_mean,
    printable,
    warning,
)
from ..fit.question import TASKS, Question, named_settings, task_of
from ..fit.terminal import wrapped
from ..intake.recorded_names import model_of
from ..intake.tasks import ESTIMATOR, program_of, whole_task_of
from ..memory.config_json import read_config_json
from ..memory.registries import Model, gpu_name, known_model
from ..memory.request import MODEL, Request, parse_gpus
from ..memory.resolve import is_harmless, release_for
from ..memory.settings import TRAINER_GPUS
from ..memory.versions import CURRENT, version_of
from ..selection import whole_number
from ..settings.overrides import read_overrides
from ..settings.result import SettingsText, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence
    from typing import Any

    from ..dataset import DataFile
    from ..intake.recorded_names import NamedModel
    from ..memory.registries import EstimatorContext
    from ..memory.versions import Version

#: The place of a problem with an argument rather than a file.
COMMAND_LINE = Location("")
_MODEL_PATH = f"{MODEL}.path"
#: How to give a model, and in what forms; used in messages.
NAMING = "before the settings", ", such as qwen2.5-7b or the path of its config.json"

# -- files that the user names


def open_file(name: str) -> BinaryIO:
    """Open a file of any size.

    Raises:
        OSError: it cannot be read or is not a regular file.
    """
    refuse_link_in_data(Path(name))
    refuse_irregular(Path(name))
    return Path(name).open("rb")


def read_file(name: str) -> DataFile:
    """Read a file, or the first part of one that is too large.

    Raises:
        OSError: it cannot be read or is not a regular file.
    """
    refuse_link_in_data(Path(name))
    return read_data_file(Path(name), name)


def read_text(name: str) -> str:
    """Read the text of a file.

    Raises:
        OSError: it cannot be read or is not a regular file.
        UsageError: it is not text.
    """
    try:
        return read_file(name).content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{printable(name)}: not UTF-8 text, at byte {error.start}") from None


# -- arguments


def _checked(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a function that parses an option and raises the error that argparse expects."""

    def checked(text: str) -> Any:
        try:
            return read(text)
        except NoAnswerError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def _variable(text: str) -> tuple[str, str]:
    if found := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", text, re.ASCII | re.DOTALL):
        return found[1], found[2]
    raise NoAnswerError.because(f"expected NAME=VALUE, as in DEVICE=gpu, got {text[:80]!r}")


def _version(text: str) -> Version:
    if version := version_of(text):
        return version
    raise NoAnswerError.because(f"expected a version such as 0.7.1, got {text[:80]!r}")


_number = _checked(partial(whole_number, most=100_000_000))
#: Parses the value of an option such as ``--gpus 8xH100``.
gpus_argument = _checked(parse_gpus)
#: The arguments of a question, besides its words.
QUESTION = (
    option("--gpus", metavar="NxGPU", type=gpus_argument, help="number and type, such as 8xH100 or 2x8xH200"),
    option("--gpu", metavar="GPU", type=gpus_argument, help="type of the GPUs, such as H100"),
    option("--task", metavar="TASK", help=", ".join(TASKS)),
    option("--lora", metavar="RANK", type=_number, help="train LoRA adapters of this rank"),
    option("--prompt", metavar="TOKENS", type=_number, help="longest prompt"),
    option("--response", metavar="TOKENS", type=_number, help="longest response"),
    option("--host-gib", metavar="GIB", type=_number, help="host memory of a node; default: twice its GPUs'"),
    option("--config", metavar="FILE", help="config.json of the model, used with its name"),
    option(
        "--verl-version",
        metavar="VERSION",
        type=_checked(_version),
        help="release of verl; default: the newest",
    ),
    DATA,
    option("--verbose", action="store_true", help="also print phases, settings and every message"),
    FORMAT,
    OUTPUT,
)
SCRIPT = option("--script", metavar="FILE", help="launch script of the run; it is read, never run")
ENV = option(
    "--env",
    metavar="NAME=VALUE",
    type=_checked(_variable),
    action="append",
    default=[],
    help="environment variable of the script, such as DEVICE=npu; repeatable",
)


def is_setting(word: str) -> bool:
    """Return whether a word is an override rather than a model or a file."""
    return word.startswith(("+", "~")) or ("=" in word and not os.path.lexists(word))


def refuse_lone_variables(options: argparse.Namespace) -> None:
    """Raise ``UsageError`` for ``--env`` without a script."""
    if options.env and not options.script:
        raise UsageError("--env sets variables of a launch script; give the script with --script")


# -- the question


@dataclass(frozen=True)
class Asked:
    """A question with the places of its settings.

    Attributes:
        question: the question; its model is empty if none is given.
        data: the data, including the user's own architecture.
        given: settings from a file.
        own: overrides on the command line.
        source: the file of the settings, or the command line.
        problems: problems of the settings.
    """

    question: Question
    data: EstimatorContext
    given: SettingsText
    own: SettingsText
    source: Location
    problems: tuple[Diagnostic, ...]

    @property
    def request(self) -> Request:
        """The estimator's request, with the settings exactly as given and verl's defaults for all others."""
        question, given = self.question, self.given
        named = named_settings(question.task, question.lora, question.prompt, question.response)
        config = {**given.values, **named, **question.overrides}
        task = whole_task_of(config, program_of(given))
        is_said = ESTIMATOR in config or task != "PPO"
        return Request(
            question.model,
            config,
            question.gpus,
            question.gpu,
            version=question.version or CURRENT,
            task=question.task or (task if is_said else None),
            backend="megatron" if "megatron" in (given.config_name or "") else None,
            model_note=question.model_note,
            unread=frozenset(given.unresolved.keys() - config.keys() - {_MODEL_PATH}),
            incomplete=given.incomplete,
        )

    def place(self, problem: Diagnostic) -> Location:
        """Return the place of the setting that a problem is about."""
        places = {**self.given.places, **self.own.places}
        own = {"model": places.get(_MODEL_PATH, COMMAND_LINE), "gpus": COMMAND_LINE}
        return {**places, **own}.get(problem.place.key, self.source)


def read_question(options: argparse.Namespace, data: EstimatorContext, source: str | None = None) -> Asked:
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
    given = read_source(source, options) if source else SettingsText({}, {})
    own = read_overrides([word for word in options.words if is_setting(word)], COMMAND_LINE)
    wrong = refusal(given)
    errors = [wrong] if wrong else [each for each in (*given.problems, *own.problems) if each.is_error]
    if source and not (errors or given.values or given.unresolved):
        message, remedy = "the file contains no settings of verl", "give a launch script, YAML or overrides"
        errors = [Diagnostic(place, "file_empty", message, remedy)]
    if errors:  # an answer without these settings would be wrong
        raise NoAnswerError(*errors)
    count, gpu, nodes = _gpus(options, data)
    task, rank = task_of(options.task) if options.task else (None, 0)
    named = {
        "task": task,
        "lora": options.lora or rank,
        "prompt": options.prompt,
        "response": options.response,
    }
    problems = [*still_open(given, {*own.values, *named_settings(**named), _MODEL_PATH})]
    path = own.values.get(_MODEL_PATH, given.values.get(_MODEL_PATH))
    meant = model_of(data.architectures, path, left_open=given.unresolved.get(_MODEL_PATH))
    at = given.places.get(_MODEL_PATH, COMMAND_LINE)
    try:
        data, model, noted = _model(options, data, meant, at)
    except NoAnswerError as error:  # problems of the text may be the cause
        raise NoAnswerError(*problems, *error.diagnostics) from None
    version = options.verl_version
    if version is None:
        release, why = release_for({**given.values, **own.values}, data)
        if why:
            version = release
            problems.append(warning(place, "config_key", why, "give --verl-version to choose another"))
    about = {"overrides": {**nodes, **own.values}, "model_note": model.note, "host_gib": options.host_gib}
    question = Question(model.name, count, gpu, version=version, **named, **about)
    return Asked(question, data, given, own, place, (*problems, *own.problems, *noted))


def read_source(source: str, options: argparse.Namespace) -> SettingsText:
    """Read a file of settings with the variables of ``--env``.

    Raises:
        UsageError: it cannot be read.
    """
    from ..settings.read import read_settings  # it parses shells, which most questions do not need

    environment = dict(options.env)
    return with_unused(read_settings(read_text(source), source, environment), environment)


def with_unused(given: SettingsText, environment: Mapping[str, str]) -> SettingsText:
    """Return settings, with a warning for each variable that their text does not use."""
    message = "--env {}: the script does not use this environment variable"
    remedy = "correct the name, or set it in the script"
    hints = {name: did_you_mean(name, sorted(given.asked)) for name in environment if name not in given.asked}
    unused = [
        warning(COMMAND_LINE, "unused_variable", message.format(name), hint or remedy)
        for name, hint in hints.items()
    ]
    return replace(given, problems=(*given.problems, *unused))


def still_open(given: SettingsText, known: Container[str]) -> tuple[Diagnostic, ...]:
    """Return a text's problems, except for unresolved values that are given elsewhere or harmless."""
    return given.problems_besides({key for key in given.unresolved if key in known or is_harmless(key)})


def _gpus(
    options: argparse.Namespace, data: EstimatorContext
) -> tuple[int | None, str | None, dict[str, int]]:
    """Return number and type of the GPUs in ``--gpus`` and ``--gpu``, and settings for nodes if given."""
    nodes: dict[str, int] = {}
    given: dict[type, Any] = {}
    for count, gpu in filter(None, (options.gpus, options.gpu)):
        if count and not gpu and data.gpus.get(str(count)):  # 4090 is a name, in any place
            count, gpu = None, str(count)
        is_name = not (count and gpu) or data.gpus.get(gpu)
        each, name = (None, gpu) if is_name else parse_gpus(gpu)
        if count and each:  # nodes, GPUs of a node, type
            nodes = dict(zip(TRAINER_GPUS, (count, each), strict=True))
        for value in filter(None, (count and count * (each or 1), name)):
            other = given.setdefault(type(value), value)
            if other != value:
                message = f"--gpus is {other}, but --gpu is {value}"
                raise NoAnswerError.because(message, "give one of them", code="wrong_value")
    gpu = given.get(str)
    return given.get(int), gpu_name(gpu, data.gpus) if gpu else None, nodes


def _model(
    options: argparse.Namespace, data: EstimatorContext, meant: NamedModel, at: Location
) -> tuple[EstimatorContext, Model, tuple[Diagnostic, ...]]:
    """Return data that contain the model, the model, and the problems of its config.json.

    The name is empty if no model is given. ``meant`` is the settings' model and ``at`` its place.
    """
    names = [word for word in options.words if not is_setting(word)]
    if len(names) > 1:
        message = f"two models given, {names[0][:80]!r} and {names[1][:80]!r}"
        remedy = "give one model; settings are key=value, such as data.train_batch_size=256"
        raise NoAnswerError.because(message, remedy, code="wrong_value")
    named, config = next(iter(names), None), options.config
    if named and not config and data.architectures.get(named) is None:
        if (inside := Path(named) / "config.json").is_file():
            config = str(inside)
        elif named.endswith(".json"):  # verl expects the directory
            config, named = (
                named,
                str(inside.parent.absolute().parent) if inside.parent.name == "config.json" else None,
            )
    if config:
        architecture, problems = read_config_json(read_text(config), config)
        name = named or meant.text or config
        changes = {"name": name, "hf_id": name, "aliases": (), "aliases_unverified": ()}
        return data.knowing(architecture.model_copy(update=changes)), Model(name), problems
    if named:
        return data, known_model(named, data.architectures), ()
    if meant.found or not meant.text:
        return data, meant.found or Model(""), ()
    raise NoAnswerError(Diagnostic(at, *meant.why_none(data.architectures, *NAMING)))


# -- the report

#: Problems of a launch script that are printed without ``--verbose``.
MOST_PROBLEMS = 10
#: Problems that affect the answer; they are printed first, after the errors.
_DECISIVE = frozenset(
    {
        "unresolved", "undecided", "assumed_device", "unused_variable", "unknown_model",
        "shell_syntax", "missing_key", "impossible_settings",
    }
)  # fmt: skip


def errors_text(problems: Iterable[Diagnostic]) -> str:
    """Return the errors on one line, for programs."""
    return "; ".join(problem.text for problem in capped(problems) if problem.is_error)


def screen_width() -> int:
    """Return the terminal's width in characters, at most 100."""
    return min(100, shutil.get_terminal_size((100, 24)).columns)


def registry_problems(data: EstimatorContext) -> list[Diagnostic]:
    """Return the problems of the registries, and the errors in reading the files."""
    parts = ("gpus", "architectures", "config_keys", "accuracy")
    errors = (problem for problem in data.problems["files"] if problem.is_error)
    return sorted([*errors, *data.diagnostics_of(*parts)])


def report_first(problems: Sequence[Diagnostic], *, everything: bool = False) -> bool:
    """Print the first ten problems, errors and those that affect the answer first, and count the rest.

    On a terminal, the problems wrap.
    """
    ranked = sorted(problems, key=lambda problem: (not problem.is_error, problem.code not in _DECISIVE))
    shown = capped(problems) if everything else ranked[:MOST_PROBLEMS]
    width = screen_width() if sys.stderr.isatty() else 0
    if shown:
        print(wrapped(map(str, shown), width, "    "), file=sys.stderr)
    if rest := len(problems) - len(shown):
        print(f"… and {counted(rest, 'more message')}; --verbose shows all", file=sys.stderr)
    return any(problem.is_error for problem in problems)
