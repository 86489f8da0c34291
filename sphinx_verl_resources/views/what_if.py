"""The what-if form: a sentence for readers without scripts, and the file that the script reads."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from docutils import nodes

from ..breakdown import Category
from ..catalog.names import VERDICTS
from ..estimator.phases import LABELS
from ..estimator.versions import CURRENT, version_text
from ..i18n import N_, _, plural
from ..settings.writing import flat_yaml
from .blocks import fill
from .drawing import PAINTS
from .file_names import FORM_CLASS, GRID_CLASS, grid_path
from .verdicts import FITS_UP_TO, REASONS, title

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..estimator.grid import Axes, GridCells

#: The global variable under which the script finds the grids.
_REGISTRY = "(globalThis.verlWhatIf ??= {})"
_PLAN = ("verl-resources", "plan")
#: The choices of the form when it opens, where it offers them.
_FIRST = {"gpu": "H100", "count": 8, "tokens": 16384, "offload": "all"}
_OFFLOADS = {"none": N_("nothing"), "all": N_("parameters and optimizer")}
_NO_LORA, _LORA = N_("none"), N_("rank {rank}")


def form(name: str, axes: Axes) -> nodes.container:
    """Return the sentence that a script replaces by the form."""
    model, gpu = axes.models[len(axes.models) // 2], _first(axes.gpus, _FIRST["gpu"])
    command = " ".join((*_PLAN, model, "--gpus", f"8x{axes.gpus[gpu]}", "--task", axes.tasks[0]))
    text = fill(
        _(
            "With JavaScript, a form stands here that looks up whether a model fits: by GPU, number of GPUs, "
            "task, tokens per GPU, offloading and LoRA. Without it, the tables of this page say most of it, "
            "and {command} computes the rest; {help} says what else it takes."
        ),
        command=nodes.literal("", command),
        help=nodes.literal("", " ".join((*_PLAN, "--help"))),
    )
    return nodes.container("", nodes.paragraph("", "", *text), classes=[FORM_CLASS, GRID_CLASS + name])


def grid_file(axes: Axes, cells: GridCells, settings: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the name of a grid, and path and text of its file; all follow from the content alone.

    Args:
        axes: what can be chosen.
        cells: the figures.
        settings: those of all cells, to be shown.
    """
    data = {
        "choices": _choices(axes),
        "offered": cells.offered,
        "gpus": cells.gpus,
        "phases": [_(LABELS[name]) for name in cells.phases],
        "verdicts": [[title(verdict), _(REASONS[verdict])] for verdict in VERDICTS],
        "reasons": cells.reasons,
        "cells": {
            "verdict": cells.verdicts,
            "peak": cells.peaks,
            "low": cells.lows,
            "high": cells.highs,
            "tokens": cells.tokens,
            "binding": cells.bindings,
            "totals": cells.totals,
        },
        "words": _words(settings),
        "colours": {"bar": PAINTS[Category.WEIGHTS].colour, "over": PAINTS[Category.GRADIENTS].colour},
    }
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    return name, grid_path(name), f'{_REGISTRY}["{name}"]={text};\n'


def _choices(axes: Axes) -> list[dict[str, Any]]:
    """Return the fields of the form, with their values and the first choice.

    They come in the order of the cells, except for the GPU, since equal GPUs share cells. ``values`` stand in
    the address of the page, ``labels`` in the form.
    """
    loras = [_(_LORA).format(rank=rank) if rank else _(_NO_LORA) for rank in axes.loras]
    counts = [plural("{count} GPU", "{count} GPUs", count).format(count=count) for count in axes.counts]
    return [
        _choice("model", _("Model"), axes.models, axes.models),
        _choice("gpu", _("GPU"), axes.gpus, axes.gpus),
        _choice("count", _("Number of GPUs"), axes.counts, counts),
        _choice("task", _("Task"), axes.tasks, axes.tasks),
        _choice("tokens", _("Tokens per GPU"), axes.tokens, [f"{count:,}" for count in axes.tokens]),
        _choice("offload", _("Offloaded"), axes.offloads, [_(_OFFLOADS[name]) for name in axes.offloads]),
        _choice("lora", _("LoRA"), axes.loras, loras),
    ]


def _choice(name: str, label: str, values: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
    first = len(values) // 2 if name == "model" else _first(values, _FIRST.get(name))
    return {
        "name": name,
        "label": label,
        "values": [str(value) for value in values],
        "labels": list(labels),
        "first": first,
    }


def _first(values: Sequence[Any], wanted: Any) -> int:
    return values.index(wanted) if wanted in values else 0


def _words(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the sentences of the script."""
    return {
        "title": _("What if"),
        "gib": "{size} GiB",
        "answer": _("{verdict}. {reason}"),
        "range": _("range {low} to {high}"),
        "fitsUpTo": _(FITS_UP_TO),
        "peakPhase": _("Peak phase: {phase}."),
        "peakRow": _("{phase} (peak phase)"),
        "outside": _("Outside the grid."),
        "noEstimate": _("There is no estimate for this combination: {reason}."),
        "strange": _(
            "The address of this page asks for what the form does not have: {asked}. Its own choice stands "
            "there instead."
        ),
        "caption": _("Memory per GPU, phase by phase"),
        "phase": _("Phase"),
        "total": _("Total (GiB)"),
        "offers": _("the GPU offers {capacity}"),
        "over": _("{size} (+{over})"),
        "hatched": _("Hatched: more than the GPU offers."),
        "drawing": _("{title}. {sizes}"),
        "part": _("{part} {size}"),
        "between": _("; "),
        "fixed": _(
            "Computed with FSDP, gradient checkpointing, no padding and a dynamic batch size; the rollout "
            "engine takes as many GPUs for a replica as it needs. Megatron lies outside the grid. What is "
            "not chosen has the default of verl {version}, and:"
        ).format(version=version_text(CURRENT)),
        "settings": flat_yaml(settings),
    }
