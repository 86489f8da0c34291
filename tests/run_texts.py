"""Texts of run files."""

from __future__ import annotations

from datetime import date
from typing import Any

import yaml

from sphinx_verl_resources.logs.run_file import run_text as canonical_text

#: A run with only the required fields.
MINIMAL: dict[str, Any] = {
    "id": "a",
    "size": "7B",
    "tag": "MIN",
    "model": "Qwen/Qwen2.5-7B-Instruct",
    "task": "GRPO",
    "gpus": {"count": 2, "type": "H100"},
    "train": "fsdp",
    "infer": {"engine": "vllm", "version": "0.8.3"},
}
#: A run without a problem of any rule.
GOOD: dict[str, Any] = {
    **MINIMAL,
    "added": date(2025, 7, 12),
    "versions": {"verl": "0.4.0"},
    "evidence": [{"kind": "log", "url": "https://example.org/log"}],
}
#: Models of other size classes.
MODELS = {
    **{f"{size}B": f"Qwen/Qwen2.5-{size}B-Instruct" for size in ("0.5", "1.5", "3", "14", "32")},
    "70B": "Qwen/Qwen2.5-72B-Instruct",
    "405B": "meta-llama/Llama-3.1-405B",
    "671B": "deepseek-ai/DeepSeek-V3",
}


def of_size(**changes: Any) -> dict[str, Any]:
    """Return the changes, with a model for their size class if they contain none."""
    model = MODELS.get(changes.get("size", ""))
    return {"model": model, **changes} if model else changes


def run_text(**changes: Any) -> str:
    """Return the minimal run file with changes; a value of ``...`` removes a key."""
    fields = {**MINIMAL, **of_size(**changes)}
    return yaml.safe_dump({key: value for key, value in fields.items() if value is not ...}, sort_keys=False)


def good_run_text(**changes: Any) -> str:
    """Return a run file that has no problem of any rule except through the changes."""
    fields = {**GOOD, **of_size(**changes)}
    return canonical_text({key: value for key, value in fields.items() if value is not ...})
