"""Counts the bytes of the tensor storages that are alive while a program runs."""

from __future__ import annotations

import weakref
from collections import Counter
from itertools import dropwhile
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Backward does these in place where it holds the only reference, but not while a dispatch mode is active: such a
#: result is looked at one operation later, when what it replaces is gone.
IN_PLACE_ELSEWHERE = frozenset({torch.ops.aten.add.Tensor, torch.ops.aten.index_put.default})


def without_leading_ones(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape as that of a weight: sums over tokens keep their dimensions, with one entry each."""
    return tuple(dropwhile(lambda size: size == 1, shape))


class LiveBytes(TorchDispatchMode):
    """Adds up the storages made while it is active, by group, and keeps the largest sum of each phase.

    Entered inside a ``FakeTensorMode``, nothing is allocated. The program sets ``phase`` as it goes on. A new storage
    counts to the activations until it is freed; one made in backward with a shape of `gradient_shapes` counts to the
    gradients.
    """

    def __init__(self) -> None:
        super().__init__()
        self.phase = "start"
        self.gradient_shapes: set[tuple[int, ...]] = set()
        self.live: Counter[str] = Counter()
        self.peaks: dict[str, Counter[str]] = {}
        self.largest: dict[tuple[str, str], int] = {}
        self._known: dict[int, weakref.ref[Any]] = {}

    def track(self, tensor: torch.Tensor, group: str) -> None:
        """Count the storage of a tensor to a group until it is freed; one that is already counted stays as it is."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return

        def freed(_: Any) -> None:
            self.live[group] -= size
            del self._known[key]

        self._known[key] = weakref.ref(storage, freed)
        self.live[group] += size

    def sample(self) -> None:
        """Compare what is alive now with the peaks of the phase."""
        for group, size in self.live.items():
            if size > self.largest.get((self.phase, group), 0):
                self.largest[self.phase, group] = size
        if self.phase not in self.peaks or self.live.total() > self.peaks[self.phase].total():
            self.peaks[self.phase] = self.live.copy()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        backward = not torch.is_grad_enabled()
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                gradient = backward and without_leading_ones(leaf.shape) in self.gradient_shapes
                self.track(leaf, "gradients" if gradient else "activations")
        if not backward or func not in IN_PLACE_ELSEWHERE:
            self.sample()
        return out
