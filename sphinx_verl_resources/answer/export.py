"""Answers as plain values for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..catalog.names import WORDS
from ..estimator.export import gib_value
from .command import command_of

if TYPE_CHECKING:
    from .answer import Answer
    from .changes import Change


def answer_result(found: Answer) -> dict[str, Any]:
    """Return an answer under the names that ``plan --format json`` prints; sizes are GiB."""
    best, request = found.best.estimate, found.best.request
    return {
        "model": request.model,
        "gpus": {"count": found.asked.gpus or best.settings.gpus, "type": request.gpu},
        "verdict": found.verdict,
        **{word: [item.run.id for item in found.evidence if item.word == word] for word in WORDS},
        "strategy": found.best.name,
        "peak_gib": gib_value(best.peak),
        "low_gib": gib_value(best.low),
        "high_gib": gib_value(best.high),
        "capacity_gib": gib_value(best.capacity),
        "peak_phase": best.peak_phase.name,
        "host_ram_gib_per_node": gib_value(best.host.total),
        "largest_token_budget": found.largest_token_budget,
        "longest_response": found.longest_response,
        "measured_runs_of_this_kind": found.trust.measured_runs,
        "change": [change_result(change) for change in found.changes],
        "command": command_of(found.best, found.data.registries),
        "assumed": list(found.assumed),
    }


def change_result(change: Change) -> dict[str, Any]:
    """Return a change for programs."""
    return {
        "overrides": dict(change.overrides),
        "peak_gib": gib_value(change.peak),
        "high_gib": gib_value(change.high),
        "cost": change.cost,
    }
