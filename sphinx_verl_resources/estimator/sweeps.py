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
#: Without these, the passes for log-probs are cut as the update is.
_LOG_PROB = tuple(
    f"{role}.log_prob_{name}"
    for role in (ROLLOUT, REFERENCE)
    for name in ("use_dynamic_bsz", "max_token_len_per_gpu")
)
#: The settings that are switched on, by the last part of their first key.
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
    """Return the settings that are switched on, in order, those that only work together in one.

    The reference policy follows the actor.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for relief in start.reliefs:  # of several with the same key, the first
        found.setdefault(next(iter(relief.steps[0])), relief.steps[0])
    own = [(key, step) for key, step in found.items() if not key.startswith(REFERENCE)]
    return [step for name in _ORDER for key, step in own if key.endswith(f".{name}")]


def _off(asked: Estimate) -> Mapping[str, Any]:
    """Switch off what the sweep switches on; batches counted in tokens become as many sequences."""
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
