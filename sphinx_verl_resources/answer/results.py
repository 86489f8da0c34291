"""Estimates as plain values for programs, JSON and tables of text; sizes are GiB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from ..memory.versions import version_text
from ..units import GIB
from .suggestions import best_suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..memory.estimate import AnyEstimate
    from ..memory.phases import Phase


def result_of(name: str, estimate: AnyEstimate) -> dict[str, Any]:
    """Return an estimate as a dictionary with the keys of ``FIELDS``.

    If a setting that decides memory is unknown, there are no figures. ``fits`` is None if the verdict is
    neither "fits" nor "does-not-fit".

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> from sphinx_verl_resources.memory.estimate import estimate
    >>> from sphinx_verl_resources.memory.request import Request
    >>> config = {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.use_dynamic_bsz": True}
    >>> registries = EstimatorContext()
    >>> found = estimate(Request("Qwen/Qwen2.5-0.5B", config, gpus=8, gpu="H100"), registries)
    >>> result_of("mine", found)["capacity_gib"]
    79.147
    """
    values = {field: value(estimate) for field, value in FIELDS.items()}
    suggestion = best_suggestion(estimate)
    values["relief"] = suggestion.setting if suggestion else None
    values["relief_saves_gib"] = gib_value(suggestion.saves if suggestion else None)
    values["relief_peak_gib"] = gib_value(suggestion.peak if suggestion else None)
    if estimate.undecided:
        values |= {**dict.fromkeys(_FIGURES), "phases": []}
    return {"id": name, **values}


def failed(name: str, message: str) -> dict[str, Any]:
    """Return the result for a case that cannot be estimated: empty fields, and the reason."""
    lists: dict[str, Any] = {"phases": [], "undecided": [], "unsupported": [], "warnings": []}
    return {"id": name, **dict.fromkeys(FIELDS), **lists, "verdict": "unknown", "error": message}


@overload
def gib_value(size: float) -> float: ...
@overload
def gib_value(size: None) -> None: ...
def gib_value(size: float | None) -> float | None:
    """Convert bytes to GiB (2^30 bytes), with three decimals; None stays None."""
    return None if size is None else round(size / GIB, 3)


def _phases(estimate: AnyEstimate) -> list[dict[str, Any]]:
    return [
        {
            "name": phase.name,
            "total_gib": gib_value(phase.total),
            "components": _components(phase),
        }
        for phase in estimate.phases
    ]


def _components(phase: Phase) -> list[dict[str, Any]]:
    """Return the components of a phase; pieces of the same kind are one."""
    sizes: dict[tuple[str, str], float] = {}
    for item in phase.allocations:
        key = item.key, item.kind.category.value
        sizes[key] = sizes.get(key, 0.0) + item.size
    return [{"name": name, "category": of, "gib": gib_value(size)} for (name, of), size in sizes.items()]


#: The fields of a result after its id, in order.
FIELDS: Mapping[str, Callable[[AnyEstimate], Any]] = {
    "fits": lambda found: {"fits": True, "does-not-fit": False}.get(found.verdict),
    "verdict": lambda found: found.verdict,
    "fits_up_to_tokens": lambda found: found.fits_up_to_tokens,
    "peak_gib": lambda found: gib_value(found.peak),
    "low_gib": lambda found: gib_value(found.low),
    "high_gib": lambda found: gib_value(found.high),
    "capacity_gib": lambda found: gib_value(found.capacity),
    "binding_phase": lambda found: found.peak_phase.name,
    **dict.fromkeys(("relief", "relief_saves_gib", "relief_peak_gib"), lambda _: None),
    "logged_max_allocated_gib": lambda found: gib_value(found.torch_peak),
    "logged_low_gib": lambda found: gib_value(found.torch_peak_range[0]),
    "logged_high_gib": lambda found: gib_value(found.torch_peak_range[1]),
    "host_ram_gib_per_node": lambda found: gib_value(found.host.total if found.host else None),
    "phases": _phases,
    "undecided": lambda found: list(found.undecided),
    "unsupported": lambda found: list(found.unsupported),
    "warnings": lambda found: [problem.message for problem in found.warnings],
    "verl_version": lambda found: version_text(found.version) if found.version else None,
}
_FIGURES = tuple(
    name for name in FIELDS if name.startswith(("peak", "low", "high", "binding", "relief", "logged", "host"))
)
