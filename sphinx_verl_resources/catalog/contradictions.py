"""Contradictory figures of a case: means above maxima, more tokens than the settings allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .catalog import Registry
    from .models.case import Case, ObservedTokens
    from .models.registries import Gpu

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
#: Pairs of fields; the first must not exceed the second.
_TOKENS = (
    *(
        (f"{what}_{lower}", f"{what}_{upper}")
        for what in ("prompt_length", "response_length", "global_seqlen")
        for lower, upper in (("min", "mean"), ("mean", "max"), ("min", "max"))
    ),
    ("global_seqlen_max", "total_num_tokens"),
)
_SIZES = (("steady_gib", "gib"),)
#: Settings that split a sequence over several GPUs, each with its own token budget.
_SPREAD = (
    f"{_ACTOR}.ulysses_sequence_parallel_size",
    f"{_ACTOR}.fsdp_config.ulysses_sequence_parallel_size",
    f"{_ACTOR}.megatron.context_parallel_size",
)

_SETTING = "correct the figure or the setting"
_FIGURE = "correct the figure, its counter or the GPU"


class Contradiction(NamedTuple):
    """A figure that contradicts another one.

    Attributes:
        loc: its place in the case.
        message: the problem.
        remedy: the remedy.
    """

    loc: tuple[str, str]
    message: str
    remedy: str


def contradictions(case: Case, gpus: Registry[Gpu] | None) -> Iterator[Contradiction]:
    """Yield the contradictions in a case.

    Only stated figures and settings are compared, no defaults.

    Args:
        case: a case whose single values are valid.
        gpus: the known GPUs; if None, only the memory stated in the case is used.
    """
    for group, pairs in (("observed_tokens", _TOKENS), ("measured", _SIZES)):
        values = getattr(case, group)
        for lower, upper in pairs if values else ():
            low, high = getattr(values, lower), getattr(values, upper)
            if low is not None and high is not None and low > high:
                yield _above((group, lower), low, upper, high, "correct one of the two")
    if case.observed_tokens:
        yield from _above_limits(case, case.observed_tokens)
        yield from _above_budget(case, case.observed_tokens)
    yield from _above_memory(case, gpus)


def _above(
    loc: tuple[str, str], value: float, limit_name: str, limit: float, remedy: str, unit: str = ""
) -> Contradiction:
    message = f"{'.'.join(loc)} is {value:,.10g}{unit}, above {limit_name}, {limit:,.10g}{unit}"
    return Contradiction(loc, message, remedy)


def _above_limits(case: Case, tokens: ObservedTokens) -> Iterator[Contradiction]:
    """Yield lengths and totals above the limits in the settings; verl truncates prompts and responses."""
    limits = {}
    for part in ("prompt", "response"):
        key = f"data.max_{part}_length"
        limits[part] = limit = _number(case, f"{_ROLLOUT}.{part}_length") or _number(case, key)
        name = _longest(tokens, part)
        if name and limit and getattr(tokens, name) > limit:
            yield _above(("observed_tokens", name), getattr(tokens, name), key, limit, _SETTING)
    factors = (_number(case, "data.train_batch_size"), _number(case, f"{_ROLLOUT}.n"), *limits.values())
    if tokens.total_num_tokens is not None and all(factors):
        prompts, responses, *lengths = (factor or 0 for factor in factors)
        most = prompts * responses * sum(lengths)
        if tokens.total_num_tokens > most:
            what = "train_batch_size × n sequences of the longest prompt and response"
            loc = ("observed_tokens", "total_num_tokens")
            yield _above(loc, tokens.total_num_tokens, what, most, _SETTING)


def _above_budget(case: Case, tokens: ObservedTokens) -> Iterator[Contradiction]:
    """Yield a sequence above the token budget of a micro-batch; verl rejects such a sequence.

    Source: ``verl/utils/seqlen_balancing.py:384 at 1dda039b9``, with the factor of
    ``verl/workers/engine/utils.py:111``.
    """
    key = f"{_ACTOR}.ppo_max_token_len_per_gpu"
    budget = _number(case, key)
    if not budget or (case.config or {}).get(f"{_ACTOR}.use_dynamic_bsz") is not True:
        return
    budget *= max(_number(case, name) or 1 for name in _SPREAD)
    for name in filter(None, (_longest(tokens, "prompt"), _longest(tokens, "response"))):
        if getattr(tokens, name) > budget:
            yield _above(("observed_tokens", name), getattr(tokens, name), key, budget, _SETTING)
            return
    name = "response_length_mean"
    mean = (tokens.prompt_length_mean or 0) + (tokens.response_length_mean or 0)
    if mean > budget:
        message = f"plus the mean prompt is {mean:,.10g}, above {key}, {budget:,.10g}"
        yield Contradiction(("observed_tokens", name), f"observed_tokens.{name} {message}", _SETTING)


def _above_memory(case: Case, gpus: Registry[Gpu] | None) -> Iterator[Contradiction]:
    """Yield the driver's figures above the GPU's memory.

    PyTorch's counter may exceed it, because it includes the pool of a sleeping engine in the same process.
    """
    gpu = gpus.get(case.gpus.type) if gpus and case.gpus.type else None
    if case.gpus.memory_gb:
        most = case.gpus.memory_gb
    elif gpu:
        readings = [gpu.memory_mib, *(reading.memory_mib for reading in gpu.other_readings)]
        most = max(gpu.memory_gb, *(reading / 1024 for reading in readings))
    else:
        return
    seen = case.measured
    if seen and seen.counter_kind == "device" and seen.gib and seen.gib > most:
        yield _above(("measured", "gib"), seen.gib, "the memory of the GPU", most, _FIGURE, " GiB")
    if seen and seen.nvidia_smi_mib and seen.nvidia_smi_mib > most * 1024:
        loc = ("measured", "nvidia_smi_mib")
        yield _above(loc, seen.nvidia_smi_mib, "the memory of the GPU", most * 1024, _FIGURE, " MiB")


def _longest(tokens: ObservedTokens, part: str) -> str | None:
    """Return the name of the best recorded figure for the longest prompt or response."""
    names = (f"{part}_length_{which}" for which in ("max", "mean", "min"))
    return next((name for name in names if getattr(tokens, name) is not None), None)


def _number(case: Case, key: str) -> float | None:
    """Return a numeric setting; None if it is unset or refers to another setting."""
    value = (case.config or {}).get(key)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number else None
