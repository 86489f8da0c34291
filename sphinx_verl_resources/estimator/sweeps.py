"""Sweeps: one run with one saving setting after another, or with one response limit after another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError
from .engine import cache_tokens
from .estimate import Estimate, attempt, estimate
from .reader import OF_ACTOR, OF_CRITIC
from .request import ACTOR, MODEL, REFERENCE, ROLLOUT
from .settings import sequence_divisor
from .suggestions import Suggestion, lower_utilizations
from .tasks import MEGATRON_SAVING, SAVING, fitted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..catalog.names import Verdict
    from ..diagnostics import Diagnostic
    from .registries import Registries
    from .request import Request

RESPONSE = "data.max_response_length"
_SIZE = "ppo_micro_batch_size_per_gpu"
_BUDGET = "ppo_max_token_len_per_gpu"
#: Without these, the passes for log-probs are cut as the update is.
_LOG_PROB = tuple(
    f"{role}.log_prob_{name}"
    for role in (ROLLOUT, REFERENCE)
    for name in ("use_dynamic_bsz", "max_token_len_per_gpu")
)


@dataclass(frozen=True)
class Saving(Suggestion):
    """One more setting switched on, which saves 0 bytes where another phase sets the peak, or takes more.

    Attributes:
        host: bytes added to host memory, per node.
        verdict: of the run with it.
        tokens: the mean length of a sequence up to which it fits, see ``AnyEstimate.fits_up_to_tokens``.
    """

    host: float
    verdict: Verdict
    tokens: float | None


@dataclass(frozen=True)
class SavingSteps:
    """All estimates from everything off to everything on.

    Attributes:
        start: the estimate with everything off.
        steps: in the order in which one would try them.
        end: the estimate with everything on.
    """

    start: Estimate
    steps: tuple[Saving, ...]
    end: Estimate


def savings(request: Request, registries: Registries) -> SavingSteps:
    """Switch off all settings that save memory, then switch them on again one after another.

    Settings that cost little time come first: padding, recomputation, batches counted in tokens; then
    offloading, and at last less memory for the rollout engine. All other settings stay as requested.

    Raises:
        NoAnswerError: something in the request leaves no estimate.

    >>> from sphinx_verl_resources.cli.data import read_data
    >>> from sphinx_verl_resources.estimator.request import Request
    >>> config = {"algorithm.adv_estimator": "grpo"}
    >>> found = savings(Request("Qwen/Qwen2.5-7B", config, gpus=8, gpu="H100"), read_data([]).registries)
    >>> found.steps[0].setting
    'actor_rollout_ref.model.use_remove_padding=True'
    """
    request = replace(request, config=registries.in_todays_names(request.config))
    asked = estimate(request, registries)
    groups = tuple(_groups(asked))
    request = request.having(_without(asked, groups))
    start = before = estimate(request, registries)
    steps = []
    for group in (*groups, None):
        settings = group if group is not None else _smaller_rollout(before)
        if not settings:
            continue
        request = request.having(settings)
        after = estimate(request, registries)
        setting = " ".join(f"{key}={value}" for key, value in settings.items())
        host = after.host.total - before.host.total
        saves = before.peak - after.peak
        verdict, tokens = after.verdict, after.fits_up_to_tokens
        steps.append(Saving(setting, saves, after.peak, after.peak_phase.name, host, verdict, tokens))
        before = after
    return SavingSteps(start, tuple(steps), before)


def _groups(asked: Estimate) -> Iterator[Mapping[str, Any]]:
    """Yield the settings that are switched on together, in order, for each role that its backend reads."""
    yield _on(f"{MODEL}.use_remove_padding")
    actor, critic = asked.settings.actor, asked.settings.critic
    if actor.backend != "megatron":
        yield _on(f"{MODEL}.enable_gradient_checkpointing")
    roles = {OF_ACTOR: actor, **({OF_CRITIC: critic} if critic else {})}
    with_megatron = [of.role for of, role in roles.items() if role.backend == "megatron"]
    for prefix in with_megatron:
        yield _of_megatron(prefix, "recompute")
    limit = -(-int(asked.settings.lengths.limit) // sequence_divisor(actor))
    yield {**_on(f"{ACTOR}.use_dynamic_bsz"), f"{ACTOR}.{_BUDGET}": limit}
    for name in ("optimizer_offload", "param_offload"):
        for of, role in roles.items():
            yield {f"{of.role}.megatron.{name}" if role.backend == "megatron" else f"{of.fsdp}.{name}": True}
    for prefix in with_megatron:
        yield _of_megatron(prefix, "optim.")


def _on(key: str) -> Mapping[str, Any]:
    return {key: SAVING[key]}


def _of_megatron(prefix: str, part: str) -> Mapping[str, Any]:
    """Return the settings of Megatron that only work together."""
    settings = MEGATRON_SAVING.items()
    return {key: value for key, value in settings if key.startswith(f"{prefix}.") and part in key}


def _without(asked: Estimate, groups: tuple[Mapping[str, Any], ...]) -> Mapping[str, Any]:
    """Switch all groups off; batches counted in tokens become as many sequences."""
    off: dict[str, Any] = dict.fromkeys(_LOG_PROB)
    for group in groups:
        off |= {key: False if value is True else None for key, value in group.items()}
    micro = asked.settings.actor.micro_batch
    if micro.sequences is None:
        tokens = micro.tokens * sequence_divisor(asked.settings.actor) if micro.dynamic else 0
        off[f"{ACTOR}.{_SIZE}"] = max(1, tokens // int(asked.settings.lengths.limit))
    return off


def _smaller_rollout(before: Estimate) -> Mapping[str, Any]:
    """Take a tenth of the GPU from the rollout engine if its cache still holds the longest sequence."""
    lower = next(lower_utilizations(before.shape, before.settings), None)
    return {f"{ROLLOUT}.gpu_memory_utilization": lower} if lower else {}


@dataclass(frozen=True)
class Longer:
    """The run with one response limit.

    Attributes:
        response: tokens of the longest response.
        estimate: of the run with it; None where the settings leave none.
        sequences: of full length that the KV cache of one rollout engine holds at a time.
        diagnostics: of the request with it.
    """

    response: int
    estimate: Estimate | None
    sequences: float = 0.0
    diagnostics: tuple[Diagnostic, ...] = ()


def longer(request: Request, registries: Registries, responses: tuple[int, ...]) -> tuple[Longer, ...]:
    """Estimate the run with each response limit.

    Token budgets that the request leaves open are the smallest that hold one sequence, so that they grow with
    the limit.

    >>> from sphinx_verl_resources.cli.data import read_data
    >>> from sphinx_verl_resources.estimator.tasks import task_settings
    >>> from sphinx_verl_resources.estimator.request import Request
    >>> asked = Request("Qwen/Qwen2.5-7B", task_settings("GRPO"), gpus=8, gpu="H100")
    >>> short, long = longer(asked, read_data([]).registries, (1024, 32768))
    >>> short.estimate.peak < long.estimate.peak, short.sequences > long.sequences
    (True, True)
    """
    rows = []
    for response in responses:
        found = attempt(fitted(request.having({RESPONSE: response}), registries), registries)
        if isinstance(found, NoAnswerError):
            rows.append(Longer(response, None, diagnostics=found.diagnostics))
        else:
            limit = found.settings.lengths.limit
            held = cache_tokens(found.shape, found.settings) / limit if limit else 0.0
            rows.append(Longer(response, found, held, found.warnings))
    return tuple(rows)
