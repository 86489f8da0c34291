"""The largest batch that ran, against the largest that is computed to fit.

Some launch scripts list the batch sizes that were tried. Between the largest that ran and the next that did
not lies a boundary, and an estimate can be asked where it sees it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .case import request_of
from .estimate import estimate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..catalog.models.case import Case
    from .estimate import Estimate
    from .registries import Registries
    from .request import Request

#: The scripts do not say how long their sequences were; this case had the same data and the same limits.
LENGTHS_OF = "verl-data-gsm8k-qwen2.5-7b-grpo-lora"
_BATCHES = ("data.train_batch_size", "actor_rollout_ref.actor.ppo_mini_batch_size")


@dataclass(frozen=True)
class Boundary:
    """One search for the largest batch.

    Attributes:
        name: of the search.
        case: the largest that ran.
        recorded: its sequences per GPU and micro-batch.
        computed: the most whose peak is within the card.
        peak: bytes per GPU, computed at the recorded one.
        capacity: bytes that the card offers.
    """

    name: str
    case: Case
    recorded: int
    computed: int
    peak: float
    capacity: float

    @property
    def deviation(self) -> float:
        """Computed over recorded, less one."""
        return self.computed / self.recorded - 1


def boundaries(cases: Iterable[Case], registries: Registries) -> tuple[Boundary, ...]:
    """Every boundary among the cases, at the lengths of ``LENGTHS_OF``."""
    known = {case.id: case for case in cases}
    lengths = known.get(LENGTHS_OF)
    if lengths is None or lengths.observed_tokens is None:
        return ()
    names = ("prompt_length_mean", "response_length_mean")
    observed = {name: value for name, value in lengths.observed_tokens if name in names and value}
    ran = [case for case in known.values() if case.boundary and case.outcome == "fits"]
    return tuple(found for case in ran if (found := _boundary(case, observed, registries)))


def _boundary(case: Case, observed: Mapping[str, float], registries: Registries) -> Boundary | None:
    request = replace(request_of(case), observed=observed)
    gpus = request.gpus or 1
    total = request.config.get(_BATCHES[0])
    if type(total) is not int or total < gpus:
        return None
    recorded = total // gpus
    at_recorded = _at(request, recorded, registries)
    capacity = at_recorded.capacity
    if capacity is None:
        return None
    low, high = 0, 8 * recorded
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _at(request, middle, registries).peak <= capacity else (low, middle - 1)
    return Boundary(case.boundary or case.id, case, recorded, low, at_recorded.peak, capacity)


def _at(request: Request, sequences: int, registries: Registries) -> Estimate:
    """The same run with other sequences per GPU: one micro-batch holds all of a step's prompts."""
    total = sequences * (request.gpus or 1)
    changed = {
        key: total
        for key in request.config
        if key in _BATCHES or key.endswith(("micro_batch_size", "micro_batch_size_per_gpu"))
    }
    per_gpu = {key: sequences for key in changed if key.endswith("per_gpu")}
    return estimate(replace(request, config={**request.config, **changed, **per_gpu}), registries)
