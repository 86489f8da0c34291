"""Sweeps: one run with memory-saving settings added one by one, or with several response lengths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError
from .engine import cache_tokens
from .estimate import Estimate, attempt, estimate
from .reader import OF_ACTOR, OF_CRITIC
from .request import ACTOR, MODEL, REFERENCE, ROLLOUT
from .settings import sequence_divisor
from .suggestions import Suggestion, lower_utilizations, override_text
from .tasks import MEGATRON_SAVING, SAVING, fitted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..catalog.names import Verdict
    from ..diagnostics import Diagnostic
    from .registries import Registries
    from .request import Request

RESPONSE = "data.max_response_length"
_SIZE = "ppo_micro_batch_size_per_gpu"
_BUDGET = "ppo_max_token_len_per_gpu"
#: Without these keys, log-prob passes have the micro-batches of the update.
_LOG_PROB = tuple(
    f"{role}.log_prob_{name}"
    for role in (ROLLOUT, REFERENCE)
    for name in ("use_dynamic_bsz", "max_token_len_per_gpu")
)
#: The settings to switch on, in order, by the last part of their first key.
_ORDER = (
    "use_remove_padding",
    "enable_gradient_checkpointing",
    "recompute_granularity",
    "use_dynamic_bsz",
    "optimizer_offload",
    "param_offload",
    "optimizer_cpu_offload",
)


@dataclass(frozen=True)
class Saving(Suggestion):
    """One more setting switched on; ``saves`` is 0 if another phase has the peak, negative if the peak rises.

    Attributes:
        host: bytes added to host memory, per node.
        verdict: the verdict with this setting.
        tokens: the largest mean sequence length that fits, see ``AnyEstimate.fits_up_to_tokens``.
    """

    host: float
    verdict: Verdict
    tokens: float | None


@dataclass(frozen=True)
class SavingSteps:
    """All estimates, from all memory-saving settings off to all on.

    Attributes:
        start: the estimate with all settings off.
        steps: the settings, in the order in which to try them.
        end: the estimate with all settings on.
    """

    start: Estimate
    steps: tuple[Saving, ...]
    end: Estimate


def savings(request: Request, registries: Registries) -> SavingSteps:
    """Switch off all settings that save memory, then switch them on one by one.

    Settings that cost little time come first: padding, recomputation, batches counted in tokens. Offloading
    follows, and finally less memory for the rollout engine. All other settings stay as requested.

    Raises:
        NoAnswerError: the request cannot be estimated.

    >>> from sphinx_verl_resources.cli.data import read_data
    >>> from sphinx_verl_resources.estimator.request import Request
    >>> config = {"algorithm.adv_estimator": "grpo"}
    >>> found = savings(Request("Qwen/Qwen2.5-7B", config, gpus=8, gpu="H100"), read_data([]).registries)
    >>> found.steps[0].setting
    'actor_rollout_ref.model.use_remove_padding=True'
    """
    request = replace(request, config=registries.in_todays_names(request.config))
    request = request.having(_off(estimate(request, registries)))
    start = before = estimate(request, registries)
    steps = []
    for switch in (*_switches(start), None):
        settings = _smaller_rollout(before) if switch is None else registries.in_todays_names(switch)
        if not settings:
            continue
        request = request.having(settings)
        after = estimate(request, registries)
        host = after.host.total - before.host.total
        saves, setting = before.peak - after.peak, override_text(settings)
        verdict, tokens = after.verdict, after.fits_up_to_tokens
        steps.append(Saving(setting, saves, after.peak, after.peak_phase.name, host, verdict, tokens))
        before = after
    return SavingSteps(start, tuple(steps), before)


def _switches(start: Estimate) -> list[Mapping[str, Any]]:
    """Return the settings to switch on, in order; settings that only work together are one item.

    The reference policy follows the actor.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for relief in start.reliefs:  # if several have the same key, the first one is used
        found.setdefault(next(iter(relief.steps[0])), relief.steps[0])
    own = [(key, step) for key, step in found.items() if not key.startswith(REFERENCE)]
    return [step for name in _ORDER for key, step in own if key.endswith(f".{name}")]


def _off(asked: Estimate) -> Mapping[str, Any]:
    """Return overrides that switch the sweep's settings off; token budgets become numbers of sequences."""
    actor, critic = asked.settings.actor, asked.settings.critic
    sections = [f"{MODEL}."]
    for of, role in ((OF_ACTOR, actor), *([(OF_CRITIC, critic)] if critic else [])):
        megatron = role.backend == "megatron"
        sections += (f"{of.role}.megatron.", f"{of.role}.optim.") if megatron else (f"{of.fsdp}.",)
    off: dict[str, Any] = {
        key: False if value is True else None
        for key, value in {**SAVING, **MEGATRON_SAVING}.items()
        if key.startswith(tuple(sections))
    }
    off |= {**dict.fromkeys((*_LOG_PROB, f"{ACTOR}.{_BUDGET}")), f"{ACTOR}.use_dynamic_bsz": False}
    micro = actor.micro_batch
    if micro.sequences is None:
        tokens = micro.tokens * sequence_divisor(actor) if micro.dynamic else 0
        off[f"{ACTOR}.{_SIZE}"] = max(1, tokens // int(asked.settings.lengths.limit))
    return off


def _smaller_rollout(before: Estimate) -> Mapping[str, Any]:
    """Return the rollout engine's share of the GPU minus 0.1, if the cache still holds a sequence."""
    lower = next(lower_utilizations(before.shape, before.settings), None)
    return {f"{ROLLOUT}.gpu_memory_utilization": lower} if lower else {}


@dataclass(frozen=True)
class Longer:
    """The run with one response length.

    Attributes:
        response: the longest response in tokens.
        estimate: the run's estimate with it; None if it cannot be estimated.
        sequences: the number of full-length sequences that fit into one rollout engine's KV cache.
        diagnostics: the problems of the request with it.
    """

    response: int
    estimate: Estimate | None
    sequences: float = 0.0
    diagnostics: tuple[Diagnostic, ...] = ()


def longer(request: Request, registries: Registries, responses: tuple[int, ...]) -> tuple[Longer, ...]:
    """Estimate the run with each response length.

    Unset token budgets hold exactly one sequence, so they grow with the length.

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
