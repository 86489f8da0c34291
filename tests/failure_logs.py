"""Logs of runs that ran out of memory, generated from tests/logs/failures.yaml."""

from __future__ import annotations

FIGURES = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.00 GiB of which 1.50 GiB is free. "
    "Including non-PyTorch memory, this process has 60.00 GiB memory in use. Process 12 has 17.50 GiB memory in use. Of the "
    "allocated memory 50.00 GiB is allocated by PyTorch, and 8.00 GiB is reserved by PyTorch but unallocated."
)
T1 = f"torch.OutOfMemoryError: {FIGURES}"
CONFIG = (
    "(TaskRunner pid=41) {'actor_rollout_ref': {'model': {'lora_rank': 0, 'path': 'Qwen/Qwen2.5-7B'}},\n"
    "(TaskRunner pid=41)  'trainer': {'nnodes': 1}}\n"
)
STEP = "(TaskRunner pid=41) step:2 - perf/max_memory_allocated_gb:59.4 - timing_s/step:81.0"


def frames(names):
    """Return two lines for each function, as Python prints them."""
    for number, name in enumerate(names, 100):
        file, _, function = name.rpartition(":")
        yield f'  File "/opt/lib/{file}", line {number}, in {function}'
        yield f"    {function}(data)"


def driver_log(case):
    """Return the end of a run as printed by its driver: the worker's traceback inside the driver's."""
    error = case.get("error", T1)
    kind = error.partition(":")[0].rpartition(".")[2]
    yield "Error executing job with overrides: ['trainer.nnodes=1']"
    yield "Traceback (most recent call last):"
    yield from frames(["verl/trainer/main_ppo.py:main"])
    yield f"ray.exceptions.RayTaskError({kind}): ray::TaskRunner.run() (pid=41, ip=10.0.0.7, actor_id=a)"
    yield from frames(
        ["verl/trainer/main_ppo.py:run", *case["driver"], "verl/single_controller/ray/base.py:func"]
    )
    yield f"ray.exceptions.RayTaskError({kind}): ray::WorkerDict.{case['task']}() (pid=57, ip=10.0.0.7, actor_id=b)"
    yield from frames(case["worker"])
    yield error


def engine_log(case):
    """Return the end of an engine, which prints its traceback after the server's name and a time."""
    front = (
        "(vLLMHttpServer pid=70) \x1b[36m(EngineCore_DP0 pid=71)\x1b[0;0m ERROR 06-12 10:20:30 [core.py:843] "
    )
    yield front + "Traceback (most recent call last):"
    yield from (front + line for line in frames(case["engine"]))
    yield front + case.get("error", T1)
    yield "(vLLMHttpServer pid=70) vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."


def log_of(case):
    lines = case.get("lines") or [*(driver_log(case) if "driver" in case else engine_log(case))]
    return (CONFIG + "\n".join([*([STEP] if case.get("step") else []), *lines, ""])).encode()
