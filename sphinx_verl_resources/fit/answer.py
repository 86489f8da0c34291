"""The single place for decisions: did it run, will it fit, how sure is that, what to change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ..diagnostics import NoAnswerError
from ..memory.estimate import attempt, estimate
from ..memory.recorded import estimate_run, request_of_run
from ..memory.request import with_adapters
from ..memory.roles import LIMITS
from ..memory.settings import TRAINER_GPUS
from ..units import GIB
from .changes import changes_for
from .evidence import contested_by, is_proof, needs_of, runs_for, takes_no_more, trust_in
from .layouts import VERDICT_OF, Layout, largest_token_budget, longest_response
from .question import assumptions, assumptions_in, request_of
from .search import Searches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..memory.registries import EstimatorContext
    from ..memory.request import Request, Verdict
    from ..records import Run
    from .changes import Change
    from .evidence import Needs, Trust
    from .layouts import Reason
    from .question import Question

#: The release to compare with if the question names none: FSDP's memory differs from v0.9.0 by up to a factor
#: of two, because v0.9.0 defers the sharding of gradients.
OTHER_RELEASE = (0, 8, 0)


@dataclass(frozen=True, eq=False)
class Answer:
    """An answer. Expensive parts are computed on demand.

    Attributes:
        request: the question as a request, before any setting was chosen.
        data: the records.
        best: the best layout; all figures are for this one.
        assumed: what the answer assumes about what the question leaves open.
        needs: what decides which recorded runs bear on the question; None if unknown.
        own: the recorded run in question, if there is one.
        is_open: whether the question gives no settings beyond model, task, GPUs and lengths.
        version_assumed: whether the question leaves verl's release open.
        is_plan: whether unset settings were chosen.
    """

    request: Request
    data: EstimatorContext
    best: Layout
    assumed: tuple[str, ...]
    needs: Needs | None
    own: Run | None = None
    is_open: bool = False
    version_assumed: bool = False
    is_plan: bool = False

    @cached_property
    def evidence(self) -> tuple[Run, ...]:
        """The recorded runs that bear on it: its own, then the others, the strongest and nearest first."""
        runs = runs_for(self.needs, self.data)
        return runs if self.own is None else (self.own, *(run for run in runs if run.id != self.own.id))

    @cached_property
    def proof(self) -> tuple[Run, ...]:
        """The runs among them that ran or were reported, on known GPUs, and with which nobody failed."""
        return tuple(run for run in self.evidence if is_proof(run, self.data))

    @cached_property
    def contested(self) -> Mapping[str, str]:
        """By the id of a run among them, the report of somebody who ran out of memory with it."""
        reports = ((run.id, contested_by(run)) for run in self.evidence)
        return {run: url for run, url in reports if url}

    @cached_property
    def reason(self) -> Reason:
        """The reason for the verdict on the best layout, which never contradicts a run that proves it wrong.

        If the question gives settings, a run proves something only if its own settings need at least as much
        memory.
        """
        reason, proof = self.best.reason, self.proof
        is_wrong = reason == "too-large" and proof and (
            self.is_open or takes_no_more(self.best.estimate, proof, self.data)
        )  # fmt: skip
        return "ran" if is_wrong else reason

    @property
    def verdict(self) -> Verdict:
        """The verdict that follows from the reason."""
        return VERDICT_OF[self.reason]

    @property
    def all_gpus(self) -> int | None:
        """The number of GPUs in question, over all pools; None if unknown."""
        settings, request = self.best.estimate.settings, self.request
        if request.gpus is None and not request.unread.isdisjoint(TRAINER_GPUS):
            return None
        own = request.gpus or settings.gpus
        return settings.gpus + settings.other_gpus if settings.other_gpus else own

    @property
    def task(self) -> str:
        """The algorithm, with ``-LoRA`` if adapters are trained."""
        settings = self.best.estimate.settings
        task = self.request.task or ("PPO" if settings.critic else "GRPO")
        return with_adapters(task) if settings.actor.lora_rank else task

    @cached_property
    def trust(self) -> Trust:
        """The accuracy of the estimate, and the smallest recorded run."""
        return trust_in(self.best, self.needs, self.data)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The changes that make the run fit, in the order in which to try them; empty if it fits."""
        return changes_for(self.best, self.request if self.is_plan else None)

    @cached_property
    def other_release(self) -> Layout | None:
        """The best layout with FSDP and another release of verl, if it does not fit and the verdict differs.

        None if the question names the release, or a factor of two would not change the verdict.
        """
        own = self.best.estimate
        if own.fits or self.best.is_megatron or not self.version_assumed or own.low > 2 * (own.capacity or 0):
            return None
        other = attempt(replace(self.best.request, version=OTHER_RELEASE), self.data)
        if isinstance(other, NoAnswerError):
            return None
        layout = replace(self.best, request=other.request, estimate=other)
        return layout if layout.verdict != self.best.verdict else None

    @cached_property
    def largest_token_budget(self) -> int | None:
        """The largest micro-batch that fits, in tokens per GPU; None if not even one sequence fits."""
        return largest_token_budget(self.best)

    @cached_property
    def longest_response(self) -> int | None:
        """The longest response that fits, in tokens; None if not even a short one fits."""
        return longest_response(self.best)


class Answers:
    """The answers to one question for several GPUs and numbers of GPUs, which share computations.

    Unset settings are chosen to make the run fit.
    """

    def __init__(self, question: Question, data: EstimatorContext) -> None:
        self._question, self._data = question, data
        self._request, self._assumed = request_of(question), assumptions(question, data)
        self._searches = Searches(self._request, data, question.host_gib and question.host_gib * GIB)
        self._needs = needs_of(self._request, data)

    def on(self, gpus: int | None, gpu: str | None) -> Answer:
        """Answer for a number of GPUs; ``gpu`` is a name in the registry.

        Raises:
            NoAnswerError: nothing can be estimated.
        """
        needs, request = self.needs_on(gpus, gpu), replace(self._request, gpus=gpus, gpu=gpu)
        proof = (run for run in runs_for(needs, self._data) if is_proof(run, self._data))
        return Answer(
            request,
            self._data,
            self._searches.on(gpus, gpu, next(proof, None)),
            self._assumed,
            needs,
            is_open=self._question.overrides.keys() <= set(LIMITS),
            version_assumed=self._question.version is None,
            is_plan=True,
        )

    def attempt(self, gpus: int | None, gpu: str | None) -> Answer | NoAnswerError:
        """Answer for a number of GPUs, or return the error."""
        try:
            return self.on(gpus, gpu)
        except NoAnswerError as error:
            return error

    def fits_without_offloading(self, gpus: int, gpu: str | None) -> bool:
        """Return whether a layout fits that offloads nothing."""
        best = self._searches.on(gpus, gpu)
        return best.fits and not best.offloaded

    def needs_on(self, gpus: int | None, gpu: str | None) -> Needs | None:
        """Return what decides which recorded runs bear on the question."""
        return self._needs and self._needs.on(gpus, self._data.gpus.get(gpu or ""))


def answer(question: Question, data: EstimatorContext) -> Answer:
    """Answer a question; unset settings are chosen to make the run fit.

    Raises:
        NoAnswerError: nothing can be estimated.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> from sphinx_verl_resources.fit.question import Question
    >>> answer(Question("Qwen/Qwen2.5-7B", 8, "H100"), EstimatorContext()).verdict
    'fits'
    """
    return Answers(question, data).on(question.gpus, question.gpu)


def answer_settings(
    request: Request, data: EstimatorContext, *, version_assumed: bool = False, host_gib: float | None = None
) -> Answer:
    """Answer whether a run fits with exactly these settings; unset keys have verl's defaults.

    Raises:
        NoAnswerError: the settings cannot be estimated.
    """
    layout = Layout(request, estimate(request, data), host_gib and host_gib * GIB)
    needs, noted = needs_of(request, data), assumptions_in(request, data)
    return Answer(request, data, layout, noted, needs, version_assumed=version_assumed)


def answer_run(run: Run, data: EstimatorContext) -> Answer:
    """Answer whether a recorded run fits; the run itself and other recorded runs are evidence.

    Raises:
        NoAnswerError: its settings cannot be estimated.
    """
    request = request_of_run(run, data)
    return Answer(request, data, Layout(request, estimate_run(run, data)), (), needs_of(request, data), run)
