"""The seed of the fuzzer, and the number of inputs of each kind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = int(os.environ.get("VERL_FUZZ_SEED", "20"))
TIMES = int(os.environ.get("VERL_FUZZ_TIMES", "1"))


def chunks(*, quick: int, slow: int, by: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a test the numbers of its inputs: always a few, and all of them, in parts, in ``make test-all``."""
    total = slow * TIMES
    parts = [range(start, min(start + by, total)) for start in range(0, total, by)]
    cases = [pytest.param(range(quick), id="few")]
    cases += [pytest.param(part, id=f"{part.start}-{part.stop}", marks=pytest.mark.slow) for part in parts]
    return pytest.mark.parametrize("numbers", cases)
