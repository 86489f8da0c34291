"""More GPUs, more memory or shorter sequences never turn a run that fits into one that does not."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.fit.answer import answer
from sphinx_verl_resources.fit.question import Question
from sphinx_verl_resources.memory.registries import EstimatorContext, capacity_of

DATA = EstimatorContext()
GPUS = sorted((capacity_of(gpu), gpu.name) for gpu in DATA.gpus if gpu.fast_link and gpu.bfloat16)
COUNTS = [*range(1, 65), *range(72, 257, 8)]
questions = st.builds(
    Question,
    model=st.sampled_from(sorted(entry.hf_id for entry in DATA.architectures)),
    gpus=st.sampled_from(COUNTS),
    gpu=st.sampled_from([name for _, name in GPUS]),
    task=st.sampled_from(("GRPO", "PPO", "DAPO")),
    lora=st.sampled_from((0, 32)),
    prompt=st.sampled_from((1, 333, 1024, 4096)),
    response=st.sampled_from((1, 500, 2048, 8192, 32768)),
)


def fits(question):
    try:
        return answer(question, DATA).verdict == "fits"
    except NoAnswerError:
        return False


@given(questions)
def test_what_fits_starts(question):
    if fits(question):
        warnings = answer(question, DATA).best.estimate.warnings
        assert all("positions" in problem.message for problem in warnings), "none about memory"


@given(questions, st.sampled_from(COUNTS))
def test_more_gpus_never_turn_a_yes_into_a_no(question, count):
    fewer, more = sorted((question.gpus, count))
    if fits(replace(question, gpus=fewer)):
        assert fits(replace(question, gpus=more))


@given(questions, st.sampled_from(GPUS))
def test_more_memory_never_turns_a_yes_into_a_no(question, gpu):
    less, more = sorted((gpu, (capacity_of(DATA.gpus.get(question.gpu)), question.gpu)))
    if fits(replace(question, gpu=less[1])):
        assert fits(replace(question, gpu=more[1]))


@given(questions, st.integers(1, 40_000), st.booleans())
def test_shorter_sequences_never_turn_a_yes_into_a_no(question, length, prompts):
    name = "prompt" if prompts else "response"
    shorter, longer = sorted((getattr(question, name), length))
    if fits(replace(question, **{name: longer})):
        assert fits(replace(question, **{name: shorter}))
