"""The question turned round: which models, on how few GPUs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..catalog.names import SIZES

if TYPE_CHECKING:
    from ..estimator.context import EstimatorContext


def size_models(data: EstimatorContext) -> dict[str, str]:
    """Return the model that represents each size class, in ascending order; some have none.

    It is the model of the analysis, unless the tested runs of the size class load other ones; then it is the
    one that most of them load.
    """

    def parameters(model: str) -> float | None:
        shape = data.registries.shape(model)
        return shape.parameters if shape else None

    models: dict[str, str] = {}
    for size in SIZES:
        tested = (run for run in data.catalog.runs.values() if run.size == size and run.kind == "tested")
        loaded = Counter(run.model for run in tested)
        entry = data.analysis.specifications.get(size)
        stated = entry.model if entry else None
        if stated and (not loaded or parameters(stated) in map(parameters, loaded)):
            models[size] = stated
        elif loaded:
            models[size] = loaded.most_common(1)[0][0]
    return models
