"""The settings of the rollout engine, read from verl's keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..diagnostics import suggest_or
from .roles import DATA_TYPES, MODEL, ROLLOUT
from .settings import Rollout
from .versions import behaviour

if TYPE_CHECKING:
    from .reader import Reader
    from .request import Request
    from .versions import Behaviour

ENGINES = ("vllm", "sglang", "trtllm", "hf")


def read_rollout(request: Request, read: Reader, gpus: int) -> Rollout:
    """The engine that generates, on some GPUs."""
    does, engine = behaviour(request.version), _engine(request, read)
    stages = read.flag(f"{ROLLOUT}.multi_stage_wake_up")
    return Rollout(
        engine=engine,
        utilization=read.number(f"{ROLLOUT}.gpu_memory_utilization", 0, 1),
        tensor=_tensor(read, gpus),
        data=read.whole(f"{ROLLOUT}.data_parallel_size"),
        sequences=read.whole(f"{ROLLOUT}.max_num_seqs"),
        batched_tokens=read.whole(f"{ROLLOUT}.max_num_batched_tokens"),
        model_length=read.optional(f"{ROLLOUT}.max_model_len"),
        eager=read.flag(f"{ROLLOUT}.enforce_eager"),
        frees_cache=read.flag(f"{ROLLOUT}.free_cache_engine"),
        stages_wake_up=stages or engine != "sglang" or does.sglang_stages,
        layered_summon=read.flag(f"{ROLLOUT}.layered_summon"),
        merge_lora=read.flag(f"{MODEL}.lora.merge"),
        bucket=_bucket(read, engine, does),
        element_bytes=_element_bytes(read),
        separate=read.any("trainer.v1.trainer_mode") == "separate_async",
    )


def _engine(request: Request, read: Reader) -> str:
    key = f"{ROLLOUT}.name"
    name = read.any(key) if read.is_set(key) else request.engine or read.any(key)
    if name is None or name in ENGINES:
        return name or "vllm"
    hint = suggest_or(str(name), ENGINES, "see verl's rollout.name")
    read.warning(key, f"the engine {str(name)[:80]!r} is not modelled; vLLM is taken", hint)
    return "vllm"


def _tensor(read: Reader, gpus: int) -> int:
    """Verl's own default, 2, only where there are GPUs for it."""
    key = f"{ROLLOUT}.tensor_model_parallel_size"
    tensor = read.whole(key)
    if not gpus % tensor:
        return tensor
    if read.is_set(key):
        message = f"it is {tensor}, which does not divide the {gpus} GPUs"
        read.error(key, message, "choose a divisor")
    return 1


def _bucket(read: Reader, engine: str, does: Behaviour) -> int:
    """Bytes of the bucket for weights, in versions that have one."""
    bucket = does.sglang_bucket if engine == "sglang" else does.vllm_bucket
    key = f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"
    return read.whole(key) * 2**20 if read.is_set(key) and bucket else bucket


def _element_bytes(read: Reader) -> float:
    """Bytes of a weight; what is quantized is taken to have one."""
    data_type = read.any(f"{ROLLOUT}.dtype")
    if read.any(f"{ROLLOUT}.quantization") is not None:
        return 1.0
    return float(DATA_TYPES.get(data_type, 2) if isinstance(data_type, str) else 2)
