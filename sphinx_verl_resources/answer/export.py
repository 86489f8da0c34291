"""Answers as plain values for programs, and the files with all runs; sizes are GiB."""

from __future__ import annotations

import csv
import io
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..diagnostics import NoAnswerError
from ..i18n import N_
from ..memory.recorded import credible, figures
from ..memory.versions import CURRENT, version_text
from ..records import SIZES, WORDS, row_id
from ..selection import Field, as_text
from .answer import answer_run
from .command import command_of
from .results import gib_value, result_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..memory.registries import EstimatorContext
    from ..records import Record, Run
    from .answer import Answer
    from .changes import Change
    from .fewest import Fewest


def _runs(word: str, found: Answer) -> list[str]:
    return [run.id for run in found.evidence if run.word == word]


#: The fields of an answer for relevant recorded runs, and for changes.
_BESIDES: Mapping[str, Callable[[Answer], Any]] = {
    **{word: partial(_runs, word) for word in WORDS},
    "measured_runs_of_this_kind": lambda found: found.trust.measured_runs,
    "change": lambda found: [change_result(change) for change in found.changes],
}
#: The fields that ``plan --format json`` prints, in order.
FIELDS: Mapping[str, Callable[[Answer], Any]] = {
    "model": lambda found: found.asked.model,
    "gpus": lambda found: {"count": found.all_gpus, "type": found.asked.gpu},
    "verdict": lambda found: found.verdict,
    **{word: _BESIDES[word] for word in WORDS},
    "strategy": lambda found: found.best.name,
    "peak_gib": lambda found: gib_value(found.best.estimate.peak),
    "low_gib": lambda found: gib_value(found.best.estimate.low),
    "high_gib": lambda found: gib_value(found.best.estimate.high),
    "capacity_gib": lambda found: gib_value(found.best.estimate.capacity),
    "peak_phase": lambda found: found.best.estimate.peak_phase.name,
    "host_ram_gib_per_node": lambda found: gib_value(found.best.estimate.host.total),
    "largest_token_budget": lambda found: found.largest_token_budget,
    "longest_response": lambda found: found.longest_response,
    "measured_runs_of_this_kind": _BESIDES["measured_runs_of_this_kind"],
    "change": _BESIDES["change"],
    "command": lambda found: command_of(found.best, found.data),
    "assumed": lambda found: list(found.assumed),
    "undecided": lambda found: list(found.best.estimate.undecided),
    "unsupported": lambda found: list(found.best.estimate.unsupported),
    "warnings": lambda found: [problem.named_message for problem in found.best.estimate.warnings],
}
#: The fields that are null if a decisive setting is unknown.
_FIGURES = (
    "peak_gib", "low_gib", "high_gib", "peak_phase", "host_ram_gib_per_node", "largest_token_budget",
    "longest_response",
)  # fmt: skip

#: The fields for each memory size.
_FEWEST = (
    "verdict", "strategy", "peak_gib", "low_gib", "high_gib", "capacity_gib", "peak_phase",
    "host_ram_gib_per_node",
)  # fmt: skip


def answer_result(found: Answer) -> dict[str, Any]:
    """Return an answer with the keys of ``FIELDS``, without figures if a decisive setting is unknown."""
    if not found.best.estimate.undecided:
        return {name: value(found) for name, value in FIELDS.items()}
    open_: dict[str, Any] = {**dict.fromkeys(_FIGURES), "change": []}
    return {name: open_[name] if name in open_ else value(found) for name, value in FIELDS.items()}


def settings_result(name: str, found: Answer) -> dict[str, Any]:
    """Return an answer about given settings with the keys that ``estimate --format json`` prints."""
    result = result_of(name, found.best.estimate)
    if found.verdict != result["verdict"]:  # a recorded run contradicts the estimate
        result |= {"verdict": found.verdict, "fits": None}
    open_: dict[str, Any] = {"change": []} if found.best.estimate.undecided else {}
    besides = {name: open_[name] if name in open_ else value(found) for name, value in _BESIDES.items()}
    asked = {"model": found.asked.model, "task": found.task, "gpus": FIELDS["gpus"](found)}
    return {**result, **asked, **besides, "assumed": list(found.assumed)}


def fewest_result(item: Fewest) -> dict[str, Any]:
    """Return the fewest GPUs of one memory size; the other fields are None if no number fits."""
    values = {name: FIELDS[name](item.found) if item.found else None for name in _FEWEST}
    return {
        "memory_gb": item.memory_gb,
        "types": [gpu.name for gpu in item.gpus],
        "gpus": {"count": item.found.gpus if item.found else None, "type": item.gpus[0].name},
        **values,
        **{word: [item.ran.id] if item.ran and item.ran.word == word else [] for word in WORDS[:2]},
    }


def change_result(change: Change) -> dict[str, Any]:
    """Return a change as plain values."""
    return {
        "overrides": dict(change.overrides),
        "peak_gib": gib_value(change.peak),
        "high_gib": gib_value(change.high),
        "cost": change.cost,
    }


# -- files with all runs

#: The files.
JSON, CSV = "verl-resources.json", "verl-resources.csv"
#: The columns of the CSV file: values of a run, fields of its record, and values of its estimate.
_NAMED = ("id", "row_id", "status")
_RECORDED = {
    "size": "size", "tag": "tag", "model": "model", "task": "task", "gpus.count": "gpu_count",
    "gpus.type": "gpu", "gpus.memory_gb": "stated_memory_gb", "gpus.nodes": "nodes", "train": "train",
    "infer.engine": "engine", "infer.version": "engine_version", "max_batch": "max_batch_prompts",
    "added": "added", "measured.gib": "measured_gib", "measured.counter": "measured_counter",
    "measured.host_ram_gib": "measured_host_ram_gib_per_node",
    "measured.step_seconds": "measured_step_seconds", "measured.mfu": "measured_mfu",
    "measured.response_tokens": "measured_response_tokens", "script.ref": "script_ref",
    "script.path": "script_path", "contributor": "contributor",
}  # fmt: skip
_ESTIMATED = (
    "peak_gib", "low_gib", "high_gib", "capacity_gib", "verdict", "fits_up_to_tokens", "binding_phase",
)  # fmt: skip


def export_files(data: EstimatorContext) -> dict[str, tuple[str, str]]:
    """Return for each file what it contains, and its text, which depends only on the data."""
    export = _export_of(data)
    whole = json.dumps(export, indent=1, ensure_ascii=False, default=_fields)
    return {
        JSON: (N_("all recorded runs with their estimates, and the GPUs that they use."), f"{whole}\n"),
        CSV: (N_("the runs, one per row, for spreadsheets."), _runs_csv(export["runs"])),
    }


def _fields(record: Record) -> dict[str, Any]:
    """Return the fields of a record, as in its file."""
    return record.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _runs_csv(runs: Iterable[Mapping[str, Any]]) -> str:
    """Return the runs for spreadsheets."""
    stream = io.StringIO()
    rows = csv.writer(stream, lineterminator="\n")
    rows.writerow([*_NAMED, *_RECORDED.values(), *(f"computed_{name}" for name in _ESTIMATED)])
    fields = [Field(*named) for named in _RECORDED.items()]
    for run in runs:
        named, estimate = map(run.get, _NAMED), run["computed"] or {}
        recorded = (field.value(run["record"]) for field in fields)
        values = [*named, *recorded, *map(estimate.get, _ESTIMATED)]
        rows.writerow(["" if value is None else as_text(value) for value in values])
    return stream.getvalue()


def _export_of(data: EstimatorContext) -> dict[str, Any]:
    """Return all runs with their estimates, their GPUs, and the record of accuracy; records as they are."""
    used = {gpu.name: gpu for run in data.runs.values() if (gpu := data.gpu_of(run))}
    return {
        "schema": 1,
        "extension_version": __version__,
        "verl_version": version_text(CURRENT),
        "last_updated": data.last_updated,
        "size_classes": SIZES,
        "runs": [_run(run, data) for _, run in sorted(data.runs.items())],
        "gpus": [gpu for _, gpu in sorted(used.items())],
        "accuracy": sorted(data.accuracy, key=lambda entry: entry.name),
    }


def _run(run: Run, data: EstimatorContext) -> dict[str, Any]:
    computed, reason = None, None
    try:
        computed = _computed(answer_run(run, data))
    except NoAnswerError as error:
        reason = str(error)
    gpu = data.gpu_of(run)
    return {
        "id": run.id,
        "row_id": row_id(run.id),
        "status": run.kind,
        "word": run.word,
        "record": run,
        "gpu": gpu.name if gpu else None,
        "computed": computed,
        "not_computed": reason,
    }


def _computed(found: Answer) -> dict[str, Any]:
    """Return the figures that pages show for a recorded run.

    Raises:
        NoAnswerError: pages show no figures for it.
    """
    estimate = found.best.estimate
    told, shown = figures(estimate), credible(estimate)
    if told is None:
        names = ", ".join(text.partition(": ")[0] for text in estimate.undecided)
        message = f"settings that decide memory are unknown: {names}"
        if not names:
            message = "the run ran on GPUs with less memory than the estimate"
        raise NoAnswerError.because(message, "complete the settings in its file")
    low, peak, high = told
    return {
        "verdict": found.verdict,
        "fits_up_to_tokens": estimate.fits_up_to_tokens,
        "peak_gib": gib_value(peak),
        "low_gib": gib_value(low),
        "high_gib": gib_value(high),
        "capacity_gib": gib_value(estimate.capacity),
        "binding_phase": shown.peak_phase.name if shown else None,
        "measured_runs_of_this_kind": found.trust.measured_runs,
    }
