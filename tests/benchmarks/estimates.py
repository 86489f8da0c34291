"""Measure the speed of estimates on one core. Run by ``make benchmark``; each figure is the best of several."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from tabulate import tabulate

from sphinx_verl_resources.cli.data import read_data
from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.estimator.estimate import estimate
from sphinx_verl_resources.estimator.recorded import estimate_case
from sphinx_verl_resources.estimator.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sphinx_verl_resources.catalog.models.case import Case
    from sphinx_verl_resources.estimator.registries import Registries

A = "actor_rollout_ref.actor"
GRPO: Mapping[str, Any] = {"algorithm.adv_estimator": "grpo", f"{A}.use_dynamic_bsz": True}
MEGATRON = {
    f"{A}.strategy": "megatron",
    f"{A}.megatron.tensor_model_parallel_size": 4,
    f"{A}.megatron.pipeline_model_parallel_size": 2,
}
#: The estimates, with the minimum number per second.
RUNS = (
    ("7B, GRPO, FSDP", "Qwen/Qwen2.5-7B", GRPO, "5,000"),
    ("7B, GRPO with a reference", "Qwen/Qwen2.5-7B", {**GRPO, f"{A}.use_kl_loss": True}, "5,000"),
    ("7B, GRPO, LoRA", "Qwen/Qwen2.5-7B", {**GRPO, "actor_rollout_ref.model.lora_rank": 32}, "5,000"),
    ("7B, PPO, FSDP", "Qwen/Qwen2.5-7B", {**GRPO, "algorithm.adv_estimator": "gae"}, ""),
    ("72B, GRPO, Megatron", "Qwen/Qwen2.5-72B", {**GRPO, **MEGATRON}, ""),
    ("30B with experts, GRPO, Megatron", "Qwen/Qwen3-30B-A3B", {**GRPO, **MEGATRON}, ""),
)


def fastest(action: Callable[[], object], times: int, repeat: int) -> float:
    """Return the seconds of one call, the best of several loops."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        for _ in range(times):
            action()
        best = min(best, time.perf_counter() - start)
    return best / times


def recorded_cases(registries: Registries) -> list[Case]:
    """Return the recorded cases that can be estimated."""
    found = []
    for entry in read_data([]).cases.by_id.values():
        try:
            estimate_case(entry.case, registries)
        except NoAnswerError:
            continue
        found.append(entry.case)
    return found


def command_line(count: int, repeat: int) -> float:
    """Return the seconds of ``verl-resources estimate`` on some cases, including start-up."""
    case = {"model": "Qwen/Qwen2.5-7B", "gpus": {"count": 8, "type": "H100"}, "config": dict(GRPO)}
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "cases.yaml"
        cases = (yaml.safe_dump([{"id": f"case-{index}", **case}]) for index in range(count))
        path.write_text("".join(cases), "utf-8")
        command = [sys.executable, "-m", "sphinx_verl_resources", "estimate", str(path), "--format", "json"]
        return fastest(lambda: subprocess.run(command, check=True, capture_output=True), 1, repeat)


def traced(start: str) -> float:
    """Return the seconds of the fastest trace whose name has this prefix."""
    path = Path(__file__).resolve().parent.parent / "oracle" / "traces.json"
    cases = json.loads(path.read_text("utf-8"))["cases"]
    return min(case["seconds"] for case in cases if case["id"].startswith(start))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="how often each figure is taken (default: 5)")
    repeat = parser.parse_args().repeat
    registries = read_data([]).registries
    rows = []
    for title, model, config, target in RUNS:
        request = Request(model, config, gpus=16, gpu="H100")
        seconds = fastest(lambda request=request: estimate(request, registries).peak, 50, 20 * repeat)  # type: ignore[misc]
        rows.append((title, f"{1 / seconds:,.0f}", f"{seconds * 1e6:.0f}", target))
    cases = recorded_cases(registries)
    seconds = fastest(lambda: [estimate_case(case, registries).peak for case in cases], 5, repeat) / len(
        cases
    )
    rows.append((f"{len(cases)} recorded cases", f"{1 / seconds:,.0f}", f"{seconds * 1e6:.0f}", ""))
    print(tabulate(rows, ("estimates, one core", "a second", "µs each", "at least"), disable_numparse=True))
    print(
        f"\n7B, one training step traced with fake tensors, as recorded: {traced('Qwen2.5-7B/full/'):.0f} s"
    )
    print(f"verl-resources estimate on 100 cases: {command_line(100, repeat):.2f} s (at most 1)")


if __name__ == "__main__":
    main()
