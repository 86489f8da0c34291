"""Public out-of-memory reports, and a short log of each.

A log contains what its report shows: messages, the functions of the traceback, figures and settings. It does
not use the phase that a reader assigned to the report.
"""

from __future__ import annotations

import io
from pathlib import Path
from pprint import pformat
from typing import TYPE_CHECKING, Any

import yaml

from sphinx_verl_resources.fit.names import recorded_gpu
from sphinx_verl_resources.logs.actions import Action, actions_for
from sphinx_verl_resources.logs.diagnosis import Diagnosis, diagnose
from sphinx_verl_resources.logs.log import Log, read_log
from sphinx_verl_resources.memory.registries import model_named
from sphinx_verl_resources.memory.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sphinx_verl_resources.memory.registries import EstimatorContext


_DRIVER, _WORKER = "(TaskRunner pid=41) ", "(WorkerDict pid=57) "
_PLACES = "/opt/lib/"
#: Messages without figures.
_MESSAGES = {
    "wake-up": "RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62",
    "raylet-killed": "(raylet) node_manager.cc:3193: 1 Workers (tasks / actors) killed due to memory "
    "pressure (OOM), 0 Workers crashed due to other reasons at node (ID: 5f, IP: 10.0.0.7)",
    "worker-died": "(raylet) A worker died or was killed while executing a task by an unexpected system "
    "error. Worker exit type: SYSTEM_ERROR. There are some potential root causes. (1) The process is killed "
    "by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called.",
    "ray-memory": "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
}
#: The sentences of PyTorch's message in order, each with its figure.
_SENTENCES = {
    "tried": "Tried to allocate {} GiB. ",
    "capacity": "GPU 0 has a total capacity of {} GiB",
    "free": " of which {} GiB is free. ",
    "in_use": "Including non-PyTorch memory, this process has {} GiB memory in use. ",
    "process": "Process 4711 has {} GiB memory in use. ",
    "allocated": "Of the allocated memory {} GiB is allocated by PyTorch, ",
    "reserved_unallocated": "and {} GiB is reserved by PyTorch but unallocated.",
}


def load_reports() -> list[dict[str, Any]]:
    """Load the reports."""
    path = Path(__file__).parent / "logs/oom_reports.yaml"
    reports: list[dict[str, Any]] = yaml.safe_load(path.read_text("utf-8"))
    return reports


def log_of(report: Mapping[str, Any]) -> bytes:
    """Return a short log of a report."""
    lines = [_DRIVER + line for line in pformat(_nested(_settings(report))).splitlines()]
    if engine := str(report.get("engine", "")).removeprefix("vllm "):
        lines += (
            [f"{_WORKER}Initializing a V1 LLM engine (v{engine}) with config:"] if engine[0].isdigit() else []
        )
    if kind := report.get("gpus", {}).get("type"):
        lines.append(f"GPU 0: NVIDIA {kind}")
    if step := report.get("step"):
        lines.append(f"{_DRIVER}step:{step} - timing_s/step:100.0")
    for message in report["messages"]:
        if report.get("frames"):
            lines.append(f"{_WORKER}Traceback (most recent call last):")
            lines += [_WORKER + line for line in _traceback(report["frames"])]
        lines += _message(message, report.get("figures", {}))
    return "\n".join([*lines, ""]).encode()


def _settings(report: Mapping[str, Any]) -> dict[str, Any]:
    settings = dict(report.get("settings", {}))
    task = str(report.get("task", "")).partition(" ")[0].strip(",")
    if task in {"grpo", "ppo"}:
        settings["algorithm.adv_estimator"] = {"ppo": "gae"}.get(task, task)
    if model := report.get("model"):
        settings["actor_rollout_ref.model.path"] = model
    if count := report.get("gpus", {}).get("count"):
        nodes_used = max(1, count // 8)
        settings |= {"trainer.nnodes": nodes_used, "trainer.n_gpus_per_node": count // nodes_used}
    return settings or {"trainer.project_name": "verl"}


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in settings.items():
        *above, name = key.split(".")
        into = result
        for part in above:
            into = into.setdefault(part, {})
        into[name] = value
    return result


def _traceback(frames: list[str]) -> Iterator[str]:
    for number, frame in enumerate(frames, 100):
        file, _, function = frame.rpartition(":")
        if file == "ray:":
            name = function if function == "main_task" else f"WorkerDict.{function}"
            yield f"ray.exceptions.RayTaskError(OutOfMemoryError): ray::{name}() (pid=57, ip=10.0.0.7)"
        else:
            yield f'  File "{_PLACES}{file}", line {number}, in {function}'


def _message(name: str, figures: Mapping[str, Any]) -> list[str]:
    if name == "task":
        return []
    if name == "cuda":
        sentences = [text.format(figures[key]) for key, text in _SENTENCES.items() if key in figures]
        return [f"{_WORKER}torch.OutOfMemoryError: CUDA out of memory. {''.join(sentences)}"]
    lines = [_MESSAGES[name] if name != "wake-up" else _WORKER + _MESSAGES[name]]
    if name == "ray-memory" and "node" in figures:
        lines.append(
            "Memory on the node (IP: 10.0.0.7, ID: 5f) where the task (name=TaskRunner.__init__, pid=41) was "
            f"running was {figures['node_used']}GB / {figures['node']}GB (0.99), which exceeds the memory "
            "usage threshold of 0.95."
        )
    return lines


def _diagnosis(report: Mapping[str, Any], data: EstimatorContext) -> Diagnosis:
    log = read_log(io.BytesIO(log_of(report)), report["report"])
    path = str(log.settings.get("actor_rollout_ref.model.path", ""))
    named = model_named(path, data.architectures)
    return diagnose(
        log,
        Request(named.name if named else "", settings_of(log), gpu=recorded_gpu(log.gpu, data.gpus)),
        data,
    )


def settings_of(log: Log) -> Mapping[str, Any]:
    """Return the settings of a log, if any is verl's."""
    return log.settings if any(key.startswith("actor_rollout_ref.") for key in log.settings) else {}


def first_action(report: Mapping[str, Any], data: EstimatorContext) -> Action | None:
    """Return the first action for a report's log."""
    return next(iter(actions_for(_diagnosis(report, data))), None)


def phase_told(report: Mapping[str, Any], data: EstimatorContext) -> str:
    """Return the phase in a report's log, or ``unknown``."""
    failure = _diagnosis(report, data).failure
    return failure.phase if failure else "unknown"
