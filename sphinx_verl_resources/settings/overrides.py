"""Hydra's overrides on the command line: ``key=value``, ``+key=value``, ``~key``."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NoReturn

from .result import Collector, SettingsText, leaves

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..diagnostics import Location

#: The maximum nesting depth of lists and mappings inside a value.
MAX_DEPTH = 20

#: ``key=value``, optionally with ``+`` or ``++`` before it, or ``~key``.
OVERRIDE = re.compile(
    r"(?:\+{1,2}|(?P<deletes>~))?(?P<key>[^\W\d][\w-]*(?:[./@][\w-]+)*)(?:=(?P<value>.*))?", re.DOTALL
)
#: Characters that Hydra unescapes after a backslash in unquoted text.
_ESCAPED = re.compile(r"\\([\\()\[\]{}:=, \t])")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_INTEGER = re.compile(r"[+-]?(?:0|[1-9](?:_?[0-9]){0,30})\Z")
_FLOAT = re.compile(
    r"[+-]?(?:[0-9]{1,40}\.[0-9]{0,40}|\.[0-9]{1,40}|[0-9]{1,40}(?=[eE]))(?:[eE][+-]?[0-9]{1,4})?\Z"
)
_WORDS = {"null": None, "true": True, "false": False}


def read_overrides(words: Iterable[str], place: Location) -> SettingsText:
    """Read overrides that are already split into words, such as the arguments of a command.

    Args:
        words: overrides; Hydra's own keys are ignored.
        place: the place of the words.

    Returns:
        The settings; a word that is not an override is an error at ``place``.

    >>> from sphinx_verl_resources.diagnostics import Location
    >>> words = ["data.train_batch_size=64", "+actor.optim={lr: 1e-6}", "trainer.logger=[console,wandb]"]
    >>> read_overrides(words, Location("")).values
    {'data.train_batch_size': 64, 'actor.optim.lr': 1e-06, 'trainer.logger': ('console', 'wandb')}
    """
    collector = Collector()
    for word in words:
        add_override(collector, word, place)
    return collector.result()


def add_override(collector: Collector, word: str, place: Location) -> None:
    """Collect the setting in a word, or report its problem."""
    override = OVERRIDE.fullmatch(word)
    if override is None or (override["value"] is None and not override["deletes"]):
        hint = "write key=value, for example data.train_batch_size=256"
        if not word.strip():
            hint = "delete the blank after the backslash at the end of a line"
        collector.fail(place, "wrong_value", f"{word[:80]!r} is not a setting", hint)
        return
    key, text = override["key"], override["value"]
    if key.startswith("hydra."):  # Settings of Hydra itself, such as its log directory.
        return
    try:
        value = None if override["deletes"] else parse_value(text)
    except ValueError as error:
        message = f"{key}: the value {text[:80]!r} cannot be read: {error}"
        hint = "close each bracket and quote, and quote text that contains them"
        collector.fail(place, "wrong_value", message, hint)
        return
    for name, leaf in leaves({key: value}) if isinstance(value, dict) else [(key, value)]:
        collector.add(name, leaf, place)


def parse_value(text: str) -> Any:
    """Parse ``text`` as Hydra does; return a scalar, a tuple or a dict.

    Raises:
        ValueError: a bracket or quote is not closed, or text follows it.

    >>> [parse_value(text) for text in ("8", "1e-6", "False", "null", "'8'", "", "[1, 'a b']", "{rank: 32}")]
    [8, 1e-06, False, None, '8', '', (1, 'a b'), {'rank': 32}]
    """
    text = text.strip()
    if text[:1] not in {"[", "{", "'", '"'}:
        return _unquoted(text)
    value, end = _element(text, 0, "", 0)
    if end < len(text):
        raise ValueError(f"unexpected {text[end : end + 20]!r} at the end")
    return value


def _element(text: str, start: int, stops: str, depth: int) -> tuple[Any, int]:
    """Parse the value at ``start``; return it and its end. Unquoted text ends at one of ``stops``."""
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    start = _skip_blanks(text, start)
    opening = text[start : start + 1]
    if opening in {"[", "{"}:
        return _items(text, start, depth)
    if opening in {"'", '"'}:
        quoted = _QUOTED.match(text, start) or _unclosed(opening)
        return quoted[0][1:-1].replace(f"\\{opening}", opening), _skip_blanks(text, quoted.end())
    end = start
    while end < len(text) and text[end] not in stops:
        if escaped := _ESCAPED.match(text, end):
            end = escaped.end()
        elif text.startswith("${", end):
            end = text.find("}", end) + 1 or len(text)
        else:
            end += 1
    return _unquoted(text[start:end].strip()), end


def _items(text: str, start: int, depth: int) -> tuple[tuple[Any, ...] | dict[str, Any], int]:
    """Parse the list or mapping at ``start``; return it and its end."""
    is_list = text[start] == "["
    closing = "]" if is_list else "}"
    items: list[Any] = []
    keys: list[str] = []
    at = _skip_blanks(text, start + 1)
    while text[at : at + 1] != closing:
        if not is_list:
            key, at = _element(text, at, ":,}", max(MAX_DEPTH, depth + 1))
            if text[at : at + 1] != ":":
                raise ValueError("a colon is missing after a key in braces")
            keys.append(str(key))
            at += 1
        item, at = _element(text, at, f",{closing}", depth + 1)
        items.append(item)
        if at >= len(text):
            _unclosed(text[start])
        if text[at] == ",":
            at = _skip_blanks(text, at + 1)
        elif text[at] != closing:
            raise ValueError(f"a comma is missing before {text[at : at + 20]!r}")
    value = tuple(items) if is_list else dict(zip(keys, items, strict=True))
    return value, _skip_blanks(text, at + 1)


def _unclosed(opening: str) -> NoReturn:
    raise ValueError(f"{opening} is not closed")


def _skip_blanks(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at


def _unquoted(text: str) -> Any:
    """Parse unquoted text; text with an escape is not a number."""
    return _ESCAPED.sub(r"\1", text) if _ESCAPED.search(text) else _scalar(text)


def _scalar(text: str) -> Any:
    """Parse plain text as a number, boolean or null; other text, including infinities, stays text."""
    if _INTEGER.match(text):
        return int(text)
    if _FLOAT.match(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return _WORDS.get(text.casefold(), text)
