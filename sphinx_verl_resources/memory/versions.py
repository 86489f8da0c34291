"""Releases of verl, and the changes between them that affect memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

#: A release of verl, for example (0, 7, 1).
Version = tuple[int, int, int]

#: The first day of each release; earlier days belong to ``EARLY``.
RELEASES: tuple[tuple[str, Version], ...] = (
    ("2025-04-01", (0, 3, 0)),
    ("2025-06-01", (0, 4, 0)),  # v0.4.0 was released on 2025-06-06; its rows ran on a slightly older commit
    ("2025-07-23", (0, 5, 0)),
    ("2025-10-15", (0, 6, 0)),
    ("2026-01-05", (0, 7, 0)),
    ("2026-03-16", (0, 7, 1)),
    ("2026-06-01", (0, 8, 0)),
    ("2026-08-14", (0, 9, 0)),
    ("2026-08-28", (0, 10, 0)),  # not released: the main branch since commit a0feb78f, the future v0.10.0
)
#: The newest supported version, which may be unreleased.
LAST: Version = RELEASES[-1][1]
#: The newest supported release.
CURRENT: Version = (0, 9, 0)
#: The version assumed for observations without one: all public observations except one are from 2025.
OBSERVED: Version = (0, 4, 0)
#: The version assumed for undated reports in verl's documents of August 2026: the release of that time.
DOCUMENTED: Version = (0, 8, 0)
#: The release of verl that was current when a release of vLLM came out, by vLLM's minor version; newer
#: ones belong to the current release.
_BY_VLLM: dict[int, Version] = {
    8: (0, 3, 0), 9: (0, 5, 0), 10: (0, 6, 0), 11: (0, 6, 0), 12: (0, 7, 0), 13: (0, 7, 0),
    14: (0, 7, 0), 15: (0, 7, 1),
}  # fmt: skip

_DAY = r"\b20[0-9]{2}-[0-9]{2}(?:-[0-9]{2})?\b"
#: A version before every release, and before verl's rollout engine could sleep.
EARLY: Version = (0, 2, 0)
_BUCKET = 2048 * 2**20


def _until(version: Version) -> Any:
    return property(lambda self: self.version < version)


def _since(version: Version) -> Any:
    return property(lambda self: self.version >= version)


@dataclass(frozen=True)
class Behaviour:
    """Traits of a version of verl, from its own history, read at 1dda039b9 (2026-08-22).

    Attributes:
        version: the version.
        entropy_always: the update computes the entropy of the logits even if it is not used.
        cache_awake_in_sync: the KV cache is awake during weight sync.
        engine_in_process: vLLM runs in the training process, whose counters then include its pool.
        engine_takes_free_memory: vLLM takes a share of the memory that is free at its start.
        graphs_in_budget: vLLM counts its CUDA graphs in its budget.
        gathers_before_sync: FSDP completes its copy of the weights before the rollout engine wakes up.
        reference_resident: the reference policy stays on the GPU.
        leaves_root: FSDP leaves the root gathered after a pass without gradients.
        wraps_head: FSDP2 gathers an untied head separately.
        second_logits_copy: logits are divided by the temperature out of place.
        unsharded_gradients: by default, unsharded gradients stay on every GPU until the last micro-batch.
        fsdp2_streams: FSDP2 sends weights tensor by tensor.
        sglang_stages: by default, SGLang wakes up weights before the KV cache.
        fused_gradients: Megatron's kernels accumulate gradients.
        parameter_remainders: Megatron's precision-aware optimizer keeps half of each main parameter
            (Megatron-Core 0.13).
        sleep_keeps_weights: every sleeping vLLM engine keeps its weights in host memory.
        adapters_keep_weights: a sleeping vLLM engine with adapters keeps its weights in host memory.
        sglang_backup: SGLang copies weights to the host when it releases them.
        loads_whole_model: FSDP2 holds the whole model on every GPU while it loads (PyTorch 2.6).
        keeps_main_parameters: Megatron does not offload the main parameters of its precision-aware optimizer.
        keeps_embeddings: with adapters, FSDP keeps the embedding's output and gradient of each micro-batch.
        offload_doubles: Megatron's offloading holds two copies of the parameters on the host for a moment.
        critic_reads_own_keys: the critic's micro-batch sizes and its older Ulysses key have an effect.
        one_critic_budget: the critic's passes with and without gradients share one token budget.
        vllm_bucket: bytes of the weight transfer bucket to vLLM.
        sglang_bucket: bytes of the weight transfer bucket to SGLang.
    """

    version: Version
    entropy_always = _until((0, 4, 0))
    cache_awake_in_sync = _until((0, 4, 0))
    engine_in_process = _until((0, 7, 1))
    engine_takes_free_memory = _until((0, 3, 0))
    graphs_in_budget = _since((0, 9, 0))  # vLLM 0.21; the image of v0.9.0 has 0.24
    gathers_before_sync = _until((0, 7, 1))
    reference_resident = _until((0, 3, 0))
    leaves_root = _since((0, 8, 0))
    wraps_head = _since((0, 7, 1))  # 95e17d5c8 (2026-03-11)
    second_logits_copy = _since((0, 9, 0))
    unsharded_gradients = property(lambda self: (0, 9, 0) <= self.version < (0, 10, 0))
    fsdp2_streams = _since((0, 9, 0))
    sglang_stages = _since((0, 8, 0))
    fused_gradients = _since((0, 9, 0))  # with Megatron-Bridge
    parameter_remainders = _since((0, 6, 0))
    sleep_keeps_weights = _until((0, 6, 0))
    adapters_keep_weights = _since((0, 7, 1))
    sglang_backup = _since((0, 9, 0))
    loads_whole_model = property(lambda self: (0, 4, 0) <= self.version < (0, 5, 0))  # verl #2606
    keeps_main_parameters = property(lambda self: (0, 6, 0) <= self.version < (0, 9, 0))  # verl #6635
    keeps_embeddings = property(lambda self: (0, 8, 0) <= self.version < (0, 9, 0))  # verl #6699
    offload_doubles = _until((0, 8, 0))  # verl #6193
    critic_reads_own_keys = _until((0, 8, 0))
    one_critic_budget = _since((0, 9, 0))
    vllm_bucket = property(lambda self: _BUCKET if self.version >= (0, 7, 1) else 0)
    sglang_bucket = property(lambda self: self.vllm_bucket or _BUCKET // 4 * (self.version >= (0, 5, 0)))


def behaviour(version: Version) -> Behaviour:
    """Return the traits of a version.

    >>> behaviour((0, 7, 0)).engine_in_process, behaviour((0, 7, 1)).engine_in_process
    (True, False)
    """
    return Behaviour(version)


def version_of(text: str | None) -> Version | None:
    """Return the release for a number, a date or a version of vLLM in a text; None if it has none.

    A number counts only at the beginning or after the word verl, because other packages have versions too.
    A date on the main branch overrides the number, which is that of the last release before it.

    >>> version_of("v0.7.1"), version_of("commit 9f4161e (2025-08-12)"), version_of("vllm 0.10.1, torch 2.7")
    ((0, 7, 1), (0, 5, 0), (0, 6, 0))
    >>> version_of("v0.9.0 (main 1252cc71 of 2026-09)")
    (0, 10, 0)
    """
    text = text or ""
    if of_main := re.search(rf"\bmain\b[^)]*?({_DAY})", text):
        return version_on(of_main[1])
    number = r"(?:^\s*v?|\bverl[ =v@]{1,4})([0-9]{1,3})\.([0-9]{1,3})(?:\.([0-9]{1,3}))?"
    if stated := re.search(number, text, re.IGNORECASE):
        major, minor, patch = stated.groups(default="0")
        return int(major), int(minor), int(patch)
    if day := re.search(_DAY, text):
        return version_on(day.group())
    vllm = re.search(r"\bvllm[ =v@]{1,4}0\.(\d{1,3})", text, re.IGNORECASE)
    return _BY_VLLM.get(max(8, int(vllm[1])), CURRENT) if vllm else None


def version_on(day: str) -> Version:
    """Return the newest release on a date such as 2025-06-12.

    >>> version_on("2025-06-12")
    (0, 4, 0)
    """
    return [EARLY, *(version for first, version in RELEASES if first <= day)][-1]


def version_text(version: Version) -> str:
    """Write a version as verl does: ``v0.7.1``.

    >>> version_text((0, 7, 1))
    'v0.7.1'
    """
    return "v" + ".".join(str(part) for part in version)
