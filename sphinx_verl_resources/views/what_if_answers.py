"""The choices and answers of the what-if form: its fields, a file for each model, and an answer in words.

The script of the form reads the same files and fills in the same texts.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from ..answer.command import SEPARATOR
from ..i18n import N_, _
from ..memory.phases import LABELS
from ..memory.request import VERDICTS
from ..memory.versions import CURRENT, version_text
from .answer import NO_RUN, SMALLEST, measured_text
from .verdicts import FITS_UP_TO, title, two_digits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..answer.grid import Axes, GridCells
    from ..memory.request import Verdict

    Fields = Sequence[Mapping[str, Any]]
    Answers = Mapping[str, Any]

#: The choices of the form when it opens, if it offers them; otherwise the first of each field.
_FIRST = {"model": "Qwen/Qwen2.5-7B", "gpu": "H100", "count": 8, "lora": 0, "response": 1024}
#: For each state, the verdict and the reason that begin an answer. In the files a state is a
#: number; larger numbers are the reasons why there is no estimate.
STATES: Mapping[str, tuple[Verdict, str]] = {
    "fits": ("fits", N_("The whole range is within the GPU's memory, with {spare} GiB to spare.")),
    "tight": ("fits", N_("Tight: {spare} GiB to spare, less than the average error of such estimates.")),
    "borderline": ("borderline", N_("The GPU's memory is inside the range of the estimate.")),
    "engine": (
        "borderline",
        N_("The rollout engine may not start: too little memory is left for its KV cache."),
    ),
    "ran": ("borderline", N_("It ran, although even the low end of the estimate exceeds the GPU's memory.")),
    "mean-length": ("depends-on-lengths", FITS_UP_TO),
    "lengths": (
        "depends-on-lengths",
        N_("It fits with short sequences, not with sequences at their limits."),
    ),
    "too-large": ("does-not-fit", N_("Even the low end of the estimate exceeds the GPU's memory.")),
}
#: The global variable under which the script finds the answers for a model.
_REGISTRY = "(globalThis.verlWhatIf ??= {})"
#: The fields to search for a choice that fits, with the direction of the search.
_WAYS = (("response", -1), ("lora", 1), ("count", 1))

#: The lines about an estimate.
_FIGURES = ("estimated", "host", "phase", "trust")
_TEXTS = ("labels", "values")


def fields_of(models: Sequence[str], axes: Axes) -> Fields:
    """Return the fields of the form, each with its values, their labels, and the index of the first choice.

    ``values`` are in the address of the page, ``labels`` in the form.
    """
    short = [model.rpartition("/")[2] for model in models]
    loras = [
        _("LoRA (rank {rank})").format(rank=rank) if rank else _("all parameters") for rank in axes.loras
    ]
    return [
        _field("model", _("Model"), models, short if len(set(short)) == len(short) else models),
        _field("count", _("GPUs"), axes.counts, axes.counts),
        _field("gpu", _("GPU type"), axes.gpus, axes.gpus),
        _field("lora", _("Trained"), axes.loras, loras),
        _field("response", _("Longest response"), axes.responses, [f"{n:,}" for n in axes.responses]),
    ]


def _field(name: str, label: str, values: Sequence[Any], labels: Sequence[Any]) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "values": [str(value) for value in values],
        "labels": [str(text) for text in labels],
        "first": values.index(_FIRST[name]) if _FIRST[name] in values else 0,
    }


def shared_data(files: Sequence[str], cells: GridCells) -> dict[str, Any]:
    """Return the data that the answers of all models share.

    Args:
        files: the names of their files, in the order of the models.
        cells: the cells of any model.
    """
    return {"files": list(files), "offered": cells.offered, "gpus": cells.gpus, "words": _words()}


def _words() -> dict[str, Any]:
    """Return the texts of the answers, with braces to be filled in."""
    return {
        "states": [[verdict, title(verdict), _(sentence)] for verdict, sentence in STATES.values()],
        "why": _("Estimated for GRPO. {sentence}"),
        "noEstimate": ["unknown", _("No estimate"), _("{reason}.")],
        "between": _(", "),
        "or": _(" or "),
        "noWay": _("Changing only the response length, LoRA or the number of GPUs is not enough."),
        "estimated": _("{low} to {high} GiB per GPU with {layout}; the GPU has {capacity}."),
        "next": _("{sentence} {next}"),
        "noRun": _(NO_RUN),
        "undercut": _("{run}; the estimate is below every such run."),
        "unlike": _("{run}; no such run had so little GPU memory and responses this long."),
        "used": _("It uses only {count} of these GPUs."),
        "host": _("{size} GiB per node."),
        "response": _("responses of up to {label} tokens"),
        "lora": "{label}",
        "count": _("{label} GPUs"),
        "asked": _("{model} on {count} × {gpu}, {lora}, responses of up to {response} tokens"),
        "plan": ["verl-resources", "plan", "{model}", "--gpus", "{count}x{gpu}", "--response", "{response}"],
        "planLora": ["--lora", "{lora}"],
        "strange": _("The form does not offer {asked}. The answer is for the choices shown."),
        "loading": _("Loading …"),
        "failed": _("The answers for {model} could not be loaded. Run {command} instead."),
        "copied": _("Copied"),
        "notCopied": _("The browser did not allow copying."),
    }


# -- the answers for a model


def answers_of(cells: GridCells, runs: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Return the answers for a model.

    Args:
        cells: the cells of the model.
        runs: by the id of a recorded run, its title and the address of its script.
    """
    lines = {line: place for place, line in enumerate(dict.fromkeys(chain.from_iterable(cells.commands)))}
    columns = {name: list(column) for name, column in cells.columns.items() if name != "verdict"}
    columns["tokens"] = [int(two_digits(count).replace(",", "")) for count in columns["tokens"]]
    return {
        "phases": [_(LABELS[name]) for name in cells.phases],
        "layouts": cells.layouts,
        "reasons": cells.reasons,
        "trusts": [[measured_text(trust), int(trust.undercuts)] for trust in cells.trusts],
        "runs": [
            [run, runs[run][0], word if bears else SMALLEST + word, runs[run][1]]
            for run, word, bears in cells.runs
        ],
        "nearest": cells.nearest,
        "evidence": cells.evidence,
        "lines": list(lines),
        "commands": [[lines[line] for line in command] for command in cells.commands],
        "cells": {"state": _states(cells), **columns},
    }


def _states(cells: GridCells) -> list[int]:
    """Return for each cell its index in ``STATES`` followed by the reasons."""
    capacities, names = {place: cells.offered[gpu] for gpu, place in enumerate(cells.gpus)}, list(STATES)

    def state(number: int, verdict: int) -> int:
        if verdict >= len(VERDICTS):
            return len(STATES) + verdict - len(VERDICTS)
        low, high, tokens = (cells.columns[name][number] for name in ("low", "high", "tokens"))
        capacity = capacities[number % len(capacities)]
        error = cells.trusts[cells.columns["trust"][number]].mean_error or 0
        by_verdict: dict[str, str] = {
            "fits": "tight" if capacity - high < error * high else "fits",
            "borderline": "ran" if low > capacity else "borderline" if high > capacity else "engine",
            "depends-on-lengths": "mean-length" if tokens else "lengths",
        }
        return names.index(by_verdict.get(VERDICTS[verdict], "too-large"))

    return [state(number, verdict) for number, verdict in enumerate(cells.columns["verdict"])]


def answers_file(answers: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return name, path and text of the file with a model's answers; the name is a hash of the content."""
    text = json.dumps(answers, ensure_ascii=True, separators=(",", ":"))
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    return name, f"_static/verl-what-if-{name}.js", f'{_REGISTRY}["{name}"]={text};\n'


# -- an answer in words


@dataclass(frozen=True)
class Shown:
    """The texts and figures of one choice.

    Attributes:
        badge: a verdict and its text.
        lines: by name, the texts of the lines; one without a text is not shown. ``smallest`` is for the lines
            of ``SMALLEST``, and has braces for their runs.
        runs: id, title, line and address of the script of each recorded run.
        plan: the command of this program that answers the same question.
        command: the command that runs verl with the settings of the estimate; empty if there is no estimate
            or it does not fit.
    """

    badge: tuple[Verdict, str]
    lines: Mapping[str, str]
    runs: Sequence[tuple[str, str, str, str]]
    plan: str
    command: str

    @property
    def rests_on(self) -> str:
        """The basis of all answers."""
        return _(
            "For GRPO with verl {version}. The answer uses the FSDP or Megatron layout that fits with the "
            "least offloading, then the one with the largest token budget. Settings that are not in the "
            "command have verl's defaults."
        ).format(version=version_text(CURRENT))

    @property
    def script(self) -> tuple[str, str]:
        """The address of the script of the nearest run that ran, and its title; both may be empty."""
        scripts = ((script, title) for _run, title, line, script in self.runs if script and line == "ran")
        return next(scripts, ("", ""))


def first_answer(fields: Fields, shared: Mapping[str, Any], answers: Answers) -> Shown:
    """Return the answer to the first choice from the ``answers`` for its model."""
    words, chosen = shared["words"], {field["name"]: field["first"] for field in fields}
    labels, values = ({field["name"]: field[kind][field["first"]] for field in fields} for kind in _TEXTS)
    cell = _cell(fields, shared["gpus"], answers, chosen)
    figures, undercuts = dict.fromkeys(_FIGURES, ""), 0
    if cell["state"] < len(STATES):
        verdict, text, why = words["states"][cell["state"]]
        capacity = shared["offered"][chosen["gpu"]]
        sentence = why.format(tokens=f"{cell['tokens']:,}", spare=_size(capacity - cell["high"]))
        why = words["why"].format(sentence=sentence)
        figures = _figures(cell, answers, words, capacity)
        figures["trust"], undercuts = answers["trusts"][cell["trust"]]
        if verdict == "does-not-fit":
            figures["host"] = ""
    else:
        verdict, text, why = words["noEstimate"]
        why = why.format(reason=answers["reasons"][cell["state"] - len(STATES)])
    is_short = verdict not in ("fits", "unknown")
    ways = [] if verdict == "fits" else _ways(fields, shared, answers, chosen)
    nearest = answers["nearest"][answers["evidence"][chosen["gpu"]][_place(fields, chosen)]]
    runs = [answers["runs"][run] for run in nearest]
    command = answers["commands"][cell["command"]] if figures["host"] else ()
    plan = [*words["plan"], *(words["planLora"] if values["lora"] != "0" else ())]
    return Shown(
        (verdict, text),
        {
            "asked": words["asked"].format(**labels),
            "verdict": why,
            "none": "" if runs else words["noRun"],
            "smallest": words["undercut" if undercuts else "unlike"],
            "change": words["or"].join(ways) or (words["noWay"] if is_short else ""),
            **figures,
        },
        runs,
        shlex.join(word.format(**values) for word in plan),
        SEPARATOR.join(answers["lines"][line] for line in command),
    )


def _place(fields: Fields, chosen: Mapping[str, int]) -> int:
    """Return the index of a choice among the choices for its model and GPU."""
    place = 0
    for field in fields:
        if field["name"] not in ("model", "gpu"):
            place = place * len(field["values"]) + chosen[field["name"]]
    return place


def _cell(fields: Fields, gpus: Sequence[int], answers: Answers, chosen: Mapping[str, int]) -> dict[str, int]:
    number = _place(fields, chosen) * (max(gpus) + 1) + gpus[chosen["gpu"]]
    return {name: column[number] for name, column in answers["cells"].items()}


def _ways(
    fields: Fields, shared: Mapping[str, Any], answers: Answers, chosen: Mapping[str, int]
) -> list[str]:
    """Return the nearest choice of each field that fits, in words."""
    ways = []
    for name, step in _WAYS:
        labels = next(field["labels"] for field in fields if field["name"] == name)
        for other in range(chosen[name] + step, len(labels) if step > 0 else -1, step):
            cell = _cell(fields, shared["gpus"], answers, {**chosen, name: other})
            if cell["state"] < len(STATES) and shared["words"]["states"][cell["state"]][0] == "fits":
                ways.append(shared["words"][name].format(label=labels[other]))
                break
    return ways


def _size(tenths: int) -> str:
    return f"{tenths / 10:,.1f}"


def _figures(
    cell: Mapping[str, int], answers: Answers, words: Mapping[str, Any], capacity: int
) -> dict[str, str]:
    """Return the lines about an estimate."""
    low, high, offered = map(_size, (cell["low"], cell["high"], capacity))
    layout = answers["layouts"][cell["layout"]]
    estimated = words["estimated"].format(low=low, high=high, capacity=offered, layout=layout)
    if cell["used"]:
        estimated = words["next"].format(sentence=estimated, next=words["used"].format(count=cell["used"]))
    return {
        "estimated": estimated,
        "host": words["host"].format(size=f"{cell['host']:,}"),
        "phase": answers["phases"][cell["phase"]],
    }
