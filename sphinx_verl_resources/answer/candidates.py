"""Candidates: the layouts to try for a question, shared by all GPUs for which they are the same.

Candidates differ in offloading (from none upwards), token budget (from verl's default down to one sequence)
and Megatron's parallel sizes. Settings that cost little or no time are always on: no padding, recomputed
activations, batches counted in tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from ..memory.estimate import Estimate, attempt
from ..memory.recorded import BUDGETS, engine_size, fitted
from ..memory.registries import capacity_of, known_gpu
from ..memory.request import ACTOR, MODEL, REFERENCE, ROLLOUT
from .layouts import USUAL_BUDGET, Layout
from .question import MEGATRON_SAVING, SAVING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..memory.registries import EstimatorContext
    from ..memory.request import Request
    from ..memory.settings import Settings
    from ..memory.shape import Shape

_OF_FSDP = (f"{ACTOR}.fsdp_config.", f"{REFERENCE}.fsdp_config.", "critic.fsdp.")


def backend_of(asked: Request) -> str | None:
    """Return the training backend that a request gives or implies by its keys; None if this is unclear."""
    config = asked.config
    if named := asked.backend or config.get(f"{ACTOR}.strategy") or config.get("model_engine"):
        return str(named)
    fsdp = any(key.startswith(_OF_FSDP) for key in config)
    megatron = any(key.startswith(f"{ACTOR}.megatron.") for key in config)
    return None if fsdp == megatron else "fsdp" if fsdp else "megatron"


# -- the choices


@dataclass(frozen=True)
class _Base:
    """The settings of a layout except offloading and token budget.

    Attributes:
        request: the settings, as a request.
        pipeline, tensor: Megatron's sizes.
        share: the number of parameters on one GPU; replicas do not divide these.
    """

    request: Request
    pipeline: int = 1
    tensor: int = 1
    share: float = 0.0


def _offloads(section: str, level: int) -> Mapping[str, Any]:
    """Return the switches for offloading: the optimizer from level 1 on, the parameters from level 2 on."""
    return {f"{section}.optimizer_offload": level >= 1, f"{section}.param_offload": level >= 2}


#: Settings that adapters need only with FSDP.
_ADAPTERS_OF_FSDP = (f"{MODEL}.target_modules", f"{ROLLOUT}.load_format", f"{ROLLOUT}.layered_summon")
#: The pipeline sizes to try; verl trained DeepSeek-V3 with 12 stages on 96 GPUs.
_STAGES = (1, 2, 3, 4, 6, 8, 12, 16)
_LAST_STAGE = "override_transformer_config.num_layers_in_last_pipeline_stage"
#: Levels of offloading, the least first; without a critic, its settings are left out.
_FSDP_LEVELS = tuple(
    {**_offloads(f"{ACTOR}.fsdp_config", level), **_offloads("critic.fsdp", level)} for level in range(3)
)
_HOST_OPTIMIZER = {key: value for key, value in MEGATRON_SAVING.items() if ".optim." in key}
_MEGATRON_LEVELS = tuple(
    {
        **_offloads(f"{ACTOR}.megatron", level),
        **_offloads("critic.megatron", level),
        **(_HOST_OPTIMIZER if level >= 3 else {}),
    }
    for level in range(4)
)
_SEARCHED = {key for level in (*_FSDP_LEVELS, *_MEGATRON_LEVELS) for key in level}
#: Settings that cost little or no time and are on in every layout.
ALWAYS = {key: value for key, value in SAVING.items() if key not in _SEARCHED}
_ALWAYS_WITH_MEGATRON = {key: value for key, value in MEGATRON_SAVING.items() if key not in _SEARCHED}


def with_fsdp(asked: Request, registries: EstimatorContext) -> Candidates:
    """Return the candidates with FSDP; settings of the request are kept."""
    request = fitted(replace(asked, config={**ALWAYS, **asked.config}), registries)
    return Candidates(asked, [_Base(request)], _FSDP_LEVELS, registries)


def with_megatron(asked: Request, registries: EstimatorContext) -> Candidates:
    """Return the candidates with Megatron; settings of the request are kept."""
    return Candidates(asked, _megatron_bases(asked, registries), _MEGATRON_LEVELS, registries)


def _megatron_bases(asked: Request, registries: EstimatorContext) -> list[_Base]:
    """Return the run with each choice of Megatron's parallel sizes, in order of pipeline and tensor size.

    Sizes that do not divide the GPUs or the heads, or have more stages than layers, are left out.
    """
    shape, gpus = registries.shape(asked.model), asked.gpus or 8
    if shape is None:
        return []
    config = {key: value for key, value in asked.config.items() if not key.startswith(_OF_FSDP)}
    if rank := config.pop(f"{MODEL}.lora_rank", None):  # Megatron reads other keys
        config = {key: value for key, value in config.items() if key not in _ADAPTERS_OF_FSDP}
        config[f"{MODEL}.lora.rank"] = rank
    of_all = replace(asked, backend="megatron", config={**ALWAYS, **_ALWAYS_WITH_MEGATRON, **config})
    of_all = fitted(of_all, registries)
    bases = []
    for sizes in _parallel_sizes(asked.config, shape, gpus):
        chosen = {
            f"{role}.megatron.{name}": size for role in (ACTOR, "critic") for name, size in sizes.items()
        }
        request = replace(of_all, config={**of_all.config, **chosen, **config})
        pipeline, tensor = sizes["pipeline_model_parallel_size"], sizes["tensor_model_parallel_size"]
        dense, experts = shape.parameters - shape.expert_parameters, shape.expert_parameters
        share = dense / tensor + experts / sizes.get("expert_model_parallel_size", 1)
        bases.append(_Base(request, pipeline, tensor, share / pipeline))
    return bases


def _parallel_sizes(config: Mapping[str, Any], shape: Shape, gpus: int) -> Iterator[dict[str, int]]:
    """Yield Megatron's parallel sizes; sizes in the settings are kept.

    Tensor parallelism divides the heads and the key-value heads. Experts are spread over as many GPUs as the
    pipeline allows.
    """
    moe = shape.architecture.moe
    groups = math.gcd(shape.heads, shape.architecture.num_key_value_heads)

    def choices(name: str, *usual: int) -> tuple[int, ...]:
        given = config.get(f"{ACTOR}.megatron.{name}_model_parallel_size")
        return (given,) if type(given) is int and given > 0 else usual

    for pipeline, tensor in product(choices("pipeline", *_STAGES), choices("tensor", 1, 2, 4, 8)):
        stages = _stages(shape.layers, pipeline)
        if gpus % (tensor * pipeline) or groups % tensor or stages is None:
            continue
        sizes = {
            "tensor_model_parallel_size": tensor,
            "pipeline_model_parallel_size": pipeline,
            **stages,
        }
        if moe:
            expert = 1
            while not moe.num_experts % (2 * expert) and not gpus % (2 * expert * pipeline):
                expert *= 2
            (expert,) = choices("expert", expert)
            sizes |= {"expert_model_parallel_size": expert, "expert_tensor_parallel_size": 1}
        yield sizes


def _stages(layers: int, pipeline: int) -> dict[str, int] | None:
    """Return Megatron's settings for stages of unequal size; None if there are too few layers.

    >>> _stages(64, 8), _stages(61, 12), _stages(61, 8)
    ({}, {'override_transformer_config.num_layers_in_last_pipeline_stage': 6}, \
{'override_transformer_config.num_layers_in_last_pipeline_stage': 5})
    """
    if not layers % pipeline:
        return {}
    each = layers // pipeline
    lasts = [layers - stage * (pipeline - 1) for stage in (each, each + 1)]
    fewest = [(max(last, stage), last) for last, stage in zip(lasts, (each, each + 1), strict=True)]
    fitting = [last for _most, last in sorted(fewest) if 0 < last < layers]
    return {_LAST_STAGE: fitting[0]} if fitting else None


# -- the candidates


class Place(NamedTuple):
    """A candidate: the indices of its base and level of offloading, and its token budget."""

    base: int
    level: int
    budget: int | None


class Candidates:
    """The layouts of one training backend on a number of GPUs, each estimated on demand.

    Attributes:
        asked: the question, for the first type of GPU.
        bases: the base settings; ``heads`` gives, for each base, the index of the last one with the same
            pipeline size, which has the largest TP and needs the least memory.
        levels: the levels of offloading; the last needs the least memory.
        budgets: token budgets, the largest first; ``cheapest`` are those that need the least memory.
        settings: the resolved settings of the first base.
    """

    def __init__(
        self,
        asked: Request,
        bases: list[_Base],
        levels: tuple[Mapping[str, Any], ...],
        registries: EstimatorContext,
    ) -> None:
        self.asked, self.bases, self._registries = asked, bases, registries
        self._engine = engine_size(asked, registries)
        self._estimates: dict[Place, Estimate | None] = {}
        self._configs: dict[Any, Mapping[str, Any]] = {}
        self._least: dict[tuple[int, int], tuple[float, float]] = {}
        estimates = (_attempt(base.request, registries) for base in bases)
        first = next(filter(None, estimates), None)
        if first is None:
            self.bases = []
        else:
            self._read(first, levels)

    def _read(self, first: Estimate, levels: tuple[Mapping[str, Any], ...]) -> None:
        """Keep the choices: keys that the request leaves open and that have an effect."""
        settings, given = first.settings, self.asked.config
        role, unused = settings.actor, () if settings.critic else ("critic.",)
        self.settings, self._parameters = settings, first.shape.parameters
        self._levels: list[dict[str, Any]] = []
        for level in levels:
            chosen = {key: level[key] for key in level if key not in given and not key.startswith(unused)}
            if chosen not in self._levels:
                self._levels.append(chosen)
        self.levels = range(len(self._levels))
        by_pipeline = {base.pipeline: place for place, base in enumerate(self.bases)}
        self.heads = [by_pipeline[base.pipeline] for base in self.bases]
        self.bases = [_without(base, unused, given) for base in self.bases]
        self._budget_keys = [key for key in BUDGETS if not key.startswith(unused)]
        self.budgets: list[int | None] = [None]
        self.cheapest: list[int | None] = [None]
        if role.micro_batch.dynamic and not any(given.get(key) for key in BUDGETS):
            least = math.ceil(settings.lengths.limit / role.micro_batch.sharers)
            self.budgets = [*_budgets(least)]
            self.cheapest = [least, *_of_whole_mini_batch(settings, least)]

    def in_order(self, level: int) -> Sequence[int]:
        """Return the bases, the best first: by host memory if parameters are offloaded, or by speed."""
        places = range(len(self.bases))
        if self._is_on(level, "param_offload"):  # every replica offloads the same parameters
            return sorted(places, key=lambda place: self.bases[place].share)
        return places

    def _is_on(self, level: int, name: str) -> bool:
        """Return whether Megatron's switch is on at a level, chosen or given."""
        key = f"{ACTOR}.megatron.{name}"
        return bool({**self._levels[level], **self.asked.config}.get(key))

    def capacity_on(self, gpu: str | None) -> float:
        """Return a GPU's capacity in bytes."""
        return (
            self.settings.capacity
            if gpu == self.asked.gpu
            else capacity_of(known_gpu(gpu or "", self._registries.gpus))
        )

    def least_bytes(self, base: int, level: int, capacity: float) -> float:
        """Return a lower bound in bytes for a Megatron layout, both in an update and while vLLM generates.

        With this bound, most layouts that do not fit need no estimate.
        """
        if self.settings.actor.backend != "megatron":
            return 0.0
        if (base, level) not in self._least:
            self._least[base, level] = self._least_of_states(base, level)
        (updating, idle), rollout = self._least[base, level], self.settings.rollout
        if rollout.engine == "vllm" and not rollout.separate:
            idle += capacity * rollout.utilization
        return max(updating, idle)

    def _least_of_states(self, base: int, level: int) -> tuple[float, float]:
        """Return lower bounds in bytes for the actor's states, in an update and between updates."""
        settings, share = self.settings, self.bases[base].share
        role, weights, optimizer = settings.actor, 2 * share, 0.0
        if not role.lora_rank:
            weights += role.megatron.gradient_bytes * share
            if not role.megatron.cpu_optimizer and not any(
                key in self._levels[level] for key in _HOST_OPTIMIZER
            ):
                optimizer = role.megatron.optimizer_bytes * self._parameters / settings.gpus
        idle = 0.0 if self._is_on(level, "param_offload") else weights
        idle += 0.0 if self._is_on(level, "optimizer_offload") else optimizer
        return weights + optimizer, idle

    def engine_on(self, gpu: str | None) -> Mapping[str, Any]:
        """Return the rollout engine's settings that are chosen for a GPU."""
        return engine_size(replace(self.asked, gpu=gpu), self._registries)

    def layout(self, place: Place, gpu: str | None, engine: Mapping[str, Any]) -> Layout | None:
        """Return a layout on a GPU with settings of the rollout engine; None if it cannot be estimated."""
        first = self._first(place)
        key = (place, *engine.items())
        if key not in self._configs:
            self._configs[key] = {**self._request(place).config, **engine}
        request = replace(self.bases[place.base].request, config=self._configs[key], gpu=gpu)
        if engine == self._engine and gpu == self.asked.gpu:
            return Layout(request, first) if first else None
        found = _attempt(request, self._registries) if first else None
        return Layout(request, found) if found else None

    def _first(self, place: Place) -> Estimate | None:
        """Return the estimate for the first type of GPU."""
        if place not in self._estimates:
            request = self._request(place)
            key = (place, *self._engine.items())
            self._configs[key] = request.config
            self._estimates[place] = _attempt(request, self._registries)
        return self._estimates[place]

    def _request(self, place: Place) -> Request:
        base, budgets = self.bases[place.base].request, {}
        if place.budget is not None:
            budgets = dict.fromkeys(self._budget_keys, place.budget)
        return replace(base, config={**base.config, **self._levels[place.level], **budgets})


def _attempt(request: Request, registries: EstimatorContext) -> Estimate | None:
    found = attempt(request, registries)
    return found if isinstance(found, Estimate) else None


def _without(base: _Base, unused: tuple[str, ...], given: Mapping[str, Any]) -> _Base:
    """Return a base without sections that have no effect, except for keys in the question."""
    config = base.request.config
    used = {key: value for key, value in config.items() if key in given or not key.startswith(unused)}
    return replace(base, request=replace(base.request, config=used))


def _of_whole_mini_batch(settings: Settings, least: int) -> Iterator[int]:
    """Yield the token budget of a whole mini-batch, if it may need less memory than that of one sequence.

    With one micro-batch per mini-batch, FSDP keeps no unsharded gradients in verl v0.9.
    """
    role = settings.actor
    tokens = math.ceil(role.micro_batch.most * settings.lengths.limit / role.micro_batch.sharers)
    if role.backend != "megatron" and tokens > least:
        yield max(tokens, USUAL_BUDGET)


def _budgets(least: int) -> Iterator[int]:
    """Yield token budgets from verl's default down to one sequence.

    >>> list(_budgets(3000)), list(_budgets(20000))
    ([16384, 8192, 4096, 3000], [20000])
    """
    budget = max(USUAL_BUDGET, least)
    while budget > least:
        yield budget
        budget //= 2
    yield least
