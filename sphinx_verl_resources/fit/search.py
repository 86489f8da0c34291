"""Layouts, the verdict on each, and the search for the best one.

The search chooses offloading, Megatron's sizes, the rollout engine and the token budget. The settings of the
question are always kept. Settings that cost little or no time are always on: no padding, recomputed
activations, batches counted in tokens.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product, takewhile
from typing import Any, NamedTuple

from ..diagnostics import NoAnswerError
from ..i18n import N_
from ..memory.engine import cache_tokens, engine_weights, needed_cache_tokens
from ..memory.estimate import Estimate, attempt
from ..memory.recorded import BUDGETS, ENGINE_SHARE, ENGINE_TP, fitted, has_own_rollout_gpus
from ..memory.registries import EstimatorContext, capacity_of
from ..memory.request import ACTOR, MODEL, REFERENCE, ROLLOUT, Request, Verdict
from ..memory.resolve import resolve
from ..memory.settings import TRAINER_GPUS, gpu_of
from ..records import Run
from ..registries import Gpu
from .evidence import runs_by_shape, shape_key_of

Config = dict[str, Any]
Sizes = tuple[int, int]
Engine = tuple[int, float]
Budgets = list[int | None]
Choice = tuple[Sizes, Engine, int | None]
Levels = list[tuple["Level", "_Backend"]]

# -- layouts

#: The numbers of GPUs to try: powers of two within a node, then whole nodes.
COUNTS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
#: verl's default token budget; larger ones hardly train faster.
USUAL_BUDGET = 16384
#: What can be offloaded to host memory; the last: the CPU computes the optimizer step, which is slow.
ON_CPU = "adam-on-cpu"
OFFLOADED = (N_("weights"), N_("gradients"), N_("optimizer"), N_("activations"), ON_CPU)
#: The most host memory that a recorded run needed, as a multiple of its estimate (data/cases/verl-logs.yaml).
HOST_ERROR = 1.06
#: The host memory of a node that is assumed, as a multiple of the memory of its GPUs.
HOST_SHARE = 2
#: Why a layout fits or not: the verdict, and the reason in a few words.
REASONS: Mapping[str, tuple[Verdict, str]] = {
    "fits": ("fits", ""),
    "ran": ("borderline", N_("borderline")),
    "lengths": ("depends-on-lengths", N_("only short responses fit")),
    "borderline": ("borderline", N_("borderline")),
    "engine": ("borderline", N_("no room for the KV cache")),
    "host": ("borderline", N_("too little host memory")),
    "too-large": ("does-not-fit", N_("too little GPU memory")),
    "no-bfloat16": ("does-not-fit", N_("no bfloat16")),
    "unknown": ("unknown", N_("unknown settings")),
}


@dataclass(frozen=True)
class Layout:
    """A way to distribute a run over its GPUs.

    Attributes:
        request: the request with all chosen settings.
        estimate: its estimate.
        given_host_limit: the host memory of a node in bytes; None if it is not known.
    """

    request: Request
    estimate: Estimate
    given_host_limit: float | None = None

    @property
    def name(self) -> str:
        """The training backend in a few words: ``FSDP in bfloat16``, or Megatron with its sizes."""
        actor = self.estimate.settings.actor
        if not self.is_megatron:
            return actor.backend.upper() + (" in bfloat16" if self.rounds else "")
        of = actor.megatron
        sizes = {"TP": of.tensor, "PP": of.pipeline, "CP": of.context, "EP": of.expert}
        return " ".join(["Megatron", *(f"{name} {size}" for name, size in sizes.items() if size > 1)])

    @property
    def rounds(self) -> bool:
        """True if FSDP keeps weights and moments in bfloat16 only, see ``levers.ROUNDS``."""
        return not self.is_megatron and self.estimate.settings.actor.fsdp.parameter_bytes == 2

    @property
    def is_megatron(self) -> bool:
        """True if Megatron trains."""
        return self.estimate.settings.actor.backend == "megatron"

    @property
    def offloaded(self) -> tuple[str, ...]:
        """The parts that are offloaded to host memory, in the words of ``OFFLOADED``."""
        actor = self.estimate.settings.actor
        own = actor.megatron if self.is_megatron else actor.fsdp
        policy = actor.backend == "fsdp2" and actor.fsdp.offload_policy
        on_cpu = policy or (self.is_megatron and actor.megatron.cpu_optimizer > 0)
        gradients = policy or (self.is_megatron and own.param_offload)
        parts = own.param_offload or policy, gradients, own.optimizer_offload or on_cpu, False, on_cpu
        return tuple(part for part, is_on in zip(OFFLOADED, parts, strict=True) if is_on)

    @property
    def kv_cache_tokens(self) -> tuple[float, float]:
        """The KV cache in tokens: what the engine has room for, and what it needs."""
        shape, settings = self.estimate.shape, self.estimate.settings
        return cache_tokens(shape, settings), needed_cache_tokens(shape, settings)

    @property
    def host_limit(self) -> float:
        """The host memory of a node in bytes: as given, or twice the memory of the node's GPUs."""
        settings = self.estimate.settings
        return self.given_host_limit or HOST_SHARE * settings.gpus / settings.nodes * settings.capacity

    def with_request(self, request: Request) -> Layout:
        """Return the layout with another request; itself if that cannot be estimated."""
        own = attempt(request, self.estimate.registries)
        return replace(self, request=request, estimate=own) if isinstance(own, Estimate) else self

    @cached_property
    def reason(self) -> str:
        """Why the layout fits or not: the first of ``REASONS`` that applies."""
        own, verdict = self.estimate, self.estimate.verdict
        gpu = gpu_of(self.request, own.registries)
        if verdict != "unknown" and gpu and not gpu.bfloat16:
            return "no-bfloat16"
        if verdict == "fits" and not own.ran:
            (room, demand), host = self.kv_cache_tokens, HOST_ERROR * own.host.total
            return "engine" if room < demand else "host" if host > self.host_limit else "fits"
        if verdict == "borderline" and own.ran and own.low > (own.capacity or 0.0):
            return "ran"
        return {"does-not-fit": "too-large", "depends-on-lengths": "lengths"}.get(verdict, verdict)

    @property
    def fits(self) -> bool:
        """True if the whole range fits, the rollout engine starts, and the host holds what is offloaded."""
        return self.estimate.fits and self.reason == "fits"

    @property
    def verdict(self) -> Verdict:
        """The verdict that follows from the reason."""
        return REASONS[self.reason][0]


# -- what the search chooses

_STRATEGY = f"{ACTOR}.strategy"
#: Settings that cost little or no time and are on in every layout.
ALWAYS: Config = {
    f"{MODEL}.enable_gradient_checkpointing": True,
    f"{MODEL}.use_remove_padding": True,
    f"{ACTOR}.use_dynamic_bsz": True,
}
#: Settings that only FSDP reads, and those that adapters need only with FSDP.
_OF_FSDP = (f"{ACTOR}.fsdp_config.", f"{REFERENCE}.fsdp_config.", "critic.fsdp.")
_ADAPTERS_OF_FSDP = (f"{MODEL}.target_modules", f"{ROLLOUT}.load_format", f"{ROLLOUT}.layered_summon")
#: The sections of the actor and of the critic.
_FSDP, _MEGATRON = (f"{ACTOR}.fsdp_config", "critic.fsdp"), (f"{ACTOR}.megatron", "critic.megatron")
_OPTIM = f"{ACTOR}.optim", "critic.optim"
_CORE, _ADAM = "override_transformer_config.recompute", "override_optimizer_config"


def in_sections(sections: Iterable[str], settings: Config) -> dict[str, Any]:
    """Return settings in each of some sections, such as that of the actor and that of the critic."""
    return {f"{section}.{name}": value for section in sections for name, value in settings.items()}


#: Settings of Megatron that recompute all activations, below the section of a role.
RECOMPUTE = {f"{_CORE}_granularity": "full", f"{_CORE}_method": "uniform", f"{_CORE}_num_layers": 1}
_ALWAYS_WITH_MEGATRON = ALWAYS | {_STRATEGY: "megatron"} | in_sections(_MEGATRON, RECOMPUTE)
_NONE = {"optimizer_offload": False, "param_offload": False}
_OPTIMIZER, _ALL = _NONE | {"optimizer_offload": True}, dict.fromkeys(_NONE, True)
_EAGER = {f"{ROLLOUT}.enforce_eager": True}
_FSDP2 = {_STRATEGY: "fsdp2", "critic.strategy": "fsdp2"} | _EAGER
#: Settings of Megatron's optimizer that compute its step on the CPU, below the section of an optimizer.
CPU_ADAM: Config = {f"{_ADAM}.optimizer_cpu_offload": True, f"{_ADAM}.optimizer_offload_fraction": 1}
CPU_ADAM |= {f"{_ADAM}.use_precision_aware_optimizer": True}
_BFLOAT16 = {"model_dtype": "bfloat16"}


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


#: The last step that only offloads.
_LAST_USUAL = 2
#: The levels, the best first. On those of the last step the CPU computes the optimizer step, which is slow.
LEVELS = (
    Level(0, "fsdp", in_sections(_FSDP, _NONE)),
    Level(0, "megatron", in_sections(_MEGATRON, _NONE)),
    Level(1, "fsdp", in_sections(_FSDP, _OPTIMIZER)),
    Level(1, "megatron", in_sections(_MEGATRON, _OPTIMIZER)),
    Level(2, "fsdp", in_sections(_FSDP, _ALL)),
    Level(2, "megatron", in_sections(_MEGATRON, _ALL)),
    Level(3, "fsdp", in_sections(_FSDP, _ALL) | _EAGER),
    Level(4, "fsdp", in_sections(_FSDP, _ALL | _BFLOAT16) | _EAGER),
    Level(5, "fsdp2", in_sections(_FSDP, _NONE | _BFLOAT16 | {"offload_policy": True}) | _FSDP2),
    Level(5, "megatron", in_sections(_MEGATRON, _ALL) | in_sections(_OPTIM, CPU_ADAM)),
)
#: Megatron's sizes to try: verl trained DeepSeek-V3 with 12 stages on 96 GPUs.
_STAGES, _TENSORS, _EXPERTS = (1, 2, 3, 4, 6, 8, 12, 16), (1, 2, 4, 8), (128, 64, 32, 16, 8, 4, 2, 1)
#: The most GPUs over which to spread experts, if no recorded run of the model has more.
_MOST_EXPERT = 16
_PIPELINE, _TENSOR, _EXPERT = (f"{name}_model_parallel_size" for name in ("pipeline", "tensor", "expert"))
_STAGE = "override_transformer_config.num_layers_in_{}_pipeline_stage"
_SIZES = (_PIPELINE, _TENSOR, _EXPERT, "expert_tensor_parallel_size", _STAGE.format("last"))
_PARALLEL_SIZES = {f"{ACTOR}.megatron.{name}" for name in _SIZES}
#: The rollout engine's largest share of a GPU in tenths, and the part of its share that weights take at most.
_MOST_TENTHS, _WEIGHTS_PART = 8, 0.7
#: The largest token budget for a whole mini-batch, whose single micro-batch leaves no unsharded gradients.
_MOST_BUDGET = 4 * USUAL_BUDGET


def _levels(question: Request, ran: Run | None) -> list[Level]:
    """Return the levels for a request, the best first, without settings that it gives.

    The backend with which it ran comes first, unless it needs more than offloading. Levels that have the same
    settings are one. On one GPU, nobody uses Megatron, and FSDP cannot offload parameters.
    """
    config, alone = question.config, question.gpus == 1
    strategy = question.backend or config.get(_STRATEGY) or config.get("model_engine")
    fsdp = any(key.startswith(_OF_FSDP) for key in config)
    megatron = any(key.startswith(f"{ACTOR}.megatron.") for key in config)
    both = {False, not alone}
    backends = {strategy == "megatron"} if strategy else both if fsdp == megatron else {megatron}

    def rank(level: Level) -> tuple[bool, int, bool]:
        is_other = (level.backend == "megatron") != (ran is not None and ran.train == "megatron")
        return ran is None or is_other or level.step > _LAST_USUAL, level.step, is_other

    levels: dict[tuple[bool, str], Level] = {}
    for level in sorted(LEVELS, key=rank):
        own = {key: value for key, value in level.settings.items() if key not in config}
        if alone and level.backend == "fsdp":
            own = {key: value for key, value in own.items() if not key.endswith(".param_offload")}
        is_megatron, strategies = level.backend == "megatron", (level.backend, config.get(_STRATEGY))
        if is_megatron in backends and strategies != ("fsdp2", "fsdp"):
            levels.setdefault((is_megatron, str(own)), level._replace(settings=own))
    return list(levels.values())


# -- the search


class Searches:
    """The searches for one question on several GPUs and numbers of GPUs, which share their estimates.

    Args:
        question: the question.
        data: the records.
        host_limit: the host memory of a node in bytes; None if it is not known.
    """

    def __init__(self, question: Request, data: EstimatorContext, host_limit: float | None = None) -> None:
        self._question, self._data, self._host_limit = question, data, host_limit
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
            question = replace(self._question, gpus=gpus, gpu=gpu)
            best = self._best(question, ran)
            fewer = count & (count - 1) or (count // 2 if best.verdict != "does-not-fit" else 0)
            if fewer and not best.fits and question.config.keys().isdisjoint(TRAINER_GPUS):
                with suppress(NoAnswerError):
                    on_fewer = self.on(fewer, gpu, ran)
                    best = on_fewer if on_fewer.fits else best
            self._layouts[key] = best
        return self._layouts[key]

    def _best(self, question: Request, ran: Run | None) -> Layout:
        """Return the best layout; if the run trained on as many GPUs and its sizes fit, one with these."""
        if ran and ran.gpus.count == question.gpus and not has_own_rollout_gpus(ran):
            sizes = {key: value for key, value in ran.settings.items() if key in _PARALLEL_SIZES}
            as_it_ran = replace(question, config={**sizes, **question.config})
            if sizes and (best := self._search(as_it_ran, ran)).fits:
                return best
        return self._search(question, ran)

    def _search(self, question: Request, ran: Run | None) -> Layout:
        """Return the best layout with the settings of a request."""
        levels, config = Levels(), str(question.config)
        for level in _levels(question, ran):
            key = question.gpus, level.backend == "megatron", config
            if key not in self._backends:
                self._backends[key] = _Backend(question, self._data, megatron=key[1])
            levels.append((level, self._backends[key]))
        return _Search(question, levels, gpu_of(question, self._data), self._host_limit).best()


class _Backend:
    """The candidates of one training backend on a number of GPUs, with any rollout engine.

    Attributes:
        request: the settings that all candidates share.
        node: the number of GPUs of a node.
        shape, settings: those of some candidate.
        sizes: Megatron's pipeline and tensor sizes, the smallest first, each with its settings.
        budgets: the token budgets, the largest first; None if the request decides.
        cheapest: those that may need the least memory: one sequence and, where this saves unsharded
            gradients, a whole mini-batch.
    """

    def __init__(self, question: Request, data: EstimatorContext, *, megatron: bool) -> None:
        self._data, self._config = data, question.config
        self._estimates: dict[Any, Estimate | None] = {}
        always = replace(question, config={**ALWAYS, **question.config})
        self.request = fitted(_with_megatron(question) if megatron else always, data)
        self.node = int(self.request.config.get(TRAINER_GPUS[1], min(8, question.gpus or 8)))
        self.sizes = dict(self._megatron_sizes() if megatron else ()) or {(1, 1): {}}
        self.shape, self.settings, *_ = resolve(self.request.having(next(iter(self.sizes.values()))), data)
        self.cheapest = self.budgets = Budgets([None])
        role = self.settings.actor
        if role.micro_batch.dynamic and not any(map(question.config.get, BUDGETS)):
            sequence = self.settings.lengths.limit / role.micro_batch.sharers
            least, whole = math.ceil(sequence), math.ceil(role.micro_batch.most * sequence)
            saves = not megatron and role.fsdp.defers_sync and whole <= _MOST_BUDGET
            self.cheapest = [least, *([max(USUAL_BUDGET, whole)] if saves else [])]
            halves = (USUAL_BUDGET // 2**power for power in range(15))
            self.budgets = [*dict.fromkeys((*(size for size in halves if size > least), *self.cheapest))]

    def _megatron_sizes(self) -> Iterator[tuple[Sizes, Config]]:
        """Yield Megatron's pipeline and tensor sizes with their settings; given ones are kept.

        Tensor parallelism divides the heads and the key-value heads, within a node with a fast link. Experts
        are spread over as many GPUs as the pipeline allows, but over no more than 16 or in a recorded run.
        """
        data, model, section = self._data, self.request.model, f"{ACTOR}.megatron."
        shape, gpus, config = data.known_shape(model), self.request.gpus or 8, self.request.config
        moe, divisor = shape.architecture.moe, math.gcd(shape.heads, shape.architecture.num_key_value_heads)
        alike = runs_by_shape(data).get(shape_key_of(data, model), ())
        most = max([_MOST_EXPERT, *(run.settings.get(section + _EXPERT, 1) for run, _ in alike)])

        def choices(name: str, usual: Iterable[int]) -> Iterable[int]:
            size = config.get(section + name)
            return [size] if type(size) is int and size > 0 else usual

        tensors = [size for size in _TENSORS if size <= self.node and not divisor % size]
        experts = choices(_EXPERT, [size for size in _EXPERTS if size <= most])
        for pipeline, tensor in product(choices(_PIPELINE, _STAGES), choices(_TENSOR, tensors)):
            stages, spread = _stages(shape.layers, pipeline), gpus // pipeline
            common_divisor = math.gcd(moe.num_experts, spread) if moe else 0
            fitting = [size for size in experts if not common_divisor % size]
            if stages is None or gpus % (tensor * pipeline) or not fitting:
                continue
            stages = {name: size for name, size in stages.items() if config.get(section + name) is None}
            sizes = {_TENSOR: tensor, _PIPELINE: pipeline, **stages}
            if moe:
                sizes |= {_EXPERT: fitting[0], "expert_tensor_parallel_size": 1}
            yield (pipeline, tensor), in_sections(_MEGATRON, sizes)

    def estimate(self, level: Level, sizes: Sizes, budget: int | None) -> Estimate | None:
        """Return an estimate; None if there is none."""
        key = level.step, level.backend, sizes, budget
        if key not in self._estimates:
            config = {**self.request.config, **self.sizes[sizes], **level.settings}
            config |= {} if budget is None else dict.fromkeys(BUDGETS, budget)
            section = () if self.settings.critic else ("critic.",)
            own = {key: config[key] for key in config if key in self._config or not key.startswith(section)}
            result = attempt(replace(self.request, config=own), self._data)
            self._estimates[key] = result if isinstance(result, Estimate) else None
        return self._estimates[key]

    def states(self, sizes: Sizes) -> float:
        """Return the number of parameters on a GPU with some of Megatron's sizes."""
        expert = self.sizes[sizes].get(f"{ACTOR}.megatron.{_EXPERT}", 1)
        dense = self.shape.parameters - self.shape.expert_parameters
        return float(dense / sizes[1] + self.shape.expert_parameters / expert) / sizes[0]


class _Search:
    """The search on a number of GPUs of one type, over the best levels first."""

    def __init__(self, question: Request, levels: Levels, gpu: Gpu | None, host_limit: float | None) -> None:
        self._question, self._levels, self._gpu, self._host_limit = question, levels, gpu, host_limit
        self._layouts: dict[tuple[int, Sizes, Engine, int | None], Layout] = {}
        self._capacity = capacity_of(gpu) if gpu else levels[0][1].settings.capacity
        self._engines = self._starting()

    def _starting(self) -> list[Engine]:
        """Return TP and share of rollout engines that start, the best first; the largest TP if none starts.

        The best leave a third of their share to the KV cache. A larger share, up to 0.8, is better than a
        larger TP, which exceeds a node only, and last, if no engine within a node leaves a third.
        """
        backend, config = self._levels[0][1], self._question.config
        shape, settings = backend.shape, replace(backend.settings, capacity=self._capacity)
        rollout, node = settings.rollout, backend.node
        shares, tensors = [rollout.utilization], [rollout.tensor]
        if ENGINE_SHARE not in config:
            shares += [tenth / 10 for tenth in range(1, _MOST_TENTHS + 1) if tenth / 10 > rollout.utilization]
        if ENGINE_TP not in config and not rollout.separate:
            powers = (2**power for power in range(11))
            tensors = [size for size in powers if not math.gcd(settings.gpus, shape.heads) % size]
        least_tokens = max(settings.lengths.limit, needed_cache_tokens(shape, settings))
        firsts: dict[tuple[bool, bool, int], float] = {}
        for tensor, share in product(tensors, shares):
            is_wide, is_enough = tensor > node, any(not is_full for _, is_full, _ in firsts)
            if (is_wide, False, tensor) in firsts or (is_wide and is_enough):
                continue
            own = replace(settings, rollout=replace(rollout, tensor=tensor, utilization=share))
            if cache_tokens(shape, own) >= least_tokens:
                is_full = engine_weights(shape, own).size > _WEIGHTS_PART * share * self._capacity
                firsts.setdefault((is_wide, is_full, tensor), share)
        return [(key[-1], firsts[key]) for key in sorted(firsts)] or [(tensors[-1], shares[0])]

    def best(self) -> Layout:
        """Return the best layout, see ``Searches.on``."""
        best, places = None, range(len(self._levels))
        if self._gpu and not self._gpu.bfloat16:
            self._at(0, self._widest(0)[0], self._engines[0], self._levels[0][1].budgets[0])
        elif not (best := self._on_level(0)):
            start = bisect_left(places, True, key=self._is_reachable)
            best = next(filter(None, map(self._on_level, places[start:])), None)
        return best or min(self._layouts.values(), key=lambda layout: layout.estimate.high)

    def _is_reachable(self, place: int) -> bool:
        """Return whether a GPU has enough memory up to a level; each level of a backend needs less."""
        last = {level.backend: place for place, (level, _) in enumerate(self._levels[: place + 1])}
        return any(map(self._has_room, reversed(last.values())))

    def _widest(self, place: int) -> list[Sizes]:
        """Return each pipeline size with its largest TP, or its smallest without a fast link."""
        sizes = self._levels[place][1].sizes
        order = sizes if self._gpu is None or self._gpu.fast_link else reversed(sizes)
        return sorted({pipeline: (pipeline, tensor) for pipeline, tensor in order}.values())

    def _has_room(self, place: int) -> bool:
        """Return whether a GPU has enough memory for the choice that needs the least on a level."""
        backend = self._levels[place][1]
        leanest = min(self._widest(place), key=backend.states)
        return self._first(place, leanest, backend.cheapest, in_memory=True) is not None

    def _on_level(self, place: int) -> Layout | None:
        """Return the best layout that fits: fewest stages, first engine, largest budget, smallest TP."""
        backend, widest = self._levels[place][1], self._widest(place)
        choice = self._first(place, widest[0], backend.budgets[:1])
        if not choice and self._has_room(place):
            choices = (self._first(place, sizes, backend.budgets) for sizes in widest)
            choice = next(filter(None, choices), None)
        if not choice:
            return None
        sizes, engine, budget = choice
        narrower = (own for own in reversed(backend.sizes) if own[0] == sizes[0] and own < sizes)
        every = (self._at(place, own, engine, budget) for own in (sizes, *narrower))
        return [*takewhile(lambda layout: layout and layout.fits, every)][-1]

    def _first(self, place: int, sizes: Sizes, budgets: Budgets, *, in_memory: bool = False) -> Choice | None:
        """Return the first choice that fits with some sizes: the first engine, then the first budget.

        The engine counts in rollout and weight sync, and the budget in the other phases, unless the engine
        never sleeps. With ``in_memory``, only the range of the estimate must fit.
        """
        for engine in self._engines:
            for budget in budgets:
                layout = self._at(place, sizes, engine, budget)
                if layout and (layout.estimate.fits if in_memory else layout.fits):
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
        if key not in self._layouts and (own := backend.estimate(level, sizes, budget)):
            usual = ENGINE_SHARE, backend.settings.rollout.utilization
            differences = {*zip((ENGINE_TP, ENGINE_SHARE), engine, strict=True)} - {usual}
            config = {name: value for name, value in differences if name not in self._question.config}
            request = replace(own.request, gpu=self._question.gpu, config={**own.request.config, **config})
            estimate = own.with_engine(request, self._capacity, *engine)
            self._layouts[key] = Layout(request, estimate, self._host_limit)
        return self._layouts.get(key)


def _with_megatron(question: Request) -> Request:
    """Return a request with the settings that every layout with Megatron has."""
    config = {key: value for key, value in question.config.items() if not key.startswith(_OF_FSDP)}
    if rank := config.pop(f"{MODEL}.lora_rank", None):  # Megatron reads other keys
        config = {key: value for key, value in config.items() if key not in _ADAPTERS_OF_FSDP}
        config[f"{MODEL}.lora.rank"] = rank
    return replace(question, backend="megatron", config={**_ALWAYS_WITH_MEGATRON, **config})


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
    return {_STAGE.format("first"): both // 2, _STAGE.format("last"): both - both // 2} if both else None
