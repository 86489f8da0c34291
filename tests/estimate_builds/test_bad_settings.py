"""Settings below directives: whatever they are, the page is built, and each message has its file and line."""

from __future__ import annotations

import pytest
from page_cases import in_myst

ODD = (
    "1: 2", "a: {}", "{}", "[]", "null", "a: .nan", "actor_rollout_ref.rollout.n: .nan", "actor_rollout_ref.rollout.n: 1e400",
    "actor_rollout_ref.rollout.gpu_memory_utilization: .inf", "a: [[1], {b: c}]", "a: 2020-01-01", "a.b: 1\na.b.c: 2",
    "a: *x", "a: &x 1", "a: !!python/object:os.system 1", "日本: 語", "? [1]\n: 2", "a: |\n  text\n  more", "---\na: 1\n---\nb: 2",
    "a: " + "x" * 5000, "actor_rollout_ref.model.lora_rank: 0\nactor_rollout_ref.model.target_modules: [q_proj]",
    "actor_rollout_ref.actor.strategy: megatron\nactor_rollout_ref.actor.megatron.pipeline_model_parallel_size: 7",
    "trainer.nnodes: -1", "actor_rollout_ref:\n- 1", "actor_rollout_ref.actor.strategy: [fsdp]", "\tactor: 1", "a: '${a}'",
    "data.train_batch_size: 100000000000000000000000", "actor_rollout_ref.rollout.n: true",
)  # fmt: skip


HEAD = ".. verl-memory::\n   :model: Qwen/Qwen2.5-7B\n   :gpus: 8*H100\n   :show: answer, table\n"
BAD = HEAD + "\n   algorithm.adv_estimator: grpo\n   actor_rollout_ref.rollout.n: x\n"


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["rst", "md"])
def test_no_text_stops_the_build(project, suffix):
    project.conf.update(extensions=["myst_parser"])
    below = ["".join(f"   {line}\n" for line in odd.split("\n")) for odd in ODD]
    text = "\n\n".join(f"{HEAD}\n{lines}" for lines in below) + "\n\nThe end.\n"
    build = project.page(in_myst(text) if suffix == "md" else text, f"index.{suffix}").build()
    assert "The end." in build.soup().get_text()
    for line in build.warnings:
        assert "[verl." in line or "verl-" not in line, line


@pytest.mark.parametrize("place", ["part.inc", "index.rst"])
def test_the_line_is_right_in_an_included_file_and_inside_a_note(project, place):
    (project.path / "part.inc").write_text(f"Text.\n\n{BAD}", "utf-8")
    inside = "".join(f"      {line}\n" for line in BAD.splitlines())
    project.page(
        "Before.\n\n.. include:: part.inc\n" if "inc" in place else f"- item\n\n  .. note::\n\n{inside}"
    )
    (line,) = project.build().warnings
    lines = (project.path / place).read_text("utf-8").splitlines()
    number = next(at for at, text in enumerate(lines, 1) if "rollout.n: x" in text)
    assert (
        f"{place}:{number}: ERROR: verl-memory: actor_rollout_ref.rollout.n: expected a whole number" in line
    )
