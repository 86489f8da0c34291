"""The search: the layouts that are tried for a question, the best first.

Offloading is searched from nothing on, token budgets from verl's default down to one sequence, and Megatron's
parallel sizes. What costs no or little time is always on: no padding, recomputed activations, batches counted
in tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from ..estimator.estimate import Estimate, attempt
from ..estimator.request import ACTOR, MODEL, REFERENCE, ROLLOUT
from ..estimator.settings import ranks_of, sequence_divisor
from ..estimator.tasks import BUDGETS, MEGATRON_SAVING, SAVING, fitted
from .layouts import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..estimator.registries import Registries
    from ..estimator.request import Request
    from ..estimator.settings import Settings
    from ..estimator.shape import Shape

#: verl's default of the token budget; larger ones hardly train faster.
USUAL_BUDGET = 16384
_ROLES = (ACTOR, "critic")
_OF_FSDP = (f"{ACTOR}.fsdp_config.", f"{REFERENCE}.fsdp_config.", "critic.fsdp.")
_ENGINE_TP = f"{ROLLOUT}.tensor_model_parallel_size"
_ENGINE_SHARE = f"{ROLLOUT}.gpu_memory_utilization"
#: vLLM's own default of its share.
_MOST_SHARE = 0.9


def tried_layouts(asked: Request, registries: Registries) -> tuple[Layout, ...]:
    """Return every layout that is tried, in the order in which it is; the best are among them.

    Settings that the request names are not changed, a training backend among them.
    """
    named = asked.backend or asked.config.get(f"{ACTOR}.strategy") or asked.config.get("model_engine")
    named = named or _backend_of_keys(asked.config)
    found: list[Layout] = []
    if named != "megatron":
        found += _Search(asked, [_Base(_with_fsdp(asked, registries))], _FSDP_LEVELS, registries).tried
    if not named or named == "megatron":
        found += _Search(asked, _with_megatron(asked, registries), _MEGATRON_LEVELS, registries).tried
    return tuple(found)


def _backend_of_keys(config: Mapping[str, Any]) -> str | None:
    """Return the backend whose settings are given, if they are those of one: the other has no such keys."""
    fsdp = any(key.startswith(_OF_FSDP) for key in config)
    megatron = any(key.startswith(f"{ACTOR}.megatron.") for key in config)
    return None if fsdp == megatron else "fsdp" if fsdp else "megatron"


# -- what is searched


@dataclass(frozen=True)
class _Base:
    """The settings of a layout but for offloading and token budget.

    Attributes:
        request: the settings.
        pipeline, tensor: Megatron's sizes.
        share: parameters on one GPU, which replicas do not share.
    """

    request: Request
    pipeline: int = 1
    tensor: int = 1
    share: float = 0.0


def _offloads(section: str, level: int) -> Mapping[str, Any]:
    """Return the switches of offloading: the optimizer from level 1 on, the parameters from level 2 on."""
    return {f"{section}.optimizer_offload": level >= 1, f"{section}.param_offload": level >= 2}


#: What adapters need with FSDP alone.
_ADAPTERS_OF_FSDP = (f"{MODEL}.target_modules", f"{ROLLOUT}.load_format", f"{ROLLOUT}.layered_summon")
#: Pipeline sizes that are tried; with 12 stages on 96 GPUs verl trained DeepSeek-V3.
_STAGES = (1, 2, 3, 4, 6, 8, 12, 16)
_LAST_STAGE = "override_transformer_config.num_layers_in_last_pipeline_stage"
#: From the least offloading on; what concerns a critic is left out where there is none.
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
#: What costs no or little time, and is on in every layout.
ALWAYS = {key: value for key, value in SAVING.items() if key not in _SEARCHED}
_ALWAYS_WITH_MEGATRON = {key: value for key, value in MEGATRON_SAVING.items() if key not in _SEARCHED}


def _with_fsdp(asked: Request, registries: Registries) -> Request:
    """Return the run with what always saves memory, fitted to its GPUs."""
    return fitted(replace(asked, config={**ALWAYS, **asked.config}), registries)


def _with_megatron(asked: Request, registries: Registries) -> list[_Base]:
    """Return the run with Megatron's parallel sizes: by pipeline stages, then by tensor parallelism.

    Sizes that do not divide the GPUs or the heads are left out, and those with more stages than layers.
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
    """Yield Megatron's sizes; those that the settings name are kept.

    Tensor parallelism divides the heads and the key-value heads. Experts are spread as far as the pipeline
    leaves room.
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
    """Return what Megatron is told where stages cannot be alike; None where there are too few layers.

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


# -- the search


class _Search:
    """The layouts of one training backend; each is estimated when the search comes to it.

    A base is named by its place in ``bases``, a level by its place in ``levels``, the last of which takes
    least memory.
    """

    def __init__(
        self,
        asked: Request,
        bases: list[_Base],
        levels: tuple[Mapping[str, Any], ...],
        registries: Registries,
    ) -> None:
        self._asked, self._registries = asked, registries
        self._found: dict[tuple[Any, int, int, int | None], Layout | None] = {}
        self._engine: dict[str, Any] = {}  # as fitted
        estimates = (attempt(base.request, registries) for base in bases)
        first = next((found for found in estimates if isinstance(found, Estimate)), None)
        if first is None:
            return
        self._read(first, bases, levels)
        self._run()
        if not self._found:  # none was worth an estimate; this one takes least
            self._at(self._in_order(self._last)[0], self._last, self._budgets[-1])

    @property
    def tried(self) -> list[Layout]:
        """The layouts that leave an estimate, in the order in which they were tried."""
        return [layout for layout in self._found.values() if layout]

    def _read(self, first: Estimate, bases: list[_Base], levels: tuple[Mapping[str, Any], ...]) -> None:
        """Keep what can be chosen: the keys that the request leaves open, and those that have an effect."""
        settings, given = first.settings, self._asked.config
        role, unused = settings.actor, () if settings.critic else ("critic.",)
        self._settings, self._parameters = settings, first.shape.parameters
        self._levels: list[dict[str, Any]] = []
        for level in levels:
            chosen = {key: level[key] for key in level if key not in given and not key.startswith(unused)}
            if chosen not in self._levels:
                self._levels.append(chosen)
        self._last = len(self._levels) - 1
        self._bases = [
            replace(base, request=replace(base.request, config=_without(base.request.config, unused, given)))
            for base in bases
        ]
        # The last of a pipeline has the largest TP, and takes least memory of them.
        by_pipeline = {base.pipeline: place for place, base in enumerate(bases)}
        self._heads = [by_pipeline[base.pipeline] for base in bases]
        self._budget_keys = [key for key in BUDGETS if not key.startswith(unused)]
        self._budgets: list[int | None] = [None]
        self._cheapest: list[int | None] = [None]
        if role.micro_batch.dynamic and not any(given.get(key) for key in BUDGETS):
            least = math.ceil(settings.lengths.limit / sequence_divisor(role))
            self._budgets = [*_budgets(least)]
            self._cheapest = [least, *_of_whole_mini_batch(settings, least)]

    def _run(self) -> None:
        """Try layouts until the best is found, or none can be."""
        if not self._fits(self._heads[0], 0, self._budgets[0]):
            while not any(self._can_fit(head, self._last) for head in dict.fromkeys(self._heads)):
                if not self._widen_engine():
                    return
        for level in range(len(self._levels)):
            if self._finds_best(level):
                return

    def _finds_best(self, level: int) -> bool:
        """Try the layouts of a level, the best first; tell whether one fits."""
        largest, least = self._budgets[0], self._cheapest[0]
        for budget in dict.fromkeys((*self._budgets, *self._cheapest)):
            for base in self._in_order(level):
                head = self._heads[base]
                if not self._can_fit(head, level):
                    continue
                if budget != largest and base != head and not self._fits(base, level, least):
                    continue
                if self._fits(base, level, budget):
                    return True
        return False

    def _in_order(self, level: int) -> Sequence[int]:
        """Return the bases so that the first that fits takes least of the host, and else is the fastest."""
        places = range(len(self._bases))
        if self._is_on(level, "param_offload"):  # replicas offload the same parameters
            return sorted(places, key=lambda place: self._bases[place].share)
        return places

    def _is_on(self, level: int, name: str) -> bool:
        """Tell whether Megatron's switch is on at a level, chosen or given."""
        key = f"{ACTOR}.megatron.{name}"
        return bool({**self._levels[level], **self._asked.config}.get(key))

    def _can_fit(self, base: int, level: int) -> bool:
        """Tell whether a layout fits with some budget."""
        tried = self._found.get(self._key(base, level, self._budgets[0]))
        if tried and tried.fits:
            return True
        # What the last level but one offloads comes back for the update; if it is too much, so is more.
        if level < self._last - 1 and not self._can_fit(base, self._last - 1):
            return False
        least, *others = self._cheapest
        return self._fits(base, level, least) or any(
            self._fits(base, self._last, budget) and self._fits(base, level, budget) for budget in others
        )

    def _fits(self, base: int, level: int, budget: int | None) -> bool:
        if self._least_bytes(base, level) > self._settings.capacity:
            return False
        layout = self._at(base, level, budget)
        return layout is not None and layout.fits

    def _least_bytes(self, base: int, level: int) -> float:
        """Return bytes that a layout of Megatron takes at least, in an update or while vLLM generates.

        With it most layouts that do not fit need no estimate.
        """
        settings, share = self._settings, self._bases[base].share
        role, rollout = settings.actor, settings.rollout
        if role.backend != "megatron":
            return 0.0
        weights, optimizer = 2 * share, 0.0
        if not role.lora_rank:
            weights += role.megatron.gradient_bytes * share
            on_host = role.megatron.muon or role.megatron.cpu_optimizer
            if not on_host and not any(key in self._levels[level] for key in _HOST_OPTIMIZER):
                optimizer = role.megatron.moment_bytes * self._parameters / settings.gpus
        idle = 0.0 if self._is_on(level, "param_offload") else weights
        idle += 0.0 if self._is_on(level, "optimizer_offload") else optimizer
        if rollout.engine == "vllm" and not rollout.separate:
            idle += settings.capacity * rollout.utilization
        return max(weights + optimizer, idle)

    def _at(self, base: int, level: int, budget: int | None) -> Layout | None:
        """Return a layout; None where it leaves no estimate."""
        key = self._key(base, level, budget)
        if key not in self._found:
            request = self._bases[base].request.having(self._levels[level])
            if budget is not None:
                request = request.having(dict.fromkeys(self._budget_keys, budget))
            found = attempt(request := request.having(self._engine), self._registries)
            self._found[key] = Layout(request, found) if isinstance(found, Estimate) else None
        return self._found[key]

    def _key(self, base: int, level: int, budget: int | None) -> tuple[Any, int, int, int | None]:
        return (*self._engine.values(),), base, level, budget

    def _widen_engine(self) -> bool:
        """Spread the rollout engine over twice as many GPUs, or give it a tenth more of each for its cache.

        Tell whether that can help.
        """
        tried, given = self.tried, self._asked.config
        if not any(_fits_asleep(layout.estimate) for layout in tried):
            return False
        last = tried[-1].estimate
        rollout = last.settings.rollout
        wider, more = 2 * rollout.tensor, round(rollout.utilization + 0.1, 2)
        if _ENGINE_TP not in given and not last.settings.gpus % wider and not last.shape.heads % wider:
            self._engine[_ENGINE_TP] = wider
        elif _ENGINE_SHARE not in given and more <= _MOST_SHARE and not tried[-1].starts:
            self._engine[_ENGINE_SHARE] = more
        else:
            return False
        return True


def _fits_asleep(estimate: Estimate) -> bool:
    """Tell whether all phases fit in which the rollout engine sleeps."""
    capacity = estimate.capacity or 0.0
    return all(phase.total <= capacity for phase in estimate.phases if phase.engine_state == "asleep")


def _without(config: Mapping[str, Any], unused: tuple[str, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without sections that have no effect, unless the request names them."""
    return {key: value for key, value in config.items() if key in given or not key.startswith(unused)}


def _of_whole_mini_batch(settings: Settings, least: int) -> Iterator[int]:
    """Yield the token budget that holds a whole mini-batch, if it can take less memory than one sequence.

    With one micro-batch per mini-batch, FSDP keeps no undivided gradients in verl v0.9.
    """
    role = settings.actor
    sequences = min(role.mini_batch, settings.sequences) // ranks_of(role, settings.gpus)
    tokens = math.ceil(sequences * settings.lengths.limit / sequence_divisor(role))
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
