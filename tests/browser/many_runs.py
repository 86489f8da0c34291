"""Projects with many runs, for measurements in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

GPUS = ("H100", "H20", "H800", "A100", "B200")
MODELS = {"3B": "3B", "7B": "7B", "14B": "14B", "32B": "32B", "70B": "72B"}
TASKS = ("GRPO", "PPO", "DAPO", "GRPO-LoRA")
BACKENDS = ("fsdp", "fsdp2", "megatron")
RUN = """\
id: r{number}
size: {size}
tag: MIN
model: Qwen/Qwen2.5-{model}-Instruct
task: {task}
gpus: {{count: {count}, type: {gpu}}}
train: {train}
infer: {{engine: vllm, version: "0.8.3"}}
max_batch: {batch}
script: {{ref: abc, path: examples/tuning/qwen2-7b_grpo_{number}_vllm.sh}}
kind: {kind}
"""
CONF = """\
extensions = ["sphinx_verl_resources"]
verl_resources_data = ["../data"]
html_theme = {theme!r}
"""


def write_project(folder: Path, runs: int, theme: str) -> Path:
    """Write a project with one page that shows this many runs; return the folder of its sources."""
    data, source = folder / "data/runs", folder / "docs"
    data.mkdir(parents=True)
    source.mkdir()
    for number in range(runs):
        fields = {
            name: values[number * factor % len(values)]
            for factor, (name, values) in enumerate(
                {"gpu": GPUS, "size": [*MODELS], "task": TASKS, "train": BACKENDS}.items(), 1
            )
        }
        fields["model"] = MODELS[fields["size"]]
        fields["kind"] = "stated" if number % 2 else "tested"
        text = RUN.format(number=number, count=1 + number % 64, batch=1 + number * 7 % 1000, **fields)
        (data / f"r{number}.yaml").write_text(text, "utf-8")
    (source / "conf.py").write_text(CONF.format(theme=theme), "utf-8")
    (source / "index.rst").write_text("Runs\n====\n\n.. verl-runs::\n", "utf-8")
    return source
