"""The variables of a shell script, whose values may be unknown, and its detection of the device."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from .syntax import Cause, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Variables that every shell sets, so that defaults for them are never used.
ALWAYS_SET = frozenset(
    {"EUID", "HOME", "HOSTNAME", "IFS", "LINENO", "LOGNAME", "OLDPWD", "PATH", "PPID", "PWD", "RANDOM"}
    | {"SECONDS", "SHELL", "SHLVL", "UID", "USER"}
)

Piece: TypeAlias = str | Unknown
#: A text with pieces that may be unknown.
Text: TypeAlias = tuple[Piece, ...]


class Argument(NamedTuple):
    """An expanded word; ``at`` is its position in the script in characters, 0 if it has none."""

    text: Text
    at: int = 0


@dataclass(frozen=True)
class Array:
    """The words of an array; not ``sure`` if some of them may be missing."""

    words: tuple[Argument, ...] = ()
    sure: bool = True


#: The content of a variable.
Value: TypeAlias = Text | Array


def known(text: Text) -> str | None:
    """Return the text; None if a part of it is unknown.

    >>> known(("a", "b")), known(("a", Unknown("$B", Cause("…"))))
    ('ab', None)
    """
    return None if cause_of(text) else written(text)


def written(text: Text) -> str:
    """Return the text, with unknown parts as written in the script.

    >>> written((Unknown("$HOME", Cause("…")), "/data"))
    '$HOME/data'
    """
    return "".join(piece if isinstance(piece, str) else piece.source for piece in text)


def cause_of(text: Text) -> Cause | None:
    """Return the cause if a part of the text is unknown; otherwise None."""
    return next((piece.cause for piece in text if isinstance(piece, Unknown)), None)


def names_in(texts: Iterable[Text]) -> dict[str, None]:
    """Return the environment variables that the unknown parts of texts depend on, in order."""
    unknown = (piece for text in texts for piece in text if isinstance(piece, Unknown))
    return dict.fromkeys(name for piece in unknown for name in piece.cause.names)


def is_empty(value: Value) -> bool | None:
    """Return whether a value has no characters or no words; None if that depends on unknown parts."""
    if isinstance(value, Array):
        return not value.words
    if any(piece for piece in value if isinstance(piece, str)):
        return False
    return None if cause_of(value) else True


def as_array(value: Value, at: int = 0) -> Array:
    """Return an array unchanged, and a text as an array of one word with position ``at``."""
    return value if isinstance(value, Array) else Array((Argument(value, at),), known(value) is not None)


def split_key(text: Text) -> tuple[str, Text]:
    """Split a text at its first equals sign; the first half is empty if it is unknown.

    >>> split_key(("a.b=1", "2"))
    ('a.b', ('1', '2'))
    """
    first = text[0] if text else ""
    if isinstance(first, Unknown) or "=" not in first:
        return "", text
    key, _, rest = first.partition("=")
    return key, (rest, *text[1:])


class Environment:
    """The environment of a script, and the names of the variables that the script reads."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self.asked: set[str] = set()

    def get(self, name: str) -> Text | None:
        """Return the value of a variable; None if not given."""
        self.asked.add(name)
        return (self._given[name],) if name in self._given else None


class Scope:
    """A set of variables; an inner scope hides variables of the outer one until they are joined."""

    def __init__(self, outer: Scope | Environment) -> None:
        self._outer = outer
        self.own: dict[str, Value | None] = {}
        self.ended = False

    def get(self, name: str) -> Value | None:
        """Return the value of a variable; None if unset."""
        scope: Scope | Environment = self
        while isinstance(scope, Scope):
            if name in scope.own:
                return scope.own[name]
            scope = scope._outer
        return scope.get(name)

    def join(self, ways: Iterable[Scope], why: Cause) -> None:
        """Merge the variables of alternative ways through the script.

        Args:
            ways: the inner scopes of the ways; those that end the script are ignored.
            why: the cause for variables that differ between the ways and become unknown.
        """
        going_on = [way for way in ways if not way.ended]
        self.ended = self.ended or not going_on
        for name in dict.fromkeys(name for way in going_on for name in way.own):
            self.own[name] = _joined(name, [way.get(name) for way in going_on], why)


def _joined(name: str, values: list[Value | None], why: Cause) -> Value | None:
    if all(value == values[0] for value in values):
        return values[0]
    arrays = [value or Array() for value in values if value is None or isinstance(value, Array)]
    if len(arrays) < len(values) or not any(values):
        return (Unknown(f"${name}", why),)
    return Array(_joined_words([array.words for array in arrays], why), sure=False)


def _joined_words(ways: list[tuple[Argument, ...]], why: Cause) -> tuple[Argument, ...]:
    """Merge the words of all ways; where ways differ, keep each key once, with an unknown value."""
    rows = enumerate(zip(*ways, strict=False))
    alike = next((at for at, words in rows if len(set(words)) > 1), min(map(len, ways)))
    tails = [words[alike:] for words in ways]
    common = set.intersection(*({word.text for word in words} for words in tails))
    joined: dict[Text | str, Argument] = {}
    for word in (word for words in tails for word in words):
        if word.text in common:
            joined.setdefault(word.text, word)
        else:
            key, value = split_key(word.text)
            unknown = Unknown(written(value), why)
            joined[key or word.text] = Argument((f"{key}=", unknown) if key else (unknown,), word.at)
    return (*ways[0][:alike], *joined.values())


#: Programs and functions that detect the device.
_PROBE = re.compile(
    r"\b(?:torch_npu|npu-smi|nvidia-smi|rocm-smi|get_device_name|is_(?:npu|cuda)_available|torch\.cuda)\b"
)
#: The word for a GPU in the output of such a command.
_GPU = re.compile(r"""(?:\becho\s+["']?|["'])(?P<word>gpu|cuda)\b(?!\.)""")
#: verl's own function for the device.
_OF_VERL = re.compile(r"\bget_device_name\b")


#: Commands that look for a program, with the program.
_LOOKS = re.compile(
    r"(?:(?:command|which|type|hash)\b.*|python3?\b.* -c .*)?\b(?P<found>nvidia-smi|npu-smi|torch_npu)\b",
    re.DOTALL,
)


def found_on_gpus(command: str) -> bool | None:
    """Return whether a command that detects the device succeeds on GPUs; None for other commands.

    >>> [found_on_gpus(command) for command in ("command -v npu-smi", "nvidia-smi -L", "ray status")]
    [False, True, None]
    """
    looks = _LOOKS.match(command)
    return looks["found"] == "nvidia-smi" if looks else None


def gpu_answer(command: str) -> str | None:
    """Return the output on a GPU of a command that detects the device; None for other commands.

    >>> gpu_answer("python3 -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu")
    'gpu'
    >>> gpu_answer("nvidia-smi -L | wc -l") is None
    True
    """
    if not _PROBE.search(command):
        return None
    word = _GPU.search(command)
    if word:
        return word["word"]
    return "cuda" if _OF_VERL.search(command) else None
