"""A simulation of PyTorch's caching allocator on Megatron's layers with experts: the blocks cached for uneven tokens.

The rules of ``c10/cuda/CUDACachingAllocator.cpp``: use the smallest free block that is large enough, and split it if
more than 1 MiB remains. New segments are rounded up to 2 MiB. Free neighbours merge. The simulation releases nothing.
"""

from __future__ import annotations

import bisect
import itertools
import random
import statistics
from dataclasses import dataclass, field

import pytest

from sphinx_verl_resources.estimator.constants import UNEVEN_CACHE

MIB = 2**20


@dataclass
class Block:
    size: int
    before: int | None = None
    after: int | None = None
    is_free: bool = False


@dataclass
class Allocator:
    """Blocks by number; ``free`` contains sizes and numbers in ascending order."""

    blocks: dict[int, Block] = field(default_factory=dict)
    free: list[tuple[int, int]] = field(default_factory=list)
    numbers: itertools.count = field(default_factory=itertools.count)
    reserved: int = 0
    allocated: int = 0
    peak: int = 0

    def take(self, size: int) -> int:
        size = -(-size // 512) * 512
        found = bisect.bisect_left(self.free, (size, -1))
        if found < len(self.free):
            _, number = self.free.pop(found)
        else:
            segment = 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            number = next(self.numbers)
            self.blocks[number] = Block(segment)
            self.reserved += segment
        block = self.blocks[number]
        block.is_free = False
        if block.size - size > MIB:
            rest = next(self.numbers)
            self.blocks[rest] = Block(block.size - size, number, block.after, True)
            if block.after is not None:
                self.blocks[block.after].before = rest
            block.size, block.after = size, rest
            bisect.insort(self.free, (self.blocks[rest].size, rest))
        self.allocated += block.size
        self.peak = max(self.peak, self.allocated)
        return number

    def give(self, *numbers: int) -> None:
        for number in numbers:
            block = self.blocks[number]
            self.allocated -= block.size
            block.is_free = True
            for side, opposite in (("before", "after"), ("after", "before")):
                neighbour = getattr(block, side)
                if neighbour is not None and self.blocks[neighbour].is_free:
                    other = self.blocks.pop(neighbour)
                    self.free.remove((other.size, neighbour))
                    block.size += other.size
                    setattr(block, side, getattr(other, side))
                    if getattr(other, side) is not None:
                        setattr(self.blocks[getattr(other, side)], opposite, number)
            bisect.insort(self.free, (block.size, number))


def forward(
    memory: Allocator, hidden: int, sent: int, received: int, expert: int
) -> tuple[list[int], list[int]]:
    """Compute a layer; return its saved tensors and its output. Sizes are bytes of one tensor."""
    take, give = memory.take, memory.give
    attention = [take(hidden) for _ in range(8)]
    permuted, got, sorted_ = take(sent), take(received), take(received)
    first = take(2 * expert)
    gate, up, product = take(expert), take(expert), take(expert)
    in_fp32 = take(2 * expert)
    weighted = take(expert)
    give(in_fp32)
    second = take(received)
    unsorted = take(received)
    give(second)
    back = take(sent)
    give(unsorted, permuted, got)
    output = take(hidden)
    give(back)
    return [*attention, sorted_, first, gate, up, product, weighted], [output]


def backward(memory: Allocator, hidden: int, sent: int, received: int, saved: list[int]) -> None:
    """Run the backward pass of the layer: gradients go back through the exchange and the experts."""
    take, give = memory.take, memory.give
    sizes = [
        sent,
        received,
        received,
        memory.blocks[saved[-1]].size,
        memory.blocks[saved[-5]].size,
        received,
        received,
    ]
    last = take(hidden)
    for size in (*sizes, sent):
        gradient = take(size)
        give(last)
        last = gradient
    give(last, *saved)


def kept(
    spread: float, size: int = 2048, width: int = 768, experts: int = 8, seed: int = 1, steps: int = 4
) -> float:
    """Return reserved bytes ÷ most allocated bytes - 1, with recomputed layers.

    Args:
        spread: the standard deviation of a layer's tokens per expert, relative to the mean.
        size: the hidden size.
        width: the width of an expert.
        experts: the number of experts per token.
        seed: the seed for the numbers of tokens.
        steps: the number of training steps.
    """
    memory, rows, tokens, layers = Allocator(), random.Random(seed), 4096, 24
    hidden = 2 * size * tokens
    for _ in range(steps):

        def layer() -> tuple[int, list[int], list[int]]:
            share = max(0.3, rows.gauss(1, spread))
            received, expert = int(hidden * experts * share), int(2 * width * tokens * experts * share)
            return received, *forward(memory, hidden, hidden * experts, received, expert)

        inputs = []
        for _ in range(layers):
            _, saved, output = layer()
            memory.give(*saved)
            inputs += output
        logits = memory.take(4 * 151_936 * tokens)
        gradient = memory.take(4 * 151_936 * tokens)
        memory.give(logits, gradient)
        for _ in range(layers):
            received, saved, output = layer()
            backward(memory, hidden, hidden * experts, received, saved)
            memory.give(*output, inputs.pop())
    return memory.reserved / memory.peak - 1


#: Hidden size, width of an expert, experts per token: Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen1.5-MoE, DeepSeek-V3.
SHAPES = [(2048, 768, 8), (4096, 1536, 8), (2048, 1408, 4), (7168, 2048, 8)]


def test_even_tokens_use_the_same_blocks_again():
    assert kept(0, steps=1) == kept(0) < 0.25


def test_uneven_tokens_leave_blocks_behind():
    more = [
        kept(spread, *shape, seed=seed) - kept(0, *shape, steps=1)
        for shape in SHAPES
        for spread in (0.1, 0.2, 0.3)
        for seed in (1, 2, 3)
    ]
    assert UNEVEN_CACHE.low < min(more)
    assert max(more) < UNEVEN_CACHE.high
    assert statistics.median(more) == pytest.approx(UNEVEN_CACHE.value, abs=0.01)
