"""Hydra's overrides on the command line: ``key=value``, ``+key=value``, ``~key``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from ..diagnostics import Location
from ..memory.request import dotted_leaves
from .settings import SettingsText

#: The maximum nesting depth of lists and mappings inside a value.
MAX_DEPTH = 20

#: ``key=value``, optionally with ``+`` or ``++`` before it, or ``~key``.
OVERRIDE = re.compile(
    r"(?:\+{1,2}|(?P<deletes>~))?(?P<key>[^\W\d][\w-]*(?:[./@][\w-]+)*)(?:=(?P<value>.*))?", re.DOTALL
)
#: Characters that Hydra unescapes after a backslash in unquoted text.
_ESCAPED = re.compile(r"\\([\\()\[\]{}:=, \t])")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
#: Unquoted text up to one of the characters that are put in.
_PLAIN = r"(?:\\[\\()\[\]{{}}:=, \t]|\$\{{[^}}]*(?:\}}|\Z)|[^{}])*"
_IN_LIST, _IN_MAPPING, _AS_KEY = (re.compile(_PLAIN.format(end), re.DOTALL) for end in (r",\]", ",}", ":,}"))
_INTEGER = re.compile(r"[+-]?(?:0|[1-9](?:_?[0-9]){0,30})")
_FLOAT = re.compile(
    r"[+-]?(?:[0-9]{1,40}\.[0-9]{0,40}|\.[0-9]{1,40}|[0-9]{1,40}(?=[eE]))(?:[eE][+-]?[0-9]{1,4})?"
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
    settings = SettingsText()
    for word in words:
        add_override(settings, word, place)
    return settings.resolved()


def add_override(settings: SettingsText, word: str, place: Location) -> None:
    """Add the setting in a word, or report its problem."""
    override = OVERRIDE.fullmatch(word)
    if override is None or (override["value"] is None and not override["deletes"]):
        remedy = "write key=value, for example data.train_batch_size=256"
        if not word.strip():
            remedy = "delete the blank after the backslash at the end of a line"
        settings.error(place, "wrong_value", f"{word[:80]!r} is not a setting", remedy)
        return
    key, text = override["key"], override["value"]
    if key.startswith("hydra."):  # settings of Hydra itself, such as its log directory
        return
    try:
        value = None if override["deletes"] else parse_value(text)
    except ValueError as error:
        message = f"{key}: the value {text[:80]!r} cannot be read: {error}"
        remedy = "close each bracket and quote, and quote text that contains them"
        settings.error(place, "wrong_value", message, remedy)
        return
    for name, leaf in dotted_leaves({key: value}):
        settings.add(name, leaf, place)


def parse_value(text: str) -> Any:
    """Parse ``text`` as Hydra does; return a scalar, a tuple or a dict.

    Raises:
        ValueError: a bracket or quote is not closed, or text follows it.

    >>> [parse_value(text) for text in ("8", "1e-6", "False", "null", "'8'", "", "[1, 'a b']", "{rank: 32}")]
    [8, 1e-06, False, None, '8', '', (1, 'a b'), {'rank': 32}]
    """
    text = text.strip()
    if text[:1] not in {"[", "{", "'", '"'}:
        return _scalar(text)
    value, end = _element(text, 0, _IN_LIST, 0)
    if end < len(text):
        raise ValueError(f"unexpected {text[end : end + 20]!r} at the end")
    return value


def _element(text: str, start: int, plain: re.Pattern[str], depth: int) -> tuple[Any, int]:
    """Parse the value at ``start``; return it, and the position of what follows it."""
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    start = _behind_blanks(text, start)
    opening = text[start : start + 1]
    if opening in {"[", "{"}:
        return _items(text, start, depth)
    match = (_QUOTED if opening in {"'", '"'} else plain).match(text, start)
    if not match:
        raise ValueError(f"{opening} is not closed")
    if opening in {"'", '"'}:
        return match[0][1:-1].replace(f"\\{opening}", opening), _behind_blanks(text, match.end())
    return _scalar(match[0].strip()), match.end()


def _items(text: str, start: int, depth: int) -> tuple[tuple[Any, ...] | dict[str, Any], int]:
    """Parse the list or mapping at ``start``; return it, and the position of what follows it."""
    is_list = text[start] == "["
    closing, plain = ("]", _IN_LIST) if is_list else ("}", _IN_MAPPING)
    items: list[Any] = []
    keys: list[str] = []
    at = _behind_blanks(text, start + 1)
    while text[at : at + 1] != closing:
        if not is_list:
            key, at = _element(text, at, _AS_KEY, depth + 1)
            if isinstance(key, (tuple, dict)) or text[at : at + 1] != ":":
                raise ValueError("a colon is missing after a key in braces")
            keys.append(str(key))
            at += 1
        item, at = _element(text, at, plain, depth + 1)
        items.append(item)
        if text[at : at + 1] == ",":
            at = _behind_blanks(text, at + 1)
        elif text[at : at + 1] != closing:
            missing = f"a comma is missing before {text[at : at + 20]!r}"
            raise ValueError(missing if text[at:] else f"{text[start]} is not closed")
    value = tuple(items) if is_list else dict(zip(keys, items, strict=True))
    return value, _behind_blanks(text, at + 1)


def _behind_blanks(text: str, at: int) -> int:
    return len(text) - len(text[at:].lstrip())


def _scalar(text: str) -> Any:
    """Parse unquoted text as a number, boolean or null; other text, including infinities, stays text."""
    if _ESCAPED.search(text):
        return _ESCAPED.sub(r"\1", text)
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text) if math.isfinite(float(text)) else text
    return _WORDS.get(text.casefold(), text)
