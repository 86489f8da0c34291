"""Trace training steps, losses and sharded steps, and write the live bytes at their peaks to ``traces.json``.

Run ``python tests/oracle/trace.py`` in an environment with ``tests/oracle/requirements.txt``; see README.md there.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import sys
import time
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from live_bytes import LiveBytes
from logits import cases as logits_cases
from logits import trace_logits
from losses import LOSSES
from models import ALL_LINEAR, ATTENTION, add_adapters, architecture, causal_lm, critic
from sharding import cases as sharding_cases
from sharding import trace_sharding
from torch._subclasses.fake_tensor import FakeTensorMode

OUTPUT = Path(__file__).with_name("traces.json")
GROUPS = ("parameters", "optimizer", "gradients", "activations")
PHASES = ("forward", "loss", "backward", "optimizer_step")
TARGETS = {"q,k,v,o": ATTENTION, "all-linear": ALL_LINEAR}


@dataclasses.dataclass(frozen=True)
class Case:
    """One step to trace.

    Args:
        architecture: a name in ``data/architectures.yaml``.
        tokens: the tokens of the one micro-batch.
        loss: a name in ``losses.LOSSES``; "value" is that of a critic, which has a value head.
        recompute: "full" recomputes every decoder layer in backward, "none" keeps everything.
        lora_rank: the rank of the adapters; 0 trains all parameters.
        lora_targets: a name in ``TARGETS``.
        optimizer: "adamw-foreach" or "adamw-fused".
        gradients: False for a pass without gradients, as for log-probabilities.
        layers: the number of layers; None means all.
    """

    architecture: str
    tokens: int
    loss: str = "fused-linear"
    recompute: str = "full"
    lora_rank: int = 0
    lora_targets: str | None = None
    optimizer: str = "adamw-foreach"
    gradients: bool = True
    layers: int | None = None

    @property
    def id(self) -> str:
        """The unique name of the case."""
        if not self.gradients:
            return f"{self.architecture}/no-grad/{self.loss}/{self.tokens}"
        method = f"lora{self.lora_rank}-{self.lora_targets}" if self.lora_targets else "full"
        parts = (self.architecture, method, f"recompute-{self.recompute}", self.loss, self.optimizer)
        return "/".join((*parts, str(self.tokens)))


CASES = (
    Case("Qwen2.5-0.5B", 8192, "cross-entropy"),
    Case("Qwen2.5-0.5B", 16384, "log-prob"),
    Case("Qwen2.5-0.5B", 16384, "log-prob-entropy"),
    Case("Qwen2.5-0.5B", 16384),
    Case("Qwen2.5-0.5B", 16384, "value"),
    Case("Qwen2.5-0.5B", 4096, recompute="none"),
    Case("Qwen2.5-7B", 1024),
    Case("Qwen2.5-7B", 16384),
    Case("Qwen2.5-7B", 16384, "value"),
    Case("Qwen2.5-7B", 16384, "value", gradients=False),
    Case("Qwen2.5-7B", 16384, "log-prob"),
    Case("Qwen2.5-7B", 4096, recompute="none"),
    Case("Qwen2.5-7B", 16384, lora_rank=32, lora_targets="all-linear"),
    Case("Qwen2.5-7B", 16384, lora_rank=16, lora_targets="q,k,v,o"),
    Case("Qwen2.5-7B", 4096, recompute="none", lora_rank=32, lora_targets="all-linear"),
    Case("Qwen2.5-7B", 16384, "log-prob", gradients=False),
    Case("Llama-3-8B", 8192),
    Case("Llama-3-8B", 16384, optimizer="adamw-fused"),
    Case("Llama-3-8B", 6144, recompute="none"),
    Case("Llama-3-8B", 8192, "value", recompute="none"),
    Case("Mistral-7B-v0.1", 8192),
    Case("Qwen3-0.6B", 16384),
    Case("Qwen3-0.6B", 4096, recompute="none"),
    Case("Qwen3-8B", 16384),
    Case("Qwen3-8B", 16384, lora_rank=32, lora_targets="all-linear"),
    Case("Qwen3-30B-A3B", 8192),
    Case("Qwen3-30B-A3B", 6144, recompute="none", layers=12),
    Case("Qwen3-30B-A3B", 8192, layers=12, lora_rank=32, lora_targets="q,k,v,o"),
    Case("Qwen3-30B-A3B", 16384, "log-prob", gradients=False),
    Case("Qwen1.5-MoE-A2.7B", 8192, layers=8),
    Case("Qwen1.5-MoE-A2.7B", 6144, recompute="none", layers=8),
    Case("Qwen1.5-MoE-A2.7B", 16384, "log-prob", gradients=False, layers=8),
    Case("Gemma-2-2B", 8192),
)


class Step:
    """A model ready for a step, with a counter that tracks its states."""

    def __init__(self, case: Case) -> None:
        facts = architecture(case.architecture)
        self.case = case
        self.live = LiveBytes()
        self.states: Counter[str] = Counter()
        self.model = (critic if case.loss == "value" else causal_lm)(
            facts, case.layers or facts["num_hidden_layers"]
        )
        if case.lora_targets:
            add_adapters(self.model, case.lora_rank, TARGETS[case.lora_targets])
        if case.recompute == "full":
            self.model.activation_checkpointing_enable({"use_reentrant": False})
        self.model.train()
        self.trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        for tensor in (*self.model.parameters(), *self.model.buffers()):
            self.live.track(tensor, "parameters")
        for number, layer in enumerate(self.model.model.layers):
            layer.register_forward_hook(partial(self._on_layer_output, number))

    def _on_layer_output(
        self, number: int, module: torch.nn.Module, inputs: Any, output: torch.Tensor
    ) -> None:
        if output.requires_grad:
            self._enter_at_gradient(output, f"backward_{number}")

    def _enter_at_gradient(self, tensor: torch.Tensor, phase: str) -> None:
        def enter(gradient: torch.Tensor) -> None:
            self.live.phase = phase

        tensor.register_hook(enter)

    def loss(self) -> torch.Tensor:
        """Run the model up to the loss."""
        self.live.phase = "forward"
        tokens = torch.empty(1, self.case.tokens, dtype=torch.long)
        with torch.autocast("cpu", torch.bfloat16, enabled=bool(self.case.lora_targets)):
            hidden = self.model.model(input_ids=tokens).last_hidden_state
            self.live.phase = "loss"
            if hidden.requires_grad:
                self._enter_at_gradient(hidden, "backward_norm")
            head = self.model.score if self.case.loss == "value" else self.model.lm_head
            return LOSSES[self.case.loss](hidden, head)

    def without_gradients(self) -> None:
        """Run one pass as for log-probabilities."""
        with self.live, torch.no_grad():
            self.loss()
        self.states = self.live.live.copy()

    def update(self) -> None:
        """Run one training step on one micro-batch, with existing optimizer states."""
        optimizer = self._optimizer()
        with self.live:
            loss = self.loss()
            self.live.gradient_shapes = _weight_shapes(self.trained, self.case.tokens)
            loss.backward()
            del loss
            self.live.gradient_shapes = set()
            self.live.phase = "optimizer_step"
            optimizer.step()
        self.states = self.live.live.copy()
        self.states["gradients"] = sum(p.grad.untyped_storage().nbytes() for p in self.trained)

    def beside_states(self) -> int:
        """Return the bytes of states that are not per parameter: buffers, and Adam's step counters."""
        buffers = sum(buffer.untyped_storage().nbytes() for buffer in self.model.buffers())
        return buffers + (4 * len(self.trained) if self.case.gradients else 0)

    def _optimizer(self) -> torch.optim.Optimizer:
        fused = self.case.optimizer == "adamw-fused"
        optimizer = torch.optim.AdamW(self.trained, foreach=not fused, fused=fused)
        for parameter in self.trained:
            parameter.grad = torch.empty_like(parameter)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for state in optimizer.state.values():
            for tensor in state.values():
                self.live.track(tensor, "optimizer")
        return optimizer


def _weight_shapes(parameters: list[torch.nn.Parameter], tokens: int) -> set[tuple[int, ...]]:
    """Return the shapes of weights, and of matrices also transposed.

    Raises:
        ValueError: a shape could also be that of an activation.
    """
    shapes = {tuple(parameter.shape) for parameter in parameters}
    if any(tokens in shape for shape in shapes):
        raise ValueError(
            f"{tokens} tokens: a weight has that size too, and could not be told from an activation"
        )
    return shapes | {(*shape[:-2], *reversed(shape[-2:])) for shape in shapes}


def trace(case: Case) -> dict[str, Any]:
    """Return the record of one case: settings, states, and the peaks of the phases, in bytes."""
    began = time.perf_counter()
    with FakeTensorMode():
        step = Step(case)
        if case.gradients:
            step.update()
        else:
            step.without_gradients()
    phases = {phase: _peak(step, phase) for phase in PHASES}
    phases = {phase: peak for phase, peak in phases.items() if peak}
    highest = max(phases, key=lambda phase: phases[phase]["total"])
    return {
        "id": case.id,
        **dataclasses.asdict(case),
        "layers": step.model.config.num_hidden_layers,
        "dtype": "bf16 base, fp32 adapters, bf16 autocast" if case.lora_rank else "bf16",
        "parameters": sum(p.numel() for p in step.model.parameters()),
        "trained_parameters": sum(p.numel() for p in step.trained),
        "states_bytes": {group: step.states[group] for group in GROUPS[:3]},
        "beside_states_bytes": step.beside_states(),
        "peak_bytes": phases[highest]["total"],
        "peak_phase": highest,
        "phases_bytes": phases,
        "seconds": round(time.perf_counter() - began, 1),
    }


def _peak(step: Step, phase: str) -> dict[str, Any]:
    """Return the live bytes at the largest moment of a phase, and the largest sum of activations at any moment."""
    live = step.live
    names = [name for name in live.peaks if name == phase or name.startswith(f"{phase}_")]
    if not names:
        return {}
    name = max(names, key=lambda name: live.peaks[name].total())
    peak = live.peaks[name]
    record = {"total": peak.total(), **{group: peak[group] for group in GROUPS}}
    record["activations_largest"] = max(live.largest.get((name, "activations"), 0) for name in names)
    if phase == "backward":
        record["where"] = name.removeprefix("backward_")
    return record


def environment() -> dict[str, str]:
    """Return the versions that a trace depends on."""
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return {**versions, "python": platform.python_version()}


def main() -> None:
    """Trace the cases whose id contains the given words; write the file only if all cases were traced."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "words", nargs="*", help="trace only cases whose id contains one of these, and write nothing"
    )
    parser.add_argument(
        "--output", type=Path, default=OUTPUT, help="where to write (default: next to this file)"
    )
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    cases = [
        case for case in CASES if not arguments.words or any(word in case.id for word in arguments.words)
    ]
    records = [_rounded_record(trace(case)) for case in cases]
    if not arguments.words:
        traces = {
            "environment": environment(),
            "cases": records,
            "logits": [trace_logits(case) for case in logits_cases()],
            "sharding": [trace_sharding(case) for case in sharding_cases()],
        }
        arguments.output.write_text(json.dumps(traces, indent=2) + "\n", encoding="utf-8")


def _rounded_record(record: dict[str, Any]) -> dict[str, Any]:
    size = record["peak_bytes"] / 2**30
    sys.stdout.write(
        f"{size:8.3f} GiB  {record['peak_phase']:15}{record['seconds']:6.1f} s  {record['id']}\n"
    )
    sys.stdout.flush()
    return record


if __name__ == "__main__":
    main()
