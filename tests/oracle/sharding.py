"""The memory of one of several GPUs while FSDP gathers parameters and shards gradients.

This runs FSDP itself on the CPU, with a process group that only pretends to have other members. It wraps parameters as
verl does (`_build_fsdp_module`, `apply_fsdp2`). The model is small and real, with few tokens, so almost all memory is
for parameters and gradients.
"""

from __future__ import annotations

import dataclasses
import logging
import weakref
from collections import Counter
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from live_bytes import LiveBytes
from models import architecture, causal_lm
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.testing._internal.distributed.fake_pg import FakeStore

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

GPUS, TOKENS = 4, 8
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclasses.dataclass(frozen=True)
class Sharding:
    """One step to trace.

    Args:
        architecture: a name in ``architectures.yaml``.
        backend: "fsdp" or "fsdp2".
        dtype: the data type of sharded parameters; computation is in bf16, the sum of gradients in fp32.
        micro_batches: the number of micro-batches in the step.
        deferred: True if gradients are sharded only at the last micro-batch.
        reshard: True if layers are freed after their forward pass.
    """

    architecture: str
    backend: str
    dtype: str = "fp32"
    micro_batches: int = 1
    deferred: bool = False
    reshard: bool = True


def cases() -> list[Sharding]:
    """Return every step, for both backends."""
    large, small = "large-vocabulary", "small-vocabulary"
    return [
        Sharding(name, backend, **others)
        for backend in ("fsdp", "fsdp2")
        for name, others in (
            (large, {}),
            (f"{large}-tied", {}),
            (small, {}),
            (f"{small}-tied", {}),
            (large, {"dtype": "bf16"}),
            (large, {"reshard": False}),
            (large, {"micro_batches": 3}),
            (large, {"micro_batches": 3, "dtype": "bf16"}),
            (large, {"micro_batches": 3, "deferred": True}),
            (small, {"micro_batches": 3, "deferred": True}),
        )
    ]


class ResizedBytes(LiveBytes):
    """A counter that uses the current size of storages, since FSDP resizes them."""

    def __init__(self) -> None:
        super().__init__()
        self._storages: dict[int, weakref.ref[Any]] = {}

    def track(self, tensor: torch.Tensor, group: str) -> None:
        """Count the storage of a tensor until it is freed; a distributed tensor counts by its local part."""
        tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._storages:
            self._storages[key] = weakref.ref(storage, lambda _: self._storages.pop(key, None))

    def sample(self) -> None:
        """Update the peaks of the phase with the live storages."""
        alive = (reference() for reference in list(self._storages.values()))
        self.live = Counter(all=sum(storage.nbytes() for storage in alive if storage is not None))
        super().sample()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(kind.__name__ == "DTensor" for kind in types):
            return NotImplemented  # the operations on the local part come here again
        return super().__torch_dispatch__(func, types, args, kwargs)


class ShardedStep:
    """A sharded model after its first step, with a counter for everything that it makes."""

    def __init__(self, case: Sharding) -> None:
        self.case, self.live = case, ResizedBytes()
        facts = architecture(case.architecture)
        model = causal_lm(facts, facts["num_hidden_layers"]).to(DTYPES[case.dtype])
        model.activation_checkpointing_enable({"use_reentrant": False})
        self.layers, self.embedding = list(model.model.layers), model.model.embed_tokens
        self.model = (_fsdp if case.backend == "fsdp" else _fsdp2)(model, case.reshard)
        # As on a GPU: several tensors at once, except for FSDP2's distributed tensors.
        self.optimizer = torch.optim.AdamW(self.model.parameters(), foreach=case.backend == "fsdp")
        self.update()
        self.live = ResizedBytes()
        for parameter in self.model.parameters():
            self.live.track(parameter, "all")
        for state in self.optimizer.state.values():
            self.live.track(state["exp_avg"], "all")
            self.live.track(state["exp_avg_sq"], "all")

    def inference(self) -> None:
        """Run one pass without gradients, and count what stays after it if nothing is freed explicitly."""
        self.live.phase = "inference"
        with torch.no_grad():
            self._forward()
        self._look("after inference")

    def update(self) -> None:
        """Run all micro-batches and one optimizer step."""
        self.model.train()
        for number in range(self.case.micro_batches):
            with self._synchronised(last=number == self.case.micro_batches - 1):
                self._micro_batch()
            self._look("between")
        self.live.phase = "step"
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _micro_batch(self) -> None:
        self.live.phase = "forward"
        loss = self._forward().float().mean()
        self._look("loss")
        self.live.phase = "backward"
        loss.backward()

    def _forward(self) -> torch.Tensor:
        return self.model(input_ids=torch.zeros(1, TOKENS, dtype=torch.long)).logits

    def _look(self, phase: str) -> None:
        self.live.phase = phase
        self.live.sample()

    def _synchronised(self, *, last: bool) -> AbstractContextManager[None]:
        deferred = self.case.deferred and not last
        if self.case.backend == "fsdp":
            return self.model.no_sync() if deferred else nullcontext()
        self.model.set_requires_gradient_sync(not deferred)
        return nullcontext()


def _fsdp(model: nn.Module, reshard: bool) -> nn.Module:
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=partial(
            transformer_auto_wrap_policy, transformer_layer_cls={type(model.model.layers[0])}
        ),
        device_id=torch.device("cpu"),
        sharding_strategy=ShardingStrategy.FULL_SHARD if reshard else ShardingStrategy.SHARD_GRAD_OP,
        mixed_precision=MixedPrecision(torch.bfloat16, torch.float32, torch.float32),
        device_mesh=init_device_mesh("cpu", (GPUS,)),
        use_orig_params=False,
    )


def _fsdp2(model: nn.Module, reshard: bool) -> nn.Module:
    parts = list(model.model.layers)
    if not model.config.tie_word_embeddings:
        parts += [model.model.embed_tokens, model.lm_head]
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=True)
    for part in (*parts, model):
        fully_shard(
            part,
            mesh=init_device_mesh("cpu", (GPUS,)),
            mp_policy=policy,
            reshard_after_forward=reshard,
        )
    return model


def trace_sharding(case: Sharding) -> dict[str, Any]:
    """Return the record of one step: the largest number of bytes at each moment."""
    logging.getLogger("torch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    if not distributed.is_initialized():
        distributed.init_process_group("fake", rank=0, world_size=GPUS, store=FakeStore())
    step = ShardedStep(case)
    step._look("idle")
    with step.live:
        step.update()
    trained = {phase: peak.total() for phase, peak in step.live.peaks.items()}
    step.live.peaks.clear()
    with step.live:
        step.inference()
    looked = {phase: peak.total() for phase, peak in step.live.peaks.items()}
    return {**dataclasses.asdict(case), "gpus": GPUS, "tokens": TOKENS, "bytes": {**trained, **looked}}
