"""Read a question from the arguments: model, GPUs, task, lengths and verl's settings; report on it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..answer.question import TASKS, Question, named_settings, task_of
from ..commands import DATA, FORMAT, OUTPUT, UsageError, option, report
from ..diagnostics import Code, Diagnostic, Location, NoAnswerError, capped, counted, did_you_mean, warning
from ..intake.recorded_names import model_of
from ..intake.tasks import ESTIMATOR, program_of, whole_task_of
from ..memory.config_json import read_config_json
from ..memory.registries import Model, gpu_name, known_model
from ..memory.request import MODEL, Request, parse_gpus
from ..memory.resolve import is_harmless, release_for
from ..memory.versions import version_of
from ..selection import whole_number
from ..settings.overrides import read_overrides
from ..settings.read import read_settings
from ..settings.result import SettingsText, refusal
from .files import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence
    from typing import Any

    from ..intake.recorded_names import NamedModel
    from ..memory.registries import EstimatorContext
    from ..memory.request import Verdict
    from ..memory.versions import Version

#: The place of a problem with an argument rather than a file.
COMMAND_LINE = Location("")
_MODEL_PATH = f"{MODEL}.path"
#: How to give a model, and in what forms; used in messages.
NAMING = "before the settings", ", such as qwen2.5-7b or the path of its config.json"
#: Limits above any model's context length and any adapter's rank.
_MOST_TOKENS, _MOST_RANK = 100_000_000, 65_536


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
    given: SettingsText = field(default_factory=lambda: SettingsText({}, {}))
    own: SettingsText = field(default_factory=lambda: SettingsText({}, {}))
    source: Location = COMMAND_LINE
    problems: tuple[Diagnostic, ...] = ()

    @property
    def request(self) -> Request:
        """The estimator's request, with the settings exactly as given and verl's defaults for all others."""
        asked = self.question
        named = named_settings(asked.task, asked.lora, asked.prompt, asked.response)
        config = {**self.given.values, **named, **self.own.values}
        task = whole_task_of(config, program_of(self.given))
        is_said = ESTIMATOR in config or task != "PPO"
        return Request(
            model=asked.model,
            model_note=asked.model_note,
            config=config,
            gpus=asked.gpus,
            gpu=asked.gpu,
            version=asked.version,
            task=asked.task or (task if is_said else None),
            backend="megatron" if "megatron" in (self.given.config_name or "") else None,
            unread=frozenset(self.given.unresolved.keys() - config.keys() - {_MODEL_PATH}),
            incomplete=self.given.incomplete,
        )

    def place(self, problem: Diagnostic) -> Location:
        """Return the place of the setting that a problem is about."""
        key, places = problem.place.key, {**self.given.places, **self.own.places}
        if key == "model":
            return places.get(_MODEL_PATH, COMMAND_LINE)
        return COMMAND_LINE if key == "gpus" else places.get(key, self.source)


def placed(problems: Iterable[Diagnostic], place_of: Callable[[Diagnostic], Location]) -> list[Diagnostic]:
    """Return the estimator's problems with the places of their settings in a file."""
    return [replace(problem, place=replace(place_of(problem), key=problem.place.key)) for problem in problems]


def errors_text(problems: Iterable[Diagnostic]) -> str:
    """Return the errors on one line, for programs."""
    return "; ".join(problem.text for problem in capped(problems) if problem.is_error)


def _checked(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a function that parses an option and raises the error that argparse expects."""

    def checked(text: str) -> Any:
        try:
            return read(text)
        except NoAnswerError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not (name.isascii() and name.isidentifier()):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, as in DEVICE=gpu, got {text[:80]!r}")
    return name, value


def _version(text: str) -> Version:
    found = version_of(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected a version such as 0.7.1, got {text[:80]!r}")
    return found


#: Parses the value of an option such as ``--gpus 8xH100``.
gpus_argument = _checked(parse_gpus)
_tokens = _checked(lambda text: whole_number(text, _MOST_TOKENS))
_rank = _checked(lambda text: whole_number(text, _MOST_RANK))
#: The arguments of a question, besides its words.
QUESTION = (
    option("--gpus", metavar="NxGPU", type=gpus_argument, help="number and type, such as 8xH100 or '8*H100'"),
    option("--gpu", metavar="GPU", type=gpus_argument, help="type of the GPUs, such as H100"),
    option("--task", metavar="TASK", help=", ".join(TASKS)),
    option("--lora", metavar="RANK", type=_rank, help="train LoRA adapters of this rank"),
    option("--prompt", metavar="TOKENS", type=_tokens, help="longest prompt"),
    option("--response", metavar="TOKENS", type=_tokens, help="longest response"),
    option("--config", metavar="FILE", help="config.json of the model, used with its name"),
    option(
        "--verl-version",
        metavar="VERSION",
        type=_version,
        help="verl release to assume, such as 0.7.1; default: the newest supported",
    ),
    DATA,
    option(
        "--verbose", action="store_true", help="also print phases, components, settings and every message"
    ),
    FORMAT,
    OUTPUT,
)
STRICT = option("--strict", action="store_true", help="exit with 1 unless the verdict is that the run fits")
SCRIPT = option("--script", metavar="FILE", help="launch script of the run; it is read, never run")
ENV = option(
    "--env",
    metavar="NAME=VALUE",
    type=_variable,
    action="append",
    default=[],
    help="environment variable of the script, such as DEVICE=npu; repeatable",
)
#: Problems of a launch script that are printed without ``--verbose``.
MOST_PROBLEMS = 10
#: Problems that affect the answer; they are printed first, after the errors.
_DECISIVE = frozenset(
    {
        "unresolved", "undecided", "assumed_device", "unused_variable", "unknown_model",
        "shell_syntax", "missing_key", "impossible_settings",
    }
)  # fmt: skip


def exit_code(verdict: Verdict, *, strict: bool) -> int:
    """Return the exit code of a verdict: 0 fits, 1 does not fit; “may fit” gives 0, or 1 if strict."""
    return int(verdict != "fits" and (strict or verdict == "does-not-fit"))


def screen_width() -> int:
    """Return the terminal's width in characters, at most 100."""
    return min(100, shutil.get_terminal_size((100, 24)).columns)


def registry_problems(data: EstimatorContext) -> list[Diagnostic]:
    """Return the problems of the registries, and the errors in reading the files."""
    parts = ("gpus", "architectures", "config_keys", "accuracy")
    errors = (problem for problem in data.problems["files"] if problem.is_error)
    return sorted([*errors, *data.diagnostics_of(*parts)])


def report_first(problems: Sequence[Diagnostic]) -> bool:
    """Print the first ten problems, errors and those that affect the answer first, and count the rest."""
    ranked = sorted(problems, key=lambda problem: (not problem.is_error, problem.code not in _DECISIVE))
    bad = report(ranked[:MOST_PROBLEMS])
    if rest := ranked[MOST_PROBLEMS:]:
        print(f"… and {counted(len(rest), 'more message')}; --verbose shows all", file=sys.stderr)
    return bad


def refuse_lone_variables(options: argparse.Namespace) -> None:
    """Raise ``UsageError`` for ``--env`` without a script."""
    if options.env and not options.script:
        raise UsageError("--env sets variables of a launch script; give the script with --script")


def with_unused(given: SettingsText, environment: Mapping[str, str]) -> SettingsText:
    """Return settings, with a warning for each variable that their text does not use."""
    unused = [
        warning(
            COMMAND_LINE,
            "unused_variable",
            f"--env {name}: the script does not use this environment variable",
            did_you_mean(name, sorted(given.asked)) or "correct the name, or set it in the script",
        )
        for name in environment
        if name not in given.asked
    ]
    return replace(given, problems=(*given.problems, *unused))


def is_setting(word: str) -> bool:
    """Return whether a word is an override rather than a model or a file."""
    return word.startswith(("+", "~")) or ("=" in word and not os.path.lexists(word))


def read_question(
    options: argparse.Namespace, data: EstimatorContext, words: Sequence[str], source: str | None = None
) -> Asked:
    """Read the question from the arguments.

    Args:
        options: the options of ``QUESTION``.
        data: the data.
        words: a model and overrides.
        source: launch script or YAML file with settings, which all other arguments override.

    Raises:
        NoAnswerError: the model or the GPU is unknown, or a setting cannot be read.
        UsageError: a file cannot be read.
    """
    place = Location(source) if source else COMMAND_LINE
    given = read_source(source, options) if source else SettingsText({}, {})
    own = read_overrides([word for word in words if is_setting(word)], COMMAND_LINE)
    if not_training := refusal(given):
        raise NoAnswerError(not_training)
    _refuse_unread(given, own, place)
    count, gpu = _gpus(options, data)
    task, rank = task_of(options.task) if options.task else (None, 0)
    named = named_settings(task, options.lora or rank, options.prompt, options.response)
    found = [*still_open(given, {*own.values, *named, _MODEL_PATH})]
    path = own.values.get(_MODEL_PATH, given.values.get(_MODEL_PATH))
    meant = model_of(data.architectures, path, left_open=given.unresolved.get(_MODEL_PATH))
    at = given.places.get(_MODEL_PATH, COMMAND_LINE)
    try:
        data, model, noted = _model(options.config, _named_model(words), data, meant, at)
    except NoAnswerError as error:  # problems of the text may be the cause
        raise NoAnswerError(*found, *error.diagnostics) from None
    version, why = options.verl_version, ""
    if version is None:
        version, why = release_for({**given.values, **own.values}, data)
    if why:
        found.append(warning(place, "config_key", why, "give --verl-version to choose another"))
    question = Question(
        model=model.name,
        model_note=model.note,
        gpus=count,
        gpu=gpu,
        task=task,
        lora=options.lora or rank,
        prompt=options.prompt,
        response=options.response,
        overrides=own.values,
        version=version,
    )
    return Asked(question, data, given, own, place, (*found, *own.problems, *noted))


def read_source(source: str, options: argparse.Namespace) -> SettingsText:
    """Read a file of settings with the variables of ``--env``.

    Raises:
        UsageError: it cannot be read.
    """
    environment = dict(options.env)
    given = read_settings(read_text(source), source, environment)
    return with_unused(given, environment)


def _refuse_unread(given: SettingsText, own: SettingsText, place: Location) -> None:
    """Raise for settings that cannot be read, since an answer without them would be wrong."""
    if broken := [problem for problem in (*given.problems, *own.problems) if problem.is_error]:
        raise NoAnswerError(*broken)
    if place != COMMAND_LINE and not (given.values or given.unresolved):
        message, remedy = "the file contains no settings of verl", "give a launch script, YAML or overrides"
        raise NoAnswerError(Diagnostic(place, "file_empty", message, remedy))


def _gpus(options: argparse.Namespace, data: EstimatorContext) -> tuple[int | None, str | None]:
    """Return the number and type of the GPUs from ``--gpus`` and ``--gpu``, which must agree."""
    pairs = zip(options.gpus or (None, None), options.gpu or (None, None), strict=True)
    (count, other_count), (gpu, other_gpu) = pairs
    for one, other in ((count, other_count), (gpu, other_gpu)):
        if None not in (one, other) and one != other:
            raise refused("wrong_value", f"--gpus is {one}, but --gpu is {other}", "give one of them")
    name = gpu or other_gpu
    return count or other_count, gpu_name(name, data.gpus) if name else None


def _named_model(words: Iterable[str]) -> str | None:
    names = [word for word in words if not is_setting(word)]
    if len(names) > 1:
        message = f"two models given, {names[0][:80]!r} and {names[1][:80]!r}"
        remedy = "give one model; settings are key=value, such as data.train_batch_size=256"
        raise refused("wrong_value", message, remedy)
    return names[0] if names else None


def refused(code: Code, message: str, remedy: str = "") -> NoAnswerError:
    """Return the error for invalid arguments."""
    return NoAnswerError(Diagnostic(COMMAND_LINE, code, message, remedy))


def still_open(given: SettingsText, known: Container[str]) -> tuple[Diagnostic, ...]:
    """Return a text's problems, except for unresolved values that are given elsewhere or harmless."""
    return given.problems_besides({key for key in given.unresolved if key in known or is_harmless(key)})


def _model(
    config: str | None, named: str | None, data: EstimatorContext, meant: NamedModel, at: Location
) -> tuple[EstimatorContext, Model, tuple[Diagnostic, ...]]:
    """Return data that contain the model, the model, and the problems of its config.json.

    The name is empty if no model is given. ``meant`` is the settings' model and ``at`` its place.
    """
    architectures = data.architectures
    if named and not config and architectures.get(named) is None:
        config, named = _config_at(named)
    if config:
        architecture, found = read_config_json(read_text(config), config)
        name = named or meant.text or config
        changes = {"name": name, "hf_id": name, "aliases": (), "aliases_unverified": ()}
        return data.knowing(architecture.model_copy(update=changes)), Model(name), found
    if named:
        return data, known_model(named, architectures), ()
    if meant.found or not meant.text:
        return data, meant.found or Model(""), ()
    raise NoAnswerError(Diagnostic(at, *meant.why_none(architectures, *NAMING)))


def _config_at(named: str) -> tuple[str | None, str | None]:
    """Return the path of config.json if a name is a path, and the model's name."""
    if (inside := Path(named) / "config.json").is_file():
        return str(inside), named
    if Path(named).name == "config.json" and Path(named).is_file():  # verl expects the directory
        return named, str(Path(named).absolute().parent)
    return (named, None) if named.endswith(".json") else (None, named)
