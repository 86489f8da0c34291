"""A question: a model, a task and GPUs, and the settings that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..diagnostics import NoAnswerError, did_you_mean
from ..i18n import _
from ..memory.registries import EstimatorContext
from ..memory.request import ACTOR, DEFAULT_TASK, MODEL, ROLLOUT, Request, with_adapters
from ..memory.roles import LIMITS
from ..memory.settings import TRAINER_GPUS
from ..memory.versions import CURRENT, Version, version_text

#: The setting that decides the algorithm first.
ESTIMATOR = "algorithm.adv_estimator"
_GRPO = {ESTIMATOR: "grpo", f"{ACTOR}.use_kl_loss": True, f"{ROLLOUT}.n": 5}
#: What adapters need besides their rank.
_ADAPTERS = {
    f"{MODEL}.target_modules": "all-linear",
    f"{ROLLOUT}.load_format": "safetensors",
    f"{ROLLOUT}.layered_summon": True,
}
#: The rank of the adapters in a task such as GRPO-LoRA.
USUAL_RANK = 32
#: Settings of each task. GRPO compares the responses to one prompt: 5 in most of verl's scripts
#: (examples/grpo_trainer at 1dda039b9), 16 in its DAPO recipe (recipe/dapo at v0.5.0). PPO's scripts have no
#: reference policy (examples/ppo_trainer/run_qwen3_8b_fsdp.sh); DAPO's clip and average differently
#: (verl/experimental/one_step_off_policy/shell/dapo_7b_math_fsdp2_colocate.sh).
TASKS: Mapping[str, Mapping[str, Any]] = {
    "GRPO": _GRPO,
    "GRPO-LoRA": {**_GRPO, **_ADAPTERS, f"{MODEL}.lora_rank": USUAL_RANK},
    "PPO": {ESTIMATOR: "gae"},
    "DAPO": {
        ESTIMATOR: "grpo",
        f"{ACTOR}.clip_ratio_low": 0.2,
        f"{ACTOR}.clip_ratio_high": 0.28,
        f"{ACTOR}.loss_agg_mode": "token-mean",
        f"{ROLLOUT}.n": 16,
    },
}


@dataclass(frozen=True)
class Question:
    """A question; fields that it leaves open are None.

    Attributes:
        model: the Hugging Face name of the checkpoint.
        gpus: the number of GPUs.
        gpu: the name of the GPU in the registry.
        task: the algorithm, a key of ``TASKS`` in any case.
        lora: the rank of the adapters; 0 trains all parameters, unless the task has adapters.
        prompt: the longest prompt, in tokens.
        response: the longest response, in tokens.
        overrides: settings by verl's dotted keys, which override everything else.
        version: the release of verl; None for the newest supported one.
        model_note: how the model's name was taken, see ``registries.Model``.
        host_gib: the host memory of a node in GiB.
    """

    model: str
    gpus: int | None = None
    gpu: str | None = None
    task: str | None = None
    lora: int = 0
    prompt: int | None = None
    response: int | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    version: Version | None = None
    model_note: str = ""
    host_gib: float | None = None


def task_of(text: str) -> tuple[str, int]:
    """Return a task and the rank of its adapters.

    Raises:
        NoAnswerError: the task is unknown.

    >>> task_of("grpo-lora"), task_of("ppo")
    (('GRPO', 32), ('PPO', 0))
    """
    name = next((name for name in TASKS if name.casefold() == text.casefold()), None)
    if name is None:
        raise NoAnswerError.because(f"unknown task {text!r}", did_you_mean(text, TASKS), "unknown_value")
    return name.removesuffix("-LoRA"), TASKS[name].get(f"{MODEL}.lora_rank", 0)


def task_text(question: Question) -> str:
    """Return the task of a question in words: ``GRPO``, or ``GRPO-LoRA of rank 32``.

    >>> task_text(Question("Qwen/Qwen2.5-7B", lora=32))
    'GRPO-LoRA of rank 32'
    """
    task, rank = task_of(question.task or DEFAULT_TASK)
    rank = question.lora or rank
    return f"{with_adapters(task)} of rank {rank}" if rank else task


def request_of(question: Question) -> Request:
    """Return a question's settings and those of its task, as a request.

    Raises:
        NoAnswerError: the task is unknown.

    >>> request = request_of(Question("Qwen/Qwen2.5-7B", 8, "H100", lora=16))
    >>> request.config["actor_rollout_ref.model.lora_rank"]
    16
    """
    task, rank = task_of(question.task or DEFAULT_TASK)
    settings = named_settings(task, question.lora or rank, question.prompt, question.response)
    own = Request(question.model, {**settings, **question.overrides}, question.gpus, question.gpu, task=task)
    return replace(own, version=question.version or CURRENT, model_note=question.model_note)


def named_settings(task: str | None, lora: int = 0, *lengths: int | None) -> dict[str, Any]:
    """Return the settings of a task, a rank and lengths (prompt, response); None keeps verl's defaults.

    >>> named_settings(None, 0, None, 2048)
    {'data.max_response_length': 2048}
    """
    settings = dict(TASKS[task]) if task else {}
    settings |= {**_ADAPTERS, f"{MODEL}.lora_rank": lora} if lora else {}
    return settings | {key: value for key, value in zip(LIMITS, lengths, strict=False) if value is not None}


def assumptions(question: Question, data: EstimatorContext) -> tuple[str, ...]:
    """Return what an answer assumes about what a question leaves open.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> assumptions(Question("Qwen/Qwen2.5-7B", 8, "H100", prompt=1024), EstimatorContext())
    ('task GRPO', 'responses up to 512 tokens', 'verl v0.9.0')
    """
    is_open = question.task is None and ESTIMATOR not in question.overrides
    task = (_("task {task}").format(task=DEFAULT_TASK),) if is_open else ()
    return (*task, *assumptions_in(request_of(question), data))


def assumptions_in(request: Request, data: EstimatorContext) -> tuple[str, ...]:
    """Return the defaults that verl has for important settings that a request leaves open."""
    defaults, config = data.defaults(request.version), request.config
    keys = {*config, *request.unread}
    texts = [request.model_note] if request.model_note else []
    if ESTIMATOR not in keys and not request.task:
        texts.append(_("task PPO with a critic (verl's default of {key})").format(key=ESTIMATOR))
    prompt, response = LIMITS
    lengths = {prompt: _("prompts up to {count} tokens"), response: _("responses up to {count} tokens")}
    texts += [text.format(count=defaults[key]) for key, text in lengths.items() if key not in keys]
    nodes, each = TRAINER_GPUS
    count = config.get(nodes, defaults[nodes])
    if request.gpus is None and each not in keys and nodes not in request.unread and type(count) is int:
        texts.append(_("{count} GPUs").format(count=count * defaults[each]))
    if request.version == CURRENT:
        texts.append(_("verl {version}").format(version=version_text(CURRENT)))
    return tuple(texts)
