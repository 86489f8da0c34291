"""A grid of estimates: what a form can look up, computed once, so that no formula is written twice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError
from ..units import GIB
from .estimate import Estimate, estimate
from .layouts import fitted
from .phases import LABELS
from .planner import SAVING, TASKS, task_settings
from .registries import capacity_of
from .request import Request
from .roles import ACTOR, REFERENCE, ROLLOUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..diagnostics import Diagnostic
    from .peaks import Verdict
    from .registries import Registries

#: Settings of a token budget, which a choice sets all alike.
TOKEN_KEYS = (
    f"{ACTOR}.ppo_max_token_len_per_gpu",
    f"{ROLLOUT}.log_prob_max_token_len_per_gpu",
    f"{REFERENCE}.log_prob_max_token_len_per_gpu",
    "critic.ppo_max_token_len_per_gpu",
    "critic.ppo_infer_max_token_len_per_gpu",
)
#: What is offloaded, and whether.
OFFLOADS = {"none": False, "all": True}
OFFLOAD_KEYS = tuple(key for key in SAVING if key.endswith("_offload"))
#: Adapters, by their rank: what LoRA sets beyond the task itself.
LORAS: Mapping[int, Mapping[str, Any]] = {
    0: {},
    32: {key: value for key, value in TASKS["GRPO-LoRA"].items() if key not in TASKS["GRPO"]},
}
#: What is said of a cell, by its number in ``GridCells.verdicts``; behind them come the reasons.
VERDICTS: tuple[Verdict, ...] = ("fits", "tight", "does not fit", "unknown")
#: Keys that the choices set, or that follow from the number of GPUs.
CHOSEN = frozenset(
    {
        *TOKEN_KEYS,
        *OFFLOAD_KEYS,
        *LORAS[32],
        *(key for settings in TASKS.values() for key in settings),
        "trainer.nnodes",
        "trainer.n_gpus_per_node",
    }
)


@dataclass(frozen=True)
class Axes:
    """What can be chosen, in the order in which the cells stand; the GPU varies fastest.

    Attributes:
        models: Hugging Face names.
        counts: numbers of GPUs.
        tasks: names in ``TASKS``.
        tokens: per GPU, of a micro-batch.
        offloads: keys of ``OFFLOADS``.
        loras: keys of ``LORAS``.
        gpus: names of the registry.
    """

    models: tuple[str, ...]
    counts: tuple[int, ...]
    gpus: tuple[str, ...]
    tasks: tuple[str, ...] = ("GRPO", "PPO", "DAPO")
    tokens: tuple[int, ...] = (4096, 8192, 16384, 32768)
    offloads: tuple[str, ...] = tuple(OFFLOADS)
    loras: tuple[int, ...] = tuple(LORAS)

    @property
    def size(self) -> int:
        """How many combinations there are."""
        size = 1
        for axis in (*self._runs, self.gpus):
            size *= len(axis)
        return size

    @property
    def _runs(self) -> tuple[tuple[Any, ...], ...]:
        return self.models, self.counts, self.tasks, self.tokens, self.offloads, self.loras


@dataclass(frozen=True)
class GridCells:
    """Columns of a grid, one number a cell. Sizes are tenths of a GiB, per GPU.

    Attributes:
        offered: what each GPU offers to programs.
        cards: by GPU, the index of the column of cells that holds for it; equal GPUs share one.
        phases: names of phases.
        verdicts: an index into ``VERDICTS``, and from there on into ``reasons``.
        peaks, lows, highs: zero where there is no estimate.
        bindings: an index into ``phases``; zero where there is no estimate.
        totals: by phase; zero where a run does not have it.
        reasons: why there is no estimate.
        warnings: what is to be said of every cell.
    """

    offered: tuple[int, ...]
    cards: tuple[int, ...]
    phases: tuple[str, ...]
    verdicts: tuple[int, ...]
    peaks: tuple[int, ...]
    lows: tuple[int, ...]
    highs: tuple[int, ...]
    bindings: tuple[int, ...]
    totals: tuple[tuple[int, ...], ...]
    reasons: tuple[str, ...]
    warnings: tuple[Diagnostic, ...]


def cell_settings(
    task: str, tokens: int, offload: str, lora: int, config: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of a cell: every memory optimisation on, but for what is chosen.

    >>> cell_settings("GRPO", 4096, "none", 32, {})["actor_rollout_ref.actor.fsdp_config.param_offload"]
    False
    """
    return {
        **(task_settings(task) or {}),
        **dict.fromkeys(TOKEN_KEYS, tokens),
        **dict.fromkeys(OFFLOAD_KEYS, OFFLOADS[offload]),
        **LORAS[lora],
        **config,
    }


def compute_grid(axes: Axes, config: Mapping[str, Any], registries: Registries) -> GridCells:
    """Every cell, with FSDP.

    Args:
        axes: what can be chosen; its names are known.
        config: further settings, none of them in ``CHOSEN``.
        registries: the registries.

    Raises:
        NoAnswerError: no cell has an estimate.
        NoAnswerError: the settings ask for Megatron.
    """
    capacities = [capacity_of(card) for name in axes.gpus if (card := registries.gpus.get(name))]
    distinct = sorted(set(capacities))
    cells, refused = _Columns(), []
    for model, count in product(axes.models, axes.counts):
        asked = Request(model, config, count)
        layouts = _layouts(asked, axes.gpus, registries)
        for chosen in product(axes.tasks, axes.tokens, axes.offloads, axes.loras):
            request = replace(asked, config=cell_settings(*chosen, config))
            for found in _on_every_card(request, layouts, distinct, registries):
                if isinstance(found, NoAnswerError):
                    refused.append(found)
                    cells.leave_out(found)
                else:
                    cells.add(found)
    if refused and len(refused) == len(cells.verdicts):
        raise refused[0]
    return cells.frozen(
        tuple(map(_tenths, capacities)), tuple(distinct.index(capacity) for capacity in capacities)
    )


def _layouts(
    asked: Request, gpus: tuple[str, ...], registries: Registries
) -> dict[float, tuple[str, dict[str, Any]]]:
    """By what a card offers: a card that does, and what follows from it and from the number of GPUs."""
    found = {}
    for name in gpus:
        card = registries.gpus.get(name)
        if card is not None:
            config = fitted(replace(asked, gpu=name), registries).config
            added = {key: value for key, value in config.items() if key not in asked.config}
            found[capacity_of(card)] = (name, added)
    return found


def _on_every_card(
    request: Request,
    layouts: Mapping[float, tuple[str, dict[str, Any]]],
    capacities: list[float],
    registries: Registries,
) -> Iterator[Estimate | NoAnswerError]:
    """The estimates of one run by what cards offer: one for each layout, moved to other cards."""
    made: list[tuple[dict[str, Any], Estimate | NoAnswerError]] = []
    for capacity in capacities:
        name, added = layouts[capacity]
        known = next((found for layout, found in made if layout == added), None)
        if known is None:
            known = _estimated(replace(request, config={**added, **request.config}, gpu=name), registries)
            made.append((added, known))
        yield known if isinstance(known, NoAnswerError) else known.on_gpu(capacity)


def _estimated(request: Request, registries: Registries) -> Estimate | NoAnswerError:
    try:
        found = estimate(request, registries)
    except NoAnswerError as error:
        return error
    if found.settings.actor.backend == "megatron":
        raise NoAnswerError.because("the grid is computed with FSDP", "leave out what asks for Megatron")
    return found


class _Columns:
    """Collects cells, one number in each column."""

    def __init__(self) -> None:
        self.phases = list(LABELS)
        self.verdicts: list[int] = []
        self.peaks: list[int] = []
        self.lows: list[int] = []
        self.highs: list[int] = []
        self.bindings: list[int] = []
        self.totals: list[list[int]] = [[] for name in LABELS]
        self.reasons: dict[str, int] = {}
        self.warnings: set[Diagnostic] | None = None

    def add(self, found: Estimate) -> None:
        """A cell with an estimate."""
        self._numbers(
            VERDICTS.index(found.verdict), found.peak, found.low, found.high, found.peak_phase.name,
            {phase.name: phase.total for phase in found.phases},
        )  # fmt: skip
        told = set(found.warnings)
        self.warnings = told if self.warnings is None else self.warnings & told

    def leave_out(self, error: NoAnswerError) -> None:
        """A cell without one, and why."""
        reason = "; ".join(f"{problem.place.key}: {problem.message}" for problem in error.diagnostics)
        index = self.reasons.setdefault(reason, len(self.reasons))
        self._numbers(len(VERDICTS) + index, 0, 0, 0, self.phases[0], {})

    def _numbers(
        self, verdict: int, peak: float, low: float, high: float, peak_phase: str, totals: Mapping[str, float]
    ) -> None:
        self.verdicts.append(verdict)
        self.peaks.append(_tenths(peak))
        self.lows.append(_tenths(low))
        self.highs.append(_tenths(high))
        self.bindings.append(self.phases.index(peak_phase))
        for name, column in zip(self.phases, self.totals, strict=True):
            column.append(_tenths(totals.get(name, 0.0)))

    def frozen(self, offered: tuple[int, ...], cards: tuple[int, ...]) -> GridCells:
        """All columns; phases that no cell has are left out."""
        used = [index for index, column in enumerate(self.totals) if any(column)]
        return GridCells(
            offered,
            cards,
            tuple(self.phases[index] for index in used),
            tuple(self.verdicts),
            tuple(self.peaks),
            tuple(self.lows),
            tuple(self.highs),
            tuple(used.index(index) if index in used else 0 for index in self.bindings),
            tuple(tuple(self.totals[index]) for index in used),
            tuple(self.reasons),
            tuple(sorted(self.warnings or (), key=lambda problem: problem.sort_key)),
        )


def _tenths(size: float) -> int:
    """Bytes as tenths of a GiB, rounded as ``units.gib`` does from one GiB on."""
    return round(round(size / GIB, 1) * 10)
