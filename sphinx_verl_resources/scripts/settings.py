"""The settings in a text: values, places and unknown values."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..diagnostics import Code, Diagnostic, Location, capped, warning
from ..strict_yaml import read_yaml
from .values import Cause, Word, if_known, source_of

#: ``rl`` is training with reinforcement learning; the other kinds have no run to record.
Kind = Literal["rl", "sft", "generation", "evaluation", "conversion", "data", "script", "cluster", "other"]

#: The programs that do not train with reinforcement learning: patterns for the names of those in verl's
#: repository and recipes, and what they do.
_OTHERS: Mapping[Kind, tuple[str, str]] = {
    "sft": (r"sft_trainer|\bmain_sft|\bsft_main", "{} is supervised fine-tuning, not reinforcement learning"),
    "generation": (r"\bmain_gen(?:eration)?(?:_|\Z)", "{} generates responses and does not train"),
    "evaluation": (r"\bmain_eval", "{} scores responses and does not train"),
    "conversion": (r"model_merger|\bconverter_|hf_to_mcore", "{} converts checkpoints and does not train"),
    "data": (
        r"preprocess|\b(prepare|create)_|_dataset\Z",
        "{} prepares data and does not train",
    ),
    "cluster": ("", "{} starts or stops a Ray cluster; the script does not train"),
    "script": ("", "the script starts another script, {}, and lacks some of its settings"),
    "other": ("", "{} is not one of verl's trainers"),
}
_MODULE = r"[a-z_]\w*(?:\.[a-z_]\w*)+"

#: The maximum number of names to list in a message.
_MAX_NAMES = 3
#: OmegaConf's reference to the value of another key.
_REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")


class Program(NamedTuple):
    """A program that a script starts.

    Attributes:
        name: its name as written, without ``.py``; empty if unknown.
        kind: its purpose.
        place: the place of the command.
        arguments: the words after the name.
    """

    name: str
    kind: Kind
    place: Location = Location("")
    arguments: Sequence[Word] = ()

    @property
    def module(self) -> str:
        """The dotted name; for a file, derived from its path, as in ``recipe.dapo.main_dapo``."""
        return self.name.strip("./").replace("/", ".")


@dataclass
class SettingsText:
    """The settings in a text, by verl's dotted keys; a later setting of the same key replaces an earlier one.

    Attributes:
        values: the known values: booleans, numbers, text, None, or tuples of these.
        places: the place of each key in ``values`` and ``unresolved``.
        config_name: the configuration that the command selects, without ``.yaml``; None if unset.
        unresolved: the text of each unknown value, by key; not in ``values``.
        reasons: the reasons for the values in ``unresolved``.
        problems: all problems, and a warning for each unknown value.
        lines: the lines that set each key as written, including replaced values.
        program: the program that trains, otherwise the first that a script starts; None in other texts.
        incomplete: parts of the text that may set more than is read, with the reasons.
        variables_read: the variables that the text reads from its environment.

    >>> SettingsText({"trainer.nnodes": 1}, {"trainer.nnodes": Location("run.sh", 3, 5)}).values
    {'trainer.nnodes': 1}
    """

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Location] = field(default_factory=dict)
    config_name: str | None = None
    unresolved: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, Cause] = field(default_factory=dict)
    problems: tuple[Diagnostic, ...] = ()
    lines: dict[str, list[int]] = field(default_factory=dict)
    program: Program | None = None
    incomplete: tuple[str, ...] = ()
    variables_read: frozenset[str] = frozenset()

    def add(self, key: str, value: Any, place: Location) -> None:
        """Add a value."""
        if isinstance(value, tuple) and any(isinstance(item, (dict, tuple)) for item in value):
            cause = Cause("it is a list of lists or mappings, which is not supported")
            self.leave_open(key, str(value), cause, place)
            return
        self._replace(key, place)
        self.values[key] = value

    def leave_open(self, key: str, text: str, cause: Cause, place: Location) -> None:
        """Add a key with an unknown value, with its text and the reason."""
        self._replace(key, place)
        self.unresolved[key], self.reasons[key] = text, cause

    def _replace(self, key: str, place: Location) -> None:
        for earlier in (self.values, self.unresolved, self.reasons):
            earlier.pop(key, None)
        self.places[key] = place
        self.lines.setdefault(key, []).append(place.line)

    def error(self, place: Location, code: Code, message: str, remedy: str) -> None:
        """Report an error."""
        self.problems += (Diagnostic(place, code, message, remedy),)

    def warn(self, place: Location, code: Code, message: str, remedy: str) -> None:
        """Report a warning."""
        self.problems += (warning(place, code, message, remedy),)

    def resolved(self, *, translated: bool = False) -> SettingsText:
        """Resolve references to other keys, report unknown and replaced values, and return the settings.

        Args:
            translated: whether settings of a fork of verl get verl's keys; a run's log keeps the fork's.
        """
        for key, value in [*self.values.items()]:
            final = value
            for _ in range(10):
                reference = _REFERENCE.fullmatch(final) if isinstance(final, str) else None
                final = self.values.get(reference[1], final) if reference else final
            self.values[key] = final
            if isinstance(final, str) and "${" in final:
                del self.values[key]
                self.unresolved[key] = value
                self.reasons[key] = Cause(f"{value!r} refers to a key that is not set here")
        self.problems += tuple(self._replaced())
        if translated:
            self._translate()
        self.problems = capped(sorted([*self.problems, *open_problems(self.reasons, self.places)]))
        return self

    def _translate(self) -> None:
        """Replace EasyR1's keys by verl's, if there is a key that only EasyR1 has."""
        if not any(key.startswith("worker.") for key in self.places):
            return
        table = read_yaml(Path(__file__).with_name("easyr1.yaml").read_bytes()).data
        names = {key: table[key] for key in self.places if table.get(key, key) not in self.places}
        parts: tuple[dict[str, Any], ...] = (self.values, self.unresolved, self.reasons, self.places)
        for part in parts:  # `lines` keeps the keys of the text
            renamed = {names.get(key, key): value for key, value in part.items()}
            part.clear()
            part.update(renamed)
        if "config" in self.values:  # the file with EasyR1's other settings
            self.config_name = str(self.values.pop("config"))
            del self.places["config"]
        if names:
            place = self.places[next(iter(names.values()))]
            message = f"settings of EasyR1, a fork of verl, are read with verl's keys: {some_of([*names])}"
            remedy = "EasyR1 has other defaults: for a verdict, write all settings of a run in verl's keys"
            self.warn(place, "unresolved", message, remedy)
            self.incomplete += ("EasyR1 has other defaults than verl for what these settings leave open",)

    def _replaced(self) -> Iterator[Diagnostic]:
        """Yield a warning about settings that are set twice."""
        twice = [key for key, lines in self.lines.items() if len(lines) > 1]
        for key in twice[:1]:
            line, place = self.lines[key][-2], self.places[key]
            which = f"the one in line {line}" if line != place.line else "an earlier one"
            message = f"{key} is set twice; this value replaces {which}"
            if len(twice) > 1:
                message = f"{len(twice)} settings are set twice; the later values are used: {some_of(twice)}"
            yield warning(place, "duplicate_key", message, "keep one of the two")

    def problems_besides(self, settled: Container[str]) -> tuple[Diagnostic, ...]:
        """Return the problems without those about unknown values of the keys in ``settled``."""
        everything = {*open_problems(self.reasons, self.places)}
        others = [problem for problem in self.problems if problem not in everything]
        still = {key: cause for key, cause in self.reasons.items() if key not in settled}
        return capped(sorted([*others, *open_problems(still, self.places)]))


def open_problems(reasons: Mapping[str, Cause], places: Mapping[str, Location]) -> Iterator[Diagnostic]:
    """Yield a warning for each reason why values are unknown, with their keys."""
    groups: dict[tuple[str, Location | None, bool], list[str]] = {}
    for key, cause in reasons.items():
        groups.setdefault((cause.text, cause.place, bool(cause.names)), []).append(key)
    for (text, place, _), keys in groups.items():
        names = tuple(dict.fromkeys(name for key in keys for name in reasons[key].names))
        message, what = f"the value of {keys[0]} is unknown: {text}", "the value"
        if len(keys) > 1:
            message, what = f"{len(keys)} settings are unknown because {text}: {some_of(keys)}", "the values"
        yield warning(place or places[keys[0]], "unresolved", message, Cause(text, names).remedy(what))


def some_of(names: Sequence[str]) -> str:
    """Join the first names, and count the others.

    >>> some_of(["a", "b"]), some_of("abcdef")
    ('a, b', 'a, b, c and 3 more')
    """
    rest = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")


# -- programs


def program_of(command: Sequence[Word]) -> Program | None:
    """Return the program that a command starts; if there are several, the one that trains.

    >>> words = "torchrun --nproc_per_node=8 -m verl.trainer.sft_trainer data.max_length=2048".split()
    >>> program_of([Word((word,)) for word in words])[:2]
    ('verl.trainer.sft_trainer', 'sft')
    """
    words = [if_known(word.text) or "" for word in command]
    names: dict[int, str] = {}
    for at, word in enumerate(words):
        if (at and words[at - 1] == "-m") or word.endswith(".py"):
            names[at] = word.removesuffix(".py")
            # The argument of a launcher is the module that it starts.
            if at + 1 < len(words) and re.fullmatch(_MODULE, words[at + 1]):
                names[at + 1] = words[at + 1]
    place = command[0].place
    if names:
        kinds = {at: kind_of(name) for at, name in names.items()}
        at = min(names, key=lambda at: (kinds[at] != "rl", kinds[at] == "other"))
        return Program(names[at], kinds[at], place, command[at + 1 :])
    if words[0] == "ray" and words[1:2] in (["start"], ["stop"]):
        return Program(" ".join(words[:2]), "cluster", place)
    scripts = [name for name in (source_of(word.text) for word in command[1:]) if name.endswith(".sh")]
    return Program(scripts[0], "script", place) if words[0] in {"bash", "sh", "exec"} and scripts else None


def kind_of(name: str) -> Kind:
    """Return the purpose of a program, by the name of its module or file.

    >>> kind_of("verl.trainer.main_ppo"), kind_of("recipe/dapo/main_dapo"), kind_of("verl.trainer.main_eval")
    ('rl', 'rl', 'evaluation')
    >>> kind_of("examples/data_preprocess/gsm8k"), kind_of("plot")
    ('data', 'other')
    """
    for kind, (pattern, _) in _OTHERS.items():
        if pattern and re.search(pattern, name):
            return kind
    package, _, last = name.replace("/", ".").rpartition(".")
    trains = last.startswith("main_") or last.endswith("_main")
    return "rl" if trains or (last == "main" and "verl" in package.split(".")) else "other"


def refusal(settings: SettingsText) -> Diagnostic | None:
    """Return why a script is rejected; None if it trains with reinforcement learning."""
    program = settings.program or Program("", "rl", next(iter(settings.places.values()), Location("")))
    kind, name = program.kind, program.name
    keys = {*settings.values, *settings.unresolved}
    is_fine_tuning = keys & {"model.path", "model.partial_pretrain"}  # the latter before v0.7.0
    if not name and is_fine_tuning and not any(key.startswith("actor_rollout_ref.") for key in keys):
        kind, name = "sft", "this"
    if kind == "rl":
        return None
    remedies = {"sft": "give a script of reinforcement learning", "script": "give that script"}
    remedy = remedies.get(kind, "give the script that trains")
    return Diagnostic(program.place, "not_training", _OTHERS[kind][1].format(name), remedy)
