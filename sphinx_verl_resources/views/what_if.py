"""The what-if form: a sentence for readers without scripts, and the file that the script reads."""

from __future__ import annotations

import hashlib
import json
from itertools import chain
from typing import TYPE_CHECKING, Any

from docutils import nodes

from ..catalog.names import VERDICTS, WORDS
from ..estimator.phases import LABELS
from ..estimator.versions import CURRENT, version_text
from ..i18n import N_, _, plural
from .answer import NO_RUN, trust_text
from .blocks import between_commas, fill
from .file_names import FORM_CLASS, GRID_CLASS, RUNS_CLASS, grid_path
from .runs import WORD_TEXTS
from .verdicts import FITS_UP_TO, as_title, title

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..answer.grid import Axes, GridCells

#: The global variable under which the script finds the grids.
_REGISTRY = "(globalThis.verlWhatIf ??= {})"
#: The choices of the form when it opens, where it offers them.
_FIRST = {"gpu": "H100", "count": 8, "lora": 0, "response": 1024}
#: The axes of the runs, in their order.
_AXES = ("model", "count", "lora", "response")
_FULL, _LORA = N_("all parameters"), N_("LoRA, rank {rank}")


def form(name: str, axes: Axes, runs: Iterable[nodes.Node]) -> nodes.container:
    """Return the sentence that a script replaces by the form.

    Args:
        name: of the grid.
        axes: what can be chosen.
        runs: links to the recorded runs that the form names, in the order of the grid.
    """
    model, gpu = axes.models[len(axes.models) // 2], axes.gpus[_first(axes.gpus, _FIRST["gpu"])]
    count = axes.counts[_first(axes.counts, _FIRST["count"])]
    text = fill(
        _(
            "With JavaScript, a form here answers whether a model fits: by GPU, number of GPUs, full or "
            "LoRA, and length of the responses. Without JavaScript, read the tables of this page or run "
            "{command}; {help} lists its other options."
        ),
        command=nodes.literal("", f"verl-resources plan {model} --gpus {count}x{gpu}"),
        help=nodes.literal("", "verl-resources plan --help"),
    )
    links = nodes.container("", nodes.paragraph("", "", *between_commas(runs)), classes=[RUNS_CLASS])
    return nodes.container("", nodes.paragraph("", "", *text), links, classes=[FORM_CLASS, GRID_CLASS + name])


def grid_file(axes: Axes, cells: GridCells) -> tuple[str, str, str]:
    """Return the name of a grid, and path and text of its file; all follow from the content alone."""
    commands = _commands(axes, cells)
    data = {
        "choices": _choices(axes),
        "offered": cells.offered,
        "gpus": cells.gpus,
        "phases": [_(LABELS[name]) for name in cells.phases],
        "layouts": cells.layouts,
        "verdicts": [title(verdict) for verdict in VERDICTS],
        "reasons": cells.reasons,
        "trusts": list(map(trust_text, cells.trusts)),
        "runs": [WORDS.index(word) for _id, word in cells.runs],
        "nearest": cells.nearest,
        "evidence": cells.evidence,
        "cells": {**cells.columns, "command": commands.pop("command")},
        **commands,
        "words": _words(),
    }
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    return name, grid_path(name), f'{_REGISTRY}["{name}"]={text};\n'


#: By the key of a setting, the axis that decides its line in a command, and the line by value.
_Shared = dict[str, tuple[str, dict[Any, str]]]


def _commands(axes: Axes, cells: GridCells) -> dict[str, Any]:
    """Return commands without what they share, so that the file stays small.

    ``lines`` are all lines of commands. Each of ``commands`` consists of indices of lines; a negative one
    leads, from the end, into ``shared``, where the choice on an axis decides the line.
    """
    shared = _shared_lines(axes, cells)
    places = {line: index for index, line in enumerate(dict.fromkeys(chain.from_iterable(cells.commands)))}
    keys = list(shared)

    def index(line: str) -> int:
        return keys.index(_key(line)) - len(keys) if _key(line) in shared else places[line]

    commands = [tuple(map(index, command)) for command in cells.commands]
    different = {command: number for number, command in enumerate(dict.fromkeys(commands))}
    return {
        "lines": list(places),
        "shared": [
            [axis, [places.get(lines.get(value, ""), 0) for value in getattr(axes, f"{axis}s")]]
            for axis, lines in shared.values()
        ],
        "commands": list(different),
        "command": [different[commands[number]] for number in cells.columns["command"]],
    }


def _shared_lines(axes: Axes, cells: GridCells) -> _Shared:
    """Return the settings whose line follows from the choice on one axis."""
    each = len(cells.columns["command"]) // len(axes.runs)
    found: dict[str, tuple[set[tuple[Any, str]], ...]] = {}
    for number, index in enumerate(cells.columns["command"]):
        for line in cells.commands[index]:
            pairs = found.setdefault(_key(line), tuple(set() for axis in _AXES))
            for of_axis, value in zip(pairs, axes.runs[number // each], strict=True):
                of_axis.add((value, line))
    return {
        key: (axis, dict(of_axis))
        for key, pairs in found.items()
        if len({line for _value, line in pairs[0]}) > 1
        for axis, of_axis in zip(_AXES, pairs, strict=True)
        if len(dict(of_axis)) == len(of_axis)
    }


def _key(line: str) -> str:
    return line.partition("=")[0]


def _choices(axes: Axes) -> list[dict[str, Any]]:
    """Return the fields of the form, with their values and the first choice.

    They come in the order of the cells, except for the GPU, since GPUs that are alike share cells. ``values``
    stand in the address of the page, ``labels`` in the form.
    """
    short = [model.rpartition("/")[2] for model in axes.models]
    models = short if len(set(short)) == len(short) else axes.models
    loras = [_(_LORA).format(rank=rank) if rank else _(_FULL) for rank in axes.loras]
    counts = [plural("{count} GPU", "{count} GPUs", count).format(count=count) for count in axes.counts]
    responses = [f"{count:,}" for count in axes.responses]
    return [
        _choice("model", _("Model"), axes.models, models),
        _choice("gpu", _("GPU"), axes.gpus, axes.gpus),
        _choice("count", _("Number of GPUs"), axes.counts, counts),
        _choice("lora", _("Trained"), axes.loras, loras),
        _choice("response", _("Longest response"), axes.responses, responses),
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


def _words() -> Mapping[str, Any]:
    """Return the sentences of the script."""
    return {
        "title": _("What if"),
        "gib": "{size} GiB",
        "verdict": _("{verdict}."),
        "item": _("{title}: {text}"),
        "between": _(", "),
        "or": _(" or "),
        "evidence": [as_title(_(WORD_TEXTS[word])) for word in WORDS],
        "noRun": _(NO_RUN),
        "estimated": _("Estimated"),
        "figures": _("{low} to {high} of {capacity} per GPU with {layout}, most in the phase “{phase}”."),
        "used": _("It takes only {count} of these GPUs."),
        "fitsUpTo": _(FITS_UP_TO),
        "host": _("Host memory"),
        "perNode": _("{size} on each node."),
        "trust": _("How sure"),
        "change": _("What makes it fit"),
        "changeResponse": _("responses of up to {count} tokens"),
        "changeMore": _("To see the settings that do, run {command}."),
        "plan": "verl-resources plan {model} --gpus {count}x{gpu}{lora} --response {response}",
        "planLora": " --lora {rank}",
        "outside": _("Outside the grid."),
        "noEstimate": _("There is no estimate for this combination: {reason}."),
        "strange": _(
            "The address of this page asks for what the form does not have: {asked}. The form shows its own "
            "choice instead."
        ),
        "command": _("The command"),
        "fixed": _(
            "For GRPO with verl {version}. Of FSDP and Megatron, the form takes the layout that fits with "
            "the least offloading, then the one with the largest token budget. Settings that are not in the "
            "command have verl's defaults."
        ).format(version=version_text(CURRENT)),
    }
