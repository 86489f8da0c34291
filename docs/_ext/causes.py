"""``.. docs-causes::``: changes of verl that affect memory, each with its version and place in the source."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from estimator_lists import EstimatorTable

from sphinx_verl_resources.estimator.versions import CURRENT, RELEASES, Behaviour, version_text
from sphinx_verl_resources.views.table import Cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from sphinx.application import Sphinx

    from sphinx_verl_resources.estimator.versions import Version

_ENGINE = "verl/workers/engine/fsdp/transformer_impl.py"
_VLLM = "verl/workers/rollout/vllm_rollout/vllm_async_server.py"
_SPMD = "verl/workers/rollout/vllm_rollout/vllm_rollout_spmd.py"
_SGLANG = "verl/workers/rollout/sglang_rollout/async_sglang_server.py"
#: For each trait of a version, the effect of each change and its place in the source.
CHANGES: dict[str, tuple[tuple[str, str], ...]] = {
    "engine_takes_free_memory": (
        (
            "vLLM's budget is a share of the GPU's memory; before, of the free memory.",
            "v0.4.0: docs/examples/config.rst:303",
        ),
    ),
    "reference_resident": (
        (
            "FSDP1 keeps the reference policy in host memory.",
            "v0.3.0.post1: verl/workers/fsdp_workers.py:253",
        ),
    ),
    "entropy_always": (
        (
            "The update computes the entropy only if it is used.",
            "v0.4.0: verl/workers/actor/dp_actor.py:159",
        ),
    ),
    "cache_awake_in_sync": (
        (
            "vLLM's KV cache wakes up after the weights are synchronised.",
            "v0.4.0: verl/workers/sharding_manager/fsdp_vllm.py:181",
        ),
    ),
    "sglang_bucket": (
        (
            "SGLang receives weights in buckets of 512 MiB.",
            "v0.5.0: verl/trainer/config/rollout/rollout.yaml:206",
        ),
        ("SGLang's buckets are 2,048 MiB.", "v0.7.1: verl/trainer/config/rollout/rollout.yaml:271"),
    ),
    "sleep_keeps_weights": (("Sleeping vLLM drops its weights (level 2).", f"v0.6.0: {_SPMD}:108"),),
    "reference_bytes": (
        (
            "The reference policy needs 4 bytes per parameter on the host; before, 2.",
            "v0.6.0: verl/trainer/config/engine/fsdp.yaml:32",
        ),
    ),
    "parameter_remainders": (
        (
            "Megatron's precision-aware optimizer keeps half of each main parameter.",
            "verl/utils/megatron/optimizer.py:184",
        ),
    ),
    "engine_in_process": (
        (
            "vLLM runs in a separate process, so PyTorch's counter excludes its pool.",
            "v0.7.1: verl/workers/rollout/vllm_rollout/vllm_rollout.py:61",
        ),
    ),
    "gathers_before_sync": (
        (
            "FSDP1 copies its weights while the engine's weights are already awake.",
            "v0.8.0: verl/workers/engine_workers.py:707",
        ),
    ),
    "vllm_bucket": (
        (
            "Weights travel to vLLM through a bucket of 2,048 MiB that the trainer allocates.",
            "verl/workers/rollout/vllm_rollout/bucketed_weight_transfer.py:178",
        ),
    ),
    "layers_keep_weights": (
        ("layered_summon no longer keeps the sleeping engine's weights.", f"v0.7.1: {_VLLM}:639"),
    ),
    "adapters_keep_weights": (
        ("With adapters, sleeping vLLM keeps its weights in host memory (level 1).", f"{_VLLM}:1130"),
    ),
    "npu_keeps_weights": (
        ("Sleeping vLLM drops its weights on NPUs too.", f"v0.7.1: {_VLLM}:639"),
        ("On NPUs, sleeping vLLM keeps its weights in host memory again.", f"{_VLLM}:1130"),
    ),
    "keeps_embeddings": (
        (
            "With LoRA, each micro-batch's embedding and its gradient stay until the last one.",
            "v0.8.0: verl/workers/engine/fsdp/transformer_impl.py:1288",
        ),
        ("With LoRA, each micro-batch's embedding is freed at once (#6699).", f"{_ENGINE}:733"),
    ),
    "leaves_root": (
        (
            "With FSDP1, a pass without gradients leaves embedding and head gathered, "
            "the reference's for good.",
            f"{_ENGINE}:1092",
        ),
    ),
    "wraps_head": (
        ("FSDP2 gathers an untied embedding and head separately.", "v0.7.1: verl/utils/fsdp_utils.py:520"),
    ),
    "sglang_stages": (
        (
            "SGLang resumes the weights first, then the KV cache.",
            "v0.8.0: verl/workers/engine_workers.py:742",
        ),
    ),
    "sglang_backup_of_merged": (
        ("With merged adapters, SGLang copies released weights to the host.", f"v0.8.0: {_SGLANG}:347"),
    ),
    "critic_reads_own_keys": (
        (
            "The critic always packs micro-batches by tokens; its own sizes have no effect.",
            "verl/workers/config/engine.py:101",
        ),
    ),
    "second_logits_copy": (
        (
            "Logits are divided by the temperature out of place: more in log-prob passes, less in updates.",
            f"{_ENGINE}:1357",
        ),
    ),
    "unsharded_gradients": (
        (
            "With several micro-batches, every GPU keeps all gradients until the last: 2 bytes per parameter "
            "with FSDP1, 4 with FSDP2.",
            f"{_ENGINE}:673",
        ),
        (
            "GPUs keep all gradients only with fsdp_config.use_no_sync_for_gradient_accumulation.",
            "commit a0feb78f (#7458)",
        ),
    ),
    "fsdp2_streams": (("FSDP2 sends weights tensor by tensor.", f"{_ENGINE}:1009"),),
    "graphs_in_budget": (
        ("vLLM counts its CUDA graphs in its budget.", "vLLM 0.21; v0.9.0: docker/Dockerfile.stable.vllm:13"),
    ),
    "one_critic_budget": (
        (
            "The critic's update uses the token budget of its passes without gradients.",
            "verl/trainer/ppo/v1/trainer_base.py:252",
        ),
    ),
    "fp8_copies_stay": (
        (
            "Megatron's FP8 copies leave the GPU together with the weights.",
            "verl/utils/megatron_utils.py:744",
        ),
    ),
    "speculation_keeps_weights": (
        ("With multi-token prediction, sleeping vLLM keeps its weights.", f"{_VLLM}:1130"),
    ),
    "sglang_backup": (("SGLang copies released weights to the host.", f"{_SGLANG}:382"),),
}
#: Changes that a key switches on, in any version that has the key.
SWITCHES = (
    (
        "v0.9.0",
        "Muon keeps one moment instead of two for the matrices of layers (optim.optimizer).",
        "commit 8446ee4b1 (#7120)",
    ),
    (
        "v0.9.0",
        "pad_to_length pads packed batches up to a multiple.",
        f"{_ENGINE}:647; verl/models/mcore/util.py:403",
    ),
    (
        "v0.9.0",
        "main_grads_dtype: Megatron's gradients in 16 bits.",
        "verl/utils/megatron/optimizer.py:192",
    ),
    (
        "all",
        "A dynamic micro-batch holds total ÷ ⌈total ÷ budget⌉ tokens, not the whole budget.",
        "verl/utils/seqlen_balancing.py:398",
    ),
    (
        "all",
        "FSDP1's backward pass ends with the undivided gradient of embedding and head in 16 and 32 bits.",
        "PyTorch, _runtime_utils.py (_post_backward_hook)",
    ),
)


class Causes(EstimatorTable):
    """A table with a row for each change. A missing text fails the build."""

    headings = ("From", "Change", "Place in the source")

    def rows(self) -> Iterable[tuple[str, str, Cell]]:
        found = sorted(_changes(), key=lambda item: item[0])
        named = [(_named(since), text, place) for since, text, place in found]
        return [(since, text, Cell.path(place)) for since, text, place in (*named, *SWITCHES)]


def _changes() -> Iterator[tuple[Version, str, str]]:
    for trait in fields(Behaviour):
        versions = [since for since, _ in trait.metadata["changes"][1:]]
        for since, texts in zip(versions, CHANGES[trait.name], strict=True):
            yield since, *texts


def _named(version: Version) -> str:
    """Return the release; for code that is not released yet, the day."""
    if version <= CURRENT:
        return version_text(version)
    return f"main, {next(day for day, release in RELEASES if release == version)}"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("docs-causes", Causes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
