"""Compare the formulas with the traces in ``traces.json``. Needs neither PyTorch nor transformers.

States must be exact, everything else within 2 %.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from sphinx_verl_resources.commands import given_data
from sphinx_verl_resources.memory.allocations import size_of
from sphinx_verl_resources.memory.fsdp import FsdpRole
from sphinx_verl_resources.memory.phases import logits
from sphinx_verl_resources.memory.request import ACTOR, MODEL, Request
from sphinx_verl_resources.memory.resolve import resolve
from sphinx_verl_resources.memory.shape import Shape, adapter_parameters
from sphinx_verl_resources.units import Category

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx_verl_resources.memory.settings import Settings
    from sphinx_verl_resources.memory.shape import Targets

HERE = Path(__file__).parent
TOLERANCE = 0.02
#: The tokens and the model for which vocabulary-wide tensors are compared.
TOKENS, CHUNK, SMALL_MODEL = 32_768, 2048, "Qwen/Qwen2.5-0.5B"
VERSIONS = {"v0.8": (0, 8, 0)}
NEWEST = (0, 9, 0)


@dataclass(frozen=True)
class Compared:
    """One traced size. Sizes are bytes.

    Attributes:
        name: the name of the traced step.
        what: the part of its memory.
        traced, computed: the size, traced and by formula.
        tolerance: the allowed deviation.
    """

    name: str
    what: str
    traced: float
    computed: float
    tolerance: float = TOLERANCE

    @property
    def deviation(self) -> float:
        """The relative error, computed ÷ traced - 1."""
        return self.computed / self.traced - 1

    @property
    def good(self) -> bool:
        """True if the two are close enough."""
        return abs(self.deviation) <= self.tolerance


def load_traces() -> dict[str, Any]:
    """Return the recorded traces."""
    traces: dict[str, Any] = json.loads((HERE / "traces.json").read_text("utf-8"))
    return traces


def compare_all() -> list[Compared]:
    """Compare every traced size."""
    return Oracle().compare()


class Oracle:
    """The traces, and the architectures for their comparison."""

    def __init__(self) -> None:
        self.traces = load_traces()
        self._data = given_data([HERE])
        self._architectures = {entry.name: entry for entry in self._data.architectures}

    def compare(self) -> list[Compared]:
        """Compare every traced size."""
        items = [item for case in self.traces["cases"] for item in self.step(case)]
        # No setting says whether flash-attn is installed, which needs no softmax for each row.
        items += [self.logits(case) for case in self.traces["logits"] if not case["by_row"]]
        return items + [item for case in self.traces["sharding"] for item in self.sharding(case)]

    def step(self, case: dict[str, Any]) -> Iterator[Compared]:
        """Compare states and activations of a step on one GPU."""
        architecture = self._architectures[case["architecture"]]
        shape = Shape(architecture.model_copy(update={"num_hidden_layers": case["layers"]}))
        traced = {phase: peak["activations_largest"] for phase, peak in case["phases_bytes"].items()}
        tokens, hidden = case["tokens"], case["tokens"] * shape.hidden
        states = sum(case["states_bytes"].values()) - case["beside_states_bytes"]
        yield Compared(case["id"], "states", states, states_of(case, shape), 0.0)
        if not case["gradients"]:
            yield Compared(case["id"], "activations", traced["forward"], shape.forward * tokens)
            return
        working, saved = shape.backward(targets_of(case) if case["lora_rank"] else None)
        if case["recompute"] == "full":
            inputs = 2 * hidden * shape.layers
            backward = inputs + working * tokens
        else:
            inputs = saved * shape.layers * tokens
            backward = inputs + max(0.0, working - saved) * tokens
        yield Compared(case["id"], "activations", traced["backward"], backward)
        # Without tensors as wide as the vocabulary, the backward pass is always wider.
        if case["loss"] in LOSSES:
            loss = inputs + 8 * hidden + LOSSES[case["loss"]] * tokens * shape.vocabulary
            yield Compared(case["id"], "loss", traced["loss"], loss)

    def logits(self, case: dict[str, Any]) -> Compared:
        """Compare the vocabulary-wide tensors of a pass."""
        engine, entropy = case["engine"], case["entropy"]
        config = {
            f"{ACTOR}.strategy": "megatron" if engine == "megatron" else "fsdp",
            f"{ACTOR}.entropy_coeff": 0.001 if entropy != "none" else 0,
            f"{ACTOR}.entropy_checkpointing": case["recomputed"],
            f"{ACTOR}.entropy_from_logits_with_chunking": entropy == "chunked",
            f"{ACTOR}.entropy_from_logits_chunk_size": CHUNK,
            f"{ACTOR}.use_torch_compile": entropy == "compiled",
            f"{MODEL}.use_fused_kernels": engine == "fused",
            f"{MODEL}.use_remove_padding": True,
        }
        shape, settings = self._resolve(SMALL_MODEL, config, VERSIONS.get(engine, NEWEST))
        name = "update" if case["gradients"] else "reference" if entropy == "none" else "old"
        parts = logits(name, shape, settings, TOKENS)
        computed = sum(part.size for part in parts if part.kind.category is Category.LOGITS)
        tokens, chunk = TOKENS, CHUNK
        if engine == "fused":
            tokens, chunk = 0, 512
        traced = max(
            case[moment] * tokens + case[f"{moment}_chunk"] * chunk
            for moment in ("forward", "backward")
            if moment in case
        )
        title = "/".join((engine, entropy, name, *(["recomputed"] if case["recomputed"] else [])))
        return Compared(title, "logits", traced * shape.vocabulary, computed)

    def sharding(self, case: dict[str, Any]) -> Iterator[Compared]:
        """Compare one GPU's share at the moments of a step on several GPUs."""
        traced, tokens = case["bytes"], case["tokens"]
        fsdp = f"{ACTOR}.fsdp_config"
        config = {
            f"{ACTOR}.strategy": case["backend"],
            f"{ACTOR}.ppo_mini_batch_size": case["gpus"] * case["micro_batches"],
            f"{ACTOR}.ppo_micro_batch_size_per_gpu": 1,
            f"{fsdp}.model_dtype": case["dtype"],
            f"{fsdp}.reshard_after_forward": case["reshard"],
            f"{fsdp}.use_no_sync_for_gradient_accumulation": case["deferred"],
            f"{MODEL}.enable_gradient_checkpointing": True,
            f"{MODEL}.use_remove_padding": True,
            "actor_rollout_ref.rollout.n": 1,
            "data.train_batch_size": case["gpus"] * case["micro_batches"],
            "data.max_prompt_length": tokens // 2,
            "data.max_response_length": tokens // 2,
        }
        architecture = self._architectures[case["architecture"]]
        shape, settings = self._resolve(architecture.hf_id, config, NEWEST, gpus=case["gpus"])
        role = FsdpRole(shape, settings, settings.actor)
        update = role.update(tokens)
        moments = {
            "idle": role.idle,
            "inference": max(role.inference(tokens), key=size_of),
            "after inference": role.waiting,
            "loss": update.loss,
            "backward": max(update.at_head, update.backward, key=size_of),
            "step": update.step,
        }
        others = [name for name in ("deferred", "reshard") if case[name]]
        title = "/".join((
            case["backend"], case["architecture"], case["dtype"], f"{case['micro_batches']}", *others,
        ))  # fmt: skip
        for moment, allocations in moments.items():
            tolerance = 0.0 if moment == "idle" else TOLERANCE
            yield Compared(title, moment, traced[moment], size_of(allocations), tolerance)

    def _resolve(
        self, model: str, config: dict[str, Any], version: tuple[int, int, int], gpus: int = 8
    ) -> tuple[Shape, Settings]:
        config_of_run = {"algorithm.adv_estimator": "grpo", **config}
        shape, settings, _, _ = resolve(
            Request(model, config_of_run, gpus=gpus, gpu="H100", version=version), self._data
        )
        return shape, settings


#: Bytes per token and vocabulary entry of the losses of whole steps: of transformers (an fp32 copy, a shifted copy
#: and the softmax), and of verl v0.9.
LOSSES = {"cross-entropy": 12, "log-prob": 4, "log-prob-entropy": 6}


def states_of(case: dict[str, Any], shape: Shape) -> float:
    """Return the bytes of parameters, gradients and both moments: in 16 bits, for adapters in fp32."""
    # The value head has a bias, which is not counted.
    parameters = shape.critic_parameters + 1 if case["loss"] == "value" else shape.parameters
    if not case["gradients"]:
        return 2.0 * parameters
    if not case["lora_rank"]:
        return 8.0 * parameters
    return 2.0 * parameters + 16.0 * adapter_parameters(shape, case["lora_rank"], targets_of(case))


def targets_of(case: dict[str, Any]) -> Targets:
    """Return the adapted matrices under PEFT's names; the traces have them as ``q,k,v,o``."""
    targets: str = case["lora_targets"]
    return "all-linear" if targets == "all-linear" else tuple(f"{name}_proj" for name in targets.split(","))


def main() -> int:
    """Print the table; return 1 if a figure is too far off."""
    items = compare_all()
    rows = [
        (
            item.name,
            item.what,
            f"{item.traced / 2**30:.3f}",
            f"{item.computed / 2**30:.3f}",
            f"{item.deviation:+.2%}" + ("" if item.good else "  <<<"),
        )
        for item in items
    ]
    print(tabulate(rows, ("step", "what", "traced GiB", "computed GiB", "difference")))
    return int(not all(item.good for item in items))


if __name__ == "__main__":
    sys.exit(main())
