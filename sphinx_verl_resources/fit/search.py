"""The search for the best layout: offloading, Megatron's sizes, the rollout engine, the token budget.

The settings of the question are always kept; the search chooses others. Settings that cost little or no time
are always on: no padding, recomputed activations, batches counted in tokens.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from contextlib import suppress
from dataclasses import replace
from itertools import product, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from ..diagnostics import NoAnswerError
from ..memory import engine as of_engine
from ..memory.allocations import Kind, size_of
from ..memory.estimate import Estimate, attempt
from ..memory.phases import ENGINE_STATES
from ..memory.reader import Reader
from ..memory.recorded import BUDGETS, ENGINE_SHARE, ENGINE_TP, fitted
from ..memory.registries import capacity_of
from ..memory.request import ACTOR, MODEL, REFERENCE, ROLLOUT
from ..memory.resolve import resolve
from ..memory.roles import has_critic
from ..memory.settings import TRAINER_GPUS, gpu_of
from .evidence import figures_of
from .layouts import USUAL_BUDGET, Layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..memory.phases import Phase
    from ..memory.registries import EstimatorContext
    from ..memory.request import Request
    from ..memory.settings import Settings
    from ..memory.shape import Shape

    Config = Mapping[str, Any]
    Sizes = tuple[int, int]
    Backends = dict[tuple[int | None, bool], "_Backend"]

# -- what the search chooses

#: Settings that cost little or no time and are on in every layout.
ALWAYS: Config = {
    f"{MODEL}.enable_gradient_checkpointing": True,
    f"{MODEL}.use_remove_padding": True,
    f"{ACTOR}.use_dynamic_bsz": True,
}
#: Settings that adapters need only with FSDP.
_ADAPTERS_OF_FSDP = (f"{MODEL}.target_modules", f"{ROLLOUT}.load_format", f"{ROLLOUT}.layered_summon")
_OF_FSDP = (f"{ACTOR}.fsdp_config.", f"{REFERENCE}.fsdp_config.", "critic.fsdp.")
_CORE = "override_transformer_config"


_FSDP, _MEGATRON = (f"{ACTOR}.fsdp_config", "critic.fsdp"), (f"{ACTOR}.megatron", "critic.megatron")


def _set(sections: tuple[str, ...], **settings: Any) -> dict[str, Any]:
    """Return settings of a section of the actor and of the critic."""
    return {f"{section}.{name}": value for section in sections for name, value in settings.items()}


_ALWAYS_WITH_MEGATRON: Config = {
    **ALWAYS,
    f"{ACTOR}.strategy": "megatron",
    **{
        f"{section}.{_CORE}.recompute_{name}": value
        for section in _MEGATRON
        for name, value in (("granularity", "full"), ("method", "uniform"), ("num_layers", 1))
    },
}
_NONE, _OPTIMIZER, _ALL = (
    {"optimizer_offload": optimizer, "param_offload": parameters}
    for optimizer, parameters in ((False, False), (True, False), (True, True))
)
_EAGER = {f"{ROLLOUT}.enforce_eager": True}
_FSDP2 = {f"{ACTOR}.strategy": "fsdp2", "critic.strategy": "fsdp2", **_EAGER}
_CPU_ADAM = _set(
    tuple(f"{role}.optim.override_optimizer_config" for role in (ACTOR, "critic")),
    optimizer_cpu_offload=True,
    optimizer_offload_fraction=1,
    use_precision_aware_optimizer=True,
)


class Level(NamedTuple):
    """A way to save memory, by offloading and cheaper settings.

    Attributes:
        step: its place among the levels; two with the same step differ in the backend only.
        chain: levels of one chain take less memory from one to the next.
        settings: its settings.
    """

    step: int
    chain: str
    settings: Config

    @property
    def is_megatron(self) -> bool:
        """True if Megatron trains."""
        return self.chain == "megatron"


#: The last step that only offloads.
_LAST_USUAL = 2
#: The levels, the best first. On those of the last step the CPU computes the optimizer step, which is slow.
LEVELS = (
    Level(0, "fsdp", _set(_FSDP, **_NONE)),
    Level(0, "megatron", _set(_MEGATRON, **_NONE)),
    Level(1, "fsdp", _set(_FSDP, **_OPTIMIZER)),
    Level(1, "megatron", _set(_MEGATRON, **_OPTIMIZER)),
    Level(2, "fsdp", _set(_FSDP, **_ALL)),
    Level(2, "megatron", _set(_MEGATRON, **_ALL)),
    Level(3, "fsdp", _set(_FSDP, **_ALL) | _EAGER),
    Level(4, "fsdp", _set(_FSDP, **_ALL, model_dtype="bfloat16") | _EAGER),
    Level(5, "fsdp2", _set(_FSDP, **_NONE, model_dtype="bfloat16", offload_policy=True) | _FSDP2),
    Level(5, "megatron", _set(_MEGATRON, **_ALL) | _CPU_ADAM),
)
#: Megatron's sizes to try: verl trained DeepSeek-V3 with 12 stages on 96 GPUs.
_STAGES, _TENSORS, _EXPERTS = (1, 2, 3, 4, 6, 8, 12, 16), (1, 2, 4, 8), (128, 64, 32, 16, 8, 4, 2, 1)
#: The most GPUs over which to spread experts, if no recorded run of the model has more.
_MOST_EXPERT = 16
_PIPELINE, _TENSOR, _EXPERT = (f"{name}_model_parallel_size" for name in ("pipeline", "tensor", "expert"))
_STAGE = f"{_CORE}.num_layers_in_{{}}_pipeline_stage"
#: The rollout engine's largest share of a GPU in tenths, and the part of its share that weights take at most.
_MOST_TENTHS, _WEIGHTS_PART = 8, 0.7
#: Phases that depend only on the states and on the rollout engine.
_OF_STATES = ("optimizer-step", "rollout", "weight-sync")
#: The largest token budget for a whole mini-batch, whose single micro-batch leaves no unsharded gradients.
_MOST_BUDGET = 4 * USUAL_BUDGET


def backend_of(asked: Request) -> str | None:
    """Return the training backend that a request gives or implies by its keys; None if this is unclear."""
    config = asked.config
    if named := asked.backend or config.get(f"{ACTOR}.strategy") or config.get("model_engine"):
        return str(named)
    fsdp = any(key.startswith(_OF_FSDP) for key in config)
    megatron = any(key.startswith(f"{ACTOR}.megatron.") for key in config)
    return None if fsdp == megatron else "fsdp" if fsdp else "megatron"


def _levels(asked: Request, ran: str | None) -> list[Level]:
    """Return the levels for a request, the best first, without settings that it gives.

    The backend with which it ran comes first, unless it needs more than offloading. Levels that have the same
    settings are one. On one GPU, nobody uses Megatron, and FSDP cannot offload parameters.
    """
    given, named, alone = asked.config, backend_of(asked), asked.gpus == 1
    backends = {named == "megatron"} if named or alone else {False, True}

    def rank(level: Level) -> tuple[bool, int, bool]:
        is_other = level.is_megatron != (ran == "megatron")
        return ran is None or is_other or level.step > _LAST_USUAL, level.step, is_other

    found: dict[tuple[bool, str], Level] = {}
    for level in sorted(LEVELS, key=rank):
        chosen = {key: value for key, value in level.settings.items() if key not in given}
        if alone and level.chain == "fsdp":
            chosen = {key: value for key, value in chosen.items() if not key.endswith(".param_offload")}
        contradicts = level.chain == "fsdp2" and given.get(f"{ACTOR}.strategy") == "fsdp"
        if level.is_megatron in backends and not contradicts:
            found.setdefault((level.is_megatron, str(chosen)), level._replace(settings=chosen))
    return list(found.values())


# -- the search


class Searches:
    """The searches for one question on several GPUs and numbers of GPUs, which share their estimates.

    Args:
        asked: the question.
        data: the records.
        host_limit: the host memory of a node in bytes; None if it is not known.
    """

    def __init__(self, asked: Request, data: EstimatorContext, host_limit: float | None = None) -> None:
        self._asked, self._data, self._host_limit = asked, data, host_limit
        self._backends: Backends = {}
        self._found: dict[tuple[int, str | None, str | None], tuple[Layout, ...]] = {}

    def on(self, gpus: int | None, gpu: str | None, ran: str | None = None) -> tuple[Layout, ...]:
        """Return the layouts that were tried, the best first.

        If a layout fits, the first does; otherwise the first is the one with the lowest high end. A run can
        fit on fewer GPUs only, which the best layout then uses: 8 GPUs can divide the weights of the rollout
        engine, 9 cannot, and one GPU has no buffers for communication.

        Args:
            gpus: the number of GPUs.
            gpu: the name of the GPU.
            ran: the backend with which it ran, ``fsdp`` or ``megatron``, which is preferred.

        Raises:
            NoAnswerError: nothing can be estimated.
        """
        count = gpus or 8
        if (count, gpu, ran) not in self._found:
            asked = replace(self._asked, gpus=gpus, gpu=gpu)
            found = _Search(asked, self._data, ran, self._host_limit, self._backends).layouts()
            fewer = count & (count - 1) or count // 2
            if fewer and not found[0].fits and asked.config.keys().isdisjoint(TRAINER_GPUS):
                with suppress(NoAnswerError):
                    on_fewer = self.on(fewer, gpu, ran)
                    found = on_fewer + found if on_fewer[0].fits else found
            self._found[count, gpu, ran] = found
        return self._found[count, gpu, ran]


class _Backend:
    """The candidates of one training backend on a number of GPUs, with any rollout engine.

    Attributes:
        request: the settings that all candidates share.
        shape, settings: those of some candidate.
        sizes: Megatron's pipeline and tensor sizes, the smallest first, each with its settings.
        budgets: the token budgets, the largest first; None if the request decides.
        cheapest: those that may need the least memory: one sequence and, where this saves unsharded
            gradients, a whole mini-batch.
    """

    def __init__(self, asked: Request, data: EstimatorContext, megatron: bool) -> None:
        self._data, self._given, self._critic = data, asked.config, has_critic(Reader(asked, data))
        self._estimates: dict[Any, Estimate | None] = {}
        own = _with_megatron(asked) if megatron else replace(asked, config={**ALWAYS, **asked.config})
        self.request = fitted(own, data)
        self.sizes = dict(_megatron_sizes(self.request, data) if megatron else ()) or {(1, 1): {}}
        self.shape, self.settings, *_ = resolve(self._having(next(iter(self.sizes.values()))), data)
        role = self.settings.actor
        self.budgets: list[int | None] = [None]
        self.cheapest: list[int | None] = [None]
        if role.micro_batch.dynamic and not any(self._given.get(key) for key in BUDGETS):
            sequence = self.settings.lengths.limit / role.micro_batch.sharers
            least, whole = math.ceil(sequence), math.ceil(role.micro_batch.most * sequence)
            saves = not megatron and role.fsdp.defers_sync and whole <= _MOST_BUDGET
            self.cheapest = [least, *([max(USUAL_BUDGET, whole)] if saves else [])]
            halves = (USUAL_BUDGET // 2**power for power in range(15))
            self.budgets = [*dict.fromkeys((*(size for size in halves if size > least), *self.cheapest))]

    def _having(self, settings: Config) -> Request:
        """Return the request with settings, without those of a critic that does not exist."""
        config = {**self.request.config, **settings}
        unused = () if self._critic else ("critic.",)
        own = {key: config[key] for key in config if key in self._given or not key.startswith(unused)}
        return replace(self.request, config=own)

    def estimate(self, level: Level, sizes: Sizes, budget: int | None) -> Estimate | None:
        """Return an estimate; None if there is none."""
        key = level.step, level.chain, sizes, budget
        if key not in self._estimates:
            budgets = {} if budget is None else dict.fromkeys(BUDGETS, budget)
            found = attempt(self._having({**self.sizes[sizes], **level.settings, **budgets}), self._data)
            self._estimates[key] = found if isinstance(found, Estimate) else None
        return self._estimates[key]

    def widest(self, is_fast: bool) -> list[Sizes]:
        """Return each pipeline size with the largest tensor size, which needs the least memory."""
        order = self.sizes if is_fast else reversed(self.sizes)
        return sorted({pipeline: (pipeline, tensor) for pipeline, tensor in order}.values())

    def states(self, sizes: Sizes) -> float:
        """Return the number of parameters on a GPU with some of Megatron's sizes."""
        expert = self.sizes[sizes].get(f"{ACTOR}.megatron.{_EXPERT}", 1)
        dense = self.shape.parameters - self.shape.expert_parameters
        return float(dense / sizes[1] + self.shape.expert_parameters / expert) / sizes[0]


class _Search:
    """The search on a number of GPUs of one type; ``backends`` keeps what several searches share."""

    def __init__(
        self, asked: Request, data: EstimatorContext, ran: str | None, limit: float | None, backends: Backends
    ) -> None:
        self._asked, self._limit, self._gpu = asked, limit, gpu_of(asked, data)
        self._tried: dict[Any, Layout] = {}
        self._can: dict[int, Sizes | None] = {}
        self._levels: list[tuple[Level, _Backend, list[Sizes]]] = []
        for level in _levels(asked, ran):
            key = asked.gpus, level.is_megatron
            if key not in backends:
                backends[key] = _Backend(asked, data, level.is_megatron)
            widest = backends[key].widest(self._gpu is None or self._gpu.fast_link)
            self._levels.append((level, backends[key], widest))
        _level, backend, _widest = self._levels[0]
        capacity = capacity_of(self._gpu) if self._gpu else backend.settings.capacity
        self._settings = replace(backend.settings, capacity=capacity)
        self._engines = _engines(backend.request, asked.config, backend.shape, self._settings)

    def layouts(self) -> tuple[Layout, ...]:
        """Return the layouts that were tried, the best first, see ``Searches.on``."""
        _level, backend, widest = self._levels[0]
        best = self._at(0, widest[0], self._engines[0], backend.budgets[0])
        if not (best and best.fits and len(backend.sizes) == 1) and (self._gpu is None or self._gpu.bfloat16):
            places = range(len(self._levels))
            start = bisect_left(places, True, key=self._any_up_to)
            best = next(filter(None, map(self._fitting, filter(self._can_fit, places[start:]))), None)
        tried = list(self._tried.values())
        best = best or min(tried, key=lambda layout: layout.estimate.high)
        return best, *(layout for layout in tried if layout is not best)

    def _any_up_to(self, place: int) -> bool:
        """Return whether a GPU has enough memory for a candidate up to a level."""
        last = {level.chain: place for place, (level, *_) in enumerate(self._levels[: place + 1])}
        return any(map(self._can_fit, last.values()))

    def _can_fit(self, place: int) -> Sizes | None:
        """Return sizes of a candidate on a level for which a GPU has enough memory."""
        if place not in self._can:
            _level, backend, widest = self._levels[place]
            order = sorted(widest, key=backend.states)
            leanest = (self._at(place, order[0], engine, backend.cheapest[0]) for engine in self._engines)
            if not any(layout and _states_fit(layout.estimate) for layout in leanest):
                order = []
            self._can[place] = next((sizes for sizes in order if self._least(place, sizes)), None)
        return self._can[place]

    def _least(self, place: int, sizes: Sizes) -> Layout | None:
        """Return a layout with the least memory of those with some sizes, if a GPU has enough for it."""
        tries = product(self._engines, self._levels[place][1].cheapest)
        layouts = (self._at(place, sizes, *chosen) for chosen in tries)
        return next((layout for layout in layouts if layout and layout.estimate.fits), None)

    def _fitting(self, place: int) -> Layout | None:
        """Return the best layout of a level that fits: the first engine, largest budget, fewest parts."""
        _level, backend, widest = self._levels[place]
        most = widest.index(self._can_fit(place) or widest[0])
        fewest = bisect_left(widest[:most], True, key=lambda sizes: self._least(place, sizes) is not None)
        for engine, budget, sizes in product(self._engines, backend.budgets, widest[fewest:]):
            least = self._least(place, sizes)
            if least and least.fits and (found := self._at(place, sizes, engine, budget)) and found.fits:
                narrower = (own for own in reversed(backend.sizes) if own[0] == sizes[0] and own < sizes)
                every = (self._at(place, own, engine, budget) for own in narrower)
                return [found, *takewhile(lambda layout: layout and layout.fits, every)][-1]
        return None

    def _at(self, place: int, sizes: Sizes, engine: tuple[int, float], budget: int | None) -> Layout | None:
        """Return a layout; None if it cannot be estimated."""
        key = place, sizes, engine, budget
        level, backend, _widest = self._levels[place]
        if key not in self._tried and (own := backend.estimate(level, sizes, budget)):
            usual = ENGINE_SHARE, backend.settings.rollout.utilization
            chosen = {*zip((ENGINE_TP, ENGINE_SHARE), engine, strict=True)} - {usual}
            config = {name: value for name, value in chosen if name not in self._asked.config}
            request = replace(own.request, gpu=self._asked.gpu).having(config)
            moved = _with_engine(own, request, engine, self._settings.capacity)
            self._tried[key] = Layout(request, moved, self._limit)
        return self._tried.get(key)


def _states_fit(own: Estimate) -> bool:
    """Return whether the phases fit that depend only on the states and on the rollout engine."""
    return replace(own, phases=tuple(phase for phase in own.phases if phase.name in _OF_STATES)).fits


def _with_engine(own: Estimate, request: Request, engine: tuple[int, float], capacity: float) -> Estimate:
    """Return an estimate with another rollout engine or on another GPU, which changes only what it takes."""
    tensor, share = engine
    rollout = replace(own.settings.rollout, tensor=tensor, utilization=share)
    settings = replace(own.settings, rollout=rollout, capacity=capacity)

    def moved(phase: Phase) -> Phase:
        if all(item.kind is Kind.CUDA_GRAPHS for item in phase.engine):
            return phase
        state = ENGINE_STATES.get(phase.name, "asleep")
        taken = of_engine.engine_allocations(state, own.shape, settings, phase.counted)
        total = phase.counted + size_of(taken) + size_of(phase.overhead)
        return phase._replace(engine=taken, of_engine=size_of(taken), total=total)

    return replace(
        own,
        request=request,
        settings=settings,
        capacity=capacity if own.capacity else None,
        counted_besides=size_of(of_engine.vllm_pool_in_torch_peak(settings)),
        phases=tuple(map(moved, own.phases)),
    )


def _with_megatron(asked: Request) -> Request:
    """Return a request with the settings that every layout with Megatron has."""
    config = {key: value for key, value in asked.config.items() if not key.startswith(_OF_FSDP)}
    if rank := config.pop(f"{MODEL}.lora_rank", None):  # Megatron reads other keys
        config = {key: value for key, value in config.items() if key not in _ADAPTERS_OF_FSDP}
        config[f"{MODEL}.lora.rank"] = rank
    return replace(asked, backend="megatron", config={**_ALWAYS_WITH_MEGATRON, **config})


def _megatron_sizes(request: Request, data: EstimatorContext) -> Iterator[tuple[Sizes, Config]]:
    """Yield Megatron's pipeline and tensor sizes with their settings, see ``_Backend``; given ones are kept.

    Tensor parallelism divides the heads and the key-value heads, within a node with a fast link. Experts are
    spread over as many GPUs as the pipeline allows, but over no more than 16 or in a recorded run.
    """
    shape, gpus, node = data.known_shape(request.model), request.gpus or 8, _node(request)
    moe, divisor = shape.architecture.moe, math.gcd(shape.heads, shape.architecture.num_key_value_heads)
    figures, of_expert = figures_of(data, request.model), f"{ACTOR}.megatron.{_EXPERT}"
    alike = (run for run in data.runs.values() if figures_of(data, run.model) == figures)
    most = max((run.settings.get(of_expert, 1) for run in alike), default=1)

    def choices(name: str, usual: Iterable[int]) -> Iterable[int]:
        own = request.config.get(f"{ACTOR}.megatron.{name}")
        return (own,) if type(own) is int and own > 0 else usual

    tensors = [size for size in _TENSORS if size <= node and not divisor % size]
    for pipeline, tensor in product(choices(_PIPELINE, _STAGES), choices(_TENSOR, tensors)):
        stages = _stages(shape.layers, pipeline)
        if stages is None or gpus % (tensor * pipeline):
            continue
        sizes = {_TENSOR: tensor, _PIPELINE: pipeline, **stages}
        if moe:
            experts = (size for size in _EXPERTS if size <= max(most, _MOST_EXPERT))
            fitting = (size for size in experts if not (moe.num_experts % size or gpus % (size * pipeline)))
            sizes |= {_EXPERT: next(iter(choices(_EXPERT, fitting))), "expert_tensor_parallel_size": 1}
        yield (pipeline, tensor), _set(_MEGATRON, **sizes)


def _stages(layers: int, pipeline: int) -> Config | None:
    """Return Megatron's settings for stages of unequal size, of which the ends are the smallest, if possible.

    None if a stage would have more layers than with an even split.

    >>> _stages(64, 8), _stages(28, 16), _stages(28, 8)
    ({}, None, {'override_transformer_config.num_layers_in_first_pipeline_stage': 2, \
'override_transformer_config.num_layers_in_last_pipeline_stage': 2})
    """
    if not layers % pipeline:
        return {}
    most = math.ceil(layers / pipeline)
    ends = (layers - each * (pipeline - 2) for each in (most, layers // pipeline))
    both = next((both for both in ends if 2 <= both <= 2 * most), 0)
    sizes = {_STAGE.format("first"): both // 2, _STAGE.format("last"): both - both // 2}
    return sizes if both else None


def _node(request: Request) -> int:
    """Return the number of GPUs of a node."""
    return int(request.config.get(TRAINER_GPUS[1], min(8, request.gpus or 8)))


def _engines(request: Request, given: Config, shape: Shape, settings: Settings) -> list[tuple[int, float]]:
    """Return TP and share of rollout engines that start, the best first; the largest TP if none starts.

    The best leave a third of their share to the KV cache. A larger share, up to 0.8, is better than a larger
    TP, which exceeds a node only if no engine within a node starts.
    """
    rollout, node = settings.rollout, _node(request)
    shares = [rollout.utilization]
    if ENGINE_SHARE not in given:
        shares += [tenth / 10 for tenth in range(1, _MOST_TENTHS + 1) if tenth / 10 > rollout.utilization]
    tensors = [rollout.tensor]
    if ENGINE_TP not in given and not rollout.separate:
        powers = (2**power for power in range(11))
        tensors = [size for size in powers if not (settings.gpus % size or shape.heads % size)]
    firsts: dict[tuple[bool, int], float] = {}
    for tensor, share in product(tensors, shares):
        if (firsts and tensor > node) or (False, tensor) in firsts:
            continue
        own = replace(settings, rollout=replace(rollout, tensor=tensor, utilization=share))
        if of_engine.cache_tokens(shape, own) >= max(
            settings.lengths.limit, of_engine.needed_cache_tokens(shape, own)
        ):
            is_full = of_engine.engine_weights(shape, own).size > _WEIGHTS_PART * share * settings.capacity
            firsts.setdefault((is_full, tensor), share)
    return [(tensor, firsts[full, tensor]) for full, tensor in sorted(firsts)] or [(tensors[-1], shares[0])]
