"""Mutations of texts and of YAML, each from a random number generator, so that a seed reproduces them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

#: The maximum length of a text; separate tests check the size limits.
MOST = 20_000
#: Characters and words that are special to some parser, or invalid.
ODD = (
    "\u200b", "\u202e", "\u2066", "\ufeff", "\u00ad", "\u2028", "\x85", "\x00", "\x1b[31m", "\x07", "\ud800", "\udcff",
    "\U000e0041", "\U0001f468\u200d\U0001f469", "e\u0301", "\u0130", "\u0131", "\u00df", "\ufb01", "\u00b2", "\u0663",
    "\uff11", "\uff1d", "\uff20", "\u3000", "\xa0", "\ufffe", "\r", "\t", "\n", "\\", "'", '"', "`", "%s", "{0}", "${x}",
    "{{7*7}}", "<script>alert(1)</script>", "</td><img src=x onerror=alert(1)>", "<!--", "&lt;", "|a|", "`x`_", "``",
    ":doc:`x`", "*", "$x$", "../../etc/passwd", "https://example.org/", "javascript:alert(1)", "a@b.org", "TODO",
)  # fmt: skip
NUMBERS = (
    "0", "-1", "1", "8", "1e400", "-1e308", "1e-320", "0x" + "f" * 5_000, "9" * 5_000, "9" * 310, str(2**63), str(2**31),
    "1_000", "0o17", "0777", "1:30", "1.5.2", "+1", ".5", "5.", "1e5", ".nan", "-.inf", "inf", "nan", "1,024", "100000",
)  # fmt: skip
YAML_WORDS = (
    "null", "~", "true", "off", "2025-02-30", "0001-01-01", "9999-12-31", "10000-01-01", "''", "[]", "{}", "[[[]]]",
    "!!python/none x", "&a x", "*a", "<<: *a", "|", ">-", "? x", "- x", "@x", "%x", "---", "...", "# x", ": ", "{", "[", "}",
    "]", ", ", "- - - - - -", '"\\ud800"', '"\\u202e"', '"\\x00"', '"\\U00110000"', "!<x> y", "%YAML 9.9",
)  # fmt: skip
_TOKEN = re.compile(r"\w+|\s+|.", re.DOTALL)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def mutated(random: Random, text: str, words: Sequence[str], others: Sequence[str]) -> str:
    """The text after one to four mutations, with ``words`` of its language and ``others`` of its kind."""
    for _ in range(random.choice((1, 1, 1, 2, 2, 4))):
        text = random.choice(_MUTATIONS)(random, text, words, others)[:MOST]
    return text


def nested(random: Random, pairs: Sequence[tuple[str, str]], inner: str) -> str:
    """A text in nested brackets, sometimes beyond Python's recursion limit."""
    opening, closing = random.choice(pairs)
    depth = random.choice((1, 2, 3, 8, 30, 120, 300, 1_200, 1_200))
    return opening * depth + inner + closing * random.choice((depth, depth, depth - 1, 0))


def _span(random: Random, text: str) -> tuple[int, int]:
    start = random.randint(0, len(text))
    return start, start + random.choice((1, 2, 5, 20, 100, 400))


def _odd(random: Random, text: str, words: Sequence[str], others: Sequence[str]) -> str:
    start, end = _span(random, text)
    return text[:start] + random.choice(ODD) + text[random.choice((start, end)) :]


def _word(random: Random, text: str, words: Sequence[str], others: Sequence[str]) -> str:
    start, end = _span(random, text)
    return text[:start] + random.choice(words) + text[random.choice((start, start, end)) :]


def _token(random: Random, text: str, words: Sequence[str], others: Sequence[str]) -> str:
    tokens = _TOKEN.findall(text) or [""]
    at = random.randrange(len(tokens))
    tokens[at] = random.choice(
        (random.choice(words), random.choice(ODD), random.choice(tokens), "", tokens[at] * 2)
    )
    return "".join(tokens)


def _number(random: Random, text: str, words: Sequence[str], others: Sequence[str]) -> str:
    found = [*_NUMBER.finditer(text)]
    if not found:
        return text
    match = random.choice(found)
    return text[: match.start()] + random.choice(NUMBERS) + text[match.end() :]


def _cut(random: Random, text: str, words: Sequence[str], others: Sequence[str]) -> str:
    start, end = _span(random, text)
    return text[:start] + random.choice((text[end:], ""))


def _repeat(random: Random, text: str, words: Sequence[str], others: Sequence[str]) -> str:
    start, end = _span(random, text)
    return text[:start] + text[start:end] * random.choice((2, 2, 3, 10)) + text[end:]


def _lines(random: Random, text: str, words: Sequence[str], others: Sequence[str]) -> str:
    lines = text.split("\n")
    one, other = random.randrange(len(lines)), random.randrange(len(lines))
    if random.random() < 0.4:
        lines[one], lines[other] = lines[other], lines[one]
    elif random.random() < 0.5:
        lines[one : one + random.choice((1, 3))] = []
    else:
        lines[one] = random.choice((" ", "  ", "\t", "   ", "- ")) + lines[one]
    return "\n".join(lines)


def _splice(random: Random, text: str, words: Sequence[str], others: Sequence[str]) -> str:
    other = random.choice(others)
    start, end = _span(random, other)
    at = random.randint(0, len(text))
    return text[:at] + other[start : random.choice((end, len(other)))] + text[at:]


def _line_ends(random: Random, text: str, words: Sequence[str], others: Sequence[str]) -> str:
    return text.replace("\n", random.choice(("\r\n", "\r", "\n\n", " \n", "\n\t")), random.choice((-1, 1)))


_MUTATIONS: tuple[Callable[[Random, str, Sequence[str], Sequence[str]], str], ...] = (
    _odd, _word, _word, _token, _token, _number, _cut, _repeat, _lines, _lines, _splice, _line_ends,
)  # fmt: skip


def encoded(random: Random, text: str) -> bytes:
    """The bytes of a text; in one of twenty, some bytes are wrong."""
    content = text.encode("utf-8", "surrogatepass")
    if content and random.random() < 0.05:
        at = random.randrange(len(content))
        content = content[:at] + random.randbytes(random.choice((1, 1, 4))) + content[at + 1 :]
    return content


# -- values of YAML


def any_value(random: Random, known: Sequence[Any], depth: int = 0) -> Any:
    """A value of any type; ``known`` are values of the same file."""
    kind = random.randrange(10 if depth < 3 else 8)
    if kind < 3:
        return random.choice(known)
    if kind == 8:
        return [
            any_value(random, known, depth + 1)
            for _ in range(random.choice((0, 1, 2, 60 if depth < 2 else 3)))
        ]
    if kind == 9:
        keys = [str(random.choice((random.choice(known), random.choice(ODD), "a.b", "id"))) for _ in range(3)]
        return {
            key.encode("utf-8", "replace").decode()[:500]: any_value(random, known, depth + 1) for key in keys
        }
    return random.choice(
        (None, True, False, 0, -1, 1, 2**70, 1e308, -0.5, float("nan"), float("inf"), "", " ", "x" * 2_000, "9" * 400,
         "2025-06-12", random.choice(ODD).encode("utf-8", "replace").decode(), random.choice(NUMBERS)[:30])
    )  # fmt: skip


def changed(random: Random, data: Any) -> Any:
    """Plain values with one to four changes of types, depths, keys or numbers of items."""
    data = _copied(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        places = [*_places(data)]
        if not places:
            return any_value(random, [data])
        holder, key = random.choice(places)
        value = holder[key]
        leaves = [inner[name] for inner, name in places if not isinstance(inner[name], (dict, list))] or [
            None
        ]
        action = random.randrange(7)
        if action < 3:
            holder[key] = any_value(random, leaves)
        elif action == 3:
            del holder[key]
        elif action == 4:
            holder[key] = random.choice(([value], {"x": value}, [value] * 3, _deep(value)))
        elif isinstance(holder, dict):
            other = random.choice(
                (
                    f"{key}x",
                    str(key)[1:],
                    f"{key}.x",
                    str(random.choice(places)[1]),
                    str(random.choice(leaves)),
                )
            )
            holder[other[:300]] = holder.pop(key) if action == 5 else value
        else:
            holder.insert(
                random.randint(0, len(holder)), _copied(random.choice((value, random.choice(leaves))))
            )
    return data


def _copied(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _copied(item) for key, item in data.items()}
    return [_copied(item) for item in data] if isinstance(data, list) else data


def _places(data: Any) -> Any:
    """Every container with each of its keys."""
    for key, item in (
        data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    ):
        yield data, key
        yield from _places(item)


def _deep(value: Any) -> Any:
    for _ in range(25):
        value = [value]
    return value


def yaml_text(random: Random, data: Any) -> str:
    """Plain values as YAML, in one of its styles."""
    style = random.choice((None, False, False, True))
    options = {
        "default_flow_style": style,
        "allow_unicode": random.random() < 0.7,
        "width": random.choice((20, 100, 10_000)),
    }
    return yaml.dump(data, Dumper=yaml.CSafeDumper, sort_keys=False, **options)
