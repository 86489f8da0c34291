"""Escapes between the quotes of ``$'…'``, as bash reads them."""

from __future__ import annotations

import re

#: Escapes of one byte stand in runs, since a letter may have several bytes.
_ESCAPE = re.compile(
    r"(?P<bytes>(?:\\[0-7]{1,3}|\\x[0-9A-Fa-f]{1,2})+)"
    r"|\\u(?P<short>[0-9A-Fa-f]{1,4})|\\U(?P<long>[0-9A-Fa-f]{1,8})"
    r"|\\c(?P<control>[?-_a-z])|\\(?P<sign>[abeEfnrtv\\'\"?])"
)
_BYTE = re.compile(r"\\(?:x(?P<hexadecimal>[0-9A-Fa-f]+)|(?P<octal>[0-7]+))")
_SIGNS = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}


def unescaped(text: str) -> str:
    r"""What stands between the quotes of ``$'…'``; what is no escape stays as it is.

    >>> unescaped(r"it\'s \x41\tand \d")
    "it's A\tand \\d"
    """
    return _ESCAPE.sub(_meant, text).partition("\0")[0]


def _meant(found: re.Match[str]) -> str:
    if found["bytes"]:
        values = [
            int(one["hexadecimal"], 16) if one["hexadecimal"] else int(one["octal"], 8) & 0xFF
            for one in _BYTE.finditer(found["bytes"])
        ]
        return bytes(values).decode("utf-8", "replace")
    if digits := found["short"] or found["long"]:
        point = int(digits, 16)
        # What is no character stays as it is written.
        return chr(point) if point < 0x110000 and not 0xD800 <= point < 0xE000 else found[0]
    if control := found["control"]:
        return "\x7f" if control == "?" else chr(ord(control) & 0x1F)
    return _SIGNS.get(found["sign"], found["sign"])
