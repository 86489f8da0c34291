"""Time grows with the input: twice as much of anything takes at most 2.6 times as long, up to the limits.

Each input has two sizes, one four times the other. The measure is the processor time minus that of an empty input,
and the least of several readings, so that other work on the machine does not matter.
"""

from __future__ import annotations

import gc
import math
from time import process_time
from typing import TYPE_CHECKING

import doubled_data
import doubled_texts
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

#: The allowed factor per doubling, and how often a reading above it is repeated.
MOST, READINGS = 2.6, 10
KINDS = {**doubled_data.KINDS, **doubled_texts.KINDS}


def seconds(work: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()
    begin = process_time()
    try:
        work()
    finally:
        gc.enable()
    return process_time() - begin


def factor(size: int, make: Callable[[int], Callable[[], object]], readings: int = READINGS) -> float:
    """The growth per doubling, read until it is low enough."""
    empty, small, large = (make(n) for n in (0, size, 4 * size))
    least = [math.inf] * 3
    for _ in range(readings):
        least = [min(known, seconds(work)) for known, work in zip(least, (empty, small, large), strict=True)]
        found = max((least[2] - least[0]) / max(least[1] - least[0], 1e-3), 1)
        if math.sqrt(found) < MOST:
            break
    return math.sqrt(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_twice_as_much_takes_at_most_a_little_more_than_twice_as_long(name):
    assert factor(*KINDS[name]) < MOST


#: By name: the number on a page at the smaller size, and the content.
ON_A_PAGE = {
    "references": (300, ":verl:run:`a`, :verl:gpu:`H100`, :verl:model:`Qwen/Qwen2.5-7B` and :verl:size:`7B`.\n\n"),
    "references to nothing": (300, ":verl:run:`aa`, :verl:gpu:`H1000` and :verl:model:`Qwen/Qwen2.5-7BB`.\n\n"),
    "figures": (300, ":verl:memory:`8B, total` and :verl:data:`runs`.\n\n"),
    "tables": (30, ".. verl-runs:: 7B\n\n"),
    "tables with details": (15, ".. verl-runs:: 7B\n   :details:\n\n"),
    "tables with captions": (30, ".. verl-runs:: 7B\n   :caption: The same\n\n"),
    "analyses": (20, ".. verl-memory:: 8B\n\n"),
    "estimates": (20, ".. verl-memory::\n   :model: Qwen/Qwen2.5-7B\n   :gpus: 8*H100\n\n"),
    "recorded estimates": (20, ".. verl-memory::\n   :run: a\n\n"),
    "registries": (20, ".. verl-gpus:: H100\n\n.. verl-models:: Qwen/Qwen2.5-7B\n\n"),
    "mistakes": (100, ".. verl-runs:: 7B\n   :columns: modle\n\n"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_A_PAGE)
def test_twice_as_much_on_a_page_takes_at_most_a_little_more_than_twice_as_long(own, data, name):
    data.good_run("a", settings={"data.train_batch_size": 64})
    size, text = ON_A_PAGE[name]

    def make(n):
        return lambda: own.page(".. verl-runs:: 3B\n\n" + text * n).build(fresh=True, html_theme="basic")

    assert factor(size, make) < MOST
