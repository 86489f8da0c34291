"""Rules never raise, for any content of runs."""

from __future__ import annotations

import shutil
from datetime import date

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sphinx_verl_resources.catalog.files import configured_directory
from sphinx_verl_resources.catalog.run_text import run_text
from sphinx_verl_resources.lint.check import check_data
from sphinx_verl_resources.lint.context import CheckContext

KEYS = [
    "trainer.nnodes",
    "trainer.n_gpus_per_node",
    "actor_rollout_ref.rollout.tensor_model_parallel_size",
    "actor_rollout_ref.rollout.data_parallel_size",
    "actor_rollout_ref.rollout.nnodes",
    "actor_rollout_ref.rollout.n_gpus_per_node",
    "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size",
    "actor_rollout_ref.actor.fsdp_config.fsdp_size",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
    "data.train_batch_size",
    "data.max_response_length",
    "algorithm.adv_estimator",
    "a.b",
]
NUMBERS = st.sampled_from([0, 1, -1, 3, 8, 2**40, 0.5, 1e-9, 1e18])
VALUES = st.one_of(st.none(), st.booleans(), NUMBERS, st.sampled_from(["x", "1e9", "grpo", "", "8"]))
RUNS = st.fixed_dictionaries(
    {
        "id": st.just("a"),
        "size": st.sampled_from(["7B", "0.5B"]),
        "tag": st.sampled_from(["MIN", "RECOMMENDED", None, "X"]),
        "model": st.sampled_from(["Qwen/Qwen2.5-7B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3", "x"]),
        "task": st.sampled_from(["GRPO", "GRPO-LoRA", "DAPO (fully async)", "PPO", "?"]),
        "gpus": st.fixed_dictionaries(
            {
                "count": st.sampled_from([1, 2, 3, 8, 100_000, 0]),
                "type": st.sampled_from(["H100", None, "Z"]),
            },
            optional={"nodes": st.sampled_from([1, 2, 7]), "memory_gb": st.sampled_from([1, 80, 1e4])},
        ),
        "train": st.sampled_from(["fsdp", "megatron", "veomni"]),
        "infer": st.sampled_from([None, {"engine": "vllm"}, {"engine": "sglang", "version": "0.4"}]),
    },
    optional={
        "kind": st.sampled_from(["tested", "measured", "stated", "script-default"]),
        "script": st.fixed_dictionaries(
            {
                "ref": st.sampled_from(["main", "49b08e950"]),
                "path": st.sampled_from(["a.sh", "a/run_x_fsdp.sh"]),
            }
        ),
        "added": st.dates(date(1970, 1, 1), date(9999, 12, 31)),
        "settings": st.dictionaries(st.sampled_from(KEYS), VALUES),
        "measured": st.fixed_dictionaries(
            {"gib": st.sampled_from([0.001, 60, 1e5])},
            optional={"counter": st.sampled_from(["device", "torch-max-allocated", "not-stated"])},
        ),
    },
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("any")


def problems(base, folder, files):
    """The problems of data with these files."""
    shutil.rmtree(folder / "data", ignore_errors=True)
    (folder / "data/runs").mkdir(parents=True)
    for name, text in files.items():
        (folder / "data" / name).write_text(text, "utf-8")
    context = CheckContext([configured_directory("data", folder)], bundled=base, today=date(2026, 11, 22))
    return list(check_data(context))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(run=RUNS, other=RUNS)
def test_any_run(base, folder, run, other):
    texts = {"runs/a.yaml": run_text(run), "runs/b.yaml": run_text({**other, "id": "b"})}
    found = problems(base, folder, texts)
    for problem in found:
        assert problem.place.path in {"data/runs/a.yaml", "data/runs/b.yaml"}
        lines = texts[problem.place.path.removeprefix("data/")].splitlines()
        assert 1 <= problem.place.line <= len(lines)
        assert 1 <= problem.place.column <= len(lines[problem.place.line - 1]) + 1
    assert found == sorted(found)
