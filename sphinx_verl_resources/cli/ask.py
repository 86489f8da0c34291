"""Questions in a terminal, for a run without a script, or for what a script does not say."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, TypeVar

from ..catalog.names import ENGINES, TAGS, TRAIN_BACKENDS
from ..catalog.run_names import ID_FORM, is_id
from ..diagnostics import Location
from ..estimator.request import parse_gpus
from ..intake.draft import TODO, draft_run
from ..intake.model_names import nearest_model, recorded_models
from ..settings.overrides import read_overrides
from .terminal import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

    from ..diagnostics import Diagnostic
    from ..estimator.registries import Registries
    from ..intake.sources import Sources, UserInput

    Reader = Callable[[str | None, str | None], tuple[Sources, list[Diagnostic]]]

Answer = TypeVar("Answer")
#: Wrong answers to one question, after which whatever answers is no person.
_PATIENCE = 20


class NoAnswerError(Exception):
    """The answers ended."""


@dataclass(frozen=True)
class Terminal:
    """Where answers come from, and where questions go."""

    answers: TextIO
    questions: TextIO

    def ask(self, question: str, allowed: str, default: str, check: Callable[[str], Answer]) -> Answer | None:
        """The answer to a question; the default where it is empty, None where there is no default either.

        Args:
            question: what is asked.
            allowed: what may be answered.
            default: taken for an empty answer.
            check: turns the text into the answer, or raises ``ValueError`` with what is wrong.

        Raises:
            NoAnswerError: there is no further line, or none that can be used.
        """
        for _ in range(_PATIENCE):
            self.say(f"{question} ({allowed}){f' [{default}]' if default else ''}: ", end="")
            line = self.answers.readline()
            if not line:
                raise NoAnswerError
            text = line.strip() or default
            if not text:
                return None
            try:
                return check(text)
            except (UsageError, ValueError) as error:
                self.say(f"  {error}\n", end="")
        raise NoAnswerError

    def say(self, text: str, end: str = "\n") -> None:
        """Print at once."""
        self.questions.write(text + end)
        self.questions.flush()


def ask_for_run(
    answers: TextIO, questions: TextIO, said: UserInput, facts: Registries, read: Reader
) -> tuple[Sources, UserInput, list[Diagnostic]]:
    """Ask for everything that a run file needs; nothing is written.

    Args:
        answers: where a person types.
        questions: where they read.
        said: what the options said already; it is the default.
        facts: the registries.
        read: reads a script and a log.

    Returns:
        Script and log, what the person says, and what was not read.

    Raises:
        NoAnswerError: the person stopped.
    """
    terminal = Terminal(answers, questions)
    terminal.say("An empty answer takes what stands in brackets, and leaves TODO where nothing does.\n")
    none = "a path, or empty if there is none"
    sources, problems = terminal.ask("Launch script", none, "", lambda path: read(path, None)) or read(
        None, None
    )
    logged = terminal.ask("Log", none, "", lambda path: read(None, path))
    if logged:
        sources = replace(sources, log=logged[0].log)
    if not sources.file and not sources.printed:
        sources = replace(sources, script=read_overrides(_settings(terminal), Location("answer")))
    found = draft_run(sources, said, facts, date.today()).fields  # noqa: DTZ011
    return sources, _ask(terminal, said, found, facts), problems


def _ask(terminal: Terminal, said: UserInput, found: dict[str, object], facts: Registries) -> UserInput:
    """The questions, with what was found as their defaults."""
    model = terminal.ask(
        "Model", "Hugging Face name", _known(found, "model"), lambda text: _model(text, facts)
    )
    task = terminal.ask("Task", "GRPO, GRPO-LoRA, PPO, DAPO …", _known(found, "task"), _short)
    gpus = terminal.ask(
        "GPUs", "number and card, as 8*H100", _gpus(found), lambda text: _all_gpus(text, facts)
    )
    train = terminal.ask(
        "Training backend", ", ".join(TRAIN_BACKENDS), _known(found, "train"), _one_of(TRAIN_BACKENDS)
    )
    engine = terminal.ask(
        "Rollout engine", ", ".join(ENGINES), _known(found, "infer", "engine"), _one_of(ENGINES)
    )
    version = terminal.ask("Its version", "as 0.8.3", _known(found, "infer", "version"), _version)
    verl = terminal.ask("Version of verl", "release or commit", _known(found, "versions", "verl"), _version)
    tag = terminal.ask("Tag", ", ".join(TAGS), said.tag or "", _one_of(TAGS))
    batch = terminal.ask("Largest batch that fits", "prompts per step", _known(found, "max_batch"), _whole)
    evidence = terminal.ask("Where can the log be read", "https://…", said.evidence or "", _address)
    name = terminal.ask("Your name or handle", "no e-mail address", said.contributor or "", _short)
    profile = (
        terminal.ask("Your profile", "https://…", said.contributor_url or "", _address) if name else None
    )
    chosen = replace(
        said, model=model, task=task, gpus=gpus or said.gpus, train=train, engine=engine,
        engine_version=version, verl_version=verl,
        tag=tag, max_batch=batch, evidence=evidence, contributor=name, contributor_url=profile,
    )  # fmt: skip
    run_id = terminal.ask(
        "Id", "small letters, digits, hyphens; empty makes one of the above", said.id or "", _slug
    )
    return replace(chosen, id=run_id)


def _settings(terminal: Terminal) -> list[str]:
    """Settings, one on a line, until a line is empty."""
    terminal.say("Settings of verl, one key=value on a line; an empty line ends them.")
    found: list[str] = []
    while answer := terminal.ask("Setting", "as data.train_batch_size=256", "", _setting):
        found.append(answer)
    return found


def _known(found: dict[str, object], *names: str) -> str:
    """A value that was found, as text; empty for what is still TODO."""
    value: object = found
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return "" if value in (None, TODO) else str(value)


def _gpus(found: dict[str, object]) -> str:
    count, card = _known(found, "gpus", "count"), _known(found, "gpus", "type")
    return f"{count}*{card}" if count and card else count or card


def _model(text: str, facts: Registries) -> str:
    found = recorded_models(text, facts.architectures.names)
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"that may be any of {', '.join(found[:10])}")
    near = nearest_model(text, facts.architectures.names)
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text):  # which is not recorded, and can be added
        return text
    raise ValueError(
        f"no such model is recorded{f'; did you mean {near}?' if near else ''}; write owner/name"
    )


def _all_gpus(text: str, facts: Registries) -> tuple[int | None, str | None]:
    count, card = parse_gpus(text)
    if card is not None and facts.gpus.get(card) is None:
        raise ValueError(f"no GPU is recorded as {card!r}; name another, or add it to gpus.yaml first")
    return count, card


def _one_of(allowed: Sequence[str]) -> Callable[[str], str]:
    def check(text: str) -> str:
        for word in allowed:
            if text.casefold() == word.casefold():
                return word
        raise ValueError(f"answer one of {', '.join(allowed)}")

    return check


def _short(text: str) -> str:
    if len(text) > 200 or not text.isprintable() or re.search(r"\S@\S+\.\w", text):
        raise ValueError("answer with a short name on one line, and no e-mail address")
    return text


def _version(text: str) -> str:
    if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,39}", text):
        raise ValueError("answer with a version such as 0.8.3")
    return text


def _whole(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,6}", text):
        raise ValueError("answer with a number above zero")
    return int(text)


def _address(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", text):
        raise ValueError("answer with an address that begins with https://")
    return text


def _setting(text: str) -> str:
    problems = read_overrides([text], Location("answer")).problems
    if problems:
        raise ValueError(problems[0].text)
    return text


def _slug(text: str) -> str:
    if not is_id(text):
        raise ValueError(f"an id has {ID_FORM}")
    return text
