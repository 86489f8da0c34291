"""Estimates by the dozen: the grid that the what-if form looks up."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any, cast

from ..catalog.names import VERDICTS
from ..diagnostics import NoAnswerError
from ..units import GIB
from .estimate import Estimate, attempt
from .phases import LABELS
from .registries import capacity_of
from .request import REFERENCE, ROLLOUT, Request
from .tasks import BUDGETS, SAVING, TASKS, fitted, task_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..diagnostics import Diagnostic
    from .registries import Registries

#: Keys of token budgets, which a choice sets all alike.
TOKEN_KEYS = (
    *BUDGETS,
    f"{ROLLOUT}.log_prob_max_token_len_per_gpu",
    f"{REFERENCE}.log_prob_max_token_len_per_gpu",
)
#: Choices of offloading, with the value of its keys.
OFFLOADS = {"none": False, "all": True}
OFFLOAD_KEYS = tuple(key for key in SAVING if key.endswith("_offload"))
#: Settings of adapters beyond those of the task, by rank.
LORAS: Mapping[int, Mapping[str, Any]] = {
    0: {},
    32: {key: value for key, value in TASKS["GRPO-LoRA"].items() if key not in TASKS["GRPO"]},
}
#: Keys that the choices set, or that follow from the number of GPUs.
CHOSEN = frozenset(
    {
        *TOKEN_KEYS,
        *OFFLOAD_KEYS,
        *LORAS[32],
        *(key for settings in TASKS.values() for key in settings if key != f"{ROLLOUT}.n"),
        "trainer.nnodes",
        "trainer.n_gpus_per_node",
    }
)


@dataclass(frozen=True)
class Axes:
    """The choices of the form, in the order of the cells; the GPU varies fastest.

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
        """The number of combinations."""
        return math.prod(len(getattr(self, axis.name)) for axis in fields(self))


@dataclass(frozen=True)
class GridCells:
    """Columns of a grid, one number a cell. Sizes are tenths of a GiB, per GPU.

    Attributes:
        offered: memory that each GPU offers to programs.
        gpus: by GPU, the index of its cells within those of a run; equal GPUs share one.
        phases: names of phases.
        verdicts: an index into ``VERDICTS``, and from there on into ``reasons``.
        peaks, lows, highs: zero where there is no estimate.
        tokens: the mean length of a sequence up to which a run fits; zero where lengths do not decide.
        bindings: an index into ``phases``; zero where there is no estimate.
        totals: by phase; zero where a run does not have it.
        reasons: of cells without an estimate.
        warnings: those that all estimates share.
    """

    offered: tuple[int, ...]
    gpus: tuple[int, ...]
    phases: tuple[str, ...]
    verdicts: tuple[int, ...]
    peaks: tuple[int, ...]
    lows: tuple[int, ...]
    highs: tuple[int, ...]
    tokens: tuple[int, ...]
    bindings: tuple[int, ...]
    totals: tuple[tuple[int, ...], ...]
    reasons: tuple[str, ...]
    warnings: tuple[Diagnostic, ...]


def cell_settings(
    task: str, tokens: int, offload: str, lora: int, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings of a cell: every memory optimisation on, except where the choices say otherwise.

    >>> cell_settings("GRPO", 4096, "none", 32, {})["actor_rollout_ref.actor.fsdp_config.param_offload"]
    False
    """
    return {
        **task_settings(task),
        **dict.fromkeys(TOKEN_KEYS, tokens),
        **dict.fromkeys(OFFLOAD_KEYS, OFFLOADS[offload]),
        **LORAS[lora],
        **config,
    }


def compute_grid(axes: Axes, config: Mapping[str, Any], registries: Registries) -> GridCells:
    """Compute every cell, with FSDP.

    Args:
        axes: what can be chosen; its names are known.
        config: further settings, none of them in ``CHOSEN``.
        registries: the registries.

    Raises:
        NoAnswerError: no cell has an estimate, or the settings ask for Megatron.
    """
    offered = [(capacity_of(gpu), name) for name in axes.gpus if (gpu := registries.gpus.get(name))]
    if not offered:
        raise NoAnswerError.because("none of the GPUs is known", "add it to gpus.yaml", key="gpus")
    gpus = dict(sorted(offered))
    cells = [
        cell
        for model, count in product(axes.models, axes.counts)
        for cell in _cells(axes, Request(model, config, count), gpus, registries)
    ]
    estimates = [cell for cell in cells if isinstance(cell, Estimate)]
    if not estimates:
        raise cast("NoAnswerError", cells[0])
    if any(cell.settings.actor.backend == "megatron" for cell in estimates):
        raise NoAnswerError.because("the grid is computed with FSDP", "leave out what asks for Megatron")
    reasons: dict[str, int] = {}
    rows = [_row(cell, reasons) for cell in cells]
    verdicts, peaks, lows, highs, tokens, bindings, *totals = map(tuple, zip(*rows, strict=True))
    used = [index for index, column in enumerate(totals) if any(column)]
    phases = tuple(LABELS)
    told = set.intersection(*(set(estimate.warnings) for estimate in estimates))
    return GridCells(
        offered=tuple(_tenths(capacity) for capacity, _ in offered),
        gpus=tuple(list(gpus).index(capacity) for capacity, _ in offered),
        phases=tuple(phases[index] for index in used),
        verdicts=verdicts,
        peaks=peaks,
        lows=lows,
        highs=highs,
        tokens=tokens,
        bindings=tuple(used.index(index) if index in used else 0 for index in bindings),
        totals=tuple(totals[index] for index in used),
        reasons=tuple(reasons),
        warnings=tuple(sorted(told)),
    )


def _row(cell: Estimate | NoAnswerError, reasons: dict[str, int]) -> tuple[int, ...]:
    """Return the numbers of a cell: verdict, peak with its range, lengths, peak phase, each phase's total.

    A cell without an estimate adds its reason to ``reasons``.
    """
    if isinstance(cell, Estimate) and not cell.undecided:
        totals = {phase.name: phase.total for phase in cell.phases}
        return (
            VERDICTS.index(cell.verdict),
            *map(_tenths, (cell.peak, cell.low, cell.high)),
            int(cell.fits_up_to_tokens or 0),
            list(LABELS).index(cell.peak_phase.name),
            *(_tenths(totals.get(name, 0.0)) for name in LABELS),
        )
    if isinstance(cell, Estimate):
        why = cell.undecided
    else:
        why = tuple(f"{problem.place.key}: {problem.message}" for problem in cell.diagnostics)
    index = reasons.setdefault("; ".join(why), len(reasons))
    return (len(VERDICTS) + index, 0, 0, 0, 0, 0, *(0 for name in LABELS))


def _tenths(size: float) -> int:
    """Return bytes as tenths of a GiB, rounded as ``units.gib`` does from one GiB on."""
    return round(round(size / GIB, 1) * 10)


def _cells(
    axes: Axes, asked: Request, gpus: Mapping[float, str], registries: Registries
) -> Iterator[Estimate | NoAnswerError]:
    """Yield the cells of one model and number of GPUs, in their order.

    A run is estimated once for each layout, and moved to the other GPUs that have the same layout.

    Args:
        axes: what can be chosen.
        asked: the model, the number of GPUs, and further settings.
        gpus: by capacity, a GPU that offers it.
        registries: the registries.
    """
    layouts = [
        (name, capacity, fitted(replace(asked, gpu=name), registries).config)
        for capacity, name in gpus.items()
    ]
    for chosen in product(axes.tasks, axes.tokens, axes.offloads, axes.loras):
        config = cell_settings(*chosen, asked.config)
        made: dict[object, Estimate | NoAnswerError] = {}
        for name, capacity, layout in layouts:
            key = tuple(layout.items())
            if key not in made:
                request = replace(asked, gpu=name, config={**layout, **config})
                made[key] = attempt(request, registries)
            cell = made[key]
            yield cell.on_gpu(capacity) if isinstance(cell, Estimate) else cell
