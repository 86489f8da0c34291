"""Lengths of sequences, micro-batches, and the resulting tokens of a micro-batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .constants import LENGTH_SPREAD
from .reader import OF_CRITIC
from .request import ACTOR, REFERENCE, ROLLOUT

if TYPE_CHECKING:
    from .reader import Reader, Sections


@dataclass(frozen=True)
class MicroBatch:
    """The micro-batches of a pass.

    Attributes:
        sequences: sequences per micro-batch and data-parallel rank; None if unset.
        dynamic: whether the size is a number of tokens instead.
        tokens: the token budget of one GPU if dynamic.
    """

    sequences: int | None
    dynamic: bool
    tokens: int


@dataclass(frozen=True)
class Lengths:
    """Tokens of a sequence, with prompt and response.

    Attributes:
        mean: the tokens of a typical sequence.
        longest: the tokens of the longest sequence.
        limit: the configured limit of prompt and response; padding fills up to it.
        known: whether mean and longest are observed.
        variation: the variation of the fullest micro-batch, see ``LENGTH_SPREAD``.
    """

    mean: float
    longest: float
    limit: float
    known: bool
    variation: float = LENGTH_SPREAD.value


# -- read from the settings

#: The longest prompt and response.
LIMITS = ("data.max_prompt_length", "data.max_response_length")
#: The critic's sizes, which it ignores since v0.8.0.
CRITIC_SIZES = ("critic.ppo_micro_batch_size", "critic.ppo_micro_batch_size_per_gpu")
#: The keys of micro-batches and lengths.
KEYS = frozenset({
    *(f"{role}.{key}" for role in (ACTOR, "critic") for key in (
        "use_dynamic_bsz", "ppo_micro_batch_size", "ppo_micro_batch_size_per_gpu",
        "ppo_max_token_len_per_gpu")),
    *(f"{role}.{key}" for role in (ROLLOUT, REFERENCE) for key in (
        "log_prob_use_dynamic_bsz", "log_prob_micro_batch_size", "log_prob_micro_batch_size_per_gpu",
        "log_prob_max_token_len_per_gpu")),
    "critic.ppo_infer_max_token_len_per_gpu", "trainer.use_v1", "async_training.require_batches", *LIMITS,
})  # fmt: skip


def is_easyr1(reader: Reader) -> bool:
    """Detect EasyR1, which computes no entropy and subtracts the freed engine from PyTorch's counter."""
    return reader.request.framework.lower().startswith("easyr1")


def step_sequences(reader: Reader, batch: str, repeats: str) -> int:
    """Return the sequences of one step, which is several mini-batches in the fully asynchronous trainer.

    Source: fully_async_policy/fully_async_trainer.py:159 at 1dda039b9.
    """
    if not reader.fully_async:
        return reader.whole(batch) * reader.whole(repeats)
    batches = reader.whole("async_training.require_batches")
    return reader.whole(f"{ACTOR}.ppo_mini_batch_size") * batches * reader.whole(repeats)


def mini_batch(reader: Reader, *keys: str) -> int:
    """Return the sequences of a mini-batch; the first key that is set gives its number of prompts."""
    return reader.whole(reader.first_set(*keys)) * reader.whole(f"{ROLLOUT}.n")


def lengths(reader: Reader, *limits: str) -> Lengths:
    """Return the lengths of prompt and response, observed or at their limits."""
    limit = float(sum(map(reader.whole, limits)))
    observed = reader.request.observed
    prompts, responses = observed.get("prompt_length_mean"), observed.get("response_length_mean")
    mean = 0.0
    if observed.get("total_num_tokens"):
        mean = observed["total_num_tokens"] / step_sequences(reader, "data.train_batch_size", f"{ROLLOUT}.n")
    if prompts is not None and responses is not None:
        # If the two means disagree, the total is for another number of sequences than in the settings.
        mean = prompts + responses
    if not 0 < mean < math.inf:
        return Lengths(limit, limit, limit, known=False)
    ends = [observed.get(f"{part}_length_{end}") for end in ("min", "max") for part in ("prompt", "response")]
    shortest, longest = sum(item or 0 for item in ends[:2]), sum(item or 0 for item in ends[2:])
    if None not in ends and shortest == longest:  # of constant length
        return Lengths(mean, mean, limit, known=True, variation=0.0)
    return Lengths(mean, max(mean, min(longest if None not in ends[2:] else limit, limit)), limit, known=True)


def _micro_batch(
    reader: Reader, prefix: str, name: str, ranks: int, dynamic: bool, budget: int
) -> MicroBatch:
    """Read the micro-batches of a pass. A size without ``_per_gpu`` counts the sequences of all ranks."""
    own, total = reader.optional(f"{prefix}.{name}_per_gpu"), reader.optional(f"{prefix}.{name}")
    if own is None and total is not None:
        own = total // ranks
        if not own:
            message = f"{total} sequences over all ranks are fewer than one for each of {ranks}"
            reader.error(f"{prefix}.{name}", message, f"set {prefix}.{name}_per_gpu")
            own = 1
    return MicroBatch(own, dynamic, budget)


def update_micro_batch(reader: Reader, of: Sections, ranks: int) -> MicroBatch:
    """Read the micro-batches of an update. Since v0.8.0 the critic ignores sizes and uses only a budget."""
    role, name = of.role, "ppo_micro_batch_size"
    budget_key = f"{role}.ppo_max_token_len_per_gpu"
    if of is OF_CRITIC:
        if reader.traits.one_critic_budget and reader.flag("trainer.use_v1"):
            budget_key = f"{role}.ppo_infer_max_token_len_per_gpu"
        if not reader.traits.critic_reads_own_keys:
            return MicroBatch(None, dynamic=True, tokens=reader.whole(budget_key))
        sized = any(map(reader.is_set, CRITIC_SIZES))
        dynamic = reader.flag(f"{role}.use_dynamic_bsz") or not sized
        return _micro_batch(reader, role, name, ranks, dynamic, reader.whole(budget_key))
    micro = _micro_batch(
        reader, role, name, ranks, reader.flag(f"{role}.use_dynamic_bsz"), reader.whole(budget_key)
    )
    if is_easyr1(reader) and micro.dynamic and not reader.is_set(budget_key):
        # Its budget is a micro-batch of padded sequences (verl/workers/actor/dp_actor.py of EasyR1).
        padded = int((micro.sequences or 1) * lengths(reader, *LIMITS).limit)
        micro = replace(micro, tokens=reader.optional("easyr1.dynamic_token_limit") or padded)
    return micro


def log_prob_micro_batch(reader: Reader, prefix: str, ranks: int, otherwise: MicroBatch) -> MicroBatch:
    """Read the micro-batches of a log-prob pass; unset keys follow the actor."""
    key, budget_key = f"{prefix}.log_prob_use_dynamic_bsz", f"{prefix}.log_prob_max_token_len_per_gpu"
    dynamic = reader.flag(key) if reader.is_set(key) else otherwise.dynamic
    budget = reader.whole(budget_key) if reader.is_set(budget_key) else otherwise.tokens
    micro = _micro_batch(reader, prefix, "log_prob_micro_batch_size", ranks, dynamic, budget)
    return micro if micro.sequences else MicroBatch(otherwise.sequences, dynamic, budget)


# -- computed from settings


def tokens_of(lengths: Lengths, micro: MicroBatch, most: int, divide: int, *, padded: bool) -> float:
    """Return the tokens on one GPU in the fullest micro-batch.

    A micro-batch of a number of sequences has 1 + variation ÷ √sequences times the mean, if it is the
    fullest: small ones vary more in length. A dynamic size is a token budget: verl makes as few micro-batches
    as the budget allows, each with at least one sequence, and fills them evenly. If the mini-batches vary
    around a multiple of the budget, some micro-batch is full.

    Source: ``rearrange_micro_batches`` in verl/utils/seqlen_balancing.py:308 at 1dda039b9.

    Args:
        lengths: the lengths of the sequences.
        micro: the micro-batches of the pass.
        most: the sequences of a rank in one mini-batch or step.
        divide: the number of GPUs that share a sequence.
        padded: whether every sequence is padded to its configured limit.

    >>> from sphinx_verl_resources.memory.tokens import Lengths, MicroBatch
    >>> tokens_of(Lengths(512, 512, 512, False), MicroBatch(8, False, 0), 64, 2, padded=False)
    2048.0
    >>> tokens_of(Lengths(512, 512, 512, True), MicroBatch(None, True, 5000), 64, 1, padded=False)
    4681.142857142857
    """
    sequences = most if micro.dynamic else min(micro.sequences or 1, most)
    each = lengths.limit
    if not padded:
        each = min(lengths.mean * (1 + lengths.variation / math.sqrt(sequences)), lengths.longest)
    everything = sequences * each / divide
    if not micro.dynamic:
        return everything
    budget = max(float(micro.tokens), (lengths.limit if padded else lengths.longest) / divide)
    micro_batches = math.ceil(everything / budget)
    least = most * (lengths.limit if padded else lengths.mean) / divide if lengths.known else 0.0
    if lengths.variation and micro_batches > 1 and least <= (micro_batches - 1) * budget:
        return budget
    return everything / micro_batches
