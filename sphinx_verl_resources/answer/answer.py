"""The one decision: did it run, will it fit, how sure is that, what to change, and the command."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ..diagnostics import NoAnswerError
from ..estimator.estimate import estimate
from ..estimator.recorded import estimate_run, request_of_run
from ..estimator.tasks import LIMITS, fitted
from .changes import changes_for
from .evidence import Bearing, bearing_on, takes_no_more
from .layouts import Layout, best_of, largest_token_budget, longest_response
from .question import assumed, assumed_in, request_of
from .search import tried_layouts
from .trust import trust_in

if TYPE_CHECKING:
    from ..catalog.models.run import Run
    from ..catalog.names import Verdict
    from ..estimator.context import EstimatorContext
    from ..estimator.registries import Registries
    from ..estimator.request import Request
    from .changes import Change
    from .question import Question
    from .trust import Trust


@dataclass(frozen=True, eq=False)
class Answer:
    """An answer. What takes long is computed when it is asked for.

    Attributes:
        asked: the question as a request, before any setting was chosen.
        data: the records.
        tried: all layouts that were tried; a single one where the settings were given.
        assumed: what the question left open.
        evidence: recorded runs that bear on it, the strongest and nearest first.
        is_open: no setting was given beyond model, task, GPUs and lengths.
    """

    asked: Request
    data: EstimatorContext
    tried: tuple[Layout, ...]
    assumed: tuple[str, ...]
    evidence: tuple[Bearing, ...]
    is_open: bool = False

    @cached_property
    def fsdp(self) -> Layout | None:
        """The best layout with FSDP."""
        return best_of(layout for layout in self.tried if not layout.is_megatron)

    @cached_property
    def megatron(self) -> Layout | None:
        """The best layout with Megatron."""
        return best_of(layout for layout in self.tried if layout.is_megatron)

    @cached_property
    def best(self) -> Layout:
        """The better of the two; what all figures are about.

        Of two that fit it is the one with whose backend a recorded run ran, then the one that offloads less,
        then that with the larger token budget, then FSDP, which is simpler.
        """
        of_both = [layout for layout in (self.fsdp, self.megatron) if layout]
        fitting = [layout for layout in of_both if layout.fits]
        ran = {item.run.train == "megatron" for item in self.evidence if item.word != "claimed"}

        def rank(layout: Layout) -> tuple[float, ...]:
            return layout.is_megatron not in ran, layout.offloads, -(layout.token_budget or 0)

        return min(fitting, key=rank) if fitting else min(of_both, key=lambda layout: layout.estimate.high)

    @property
    def verdict(self) -> Verdict:
        """That of the best layout; no recorded run that ran is contradicted.

        Where settings are given, such a run speaks for them only if its own take as much.
        """
        verdict = self.best.verdict
        if verdict != "does-not-fit":
            return verdict
        has_run = any(item.word != "claimed" for item in self.evidence)
        if has_run and (self.is_open or takes_no_more(self.best.estimate, self.evidence, self.data)):
            return "borderline"
        return "does-not-fit"

    @property
    def gpus(self) -> int:
        """The number of GPUs that the best layout uses: fewer than asked for where not all of them help."""
        return self.best.estimate.settings.gpus

    @cached_property
    def trust(self) -> Trust:
        """The measured runs behind the estimate."""
        return trust_in(self.best, self.data)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The changes that make it fit, the first to be tried first; empty where it fits."""
        return changes_for(self.best, self.data.registries)

    @cached_property
    def largest_token_budget(self) -> int | None:
        """The most tokens of a GPU's micro-batch that fit; None where even one sequence does not."""
        return largest_token_budget(self.best, self.data.registries)

    @cached_property
    def longest_response(self) -> int | None:
        """The longest responses that fit, in tokens; None where even short ones do not."""
        return longest_response(self.best, self.data.registries)


def answer(question: Question, data: EstimatorContext) -> Answer:
    """Answer a question; settings that it leaves open are chosen so that it fits.

    Raises:
        NoAnswerError: it leaves no estimate.

    >>> from sphinx_verl_resources.cli.data import read_data
    >>> from sphinx_verl_resources.answer.question import Question
    >>> answer(Question("Qwen/Qwen2.5-7B", 8, "H100"), read_data([])).verdict
    'fits'
    """
    registries, request = data.registries, request_of(question)
    tried = tried_layouts(request, registries)
    if tried and not any(layout.fits for layout in tried):
        tried += _on_fewer(request, tried, registries)
    if not tried:
        # The reason why nothing can be estimated.
        estimate(fitted(replace(request, gpus=request.gpus or 8), registries), registries)
        raise NoAnswerError.because("no layout leaves an estimate", "name other parallel sizes or GPUs")
    is_open = question.overrides.keys() <= set(LIMITS)
    return Answer(request, data, tried, assumed(question, registries), bearing_on(request, data), is_open)


def _on_fewer(asked: Request, tried: tuple[Layout, ...], registries: Registries) -> tuple[Layout, ...]:
    """Return the layouts on the largest smaller number of GPUs on which one fits; none without such a number.

    Fewer GPUs can fit where their number has more divisors: 9 cannot share out the rollout engine's weights
    as 8 can. Of the numbers that have more of them than a smaller one, it is enough to try those that lack
    the last binary digits: all parallel sizes are powers of two. Where little is missing on the last of them,
    its halves are tried too: a model without replicas needs no buffers to talk to them.

    ``tried`` are the layouts on all GPUs.
    """
    count = asked.gpus or 0
    if {"trainer.nnodes", "trainer.n_gpus_per_node"} & asked.config.keys():
        return ()
    while count := count & (count - 1) or (count // 2 if _is_near(tried) else 0):
        tried = tried_layouts(replace(asked, gpus=count), registries)
        if any(layout.fits for layout in tried):
            return tried
    return ()


def _is_near(tried: tuple[Layout, ...]) -> bool:
    """Tell whether the GPU's memory is within the range of some layout."""
    best = best_of(tried)
    if best is None or best.estimate.capacity is None or best.estimate.undecided:
        return False
    return best.estimate.low <= best.estimate.capacity


def answer_settings(request: Request, data: EstimatorContext) -> Answer:
    """Answer whether a run fits with just these settings; what is not set has verl's default.

    Raises:
        NoAnswerError: the settings leave no estimate.
    """
    tried = (Layout(request, estimate(request, data.registries)),)
    return Answer(request, data, tried, assumed_in(request, data.registries), bearing_on(request, data))


def answer_run(run: Run, data: EstimatorContext) -> Answer:
    """Answer whether a recorded run fits; other recorded runs bear on it, and it does itself.

    Raises:
        NoAnswerError: its settings leave no estimate.
    """
    request = request_of_run(run, data.registries)
    tried = (Layout(request, estimate_run(run, data.registries)),)
    evidence = [item for item in bearing_on(request, data) if item.run.id != run.id]
    return Answer(request, data, tried, (), (Bearing(run, run.word), *evidence))
