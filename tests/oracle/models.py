"""Models of transformers from the facts of an architecture, with random weights and without downloads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import yaml
from attention import NAME, register
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification, PreTrainedModel

HERE = Path(__file__).resolve().parent
ARCHITECTURES = (HERE.parents[1] / "data" / "architectures.yaml", HERE / "architectures.yaml")
#: Facts with the same name in a configuration.
SAME_NAME = (
    "hidden_size",
    "num_hidden_layers",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "tie_word_embeddings",
    "max_position_embeddings",
)
#: Facts of experts with other names in a configuration.
EXPERTS = {
    "num_experts": "num_experts",
    "experts_per_token": "num_experts_per_tok",
    "moe_intermediate_size": "moe_intermediate_size",
}
SHARED_EXPERT = {"shared_expert_intermediate_size": "shared_expert_intermediate_size"}
#: The arguments for every model.
HOW = {"dtype": torch.bfloat16, "attn_implementation": NAME}
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
ALL_LINEAR = (*ATTENTION, "gate_proj", "up_proj", "down_proj")


def architecture(name: str) -> dict[str, Any]:
    """Return the facts of one architecture."""
    entries = (
        entry for path in ARCHITECTURES for entry in yaml.safe_load(path.read_text("utf-8"))["architectures"]
    )
    return next(entry for entry in entries if entry["name"] == name)


def causal_lm(facts: dict[str, Any], layers: int) -> PreTrainedModel:
    """Return the bf16 model of an architecture, with some or all of its layers.

    Raises:
        ValueError: the whole model does not have the recorded number of parameters.
    """
    model = AutoModelForCausalLM.from_config(_config(facts, layers), **HOW)
    count = sum(parameter.numel() for parameter in model.parameters())
    if layers == facts["num_hidden_layers"] and count != facts["parameters"]:
        raise ValueError(f"{facts['name']}: {count} parameters, the facts say {facts['parameters']}")
    return model


def critic(facts: dict[str, Any], layers: int) -> PreTrainedModel:
    """Return the same model with a value head, as verl makes critics."""
    config = _config(facts, layers)
    config.num_labels = 1
    config.classifier_dropout = 0.0
    return AutoModelForTokenClassification.from_config(config, **HOW)


def _config(facts: dict[str, Any], layers: int) -> Any:
    register()
    fields = {key: facts[key] for key in SAME_NAME if facts[key] is not None} | {"num_hidden_layers": layers}
    if "moe" in facts:
        experts = EXPERTS | (SHARED_EXPERT if facts["moe"]["shared_experts"] else {})
        fields |= {theirs: facts["moe"][ours] for ours, theirs in experts.items()}
    return AutoConfig.for_model(facts["model_type"], use_cache=False, pad_token_id=None, **fields)


class _Adapted(nn.Module):
    """A frozen linear layer with fp32 adapters, in PEFT's order of operations."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False, dtype=torch.float32)
        self.up = nn.Linear(rank, base.out_features, bias=False, dtype=torch.float32)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        out = self.base(hidden)
        adapted = self.up(self.down(hidden.to(self.down.weight.dtype))) * 2.0
        return (out + adapted).to(out.dtype)


def add_adapters(model: PreTrainedModel, rank: int, targets: tuple[str, ...]) -> None:
    """Freeze a model and add adapters of a rank to its target layers."""
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in targets and isinstance(child, nn.Linear):
                setattr(module, name, _Adapted(child, rank))
    model.enable_input_require_grads()
