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
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..diagnostics import NoAnswerError
from ..memory.engine import cache_tokens, engine_weights, needed_cache_tokens
from ..memory.estimate import Estimate, attempt
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
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ..memory.registries import EstimatorContext
    from ..memory.request import Request
    from ..memory.settings import Settings
    from ..memory.shape import Shape
    from ..records import Run
    from ..registries import Gpu

    Config = Mapping[str, Any]
    Sizes = tuple[int, int]
    Engine = tuple[int, float]
    Choice = tuple[Sizes, Engine, int | None]
    Levels = list[tuple["Level", "_Backend"]]

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
_FSDP, _MEGATRON = (f"{ACTOR}.fsdp_config", "critic.fsdp"), (f"{ACTOR}.megatron", "critic.megatron")
_CORE = "override_transformer_config"


def _set(sections: tuple[str, ...], **settings: Any) -> dict[str, Any]:
    """Return settings of a section of the actor and of the critic."""
    return {f"{section}.{name}": value for section in sections for name, value in settings.items()}


_RECOMPUTE = {"granularity": "full", "method": "uniform", "num_layers": 1}
_ALWAYS_WITH_MEGATRON: Config = {
    **ALWAYS,
    f"{ACTOR}.strategy": "megatron",
    **_set(_MEGATRON, **{f"{_CORE}.recompute_{name}": value for name, value in _RECOMPUTE.items()}),
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
        backend: the training backend: fsdp, fsdp2, or megatron.
        settings: its settings.
    """

    step: int
    backend: str
    settings: Config

    @property
    def is_megatron(self) -> bool:
        """True if Megatron trains."""
        return self.backend == "megatron"


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
_PARALLEL_SIZES = frozenset(
    f"{ACTOR}.megatron.{name}"
    for name in (_PIPELINE, _TENSOR, _EXPERT, "expert_tensor_parallel_size", _STAGE.format("last"))
)
#: The rollout engine's largest share of a GPU in tenths, and the part of its share that weights take at most.
_MOST_TENTHS, _WEIGHTS_PART = 8, 0.7
#: The largest token budget for a whole mini-batch, whose single micro-batch leaves no unsharded gradients.
_MOST_BUDGET = 4 * USUAL_BUDGET


def _levels(asked: Request, ran: Run | None) -> list[Level]:
    """Return the levels for a request, the best first, without settings that it gives.

    The backend with which it ran comes first, unless it needs more than offloading. Levels that have the same
    settings are one. On one GPU, nobody uses Megatron, and FSDP cannot offload parameters.
    """
    config, alone = asked.config, asked.gpus == 1
    strategy = asked.backend or config.get(f"{ACTOR}.strategy") or config.get("model_engine")
    fsdp = any(key.startswith(_OF_FSDP) for key in config)
    megatron = any(key.startswith(f"{ACTOR}.megatron.") for key in config)
    both = {False, not alone}
    backends = {strategy == "megatron"} if strategy else both if fsdp == megatron else {megatron}

    def rank(level: Level) -> tuple[bool, int, bool]:
        is_other = level.is_megatron != (ran is not None and ran.train == "megatron")
        return ran is None or is_other or level.step > _LAST_USUAL, level.step, is_other

    levels: dict[tuple[bool, str], Level] = {}
    for level in sorted(LEVELS, key=rank):
        own = {key: value for key, value in level.settings.items() if key not in config}
        if alone and level.backend == "fsdp":
            own = {key: value for key, value in own.items() if not key.endswith(".param_offload")}
        contradicts = level.backend == "fsdp2" and config.get(f"{ACTOR}.strategy") == "fsdp"
        if level.is_megatron in backends and not contradicts:
            levels.setdefault((level.is_megatron, str(own)), level._replace(settings=own))
    return list(levels.values())


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
        self._backends: dict[tuple[int | None, bool, str], _Backend] = {}
        self._layouts: dict[tuple[int, str | None, str], Layout] = {}

    def on(self, gpus: int | None, gpu: str | None, ran: Run | None = None) -> Layout:
        """Return the best layout; if none fits, the one with the lowest high end.

        A run can fit on fewer GPUs only, which the layout then uses: 8 GPUs can divide the weights of the
        rollout engine, 9 cannot, and half as many have fuller mini-batches.

        Args:
            gpus: the number of GPUs.
            gpu: the name of the GPU.
            ran: the run that shows that they suffice, whose backend and sizes are preferred.

        Raises:
            NoAnswerError: nothing can be estimated.
        """
        count = gpus or 8
        key = count, gpu, ran.id if ran else ""
        if key not in self._layouts:
            asked = replace(self._asked, gpus=gpus, gpu=gpu)
            best = self._search(asked, ran)
            fewer = count & (count - 1) or (count // 2 if best.verdict != "does-not-fit" else 0)
            if fewer and not best.fits and asked.config.keys().isdisjoint(TRAINER_GPUS):
                with suppress(NoAnswerError):
                    on_fewer = self.on(fewer, gpu, ran)
                    best = on_fewer if on_fewer.fits else best
            self._layouts[key] = best
        return self._layouts[key]

    def _search(self, asked: Request, ran: Run | None) -> Layout:
        """Return the best layout; if the run had as many GPUs and its parallel sizes fit, one with these."""
        sizes: Config = {}
        if ran and ran.gpus.count == asked.gpus:
            sizes = {key: value for key, value in ran.settings.items() if key in _PARALLEL_SIZES}
        for own in (sizes, {}) if sizes else ({},):
            request = replace(asked, config={**own, **asked.config})
            levels = []
            for level in _levels(request, ran):
                key = asked.gpus, level.is_megatron, str(own)
                if key not in self._backends:
                    self._backends[key] = _Backend(request, self._data, level.is_megatron)
                levels.append((level, self._backends[key]))
            best = _Search(request, levels, gpu_of(asked, self._data), self._host_limit).best()
            if best.fits:
                break
        return best


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
        self._data, self._config, self._critic = data, asked.config, has_critic(Reader(asked, data))
        self._estimates: dict[Any, Estimate | None] = {}
        own = _with_megatron(asked) if megatron else replace(asked, config={**ALWAYS, **asked.config})
        self.request = fitted(own, data)
        self.sizes = dict(_megatron_sizes(self.request, data) if megatron else ()) or {(1, 1): {}}
        self.shape, self.settings, *_ = resolve(self._having(next(iter(self.sizes.values()))), data)
        self.budgets: list[int | None] = [None]
        self.cheapest = self.budgets
        role = self.settings.actor
        if role.micro_batch.dynamic and not any(asked.config.get(key) for key in BUDGETS):
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
        own = {key: config[key] for key in config if key in self._config or not key.startswith(unused)}
        return replace(self.request, config=own)

    def estimate(self, level: Level, sizes: Sizes, budget: int | None) -> Estimate | None:
        """Return an estimate; None if there is none."""
        key = level.step, level.backend, sizes, budget
        if key not in self._estimates:
            budgets = {} if budget is None else dict.fromkeys(BUDGETS, budget)
            own = attempt(self._having({**self.sizes[sizes], **level.settings, **budgets}), self._data)
            self._estimates[key] = own if isinstance(own, Estimate) else None
        return self._estimates[key]

    def states(self, sizes: Sizes) -> float:
        """Return the number of parameters on a GPU with some of Megatron's sizes."""
        expert = self.sizes[sizes].get(f"{ACTOR}.megatron.{_EXPERT}", 1)
        dense = self.shape.parameters - self.shape.expert_parameters
        return float(dense / sizes[1] + self.shape.expert_parameters / expert) / sizes[0]


class _Search:
    """The search on a number of GPUs of one type, over the best levels first."""

    def __init__(self, asked: Request, levels: Levels, gpu: Gpu | None, host_limit: float | None) -> None:
        self._asked, self._levels, self._gpu, self._host_limit = asked, levels, gpu, host_limit
        self._tried: dict[tuple[int, Sizes, Engine, int | None], Layout] = {}
        backend = levels[0][1]
        self._capacity = capacity_of(gpu) if gpu else backend.settings.capacity
        settings = replace(backend.settings, capacity=self._capacity)
        self._engines = _engines(backend.request, asked.config, backend.shape, settings)

    def best(self) -> Layout:
        """Return the best layout, see ``Searches.on``."""
        best, places = None, range(len(self._levels))
        if self._gpu and not self._gpu.bfloat16:
            self._at(0, self._widest(0)[0], self._engines[0], self._levels[0][1].budgets[0])
        elif not (best := self._on_level(0)):
            start = bisect_left(places, True, key=self._is_reachable)
            best = next(filter(None, map(self._on_level, places[start:])), None)
        return best or min(self._tried.values(), key=lambda layout: layout.estimate.high)

    def _is_reachable(self, place: int) -> bool:
        """Return whether a GPU has enough memory up to a level; each level of a backend needs less."""
        last = {level.backend: place for place, (level, _) in enumerate(self._levels[: place + 1])}
        return any(map(self._leanest, last.values()))

    def _widest(self, place: int) -> list[Sizes]:
        """Return each pipeline size with its largest TP, or its smallest without a fast link."""
        sizes = self._levels[place][1].sizes
        order = sizes if self._gpu is None or self._gpu.fast_link else reversed(sizes)
        return sorted({pipeline: (pipeline, tensor) for pipeline, tensor in order}.values())

    def _leanest(self, place: int) -> Choice | None:
        """Return the choice with the least memory on a level, if a GPU has enough for it."""
        backend = self._levels[place][1]
        sizes = min(self._widest(place), key=backend.states)
        return self._first(place, sizes, backend.cheapest, lambda layout: layout.estimate.fits)

    def _on_level(self, place: int) -> Layout | None:
        """Return the best layout that fits: fewest stages, first engine, largest budget, smallest TP."""
        backend, widest = self._levels[place][1], self._widest(place)
        choice = self._first(place, widest[0], backend.budgets[:1])
        if not choice and self._leanest(place):
            choices = (self._first(place, sizes, backend.budgets) for sizes in widest)
            choice = next(filter(None, choices), None)
        if not choice:
            return None
        sizes, engine, budget = choice
        narrower = (own for own in reversed(backend.sizes) if own[0] == sizes[0] and own < sizes)
        every = (self._at(place, own, engine, budget) for own in (sizes, *narrower))
        return [*takewhile(lambda layout: layout and layout.fits, every)][-1]

    def _first(
        self,
        place: int,
        sizes: Sizes,
        budgets: Iterable[int | None],
        suffices: Callable[[Layout], bool] = attrgetter("fits"),
    ) -> Choice | None:
        """Return the first choice that suffices with some sizes: the first engine, then the first budget.

        The engine counts in rollout and weight sync, and the budget in the other phases, unless the engine
        never sleeps.
        """
        for engine in self._engines:
            for budget in budgets:
                layout = self._at(place, sizes, engine, budget)
                if layout and suffices(layout):
                    return sizes, engine, budget
                if layout and (layout.estimate.fits or not layout.estimate.of_phase("optimizer-step").fits):
                    return None
                if layout and not layout.estimate.of_phase("rollout", "weight-sync").fits:
                    break
            else:
                if self._levels[place][1].settings.rollout.frees_cache:
                    return None
        return None

    def _at(self, place: int, sizes: Sizes, engine: Engine, budget: int | None) -> Layout | None:
        """Return a layout; None if it cannot be estimated."""
        key = place, sizes, engine, budget
        level, backend = self._levels[place]
        if key not in self._tried and (own := backend.estimate(level, sizes, budget)):
            usual = ENGINE_SHARE, backend.settings.rollout.utilization
            chosen = {*zip((ENGINE_TP, ENGINE_SHARE), engine, strict=True)} - {usual}
            config = {name: value for name, value in chosen if name not in self._asked.config}
            request = replace(own.request, gpu=self._asked.gpu, config={**own.request.config, **config})
            moved = own.with_engine(request, self._capacity, *engine)
            self._tried[key] = Layout(request, moved, self._host_limit)
        return self._tried.get(key)


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

    runs = (
        run for run in data.runs.values() if figures_of(data, run.model) == figures_of(data, request.model)
    )
    most = max((run.settings.get(f"{ACTOR}.megatron.{_EXPERT}", 1) for run in runs), default=1)

    def own(name: str) -> Any:
        return request.config.get(f"{ACTOR}.megatron.{name}")

    def choices(name: str, usual: Iterable[int]) -> Iterable[int]:
        return (own(name),) if type(own(name)) is int and own(name) > 0 else usual

    tensors = [size for size in _TENSORS if size <= node and not divisor % size]
    for pipeline, tensor in product(choices(_PIPELINE, _STAGES), choices(_TENSOR, tensors)):
        stages = _stages(shape.layers, pipeline)
        if stages is None or gpus % (tensor * pipeline):
            continue
        stages = {name: size for name, size in stages.items() if own(name) is None}
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
    TP, which exceeds a node only, and last, if no engine within a node leaves a third.
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
        if (False, tensor) in firsts or (tensor > node and any(not is_full for is_full, _ in firsts)):
            continue
        own = replace(settings, rollout=replace(rollout, tensor=tensor, utilization=share))
        if cache_tokens(shape, own) >= max(settings.lengths.limit, needed_cache_tokens(shape, own)):
            is_full = engine_weights(shape, own).size > _WEIGHTS_PART * share * settings.capacity
            firsts.setdefault((is_full, tensor), share)
    best = sorted(firsts, key=lambda key: (key[1] > node, *key))
    return [(tensor, firsts[is_full, tensor]) for is_full, tensor in best] or [(tensors[-1], shares[0])]
