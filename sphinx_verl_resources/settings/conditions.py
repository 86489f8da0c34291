"""What ``[ … ]`` and ``[[ … ]]`` decide, where the script alone tells it."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from .arithmetic import read_number
from .variables import Unknown, is_empty, known

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .variables import Field, Text

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}
_PATTERN_SIGNS = frozenset("*?[")


def holds(arguments: Sequence[Field]) -> bool | None:
    """Whether a test succeeds; None where that depends on more than the script.

    Args:
        arguments: the words between the brackets. Files are not looked at, nor are tests joined by ``&&``.

    >>> from sphinx_verl_resources.settings.variables import Field
    >>> [holds([Field((word,), 0) for word in test.split()]) for test in ("8 -gt 4", "a != a", "-f run.sh")]
    [True, False, None]
    """
    texts = [field.text for field in arguments]
    if texts and known(texts[0]) == "!":
        rest = holds(arguments[1:])
        return None if rest is None else not rest
    if len(texts) == 1:
        return _negated(_is_empty(texts[0]))
    if len(texts) == 2:
        empty = _is_empty(texts[1])
        return {"-z": empty, "-n": _negated(empty)}.get(known(texts[0]) or "")
    if len(texts) == 3:
        return _compare(texts[0], known(texts[1]) or "", texts[2])
    return None


def matches(text: Text, pattern: Text) -> bool | None:
    """Whether a text fits a pattern of ``case``; None for all patterns but plain words and ``*``.

    >>> [matches(("vllm",), (pattern,)) for pattern in ("vllm", "sglang", "*", "v*")]
    [True, False, True, None]
    """
    one, other = known(text), known(pattern)
    if other == "*":
        return True
    return None if one is None or other is None or _PATTERN_SIGNS & set(other) else one == other


def _compare(one: Text, sign: str, other: Text) -> bool | None:
    if sign in {"=", "=="}:
        return matches(one, other) if known(one) is not None else None
    if sign == "!=":
        return _negated(matches(one, other)) if known(one) is not None else None
    first, second = (read_number(known(text) or "") for text in (one, other))
    if sign not in _NUMBERS or first is None or second is None:
        return None
    return _NUMBERS[sign](first, second)


def _is_empty(text: Text) -> bool | None:
    """As the script finds it when nothing is set around it, which is also when defaults are taken."""
    if len(text) == 1 and isinstance(text[0], Unknown) and text[0].unset:
        return True
    return is_empty(text)


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value
