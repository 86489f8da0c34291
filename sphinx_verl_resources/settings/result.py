"""The settings in a text: values, places and unknown values. Reads YAML, too; rejects other programs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from ..diagnostics import Code, Diagnostic, Location, Severity, capped, warning
from ..memory.request import dotted_leaves
from ..strict_yaml import LOADER, position, read_yaml
from .programs import Program

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterator, Mapping, Sequence

    from .programs import Kind


#: The maximum number of names to list in a message.
_MAX_NAMES = 3

#: OmegaConf's reference to the value of another key.
_REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
#: The maximum length of a chain of references.
_MAX_HOPS = 10


class Reason(NamedTuple):
    """The reason why a value is unknown.

    Attributes:
        text: the reason, a clause.
        names: the environment variables that determine the value.
        place: the place of the condition or loop that determines it, if any.
    """

    text: str
    names: tuple[str, ...] = ()
    place: Location | None = None

    def remedy(self, what: str) -> str:
        """Return the remedy: give the variables, or write ``what`` out."""
        given = " ".join(f"--env {name}=…" for name in self.names[:_MAX_NAMES])
        return f"add {given}" if given else f"write {what} out"


@dataclass(frozen=True)
class SettingsText:
    """The settings in a text, by verl's dotted keys.

    Attributes:
        values: the known values: booleans, numbers, text, None, or tuples of these. The last one wins.
        places: the place of each key in ``values`` and ``unresolved``.
        config_name: the configuration that the command selects, without ``.yaml``; None if unset.
        unresolved: the text of each unknown value, by key; not in ``values``.
        problems: all problems, and a warning for each unknown value.
        lines: the lines that set each key, including replaced values.
        program: the program that trains, otherwise the first that a script starts; None in other texts.
        reasons: the reasons for the values in ``unresolved``.
        incomplete: parts of the text that may set more than is read, with the reasons.
        passed: the lines of a script that are not run, because of a condition.
        assigned: the lines of a script that assign variables.
        asked: the variables that the text reads from its environment.

    >>> SettingsText({"trainer.nnodes": 1}, {"trainer.nnodes": Location("run.sh", 3, 5)}).values
    {'trainer.nnodes': 1}
    """

    values: Mapping[str, Any]
    places: Mapping[str, Location]
    config_name: str | None = None
    unresolved: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Diagnostic, ...] = ()
    lines: Mapping[str, Collection[int]] = field(default_factory=dict)
    program: Program | None = None
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    incomplete: tuple[str, ...] = ()
    passed: frozenset[int] = frozenset()
    assigned: frozenset[int] = frozenset()
    asked: frozenset[str] = frozenset()

    def problems_besides(self, settled: Container[str]) -> tuple[Diagnostic, ...]:
        """Return the problems without those about unknown values of the keys in ``settled``."""
        everything = {*open_problems(self.reasons, self.places)}
        others = [problem for problem in self.problems if problem not in everything]
        still = {key: reason for key, reason in self.reasons.items() if key not in settled}
        return capped(sorted([*others, *open_problems(still, self.places)]))


def open_problems(reasons: Mapping[str, Reason], places: Mapping[str, Location]) -> Iterator[Diagnostic]:
    """Yield a warning for each reason why values are unknown, with their keys."""
    groups: dict[tuple[str, Location | None, bool], list[str]] = {}
    for key, reason in reasons.items():
        groups.setdefault((reason.text, reason.place, bool(reason.names)), []).append(key)
    for (text, place, _), keys in groups.items():
        names = tuple(dict.fromkeys(name for key in keys for name in reasons[key].names))
        if len(keys) == 1:
            message, what = f"the value of {keys[0]} is unknown: {text}", "the value"
        else:
            message, what = f"{len(keys)} settings are unknown because {text}: {some_of(keys)}", "the values"
        remedy = Reason(text, names).remedy(what)
        yield warning(place or places[keys[0]], "unresolved", message, remedy)


def some_of(names: Sequence[str]) -> str:
    """Join the first names, and count the others.

    >>> some_of(["a", "b"]), some_of("abcdef")
    ('a, b', 'a, b, c and 3 more')
    """
    rest = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")


class Collector:
    """Collects settings while a text is read; a later setting of the same key replaces an earlier one."""

    def __init__(self) -> None:
        self.config_name: str | None = None
        self.program: Program | None = None
        self.problems: list[Diagnostic] = []
        self.incomplete: list[str] = []
        self.passed: frozenset[int] = frozenset()
        self.assigned: frozenset[int] = frozenset()
        self.asked: frozenset[str] = frozenset()
        self._values: dict[str, Any] = {}
        self._places: dict[str, Location] = {}
        self._unresolved: dict[str, str] = {}
        self._reasons: dict[str, Reason] = {}
        self._twice: dict[str, int] = {}
        self._lines: dict[str, set[int]] = {}

    def add(self, key: str, value: Any, place: Location) -> None:
        """Add a value; references to other keys are resolved at the end."""
        if isinstance(value, tuple) and any(isinstance(item, (dict, tuple)) for item in value):
            reason = Reason("it is a list of lists or mappings, which is not supported")
            self.leave_open(key, str(value), reason, place)
            return
        self._forget(key, place)
        self._values[key] = value

    def leave_open(self, key: str, text: str, reason: Reason, place: Location) -> None:
        """Add a key with an unknown value, with its text and the reason."""
        self._forget(key, place)
        self._unresolved[key] = text
        self._reasons[key] = reason

    def leave_more(self, shown: str, reason: Reason, place: Location) -> None:
        """Add a part of the text that may set more than is read."""
        message = f"the settings in {shown!r} are unknown: {reason.text}"
        self.warn(reason.place or place, "unresolved", message, reason.remedy("the settings"))
        self.incomplete.append(f"{shown}: {reason.text}")

    def fail(self, place: Location, code: Code, message: str, remedy: str) -> None:
        """Report an error."""
        self.problems.append(Diagnostic(place, code, message, remedy))

    def warn(self, place: Location, code: Code, message: str, remedy: str) -> None:
        """Report a warning."""
        self.problems.append(Diagnostic(place, code, message, remedy, Severity.WARNING))

    def result(self) -> SettingsText:
        """Return the collected settings."""
        for key, value in list(self._values.items()):
            if isinstance(value, str) and "${" in value:
                self._follow(key, value)
        unknown = open_problems(self._reasons, self._places)
        return SettingsText(
            self._values,
            self._places,
            self.config_name,
            self._unresolved,
            capped(sorted([*self.problems, *unknown, *self._replaced()])),
            self._lines,
            self.program,
            self._reasons,
            tuple(self.incomplete),
            self.passed,
            self.assigned,
            self.asked,
        )

    def _forget(self, key: str, place: Location) -> None:
        if key in self._places:
            self._twice[key] = self._places[key].line
        self._values.pop(key, None)
        self._unresolved.pop(key, None)
        self._reasons.pop(key, None)
        self._places[key] = place
        self._lines.setdefault(key, set()).add(place.line)

    def _replaced(self) -> Iterator[Diagnostic]:
        """Yield a warning about settings that are set twice."""
        first, *others = self._twice or [""]
        message = f"{first} is set twice; this value replaces the one in line {self._twice.get(first)}"
        if others:
            message = f"{len(self._twice)} settings are set twice; the later values are used: "
            message += some_of([*self._twice])
        if first:
            yield warning(self._places[first], "duplicate_key", message, "keep one of the two")

    def _follow(self, key: str, text: str) -> None:
        """Replace a reference to another key with its value."""
        value: Any = text
        for _ in range(_MAX_HOPS):
            reference = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
            if not reference or reference[1] not in self._values:
                break
            value = self._values[reference[1]]
        if isinstance(value, str) and "${" in value:
            del self._values[key]
            self._unresolved[key] = text
            self._reasons[key] = Reason(f"{text!r} refers to a key that is not set here")
        else:
            self._values[key] = value


def read_yaml_settings(text: str, shown: str) -> SettingsText:
    r"""Read settings from YAML.

    Args:
        text: a mapping; ``data.train_batch_size: 64`` and ``data: {train_batch_size: 64}`` are equivalent.
        shown: the name of the text in messages.

    Returns:
        The settings; their ``problems`` include those of the YAML.

    >>> settings = read_yaml_settings("data:\n  train_batch_size: 64\ntrainer.nnodes: 2\n", "run.yaml")
    >>> settings.values
    {'data.train_batch_size': 64, 'trainer.nnodes': 2}
    >>> str(settings.places["data.train_batch_size"])
    'run.yaml:2:3'
    """
    collector = Collector()
    document = read_yaml(text.encode("utf-8", "surrogatepass"), shown)
    collector.problems += document.problems
    if isinstance(document.data, dict):
        for key, value, place in _placed_leaves(
            document.data, yaml.compose(document.text, Loader=LOADER), shown
        ):
            collector.add(key, value, place)
    elif document.data is not None:
        hint = "write keys and values, as in data.train_batch_size: 64"
        collector.fail(Location(shown, 1, 1), "wrong_type", "expected keys and values", hint)
    return collector.result()


def _placed_leaves(
    mapping: Mapping[str, Any], node: yaml.Node | None, shown: str, prefix: str = ""
) -> Iterator[tuple[str, Any, Location]]:
    """Yield the values of a nested mapping by dotted keys, with the places of the keys."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    nodes = {key_node.value: (key_node, value_node) for key_node, value_node in pairs}
    for name, value in mapping.items():
        key_node, value_node = nodes[name]
        if isinstance(value, dict):
            yield from _placed_leaves(value, value_node, shown, dotted(prefix, name))
        else:
            yield dotted(prefix, name), value, Location(shown, *position(key_node.start_mark))


def leaves(mapping: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values of a nested mapping by dotted keys, in order; a key may occur twice.

    >>> list(leaves({"a": {"b": 1}, "a.b": [2, 3]}))
    [('a.b', 1), ('a.b', (2, 3))]
    """
    for key, value in dotted_leaves(mapping):
        yield key, tuple(value) if isinstance(value, list) else value


def dotted(prefix: str, name: str) -> str:
    """Join a key to the section above it, if any.

    >>> dotted("data", "train_batch_size"), dotted("", "model_engine")
    ('data.train_batch_size', 'model_engine')
    """
    return f"{prefix}.{name}" if prefix else str(name)


_TRAINING = "give the script that trains"
#: For each kind of program, what it does and what to do instead.
_OTHERS: Mapping[Kind, tuple[str, str]] = {
    "sft": (
        "{name} is supervised fine-tuning, not reinforcement learning",
        "give a script of reinforcement learning",
    ),
    "generation": ("{name} generates responses and does not train", _TRAINING),
    "evaluation": ("{name} scores responses and does not train", _TRAINING),
    "conversion": ("{name} converts checkpoints and does not train", _TRAINING),
    "data": ("{name} prepares data and does not train", _TRAINING),
    "cluster": ("{name} starts or stops a Ray cluster; the script does not train", _TRAINING),
    "script": (
        "the script starts another script, {name}, and lacks some of its settings",
        "give that script",
    ),
    "other": ("{name} is not one of verl's trainers", _TRAINING),
}

#: The keys of the model's path; the trainer before v0.7.0 uses the second.
_MODEL, _OLD_MODEL = "model.path", "model.partial_pretrain"


def refusal(script: SettingsText) -> Diagnostic | None:
    """Return why a script is rejected; None if it trains with reinforcement learning."""
    program = script.program or Program("", "rl", next(iter(script.places.values()), Location("")))
    kind, name = program.kind, program.name
    if not name and _is_fine_tuning(script):
        kind, name = "sft", "this"
    if kind not in _OTHERS:
        return None
    message, remedy = _OTHERS[kind]
    return Diagnostic(program.place, "not_training", message.format(name=name), remedy)


def _is_fine_tuning(script: SettingsText) -> bool:
    """Return whether the settings are for supervised fine-tuning."""
    keys = {*script.values, *script.unresolved}
    return bool(keys & {_MODEL, _OLD_MODEL}) and not any(key.startswith("actor_rollout_ref.") for key in keys)
