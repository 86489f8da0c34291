"""GPUs as people write them: ``8*H100``."""

from __future__ import annotations

import re

_BOTH = re.compile(r"([1-9][0-9]{0,5})\s*[*x×]\s*([^\s*×].*)")
_CARD = re.compile(r"[^*×]*[A-Za-z][^*×]*")


def parse_gpus(text: str) -> tuple[int | None, str | None]:
    """The number and the card that a text names, None for what it leaves out.

    Raises:
        ValueError: it names neither.

    >>> parse_gpus("8*H100"), parse_gpus("2 x 4090"), parse_gpus("A100 40GB"), parse_gpus("16")
    ((8, 'H100'), (2, '4090'), (None, 'A100 40GB'), (16, None))
    """
    text = text.strip()
    if both := _BOTH.fullmatch(text):
        return int(both[1]), both[2]
    if re.fullmatch(r"[1-9][0-9]{0,5}", text):
        return int(text), None
    if _CARD.fullmatch(text):
        return None, text
    raise ValueError(f"expected a number and a card, as in 8*H100, got {text[:80]!r}")
