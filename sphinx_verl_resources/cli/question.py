"""Read a question to the estimator from arguments: the model, the GPUs, verl's settings."""

from __future__ import annotations

import argparse
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..catalog.yaml_data import printable
from ..diagnostics import Code, Diagnostic, Location, NoAnswerError
from ..estimator.hf_config import read_config_json
from ..estimator.registries import Registries
from ..estimator.request import MODEL, Request, parse_gpus
from ..estimator.resolve import is_harmless
from ..estimator.versions import CURRENT, version_of
from ..settings.overrides import read_overrides
from ..settings.read import read_settings
from ..settings.result import SettingsText
from .data import add_data_option
from .files import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from ..catalog.models.architecture import Architecture
    from ..estimator.versions import Version

COMMAND_LINE = Location("command line")
_MODEL_PATH = f"{MODEL}.path"


@dataclass(frozen=True)
class Question:
    """A request to the estimator, with the registries and the places of its settings.

    Attributes:
        request: the question.
        registries: the registries, a user's own architecture included.
        places: the place of each setting.
        source: the file of settings; the command line where there is none.
        problems: what is wrong with the settings.
    """

    request: Request
    registries: Registries
    places: Mapping[str, Location] = field(default_factory=dict)
    source: Location = COMMAND_LINE
    problems: tuple[Diagnostic, ...] = ()

    def place(self, problem: Diagnostic) -> Location:
        """Return the place of the setting that a problem names."""
        key = problem.place.key
        if key == "model":
            return self.places.get(_MODEL_PATH, COMMAND_LINE)
        return COMMAND_LINE if key == "gpus" else self.places.get(key, self.source)


def placed(problems: Iterable[Diagnostic], place_of: Callable[[Diagnostic], Location]) -> list[Diagnostic]:
    """Return problems of the estimator, which name settings, with the places of these settings in a file."""
    return [replace(problem, place=replace(place_of(problem), key=problem.place.key)) for problem in problems]


def errors_text(problems: Iterable[Diagnostic]) -> str:
    """Return the errors among problems on one line, for programs."""
    return "; ".join(problem.text for problem in problems if problem.is_error)


def add_question_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that every question takes."""
    parser.add_argument("--model", metavar="NAME", help="Hugging Face name of the checkpoint")
    parser.add_argument(
        "--config", metavar="FILE", help="config.json of a model that is not recorded, or has changed"
    )
    parser.add_argument(
        "--verl-version",
        metavar="VERSION",
        type=_version,
        default=CURRENT,
        help="whose defaults and behaviour are taken, 0.7.1 for example; default: the newest that is known",
    )
    add_data_option(parser)


def _version(text: str) -> Version:
    found = version_of(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is no version, such as 0.7.1")
    return found


def gpus_argument(text: str) -> tuple[int | None, str | None]:
    """Read the value of an option such as ``--gpus 8*H100``."""
    try:
        return parse_gpus(text)
    except NoAnswerError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def read_question(
    options: argparse.Namespace,
    registries: Registries,
    gpus: tuple[int | None, str | None],
    *,
    source: str | None = None,
    base: Mapping[str, Any] | None = None,
) -> Question:
    """Read the question that the arguments ask.

    Args:
        options: with ``model``, ``config``, ``verl_version`` and the overrides ``settings``.
        registries: the registries.
        gpus: how many, and which.
        source: a launch script or a file of YAML with settings, that overrides go on top of.
        base: settings that both go on top of.

    Raises:
        NoAnswerError: the model or the GPU is not known.
        UsageError: a file cannot be read.
    """
    given = read_settings(read_text(source), printable(source)) if source else SettingsText({}, {})
    own = read_overrides(options.settings, COMMAND_LINE)
    # An estimate without settings that cannot be read would answer another question.
    broken = [problem for problem in (*given.problems, *own.problems) if problem.is_error]
    place = Location(printable(source)) if source else COMMAND_LINE
    if source and not (given.values or given.unresolved or broken):
        message = "the file holds no setting of verl"
        broken.append(Diagnostic(place, Code.file_empty, message, "give a launch script, YAML or overrides"))
    if broken:
        raise NoAnswerError(*broken)
    values = {**(base or {}), **given.values, **own.values}
    count, gpu = gpus
    if gpu is not None:
        with on_command_line():
            registries.known_gpu(gpu)
    try:
        registries, model, found = _model(options, registries, values.get(_MODEL_PATH))
    except NoAnswerError as error:  # what is wrong with the text may be why
        raise NoAnswerError(*_still_open(given, own), *error.diagnostics) from None
    request = Request(
        model=model,
        config=values,
        gpus=count,
        gpu=gpu,
        version=options.verl_version,
        backend="megatron" if "megatron" in (given.config_name or "") else None,
        unread=frozenset(given.unresolved.keys() - values.keys()),
    )
    problems = (*_still_open(given, own), *own.problems, *found)
    return Question(request, registries, {**given.places, **own.places}, place, problems)


@contextmanager
def on_command_line() -> Iterator[None]:
    """Say of names that are not known that they are among the arguments."""
    try:
        yield
    except NoAnswerError as error:
        raise NoAnswerError(*placed(error.diagnostics, lambda problem: COMMAND_LINE)) from None


def refused(code: Code, message: str, remedy: str = "") -> NoAnswerError:
    """Return the error for arguments that make no question."""
    return NoAnswerError(Diagnostic(COMMAND_LINE, code, message, remedy))


def _still_open(given: SettingsText, own: SettingsText) -> list[Diagnostic]:
    """Return what is wrong with a text, without the values that it leaves open and an override gives."""
    given_now = {given.places[key] for key in given.unresolved if key in own.values}
    harmless = {given.places[key] for key in given.unresolved if is_harmless(key)}
    return [
        problem
        for problem in given.problems
        if problem.code is not Code.unresolved or problem.place not in given_now | harmless
    ]


def _model(
    options: argparse.Namespace, registries: Registries, path: Any
) -> tuple[Registries, str, tuple[Diagnostic, ...]]:
    """Return the registries that know the model, its name, and what is wrong with its config.json.

    The path in the settings counts as a name only where it is one that is known.
    """
    names = registries.architectures.names
    if options.config:
        architecture, found = read_config_json(read_text(options.config), printable(options.config))
        if architecture is None:
            raise NoAnswerError(*found)
        name = options.model or (path if isinstance(path, str) and path else architecture.name)
        return _knowing(registries, name, architecture), name, found
    if options.model:
        name = options.model
        with on_command_line():
            registries.known_shape(name, "give its config.json with --config")
        return registries, name, ()
    if isinstance(path, str) and registries.architectures.get(path) is not None:
        return registries, path, ()
    message = "no model is named"
    if isinstance(path, str):
        message += f"; {path[:200]!r} in the settings is none that is recorded"
    last = str(path or "").rstrip("/").rsplit("/", 1)[-1].casefold()
    same = next((name for name in names if last and name.rsplit("/", 1)[-1].casefold() == last), None)
    remedy = f"add --model {same}" if same else "add --model, for example --model Qwen/Qwen2.5-7B"
    raise refused(Code.missing_key, message, remedy)


def _knowing(registries: Registries, name: str, architecture: Architecture) -> Registries:
    """Return the registries with one more architecture, or another one under a name that is known."""
    changes = {"name": name, "hf_id": name, "aliases": (), "aliases_unverified": ()}
    architectures = registries.architectures.with_entry(architecture.model_copy(update=changes))
    return Registries(registries.gpus, architectures, registries.config_keys, registries.accuracy)
