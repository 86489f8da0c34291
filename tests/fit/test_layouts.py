"""The search for the best layout, compared with every layout of its space."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.fit import search
from sphinx_verl_resources.fit.question import Question, request_of
from sphinx_verl_resources.fit.search import Layout
from sphinx_verl_resources.memory.estimate import Estimate, attempt, estimate
from sphinx_verl_resources.memory.recorded import ENGINE_SHARE, ENGINE_TP
from sphinx_verl_resources.memory.registries import EstimatorContext

DATA = EstimatorContext()
A, R = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def of_space(question, level):
    """Yield the layouts of a level with the least memory: every size and engine, the cheapest budgets."""
    backend = search._Backend(request_of(question), DATA, megatron=level.backend == "megatron")
    gpu, heads = DATA.gpus.get(question.gpu), backend.shape.heads
    tensors = [size for size in (1, 2, 4, 8) if not (question.gpus % size or heads % size)]
    for sizes, budget in product(backend.sizes, backend.cheapest):
        own = backend.estimate(level, sizes, budget)
        for tensor, tenths in product(tensors, range(5, 9)) if sizes[1] == 1 or gpu.fast_link else ():
            result = attempt(own.request.having({ENGINE_TP: tensor, ENGINE_SHARE: tenths / 10}), DATA)
            if isinstance(result, Estimate):
                yield Layout(result.request, result)


SMALL = [
    ("Qwen/Qwen2.5-7B", 8, "H100", {}),
    ("Qwen/Qwen2.5-7B", 8, "RTX-4090", {}),
    ("Qwen/Qwen2.5-7B", 4, "RTX-4090", {}),
    ("Qwen/Qwen2.5-7B", 2, "H100", {"response": 8192}),
    ("Qwen/Qwen2.5-7B", 4, "H100", {"task": "PPO", "response": 6000}),
    ("Qwen/Qwen2.5-3B", 1, "RTX-4090", {}),
    ("Qwen/Qwen2.5-14B", 4, "A100-40GB", {}),
    ("Qwen/Qwen2.5-14B", 2, "H100", {"response": 16384}),
    ("Qwen/Qwen2.5-32B", 2, "H100", {"lora": 32}),
    ("Qwen/Qwen2.5-72B", 4, "H200", {"lora": 32}),
    ("Qwen/Qwen3-30B-A3B", 4, "H200", {}),
    ("Qwen/Qwen3-4B", 1, "RTX-4090", {"lora": 32, "prompt": 2048, "response": 384}),
]


@pytest.mark.parametrize(("model", "gpus", "gpu", "others"), SMALL)
def test_the_search_finds_the_first_level_on_which_a_layout_fits(model, gpus, gpu, others):
    question = Question(model, gpus, gpu, **others)
    levels = search._levels(request_of(question), None)
    fitting = (level for level in levels if any(layout.fits for layout in of_space(question, level)))
    first, best = next(fitting, None), search.Searches(request_of(question), DATA).on(gpus, gpu)
    assert best.fits == bool(first)
    if first:
        values = {key: best.request.config.get(key, value) for key, value in first.settings.items()}
        assert (values, best.is_megatron) == (first.settings, first.backend == "megatron")


QUESTIONS = st.builds(
    Question,
    model=st.sampled_from(["Qwen/Qwen2.5-7B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen2.5-72B"]),
    gpus=st.sampled_from([1, 4, 8, 32]),
    task=st.sampled_from(["GRPO", "PPO"]),
    lora=st.sampled_from([0, 32]),
    response=st.sampled_from([1024, 9000]),
    version=st.sampled_from([(0, 9, 0), (0, 6, 0), (0, 3, 0)]),
    overrides=st.sampled_from([{}, {f"{R}.name": "sglang"}, {f"{R}.free_cache_engine": False}]),
)


@given(QUESTIONS, st.sampled_from(["H100-80GB", "RTX-4090", "B200"]))
def test_an_estimate_shared_by_gpus_and_engines_is_that_of_its_settings(question, gpu):
    searches = search.Searches(request_of(question), DATA)
    for name in ("A100-40GB", gpu):  # the second shares the estimates of the first
        layout = searches.on(question.gpus, name)
        own = estimate(layout.request, DATA)
        assert layout.estimate.phases == own.phases
        assert (layout.estimate.capacity, layout.estimate.low) == (own.capacity, own.low)
        assert layout.estimate.torch_peak == own.torch_peak


@given(QUESTIONS, st.sampled_from(["H100-80GB", "RTX-4090", "B200"]))
def test_layouts_are_some_that_people_run(question, gpu):
    node = min(8, question.gpus)
    for layout in [search.Searches(request_of(question), DATA).on(question.gpus, gpu)]:
        settings = layout.estimate.settings
        megatron, rollout = settings.actor.megatron, settings.rollout
        assert megatron.tensor <= (node if DATA.gpus.get(gpu).fast_link else 1)
        assert megatron.expert <= (32 if question.model == "Qwen/Qwen3-30B-A3B" else 16), "as recorded"
        assert megatron.tensor * megatron.pipeline == 1 or settings.gpus > 1
        too_large = 2 * layout.estimate.shape.parameters > 0.7 * 0.8 * node * settings.capacity
        room, needed = layout.kv_cache_tokens
        assert rollout.tensor <= node or too_large or room < needed
        assert rollout.utilization <= 0.8
        assert not layout.estimate.unsupported
        if layout.fits and question.version == (0, 9, 0):
            assert all("positions" in problem.message for problem in layout.estimate.warnings)


ON_CPU = ("weights", "gradients", "optimizer", "adam-on-cpu")
EXPERTS = {"model": "Qwen/Qwen3-30B-A3B", "overrides": {f"{A}.megatron.expert_model_parallel_size": 4}}
AGENT = {"model": "Qwen/Qwen3-4B", "gpus": 1, "gpu": "RTX-4090", "lora": 32, "prompt": 2048, "response": 384}


@pytest.mark.parametrize(
    ("fields", "name", "offloaded"),
    [
        ({}, "FSDP", ()),
        ({"lora": 32, "model": "Qwen/Qwen2.5-72B"}, "FSDP", ("weights", "optimizer")),  # as it ran
        ({"model": "Qwen/Qwen2.5-32B", "gpu": "H200"}, "Megatron TP 8", ("optimizer",)),
        ({"gpus": 1}, "FSDP2 in bfloat16", ON_CPU),
        (AGENT, "FSDP2 in bfloat16", ON_CPU),
        # A given size is kept, also if not every number of stages allows it.
        (EXPERTS, "Megatron TP 2 EP 4", ON_CPU),
    ],
)
def test_layouts_of_well_known_questions(ask, fields, name, offloaded):
    result = ask(**fields)
    assert (result.verdict, result.best.name, result.best.offloaded) == ("fits", name, offloaded)


GIVEN = {
    f"{A}.fsdp_config.param_offload": True,
    f"{A}.megatron.param_offload": True,
    f"{A}.megatron.tensor_model_parallel_size": 2,
    f"{A}.ppo_max_token_len_per_gpu": 3000,
    f"{A}.strategy": "fsdp2",
    f"{A}.use_dynamic_bsz": False,
    f"{R}.tensor_model_parallel_size": 2,
    f"{R}.gpu_memory_utilization": 0.4,
    "actor_rollout_ref.model.enable_gradient_checkpointing": False,
}


@given(
    st.sets(st.sampled_from(sorted(GIVEN)), min_size=1),
    st.sampled_from((4, 8)),
    st.sampled_from(("GRPO", "PPO")),
)
def test_what_is_given_is_kept(ask, keys, gpus, task):
    overrides = {key: GIVEN[key] for key in keys}
    for layout in [ask(gpus=gpus, overrides=overrides, task=task).best]:
        config = layout.request.config
        of_other = ".fsdp_config." if layout.is_megatron else "\n"  # Megatron does not read these
        assert [key for key in keys if config.get(key) != GIVEN[key] and of_other not in key] == []
        assert any(key.startswith("critic.") for key in config) is (task == "PPO")


def test_a_token_budget_can_hold_a_whole_mini_batch(ask):
    """FSDP in verl v0.9 keeps unsharded gradients from the second micro-batch on."""
    result = ask("Qwen/Qwen2.5-32B", 64, overrides={f"{A}.strategy": "fsdp"})
    tokens = result.best.estimate.settings.actor.micro_batch.tokens
    assert (result.verdict, tokens) == ("fits", 256 * 5 * 1024 // 64)


NODE = {"trainer.nnodes": 1, "trainer.n_gpus_per_node": 9}


def test_an_answer_uses_fewer_gpus_where_all_of_them_do_not_fit(ask):
    """9 GPUs cannot divide the weights of the rollout engine."""
    result = ask("Qwen/Qwen2.5-32B", 9, "H100")
    assert (result.verdict, result.best.estimate.settings.gpus, result.request.gpus) == ("fits", 8, 9)
    assert ask("Qwen/Qwen2.5-32B", 9, overrides=NODE).best.estimate.settings.gpus == 9


def test_where_both_backends_are_recorded_fsdp_is_chosen(ask):
    own = ask(response=2048)
    assert {run.train for run in own.proof} > {"megatron"}
    assert own.proof[0].train == "megatron"
    assert not own.best.is_megatron
