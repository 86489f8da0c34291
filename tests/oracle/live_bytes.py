"""Count the bytes of live tensor storages while a program runs."""

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

#: Backward does these in place if it has the only reference, but not while a dispatch mode is active. Their results
#: count one operation later, when the replaced tensor is freed.
IN_PLACE_ELSEWHERE = frozenset({torch.ops.aten.add.Tensor, torch.ops.aten.index_put.default})


def without_leading_ones(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape without leading ones: sums over tokens keep these dimensions, with one entry each."""
    return tuple(dropwhile(lambda size: size == 1, shape))


class LiveBytes(TorchDispatchMode):
    """A mode that adds up the storages made while it is active, by group, and keeps the largest sum of each phase.

    Inside a ``FakeTensorMode``, nothing is allocated. The program sets ``phase``. A new storage counts as activations
    until it is freed; one made in backward with a shape of `gradient_shapes` counts as gradients.
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
        """Count the storage of a tensor in a group until it is freed; a counted storage keeps its group."""
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
        """Update the peaks of the phase with the live storages."""
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
