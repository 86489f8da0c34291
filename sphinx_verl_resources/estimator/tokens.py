"""Lengths of sequences, micro-batches, and the resulting tokens of a micro-batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .constants import LENGTH_SPREAD
from .reader import OF_CRITIC
from .request import ACTOR, ROLLOUT

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


def step_sequences(reader: Reader, batch: str, repeats: str) -> int:
    """Return the sequences of one step, which is several mini-batches in the fully asynchronous trainer.

    Source: fully_async_policy/fully_async_trainer.py:159 at 1dda039b9.
    """
    if reader.fully_async:
        prompts = reader.whole(f"{ACTOR}.ppo_mini_batch_size") * reader.whole(
            "async_training.require_batches"
        )
    else:
        prompts = reader.whole(batch)
    return prompts * reader.whole(repeats)


def mini_batch(reader: Reader, *keys: str) -> int:
    """Return the sequences of a mini-batch; the first key that is set gives its number of prompts."""
    return reader.whole(reader.first_set(*keys)) * reader.whole(f"{ROLLOUT}.n")


def lengths(reader: Reader, *limits: str) -> Lengths:
    """Return the lengths of prompt and response, observed or at their limits."""
    longest = float(sum(map(reader.whole, limits)))
    seen = reader.request.observed
    prompts, responses = seen.get("prompt_length_mean"), seen.get("response_length_mean")
    mean = None
    if seen.get("total_num_tokens"):
        mean = seen["total_num_tokens"] / step_sequences(reader, "data.train_batch_size", f"{ROLLOUT}.n")
    if prompts is not None and responses is not None:
        # If the two means disagree, the total is for another number of sequences than in the settings.
        mean = prompts + responses
    if not mean or not math.isfinite(mean) or mean <= 0:
        return Lengths(longest, longest, longest, known=False)
    most = [seen.get("prompt_length_max"), seen.get("response_length_max")]
    top = sum(item for item in most if item) if all(most) else longest
    return Lengths(mean, max(mean, min(top, longest)), longest, known=True)


def micro_batch(reader: Reader, prefix: str, name: str, ranks: int, dynamic: bool, budget: int) -> MicroBatch:
    """Read the micro-batches of a pass. A size without ``_per_gpu`` counts the sequences of all ranks."""
    own, total = reader.optional(f"{prefix}.{name}_per_gpu"), reader.optional(f"{prefix}.{name}")
    if own is None and total is not None:
        own = total // ranks
        if not own:
            message = f"{total} sequences over all ranks are fewer than one for each of {ranks}"
            hint = f"set {prefix}.{name}_per_gpu"
            reader.error(f"{prefix}.{name}", message, hint)
            own = 1
    return MicroBatch(own, dynamic, budget)


def update_micro_batch(reader: Reader, of: Sections, ranks: int) -> MicroBatch:
    """Read the micro-batches of an update. Since v0.8.0 the critic ignores sizes and uses only a budget."""
    role, name = of.role, "ppo_micro_batch_size"
    budget_key = f"{role}.ppo_max_token_len_per_gpu"
    if of is not OF_CRITIC:
        dynamic = reader.flag(f"{role}.use_dynamic_bsz")
        return micro_batch(reader, role, name, ranks, dynamic, reader.whole(budget_key))
    if reader.traits.one_critic_budget and reader.flag("trainer.use_v1"):
        budget_key = f"{role}.ppo_infer_max_token_len_per_gpu"
    budget = reader.whole(budget_key)
    if not reader.traits.critic_reads_own_keys:
        return MicroBatch(None, True, budget)
    fixed = any(reader.is_set(f"{role}.{name}{end}") for end in ("", "_per_gpu"))
    dynamic = reader.flag(f"{role}.use_dynamic_bsz") or not fixed
    return micro_batch(reader, role, name, ranks, dynamic, budget)


def log_prob_micro_batch(reader: Reader, prefix: str, ranks: int, otherwise: MicroBatch) -> MicroBatch:
    """Read the micro-batches of a log-prob pass; unset keys follow the actor."""
    if not reader.cuts_log_probs:
        return otherwise
    key = f"{prefix}.log_prob_use_dynamic_bsz"
    dynamic = reader.flag(key) if reader.is_set(key) else otherwise.dynamic
    budget_key = f"{prefix}.log_prob_max_token_len_per_gpu"
    budget = reader.whole(budget_key) if reader.is_set(budget_key) else otherwise.tokens
    found = micro_batch(reader, prefix, "log_prob_micro_batch_size", ranks, dynamic, budget)
    return found if found.sequences else MicroBatch(otherwise.sequences, dynamic, budget)


# -- computed from settings


def tokens_of(lengths: Lengths, micro: MicroBatch, most: int, divide: int, *, padded: bool) -> float:
    """Return the tokens on one GPU in the fullest micro-batch.

    A fixed size counts sequences. Small micro-batches vary more in length: the fullest has
    1 + variation ÷ √sequences times the mean. A dynamic size is a token budget: verl makes as few
    micro-batches as the budget allows and fills them evenly. If the mini-batches vary around a multiple of
    the budget, some micro-batch is full. Each has at least one sequence.

    Source: ``rearrange_micro_batches`` in verl/utils/seqlen_balancing.py:308 at 1dda039b9.

    Args:
        lengths: the lengths of the sequences.
        micro: the micro-batches of the pass.
        most: the sequences of a rank in one mini-batch or step.
        divide: the number of GPUs that share a sequence.
        padded: whether every sequence is padded to its configured limit.

    >>> from sphinx_verl_resources.estimator.tokens import Lengths, MicroBatch
    >>> tokens_of(Lengths(512, 512, 512, False), MicroBatch(8, False, 0), 64, 2, padded=False)
    2048.0
    >>> tokens_of(Lengths(512, 512, 512, True), MicroBatch(None, True, 5000), 64, 1, padded=False)
    4681.142857142857
    """
    if not micro.dynamic:
        return fullest(lengths, min(micro.sequences or 1, most), padded=padded) / divide
    budget = max(float(micro.tokens), (lengths.limit if padded else lengths.longest) / divide)
    everything = fullest(lengths, most, padded=padded) / divide
    least = most * (lengths.limit if padded else lengths.mean) / divide if lengths.known else 0.0
    micro_batches = math.ceil(everything / budget)
    varies = lengths.variation >= LENGTH_SPREAD.value
    if varies and micro_batches > 1 and least <= (micro_batches - 1) * budget:
        return budget
    return everything / micro_batches


def padded_up(tokens: float, divide: int, bucket: int) -> float:
    """Return the tokens on one GPU after padding the whole sequence up to a multiple of ``bucket``.

    Source: ``_get_packed_pad_size`` in verl/workers/engine/fsdp/transformer_impl.py:647 and
    ``preprocess_thd_engine`` in verl/models/mcore/util.py:403 at 1dda039b9.

    >>> padded_up(1000, 2, 1024)
    1024.0
    """
    return math.ceil(tokens * divide / bucket) * bucket / divide if bucket > 1 else tokens


def fullest(lengths: Lengths, sequences: int, *, padded: bool) -> float:
    """Return the tokens of the fullest micro-batch with ``sequences`` sequences.

    >>> from sphinx_verl_resources.estimator.tokens import Lengths
    >>> fullest(Lengths(100, 1000, 1000, True), 4, padded=False)
    600.0
    """
    if padded:
        return sequences * lengths.limit
    mean = lengths.mean * (1 + lengths.variation / math.sqrt(sequences))
    return sequences * min(mean, lengths.longest)
