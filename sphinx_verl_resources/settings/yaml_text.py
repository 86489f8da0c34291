"""Settings written as YAML: dotted keys, nested keys, or both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from ..catalog.yaml_data import LOADER, position, read_yaml
from ..diagnostics import Code, Location
from .result import Collector, SettingsText, dotted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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
        for key, value, place in _leaves(document.data, yaml.compose(document.text, Loader=LOADER), shown):
            collector.add(key, value, place)
    elif document.data is not None:
        hint = "write keys and values, as in data.train_batch_size: 64"
        collector.fail(Location(shown, 1, 1), Code.wrong_type, "expected keys and values", hint)
    return collector.result()


def _leaves(
    mapping: Mapping[str, Any], node: yaml.Node | None, shown: str, prefix: str = ""
) -> Iterator[tuple[str, Any, Location]]:
    """Yield the values of a nested mapping under dotted keys, and the places of these keys."""
    # Of a key that is there twice, the last value was read.
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    nodes = {key_node.value: (key_node, value_node) for key_node, value_node in pairs}
    for name, value in mapping.items():
        key_node, value_node = nodes[name]
        if isinstance(value, dict):
            yield from _leaves(value, value_node, shown, dotted(prefix, name))
        else:
            yield dotted(prefix, name), value, Location(shown, *position(key_node.start_mark))
