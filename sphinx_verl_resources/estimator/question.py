"""What every question about the estimator is; the questions themselves are in ``questions.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from .questions import EstimatorContext

Answer = TypeVar("Answer", covariant=True)


class EstimatorQuestion(Generic[Answer]):
    """Hashable, picklable, and without state of its own."""

    #: Whether the answer follows from the cases, which are loaded for such questions only.
    of_cases: ClassVar[bool] = False

    def answer(self, world: EstimatorContext) -> Answer:
        """Compute the answer.

        Raises:
            NoAnswerError: what is recorded has none.
        """
        raise NotImplementedError
