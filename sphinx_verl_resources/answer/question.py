"""A question: a model, a task and GPUs, and what the settings are where nothing else is said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..estimator.request import MODEL, Request
from ..estimator.tasks import LIMITS, TASKS, known_task
from ..estimator.versions import CURRENT, version_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..estimator.registries import Registries
    from ..estimator.versions import Version

DEFAULT_TASK = "GRPO"
#: The rank that a task such as GRPO-LoRA stands for.
USUAL_RANK = 32
_LORA = "-LoRA"


@dataclass(frozen=True)
class Question:
    """What people ask; None is what they leave open.

    Attributes:
        model: Hugging Face name of the checkpoint.
        gpus: their number.
        gpu: their name.
        task: the algorithm, a key of ``TASKS`` without its ending for LoRA.
        lora: the rank of the adapters; 0 trains all parameters.
        prompt: the longest prompt, in tokens.
        response: the longest response, in tokens.
        overrides: verl's dotted keys, which stand above everything else.
        version: of verl.
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


def task_of(text: str) -> tuple[str, int]:
    """Return a task and the rank of its adapters.

    Raises:
        NoAnswerError: there is no such task.

    >>> task_of("grpo-lora"), task_of("ppo")
    (('GRPO', 32), ('PPO', 0))
    """
    name = known_task(text)
    return (name.removesuffix(_LORA), USUAL_RANK) if name.endswith(_LORA) else (name, 0)


def request_of(question: Question) -> Request:
    """Return the settings that the question names, and those of its task, as a request.

    Raises:
        NoAnswerError: there is no such task.

    >>> asked = request_of(Question("Qwen/Qwen2.5-7B", 8, "H100", lora=16))
    >>> asked.config["actor_rollout_ref.model.lora_rank"]
    16
    """
    task, rank = task_of(question.task or DEFAULT_TASK)
    rank = question.lora or rank
    settings = dict(TASKS[task])
    if rank:
        settings |= {**_of_lora(), f"{MODEL}.lora_rank": rank}
    lengths = zip(LIMITS, (question.prompt, question.response), strict=True)
    settings |= {key: value for key, value in lengths if value is not None}
    config = {**settings, **question.overrides}
    return Request(question.model, config, question.gpus, question.gpu, version=question.version)


def _of_lora() -> Mapping[str, Any]:
    """Return the settings that adapters need beyond their rank."""
    return {key: value for key, value in TASKS["GRPO-LoRA"].items() if key not in TASKS["GRPO"]}


def assumed(question: Question, registries: Registries) -> tuple[str, ...]:
    """Say what the question leaves open, and what is taken instead.

    >>> from sphinx_verl_resources.cli.data import read_data
    >>> assumed(Question("Qwen/Qwen2.5-7B", 8, "H100", prompt=1024), read_data([]).registries)
    ('task GRPO', 'responses up to 512 tokens', 'verl v0.9.0')
    """
    defaults, given = registries.defaults(question.version), question.overrides
    found = []
    if question.task is None and "algorithm.adv_estimator" not in given:
        found.append(f"task {DEFAULT_TASK}")
    for key, value, what in zip(
        LIMITS, (question.prompt, question.response), ("prompts", "responses"), strict=True
    ):
        if value is None and key not in given:
            found.append(f"{what} up to {defaults[key]} tokens")
    if question.version == CURRENT:
        found.append(f"verl {version_text(CURRENT)}")
    return tuple(found)
