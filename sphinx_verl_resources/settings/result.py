"""Settings as one text gives them: values, places, and what cannot be known; read from YAML here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import yaml

from ..catalog.yaml_data import LOADER, dotted_leaves, position, read_yaml
from ..diagnostics import Code, Diagnostic, Location, Severity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from .programs import Program

#: Problems that are listed of one text.
MAX_PROBLEMS = 50

#: OmegaConf's way to say that a value is that of another key.
_REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
#: References to references that are followed.
_MAX_HOPS = 10


@dataclass(frozen=True)
class SettingsText:
    """Settings as one text gives them, under verl's dotted keys.

    Attributes:
        values: known values: true or false, numbers, text, None, or a tuple of these. The later of two wins.
        places: the place of each key of ``values`` and ``unresolved``.
        config_name: the configuration that the command asks for, without ``.yaml``; None if it names none.
        unresolved: keys whose value the text does not tell, with the text there; not in ``values``.
        problems: everything found wrong, and a warning for each value that is not known.
        lines: the lines where each key is set, those of replaced values too.
        program: what a script starts: the program that trains, or else the first one; None in other texts.

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


class Collector:
    """Settings while a text is read; a later setting replaces an earlier one of the same key."""

    def __init__(self) -> None:
        self.config_name: str | None = None
        self.program: Program | None = None
        self.problems: list[Diagnostic] = []
        self._values: dict[str, Any] = {}
        self._places: dict[str, Location] = {}
        self._unresolved: dict[str, str] = {}
        self._lines: dict[str, set[int]] = {}

    def add(self, key: str, value: Any, place: Location) -> None:
        """Note a value; text that refers to another key is looked up at the end."""
        if isinstance(value, tuple) and any(isinstance(item, (dict, tuple)) for item in value):
            self.leave_open(key, str(value), "it is a list of lists or of mappings, which is not read", place)
            return
        self._forget(key, place)
        self._values[key] = value

    def leave_open(self, key: str, text: str, reason: str, place: Location) -> None:
        """Note a key whose value is not known, with its text and the reason."""
        self._forget(key, place)
        self._unresolved[key] = text
        self.warn(place, Code.unresolved, f"the value of {key} is not known: {reason}", "write the value out")

    def fail(self, place: Location, code: Code, message: str, remedy: str) -> None:
        """Report an error."""
        self.problems.append(Diagnostic(place, code, message, remedy))

    def warn(self, place: Location, code: Code, message: str, remedy: str) -> None:
        """Report a problem that leaves the settings usable."""
        self.problems.append(Diagnostic(place, code, message, remedy, Severity.WARNING))

    def result(self) -> SettingsText:
        """Return everything noted so far."""
        for key, value in list(self._values.items()):
            if isinstance(value, str) and "${" in value:
                self._follow(key, value)
        return SettingsText(
            self._values,
            self._places,
            self.config_name,
            self._unresolved,
            listed(self.problems),
            self._lines,
            self.program,
        )

    def _forget(self, key: str, place: Location) -> None:
        earlier = self._places.get(key)
        if earlier:
            message = f"{key} is set twice; this value replaces that of line {earlier.line or 1}"
            self.warn(place, Code.duplicate_key, message, "keep one of the two")
        self._values.pop(key, None)
        self._unresolved.pop(key, None)
        self._places[key] = place
        self._lines.setdefault(key, set()).add(place.line)

    def _follow(self, key: str, text: str) -> None:
        """Replace a reference to another key by its value."""
        value: Any = text
        for _ in range(_MAX_HOPS):
            reference = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
            if not reference or reference[1] not in self._values:
                break
            value = self._values[reference[1]]
        if isinstance(value, str) and "${" in value:
            del self._values[key]
            self._unresolved[key] = text
            message = f"the value of {key} is not known: {text!r} refers to what is not set here"
            self.warn(self._places[key], Code.unresolved, message, "write the value out")
        else:
            self._values[key] = value


def read_yaml_settings(text: str, shown: str) -> SettingsText:
    r"""Read settings from YAML.

    Args:
        text: a mapping; ``data.train_batch_size: 64`` and ``data: {train_batch_size: 64}`` are the same.
        shown: the name of the text in messages.

    Returns:
        The settings; everything wrong with the YAML is among ``problems``.

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
        collector.fail(Location(shown, 1, 1), Code.wrong_type, "expected keys and values", hint)
    return collector.result()


def _placed_leaves(
    mapping: Mapping[str, Any], node: yaml.Node | None, shown: str, prefix: str = ""
) -> Iterator[tuple[str, Any, Location]]:
    """Yield the values of a nested mapping under dotted keys, and the places of these keys."""
    # Of a key that is there twice, the last value was read.
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    nodes = {key_node.value: (key_node, value_node) for key_node, value_node in pairs}
    for name, value in mapping.items():
        key_node, value_node = nodes[name]
        if isinstance(value, dict):
            yield from _placed_leaves(value, value_node, shown, dotted(prefix, name))
        else:
            yield dotted(prefix, name), value, Location(shown, *position(key_node.start_mark))


def leaves(mapping: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values of a nested mapping under dotted keys in their order; a key may come twice.

    >>> list(leaves({"a": {"b": 1}, "a.b": [2, 3]}))
    [('a.b', 1), ('a.b', (2, 3))]
    """
    for key, value in dotted_leaves(mapping):
        yield key, tuple(value) if isinstance(value, list) else value


def dotted(prefix: str, name: str) -> str:
    """Return a key below another one, or at the top.

    >>> dotted("data", "train_batch_size"), dotted("", "model_engine")
    ('data.train_batch_size', 'model_engine')
    """
    return f"{prefix}.{name}" if prefix else str(name)


def listed(problems: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sort problems; of very many, keep errors rather than warnings and count the rest."""
    kept = sorted(problems, key=lambda problem: (not problem.is_error, problem))
    rest = kept[MAX_PROBLEMS:]
    if rest:
        message = f"{len(rest)} more problems are not listed"
        kept[MAX_PROBLEMS:] = [replace(rest[0], message=message, remedy="mend the others first")]
    return tuple(sorted(kept))
