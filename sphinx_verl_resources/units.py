"""Display formats of bytes and GPUs.

GiB is 2^30 bytes, the unit of GPUs and of verl. GB is 10^9 bytes, the unit of the memory analysis.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 2**20
GIB = 2**30
GB = 10**9

#: A true minus sign, as wide as a plus.
MINUS = "\N{MINUS SIGN}"


def gb_number(size: float) -> str:
    """Return bytes as a number of GB without the unit: ``21.5``."""
    return _rounded(size / GB)


def gib_number(size: float) -> str:
    """Return bytes as a number of GiB without the unit."""
    return _rounded(size / GIB)


def gb(size: float) -> str:
    """Return bytes in GB with the unit: ``21.5 GB``."""
    return f"{gb_number(size)} GB"


def gib(size: float) -> str:
    """Return bytes in GiB with the unit: ``20.0 GiB``."""
    return f"{gib_number(size)} GiB"


def share(value: float) -> str:
    """Return a share of a whole: 0.123 as ``12.3 %``."""
    return f"{value:.1%}".replace("%", " %").replace("-", MINUS)


def signed(value: float, write: Callable[[float], str]) -> str:
    """Format a number with ``write``, with a plus if it is not negative."""
    return write(value) if value < 0 else f"+{write(value)}"


def short_number(value: float) -> str:
    """Return a number in its shortest form: ``0.3``, ``2048``, with commas from five digits: ``32,000``."""
    number = f"{Decimal(repr(value)):,f}".removesuffix(".0")
    return number if abs(value) >= 10_000 else number.replace(",", "")


def _rounded(value: float) -> str:
    """Format with one decimal, or two below one, where one decimal would be too coarse."""
    text = f"{value:,.1f}" if abs(value) >= 1 or not value else f"{value:.2f}"
    return text.replace("-", MINUS)


def crossed(gpus: object) -> str:
    """Return GPUs as written in a sentence.

    >>> crossed("8*H20")
    '8×H20'
    """
    return str(gpus).replace("*", "×")
