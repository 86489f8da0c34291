"""What every question about the analysis is; the questions themselves are in ``questions.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from ..catalog.analysis import Analysis

Answer = TypeVar("Answer", covariant=True)


class Question(Generic[Answer]):
    """Hashable, picklable, and without state of its own."""

    def answer(self, analysis: Analysis) -> Answer:
        """Compute the answer.

        Raises:
            AnalysisError: what is recorded has none.
        """
        raise NotImplementedError
