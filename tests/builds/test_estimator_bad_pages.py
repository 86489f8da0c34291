"""Problems of directives of the estimator, and of settings below them, are reported at their lines."""

from __future__ import annotations

import pytest

#: A directive without settings, which tests add.
MODEL = ("verl-memory", ":model: Qwen/Qwen2.5-7B-Instruct", ":gpus: 8*H100", "")


BAD = [
    ((":run: qwen2-5-7b-grpo-lora-1xh10",), {0: "unknown run 'qwen2-5-7b-grpo-lora-1xh10'; did you mean 'qwen2-5-7b-grpo-lora-1xh100'? [verl.directive]"}),
    ((":run: qwen2-5-0-5b-ppo-1-gpu",), {0: "the run 'qwen2-5-0-5b-ppo-1-gpu' has no recorded settings; add them to its file, or give a model and settings instead"}),
    ((":run: x", ":model: y"), {0: ":run: and :model: cannot be combined; keep one of them"}),
    ((":run: qwen3-4b-grpo-4xh800", ":gpus: 8*H100"), {0: ":gpus: requires :model:; a run has its own"}),
    ((":run: qwen3-4b-grpo-4xh800", ":steps: fsdp"), {0: ":steps: unknown option; allowed: run, model, "}),
    ((":run: qwen3-4b-grpo-4xh800", ":show: charts"), {0: ":show: unknown value 'charts'; did you mean 'chart'?"}),
    ((":model: Qwen/Qwen2.5-7B",), {0: "set the number and type of GPUs, as in :gpus: 8*H100"}),
    ((":model: Qwen/Qwen2.5-7C", ":gpus: 8*H100"), {0: "model: unknown model 'Qwen/Qwen2.5-7C'; did you mean 'Qwen/Qwen2.5-7B'? If not, add it to architectures.yaml, or give its config.json [verl.unknown_model]"}),
    ((":model: Qwen/Qwen2.5-7B", ":gpus: 8*H1000"), {0: ":gpus: unknown GPU 'H1000'; did you mean 'H100'? If not, add it to gpus.yaml [verl.unknown_gpu]"}),
    ((":model: Qwen/Qwen2.5-7B", ":gpus: 8"), {0: ":gpus: write the number and type of GPUs as in 8*H100, not '8'"}),
    ((":model: Qwen/Qwen2.5-7B", ":gpus: 0*H100"), {0: ":gpus: must be a whole number from 1 to 100,000, got '0'"}),
    ((":model: Qwen/Qwen2.5-7B", ":gpus: 8*H100", ":verl-version: new"), {0: ":verl-version: 'new' is not a release of verl; write it like v"}),
    ((":model: Qwen/Qwen2.5-7B", ":gpus: 8*H100", "", "a: ["), {4: "a value is missing here"}),
    ((":model: Qwen/Qwen2.5-7B", ":gpus: 8*H100", "", "actor_rollout_ref:", "  rollout:", "    gpu_memory_utilization: high", "    tensor_model_parallel_size: 3"),
     {6: "actor_rollout_ref.rollout.gpu_memory_utilization: expected a number, got 'high' [verl.wrong_type]", 7: "actor_rollout_ref.rollout.tensor_model_parallel_size: 3 does not divide the 8 GPUs"}),
    ((":model: Qwen/Qwen2.5-7B", ":gpus: 8*H100", "", "actor_rollout_ref.rollout.n: 0", "algorithm.adv_estimator: grpo", "actor_rollout_ref.actor.ppo_mini_batch_size: many"),
     {4: "actor_rollout_ref.rollout.n: expected a whole number of at least 1, got 0 [verl.wrong_value]", 6: "actor_rollout_ref.actor.ppo_mini_batch_size: expected a whole number, got 'many'"}),
]  # fmt: skip


@pytest.fixture(scope="module", params=["rst", pytest.param("md", marks=pytest.mark.slow)])
def bad(request, build_together, written):
    """A page for each of ``BAD``, in both languages, in one build."""
    suffix = request.param
    pages = {
        f"bad-{number}.{suffix}": f"Before.\n\n{written(('verl-memory', *options), suffix)}\n\nAfter.\n"
        for number, (options, _) in enumerate(BAD)
    }
    return suffix, build_together(pages)


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_options_and_settings(bad, number):
    suffix, together = bad
    messages = BAD[number][1]
    found = together.problems[f"bad-{number}.{suffix}"]
    assert list(found) == [3 + line for line in messages]
    for line, message in messages.items():
        assert found[3 + line].startswith(f"ERROR: verl-memory: {message}"), found[3 + line]
    soup = together.build.soup(f"bad-{number}.html")
    assert len(soup.select(".verl-problem")) == len(messages)
    assert not soup.select("table")
    assert "After." in soup.get_text()


@pytest.mark.parametrize("suffix", ["rst", pytest.param("md", marks=pytest.mark.slow)])
def test_doubts_are_warnings_at_their_line_and_the_table_is_there(project, suffix, written, problems):
    project.conf.update(extensions=["myst_parser"])
    lines = (
        *MODEL[:4], "data.train_batch_size: 64", "actor_rollout_ref.rollout.gpu_memory_utilisation: 0.5",
        "data: {train_batch_size: 32}", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu: ${x.y}",
    )  # fmt: skip
    build = project.page(written(lines, suffix), f"index.{suffix}").build()
    first = 8 if suffix == "rst" else 7
    found = problems(build)
    assert "did you mean 'actor_rollout_ref.rollout.gpu_memory_utilization'?" in found[first + 1]
    assert "data.train_batch_size is set twice" in found[first + 2]
    assert "is unknown" in found[first + 3]
    assert len(found) == 3
    assert all(text.startswith("WARNING: verl-memory: ") for text in found.values())
    assert build.soup().select("table.verl-memory")


@pytest.mark.parametrize("place", ["include", "nested"])
def test_the_line_is_right_wherever_the_directive_stands(project, place, written):
    project.conf.update(extensions=["myst_parser"])
    bad = written((*MODEL[:4], "algorithm.adv_estimator: grpo", "actor_rollout_ref.rollout.n: x"))
    inside = "\n".join(f"   {line}" for line in bad.splitlines())
    if place == "include":
        (project.path / "part.inc").write_text(f"Text.\n\n{bad}\n", "utf-8")
        project.page("Before.\n\n.. include:: part.inc\n")
    else:
        project.page(
            f"- item\n\n  .. note::\n\n{inside.replace('   ', '     ', 1)}\n".replace("\n   ", "\n     ")
        )
    build = project.build()
    (line,) = build.warnings
    name = "part.inc" if place == "include" else "index.rst"
    text = (project.path / name).read_text("utf-8").splitlines()
    number = next(at for at, line in enumerate(text, 1) if "rollout.n: x" in line)
    assert (
        f"{name}:{number}: ERROR: verl-memory: actor_rollout_ref.rollout.n: expected a whole number" in line
    )


def test_the_forms_of_the_directive_do_not_mix(project, problems):
    page = ".. verl-memory:: 8B\n   :run: x\n\n.. verl-memory:: 8B\n   :verl-version: 0.4.0\n\n.. verl-memory:: 8B\n\n   a.b: 1\n"
    found = problems(project.page(page).build())
    assert found[4].startswith(
        "ERROR: verl-memory: the argument '8B' selects the analysis of a model; remove it"
    )
    assert found[7].startswith("ERROR: verl-memory: :verl-version: unknown option")
    assert found[10].startswith("ERROR: verl-memory: the directive takes no text")


#: Directives with their options, the line of the only message below the directive, and its start.
OTHERS = [
    (("verl-fewest 7B",), 0, "the directive takes no argument; list the size classes in :sizes:"),
    (("verl-fewest", ":memory: 70 80"), 0, "no recorded GPU has 70 GB; choose one of 16, 24, 32, 40, 48, 64, 80, 96, 141, 180, 192, 288 [verl.unknown_gpu]"),
    (("verl-fewest", ":task: grpo-lora"), 0, "the table has columns for LoRA; write GRPO instead of grpo-lora"),
    (("verl-fewest", "", "actor_rollout_ref.model.lora_rank: 8"), 2, "actor_rollout_ref.model.lora_rank: the table's rows and columns set this key; remove it"),
    (("verl-accuracy", ":group: logs"), 0, ":group: unknown value 'logs'; allowed: fsdp, fsdp-today, megatron, easyr1, other"),
    (("verl-accuracy", "", "text"), 0, "the directive takes no text"),
]  # fmt: skip


@pytest.fixture(scope="module")
def others(build_together, written):
    """A page for each of ``OTHERS``, in one build."""
    return build_together({f"other-{number}.rst": written(case[0]) for number, case in enumerate(OTHERS)})


@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_other_directives(others, number):
    (first, *_), line, message = OTHERS[number]
    found = others.problems[f"other-{number}.rst"]
    assert list(found) == [1 + line]
    assert found[1 + line].startswith(f"ERROR: {first.split()[0]}: {message}")
    assert not others.build.soup(f"other-{number}.html").select("table")


ODD = (
    "1: 2", "a: {}", "{}", "[]", "null", "a: .nan", "actor_rollout_ref.rollout.n: .nan", "actor_rollout_ref.rollout.n: 1e400",
    "actor_rollout_ref.rollout.gpu_memory_utilization: .inf", "a: [[1], {b: c}]", "a: 2020-01-01", "a.b: 1\na.b.c: 2",
    "a: *x", "a: &x 1", "a: !!python/object:os.system 1", "日本: 語", "? [1]\n: 2", "a: |\n  text\n  more", "---\na: 1\n---\nb: 2",
    "a: " + "x" * 5000, "actor_rollout_ref.model.lora_rank: 0\nactor_rollout_ref.model.target_modules: [q_proj]",
    "actor_rollout_ref.actor.strategy: megatron\nactor_rollout_ref.actor.megatron.pipeline_model_parallel_size: 7",
    "trainer.nnodes: -1", "actor_rollout_ref:\n- 1", "actor_rollout_ref.actor.strategy: [fsdp]", "\tactor: 1", "a: '${a}'",
    "data.train_batch_size: 100000000000000000000000", "actor_rollout_ref.rollout.n: true",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["rst", "md"])
def test_no_text_stops_the_build(project, suffix, written):
    project.conf.update(extensions=["myst_parser"])
    both = (
        ("verl-memory", ":model: Qwen/Qwen2.5-7B", ":gpus: 8*H100", ":show: answer, table, components, host"),
        ("verl-fewest", ":memory: 80", ":sizes: 7B"),
    )
    texts = [written((*lines, "", *odd.split("\n")), suffix) for lines in both for odd in ODD]
    build = project.page("\n\n".join([*texts, "The end."]), f"index.{suffix}").build()
    assert "The end." in build.soup().get_text()
    for line in build.warnings:
        assert "[verl." in line or "verl-" not in line, line


def test_a_run_with_settings_that_cannot_be(own, data):
    data.run("a", settings={"actor_rollout_ref.rollout.tensor_model_parallel_size": 3})
    (page,) = own.page(".. verl-memory::\n   :run: a\n").build().warnings
    assert "the run 'a' cannot be estimated: " in page
    assert "3 does not divide" in page
