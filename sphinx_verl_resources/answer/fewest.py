"""The question turned round: which models, on how few GPUs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..catalog.names import SIZES

if TYPE_CHECKING:
    from ..catalog.dataset import Dataset


def size_models(data: Dataset) -> dict[str, str]:
    """Return the model that represents each size class, in ascending order; some have none.

    It is the model of the analysis, or else the one that most tested runs of the size class load.
    """
    models: dict[str, str] = {}
    for size in SIZES:
        tested = (run for run in data.catalog.runs.values() if run.size == size and run.kind == "tested")
        loaded = Counter(run.model for run in tested)
        stated = data.analysis.specifications.get(size)
        if stated is not None and stated.model:
            models[size] = stated.model
        elif loaded:
            models[size] = loaded.most_common(1)[0][0]
    return models
