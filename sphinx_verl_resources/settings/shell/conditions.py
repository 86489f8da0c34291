"""Evaluate tests in brackets and patterns of ``case``, as far as the script determines them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from .expansion import read_number
from .syntax import Unknown
from .variables import is_empty, known

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .variables import Text

_COMPARISONS = {f"-{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_PATTERN_SIGNS = frozenset("*?[")


def holds(test: Sequence[Text]) -> bool | None:
    """Return whether a test in brackets succeeds; None if that depends on more than the script.

    Tests of files and tests joined with ``&&`` are not evaluated.

    >>> [holds([(word,) for word in test.split()]) for test in ("8 -gt 4", "! a != a", "-f run.sh")]
    [True, True, None]
    """
    negations = next((index for index, text in enumerate(test) if known(text) != "!"), len(test))
    holds = _simple_test(test[negations:])
    return negated(holds) if negations % 2 else holds


def _simple_test(test: Sequence[Text]) -> bool | None:
    if len(test) == 1:
        return negated(_is_empty(test[0]))
    if len(test) == 2:
        empty = _is_empty(test[1])
        return {"-z": empty, "-n": negated(empty)}.get(known(test[0]) or "")
    if len(test) == 3:
        return _compare(test[0], known(test[1]) or "", test[2])
    return None


def _compare(one: Text, sign: str, other: Text) -> bool | None:
    if sign in {"=", "==", "!="}:
        equal = matches(one, other) if known(one) is not None else None
        return negated(equal) if sign == "!=" else equal
    first, second = (read_number(known(text) or "") for text in (one, other))
    if sign not in _COMPARISONS or first is None or second is None:
        return None
    return bool(_COMPARISONS[sign](first, second))


def matches(text: Text, pattern: Text) -> bool | None:
    """Return whether a text matches a pattern of ``case``; None unless the pattern is a plain word or ``*``.

    >>> [matches(("vllm",), (pattern,)) for pattern in ("vllm", "sglang", "*", "v*")]
    [True, False, True, None]
    """
    one, other = known(text), known(pattern)
    if other == "*":
        return True
    return None if one is None or other is None or _PATTERN_SIGNS & set(other) else one == other


def _is_empty(text: Text) -> bool | None:
    """Return whether a text is empty if the environment sets no variables."""
    unset = len(text) == 1 and isinstance(text[0], Unknown) and text[0].unset
    return True if unset else is_empty(text)


def negated(value: bool | None) -> bool | None:
    """Return the opposite of an outcome; None if unknown."""
    return None if value is None else not value
