"""The single place for decisions: did it run, will it fit, how sure is that, what to change."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..diagnostics import NoAnswerError
from ..memory.estimate import Estimate, attempt, estimate, largest_that_fits
from ..memory.reader import Reader
from ..memory.recorded import BUDGETS, estimate_run, request_of_run
from ..memory.registries import Accuracy, EstimatorContext
from ..memory.request import ACTOR, Request, Verdict, with_adapters
from ..memory.roles import LIMITS
from ..memory.settings import TRAINER_GPUS, gpu_of
from ..records import Run
from ..registries import Gpu
from ..speed.runs import Nearest, nearest
from ..units import GIB
from .changes import Change, changes_for
from .command import command_of
from .evidence import Profile, is_proof, profile_of, runs_for, smallest_run, takes_no_more
from .question import Question, assumptions, assumptions_in, request_of
from .search import REASONS, Layout, Searches

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
        profile: what decides which recorded runs are evidence.
        own: the recorded run in question, if there is one.
        is_open: whether the question gives no settings beyond model, task, GPUs and lengths.
        version_assumed: whether the question leaves verl's release open.
    """

    request: Request
    data: EstimatorContext
    best: Layout
    assumed: tuple[str, ...]
    profile: Profile
    own: Run | None = None
    is_open: bool = False
    version_assumed: bool = False

    @cached_property
    def evidence(self) -> tuple[Run, ...]:
        """The recorded runs that bear on it: its own, then the others, the strongest and nearest first."""
        runs = runs_for(self.profile, self.data)
        return runs if self.own is None else (self.own, *(run for run in runs if run.id != self.own.id))

    @cached_property
    def proof(self) -> tuple[Run, ...]:
        """The runs among them that ran or were reported, on known GPUs, and with which nobody failed."""
        return tuple(run for run in self.evidence if is_proof(run, self.data))

    @cached_property
    def reason(self) -> str:
        """The reason for the verdict on the best layout, which never contradicts a run that proves it wrong.

        If the question gives settings, a run proves something only if its own settings need at least as much
        memory. Unless such a run had as long sequences, verl rejects those beyond the model's positions.
        """
        own, reason = self.best.estimate, self.best.reason
        most = own.settings.positions or own.shape.architecture.positions_of(self.request.model)
        # The evidence last, and only where it decides: it is compared with all runs of the model.
        if reason == "fits" and own.settings.lengths.limit > most and not (own.ran or self.proof):
            return "lengths"
        if reason == "too-large" and self.proof:
            return "ran" if self.is_open or takes_no_more(own, self.proof, self.data) else reason
        return reason

    @property
    def verdict(self) -> Verdict:
        """The verdict that follows from the reason."""
        return REASONS[self.reason][0]

    @property
    def all_gpus(self) -> int | None:
        """The number of GPUs in question, over all pools; None if unknown."""
        settings, request = self.best.estimate.settings, self.request
        if request.gpus is None and not request.unread.isdisjoint(TRAINER_GPUS):
            return None
        return settings.gpus + settings.other_gpus if settings.other_gpus else request.gpus or settings.gpus

    @property
    def task(self) -> str:
        """The algorithm, with ``-LoRA`` if adapters are trained."""
        settings = self.best.estimate.settings
        task = self.request.task or ("PPO" if settings.critic else "GRPO")
        return with_adapters(task) if settings.actor.lora_rank else task

    @cached_property
    def accuracy(self) -> Accuracy | None:
        """The errors of estimates on measured runs of the same kind; None if no such run was measured."""
        return self.data.accuracy.get(self.best.estimate.kind)

    @cached_property
    def undercuts(self) -> Run | None:
        """The recorded run on the least GPU memory, see ``smallest_run``, if it fits on less."""
        least, run = smallest_run(self.profile, self.data) or (0, None)
        settings, memory = self.best.estimate.settings, self.profile.memory_gb or 0
        total_gb = (settings.gpus + settings.other_gpus) * memory
        return run if self.best.estimate.fits and total_gb < least else None

    def speed(self, group: Iterable[Gpu] = ()) -> Nearest | None:
        """Return the nearest run with a speed, on the GPU in question or one of a group."""
        gpu = gpu_of(self.request, self.data)
        if gpu is None:
            return None
        names, own = [gpu.name, *(each.name for each in group)], self.best.estimate
        is_open = self.request.config.keys().isdisjoint((f"{ACTOR}.strategy", "model_engine"))
        return nearest(own, self.task, self.all_gpus, names, self.data, any_backend=is_open)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The changes that make the run fit, in the order in which to try them; empty if it fits."""
        is_plan = self.best.request is not self.request  # it chose settings
        return changes_for(self.best, self.request if is_plan else None)

    @property
    def command(self) -> str | None:
        """The command that runs the best layout; None if it does not fit or cannot be judged."""
        return None if self.verdict in ("does-not-fit", "unknown") else command_of(self.best, self.data)

    @cached_property
    def other_release(self) -> Layout | None:
        """The best layout with FSDP and another release of verl, if it does not fit and the verdict differs.

        None if the question names the release, or a factor of two would not change the verdict.
        """
        own = self.best.estimate
        if own.fits or self.best.is_megatron or not self.version_assumed or own.low > 2 * (own.capacity or 0):
            return None
        other = self.best.with_request(replace(self.best.request, version=OTHER_RELEASE))
        return other if other.verdict != self.best.verdict else None

    @cached_property
    def largest_token_budget(self) -> int | None:
        """The largest micro-batch whose range fits, in tokens per GPU, up to a whole step.

        None if not even one sequence fits, or if micro-batches are counted in sequences.
        """
        settings = self.best.estimate.settings
        micro, limit = settings.actor.micro_batch, settings.lengths.limit
        if not micro.dynamic:
            return None
        least = max(math.ceil(limit / micro.sharers), micro.tokens if self.best.fits else 0)
        most = max(least, math.ceil(settings.old_micro_batch.most * limit / micro.sharers))
        return self._largest(least, most, self._with_budget)

    @cached_property
    def longest_response(self) -> int | None:
        """The longest response that fits, in tokens; None if not even a short one fits.

        A token budget that is shorter than the sequence is raised to its length. The sequence must also fit
        into the rollout engine's KV cache and the model's positions.
        """
        estimate, request, key = self.best.estimate, self.best.request, LIMITS[1]
        settings, micro = estimate.settings, estimate.settings.actor.micro_batch
        response = Reader(request, self.data).whole(key)
        prompt, budget = int(settings.lengths.limit) - response, micro.tokens if self.best.fits else 0
        most = settings.positions or estimate.shape.architecture.positions_of(request.model)
        if not settings.rollout.separate:
            most = int(min(most, self.best.kv_cache_tokens[0]))

        def having(tokens: int) -> Mapping[str, Any]:
            sequence = math.ceil((prompt + tokens) / micro.sharers)
            return {**(self._with_budget(max(budget, sequence)) if micro.dynamic else {}), key: tokens}

        return self._largest(response, most - prompt, having) or self._largest(1, most - prompt, having)

    def _with_budget(self, tokens: int) -> Mapping[str, Any]:
        """Return the settings for a token budget in every pass."""
        others = (key for key in self.best.request.config if key.endswith("max_token_len_per_gpu"))
        return dict.fromkeys((*BUDGETS, *others), tokens)

    def _largest(self, least: int, most: int, having: Callable[[int], Mapping[str, Any]]) -> int | None:
        """Return the largest number whose settings fit; None if not even the least does."""

        def fits(number: int) -> bool:
            own = attempt(self.best.request.having(having(number)), self.data)
            return isinstance(own, Estimate) and own.fits

        if most < least or not fits(least):
            return None
        return most if fits(most) else largest_that_fits(least, most, fits)


class Answers:
    """The answers to one question for several GPUs and numbers of GPUs, which share computations.

    Unset settings are chosen to make the run fit.
    """

    def __init__(self, question: Question, data: EstimatorContext) -> None:
        self.data, is_open = data, question.overrides.keys() <= set(LIMITS)
        self._about: dict[str, Any] = {"is_open": is_open, "version_assumed": question.version is None}
        self._request, self._assumed = request_of(question), assumptions(question, data)
        self._searches = Searches(self._request, data, question.host_gib and question.host_gib * GIB)
        self._answers: dict[tuple[int | None, str | None], Answer] = {}

    def on(self, gpus: int | None, gpu: str | None) -> Answer:
        """Answer for a number of GPUs; ``gpu`` is a name in the registry.

        Raises:
            NoAnswerError: nothing can be estimated.
        """
        if (gpus, gpu) not in self._answers:
            request = replace(self._request, gpus=gpus, gpu=gpu)
            profile = profile_of(request, self.data)
            # Of the strongest proof, the search follows a run with FSDP, whose estimates are checked best.
            proof = [run for run in runs_for(profile, self.data) if is_proof(run, self.data)]
            usual = (run for run in proof if run.word == proof[0].word and run.train != "megatron")
            best = self._searches.on(gpus, gpu, next(usual, proof[0] if proof else None))
            self._answers[gpus, gpu] = Answer(request, self.data, best, self._assumed, profile, **self._about)
        return self._answers[gpus, gpu]

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
    profile, defaults = profile_of(request, data), assumptions_in(request, data)
    return Answer(request, data, layout, defaults, profile, version_assumed=version_assumed)


def answer_run(run: Run, data: EstimatorContext) -> Answer:
    """Answer whether a recorded run fits; the run itself and other recorded runs are evidence.

    Raises:
        NoAnswerError: its settings cannot be estimated.
    """
    request = request_of_run(run, data)
    return Answer(request, data, Layout(request, estimate_run(run, data)), (), profile_of(request, data), run)
