"""Figures by their names in text."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.analysis import value_text
from sphinx_verl_resources.diagnostics import NoAnswerError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8B, after FSDP", "61.5 GB"),
        ("8b,after fsdp", "61.5 GB"),
        ("8B, after gradient checkpointing", "48.7 GB"),
        ("8B, after gradient-checkpointing", "48.7 GB"),
        ("8B, total", "117.5 GB"),
        ("8B, per GPU", "31.9 GB"),
        ("3B, KV cache", "21.5 GB"),
        ("3B, kv-cache", "21.5 GB"),
        ("3B, KV cache after dynamic batching", "12.9 GB"),
        ("3B, total after FSDP", "37.2 GB"),
        ("3B, activations after activation offloading", "0.81 GB"),
        ("3B, model states", "24.0 GB"),
        ("3B, states after FSDP", "3.0 GB"),
        ("3B, optimizer states", "12.0 GB"),
        ("3B, saved by FSDP", "21.0 GB"),
        ("3B, KV cache, in GiB", "20.0 GiB"),
        ("8B, 16 GPUs, after FSDP", "57.5 GB"),
        ("8B, 1 GPU, after FSDP", "117.5 GB"),
        ("3B, batch size 64, KV cache", "42.9 GB"),
        ("3B, batch 64, sequence length 1024, KV cache", "21.5 GB"),
        ("3B, number of parameters", "3,000,000,000"),
        ("3B, stated hidden size", "2795"),
        ("3B, GPUs", "8"),
        ("3B, 4 GPUs, GPUs", "4"),
        ("Qwen/Qwen3-8B, layers", "36"),
        ("batch size", "32"),
        ("Sequence Length", "2048"),
        ("vocabulary size", "32,000"),
        ("system overhead", "2.0 GB"),
        ("memory limit", "90 %"),
        ("GPUs", "8"),
        ("7B, checkpoint", "Qwen/Qwen2.5-7B"),
        ("8B, After FSDP", "61.5 GB"),
        ("3B, kv cache AFTER dynamic-batching", "12.9 GB"),
        ("3B, Saved By FSDP", "21.0 GB"),
        ("3B, KV cache, in GB", "21.5 GB"),
        ("model names", "3B, 8B, 32B, 0.5B, 1.5B, 7B, 14B, 70B, 122B, 235B, 405B, 671B"),
    ],
)
def test_value(analysis, text, value):
    assert value_text(analysis, text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown figure '': write a model and a figure, for example '8B, after FSDP'"),
        ("8B", "unknown figure '8B'"),
        ("bach size", "did you mean 'batch size'?"),
        ("8B,", "there is no figure ''"),
        ("9B, total", "unknown model '9B'; the nearest is 8B"),
        ("8B, after magic", "there is no step 'magic'; allowed: FSDP, Gradient checkpointing"),
        ("8B, after FSPD", "did you mean 'FSDP'?"),
        ("8B, saved by magic", "there is no step 'magic'"),
        ("8B, kv cash", "there is no figure 'kv cash'; did you mean 'KV cache'?"),
        ("8B, total, per GPU", "expected one figure, got 'total', 'per GPU'"),
        ("8B, 16 GPUs", "expected one figure, got none"),
        ("8B, 0 GPUs, per GPU", "'0 GPUs': must be from 1 to 100,000"),
        ("8B, 999999999999 GPUs, per GPU", "'999999999999 GPUs': must be from 1 to 100,000"),
        ("8B, 8 GPUs, 16 GPUs, per GPU", "'16 GPUs': given twice"),
        ("3B, checkpoint", "'checkpoint' is not recorded for 3B"),
        ("8B, 16 GPUs, total", "the number of GPUs does not change 'total'"),
        ("8B, hidden size, in GiB", "'hidden size' is not a size and has no unit"),
        ("8B, batch size", "'batch size' is an assumption shared by all models"),
        ("8B, layers after FSDP", "there is no figure 'layers after FSDP'; write a component"),
    ],
)
def test_errors(analysis, text, message):
    with pytest.raises(NoAnswerError) as error:
        value_text(analysis, text)
    assert message in str(error.value)
