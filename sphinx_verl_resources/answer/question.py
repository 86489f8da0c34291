"""A question: a model, a task and GPUs, and the resulting settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError, did_you_mean
from ..memory.request import ACTOR, DEFAULT_TASK, MODEL, ROLLOUT, Request
from ..memory.roles import LIMITS
from ..memory.settings import TRAINER_GPUS
from ..memory.versions import CURRENT, version_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..memory.registries import EstimatorContext
    from ..memory.versions import Version


#: The memory optimisations of runs tagged MIN that have an effect.
SAVING: Mapping[str, Any] = {
    f"{MODEL}.enable_gradient_checkpointing": True,
    f"{MODEL}.use_remove_padding": True,
    f"{ACTOR}.use_dynamic_bsz": True,
    f"{ACTOR}.fsdp_config.param_offload": True,
    f"{ACTOR}.fsdp_config.optimizer_offload": True,
    "critic.fsdp.param_offload": True,
    "critic.fsdp.optimizer_offload": True,
}
_GRPO = {"algorithm.adv_estimator": "grpo", f"{ACTOR}.use_kl_loss": True, f"{ROLLOUT}.n": 5}
#: Settings of each task. GRPO compares the responses to one prompt: 5 in most of verl's scripts for it
#: (examples/grpo_trainer at 1dda039b9), 16 in its DAPO recipe (recipe/dapo at v0.5.0).
TASKS: Mapping[str, Mapping[str, Any]] = {
    "GRPO": _GRPO,
    "GRPO-LoRA": {
        **_GRPO,
        f"{MODEL}.lora_rank": 32,
        f"{MODEL}.target_modules": "all-linear",
        f"{ROLLOUT}.load_format": "safetensors",
        f"{ROLLOUT}.layered_summon": True,
    },
    "PPO": {"algorithm.adv_estimator": "gae", f"{ACTOR}.use_kl_loss": True},
    "DAPO": {"algorithm.adv_estimator": "grpo", f"{ROLLOUT}.n": 16},
}
#: Megatron as the strategy, with its memory optimisations.
MEGATRON_SAVING: Mapping[str, Any] = {
    f"{ACTOR}.strategy": "megatron",
    **{
        f"{role}.{key}": value
        for role in (ACTOR, "critic")
        for key, value in (
            ("megatron.param_offload", True),
            ("megatron.optimizer_offload", True),
            ("megatron.override_transformer_config.recompute_granularity", "full"),
            ("megatron.override_transformer_config.recompute_method", "uniform"),
            ("megatron.override_transformer_config.recompute_num_layers", 1),
            ("optim.override_optimizer_config.optimizer_cpu_offload", True),
            ("optim.override_optimizer_config.optimizer_offload_fraction", 1),
            ("optim.override_optimizer_config.use_precision_aware_optimizer", True),
        )
    },
}


def known_task(text: str) -> str:
    """Return a task under its name in ``TASKS``.

    Raises:
        NoAnswerError: there is no such task.

    >>> known_task("grpo-lora")
    'GRPO-LoRA'
    """
    for name in TASKS:
        if name.casefold() == text.casefold():
            return name
    hint = did_you_mean(text, TASKS)
    raise NoAnswerError.because(f"unknown task {text[:80]!r}", hint, code="unknown_value")


#: The rank of the adapters in a task such as GRPO-LoRA.
USUAL_RANK = 32
#: Keys that a question's model, rank and GPUs decide.
OWN_KEYS = frozenset(
    {
        f"{MODEL}.path",
        f"{MODEL}.lora_rank",
        f"{MODEL}.lora.rank",
        "trainer.nnodes",
        "trainer.n_gpus_per_node",
    }
)
_LORA = "-LoRA"
_ESTIMATOR = "algorithm.adv_estimator"


@dataclass(frozen=True)
class Question:
    """A question; fields that it leaves open are None.

    Attributes:
        model: the Hugging Face name of the checkpoint.
        model_note: how the model's name was taken, see ``registries.Model``.
        gpus: the number of GPUs.
        gpu: the name of the GPU.
        task: the algorithm, a key of ``TASKS`` without the suffix for LoRA.
        lora: the rank of the adapters; 0 trains all parameters.
        prompt: the longest prompt, in tokens.
        response: the longest response, in tokens.
        overrides: settings by verl's dotted keys, which override everything else.
        version: the version of verl.
    """

    model: str
    gpus: int | None = None
    gpu: str | None = None
    task: str | None = None
    lora: int = 0
    prompt: int | None = None
    response: int | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    version: Version = CURRENT
    model_note: str = ""


def task_of(text: str) -> tuple[str, int]:
    """Return a task and the rank of its adapters.

    Raises:
        NoAnswerError: the task is unknown.

    >>> task_of("grpo-lora"), task_of("ppo")
    (('GRPO', 32), ('PPO', 0))
    """
    name = known_task(text)
    return (name.removesuffix(_LORA), USUAL_RANK) if name.endswith(_LORA) else (name, 0)


def request_of(question: Question) -> Request:
    """Return a question's settings and those of its task, as a request.

    Raises:
        NoAnswerError: the task is unknown.

    >>> asked = request_of(Question("Qwen/Qwen2.5-7B", 8, "H100", lora=16))
    >>> asked.config["actor_rollout_ref.model.lora_rank"]
    16
    """
    task, rank = task_of(question.task or DEFAULT_TASK)
    settings = named_settings(task, question.lora or rank, question.prompt, question.response)
    config = {**settings, **question.overrides}
    return Request(
        question.model,
        config,
        question.gpus,
        question.gpu,
        version=question.version,
        task=task,
        model_note=question.model_note,
    )


def task_text(question: Question) -> str:
    """Return the task of a question in words: ``GRPO``, or ``GRPO-LoRA of rank 32``.

    >>> task_text(Question("Qwen/Qwen2.5-7B", lora=32))
    'GRPO-LoRA of rank 32'
    """
    task, rank = task_of(question.task or DEFAULT_TASK)
    rank = question.lora or rank
    return f"{task}{_LORA} of rank {rank}" if rank else task


def named_settings(
    task: str | None, lora: int = 0, prompt: int | None = None, response: int | None = None
) -> dict[str, Any]:
    """Return the settings of a task, a rank and lengths in tokens; None keeps verl's defaults.

    >>> named_settings(None, response=2048)
    {'data.max_response_length': 2048}
    """
    settings = dict(TASKS[task]) if task else {}
    if lora:
        settings |= {**_of_lora(), f"{MODEL}.lora_rank": lora}
    lengths = zip(LIMITS, (prompt, response), strict=True)
    return settings | {key: value for key, value in lengths if value is not None}


def _of_lora() -> Mapping[str, Any]:
    """Return the settings that adapters need besides their rank."""
    return {key: value for key, value in TASKS["GRPO-LoRA"].items() if key not in TASKS["GRPO"]}


def assumed(question: Question, registries: EstimatorContext) -> tuple[str, ...]:
    """Return the assumptions about what the question leaves open.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> assumed(Question("Qwen/Qwen2.5-7B", 8, "H100", prompt=1024), EstimatorContext())
    ('task GRPO', 'responses up to 512 tokens', 'verl v0.9.0')
    """
    is_open = question.task is None and _ESTIMATOR not in question.overrides
    task = (f"task {DEFAULT_TASK}",) if is_open else ()
    return (*task, *assumed_in(request_of(question), registries))


def assumed_in(request: Request, registries: EstimatorContext) -> tuple[str, ...]:
    """Return the defaults of verl that are assumed for important unset settings."""
    defaults, config = registries.defaults(request.version), request.config
    named = {*config, *request.unread}
    found = [request.model_note] if request.model_note else []
    if _ESTIMATOR not in named and not request.task:
        found.append(f"task PPO with a critic (verl's default of {_ESTIMATOR})")
    for key, what in zip(LIMITS, ("prompts", "responses"), strict=True):
        if key not in named:
            found.append(f"{what} up to {defaults[key]} tokens")
    nodes, each = TRAINER_GPUS
    count = config.get(nodes, defaults[nodes])
    if request.gpus is None and each not in named and nodes not in request.unread and type(count) is int:
        found.append(f"{count * defaults[each]} GPUs")
    if request.version == CURRENT:
        found.append(f"verl {version_text(CURRENT)}")
    return tuple(found)
