"""Attention that computes nothing and makes the same tensors as flash attention 2.

PyTorch's own attention on the CPU keeps other tensors than the GPU kernel, so this imitates the kernel's sizes. It
keeps the output and one fp32 number per head and token. Backward makes the three gradients and an fp32 sum of the
query's gradient. With fewer key-value heads than heads, it also makes the gradients of key and value for every head
before their sum.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

#: The name in a configuration; transformers would look for a name with "flash" in it on the hub.
NAME = "sizes_only"


class _Sizes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        batch, heads, tokens, size = query.shape
        out = query.new_empty(batch, tokens, heads, size)
        ctx.save_for_backward(query, key, value, out, _per_head(query))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        query, key, value, _, _ = ctx.saved_tensors
        gradients = tuple(torch.empty_like(tensor) for tensor in (query, key, value))
        temporary = [_per_head(query), torch.empty_like(query, dtype=torch.float32)]
        if key.shape[1] != query.shape[1]:
            temporary += [torch.empty_like(query), torch.empty_like(query)]
        return gradients


def _per_head(query: torch.Tensor) -> torch.Tensor:
    return query.new_empty(query.shape[:-1], dtype=torch.float32)


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    return _Sizes.apply(query, key, value), None


def register() -> None:
    """Register the attention with transformers as `NAME`, without a mask."""
    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, lambda *args, **kwargs: None)
