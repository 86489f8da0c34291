"""Estimates and answers as plain values for programs, and the files with all runs; sizes are GiB."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..diagnostics import NoAnswerError
from ..i18n import N_
from ..memory.estimate import Estimate
from ..memory.versions import CURRENT, version_text
from ..records import SIZES, WORDS, Record, row_id
from ..selection import Field, as_text
from ..units import GIB
from .answer import answer_run
from .command import command_of
from .layouts import Layout
from .levers import best_suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..memory.cases import Case
    from ..memory.estimate import AnyEstimate
    from ..memory.phases import Phase
    from ..memory.registries import EstimatorContext
    from ..memory.request import Verdict
    from ..records import Run
    from .answer import Answer
    from .changes import Change
    from .fewest import Fewest

_FITS = {"fits": True, "does-not-fit": False}
#: The fields of an estimate after its id, in order, and their values without figures.
ESTIMATE_FIELDS: Mapping[str, Any] = {
    **dict.fromkeys(
        (
            "fits", "verdict", "fits_up_to_tokens", "peak_gib", "low_gib", "high_gib", "capacity_gib",
            "binding_phase", "relief", "relief_saves_gib", "relief_peak_gib", "logged_max_allocated_gib",
            "logged_low_gib", "logged_high_gib", "host_ram_gib_per_node",
        )
    ),
    "phases": [], "undecided": [], "unsupported": [], "warnings": [], "verl_version": None,
}  # fmt: skip
#: The fields of an answer, in order.
ANSWER_FIELDS = (
    "model", "gpus", "verdict", *WORDS, "contested", "strategy", "peak_gib", "low_gib", "high_gib",
    "capacity_gib", "peak_phase", "host_ram_gib_per_node", "host_limit_gib", "largest_token_budget",
    "longest_response", "measured_runs_of_this_kind", "offloaded", "change", "command", "assumed", "speed",
    "reason", "other_release", "undecided", "unsupported", "warnings",
)  # fmt: skip

#: The fields of an answer that the fewest GPUs of a memory size have.
_FEWEST = (
    "verdict", "strategy", "peak_gib", "low_gib", "high_gib", "capacity_gib", "peak_phase",
    "host_ram_gib_per_node", "host_limit_gib", "offloaded",
)  # fmt: skip


def gib_value(size: float | None) -> float | None:
    """Convert bytes to GiB (2^30 bytes), with three decimals; None stays None."""
    return None if size is None else round(size / GIB, 3)


# -- estimates


def result_of(name: str, estimate: AnyEstimate, verdict: Verdict | None = None) -> dict[str, Any]:
    """Return an estimate with the keys of ``ESTIMATE_FIELDS``, without figures if it is undecided.

    ``fits`` is None if the verdict is neither "fits" nor "does-not-fit".

    Args:
        name: the id of the result.
        estimate: the estimate.
        verdict: its verdict; by default that of the layout, which also considers host and rollout engine.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> from sphinx_verl_resources.memory.estimate import estimate
    >>> from sphinx_verl_resources.memory.request import Request
    >>> config = {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.use_dynamic_bsz": True}
    >>> registries = EstimatorContext()
    >>> own = estimate(Request("Qwen/Qwen2.5-0.5B", config, gpus=8, gpu="H100"), registries)
    >>> result_of("mine", own)["capacity_gib"]
    79.147
    """
    if isinstance(estimate, Estimate) and not verdict:
        verdict = Layout(estimate.request, estimate).verdict
    verdict = verdict or estimate.verdict
    known: dict[str, Any] = {
        "fits": _FITS.get(verdict),
        "verdict": verdict,
        "fits_up_to_tokens": estimate.fits_up_to_tokens,
        "capacity_gib": gib_value(estimate.capacity),
        "undecided": list(estimate.undecided),
        "unsupported": list(estimate.unsupported),
        "warnings": [problem.message for problem in estimate.warnings],
        "verl_version": version_text(estimate.version) if estimate.version else None,
    }
    if not estimate.undecided:
        low, high = estimate.torch_peak_range
        known |= {
            **_peak(estimate, "binding_phase"),
            "logged_max_allocated_gib": gib_value(estimate.torch_peak),
            "logged_low_gib": gib_value(low),
            "logged_high_gib": gib_value(high),
            "phases": [_phase(phase) for phase in estimate.phases],
        }
        if best := best_suggestion(estimate):
            saves, peak = gib_value(best.saves), gib_value(best.peak)
            known |= {"relief": best.setting, "relief_saves_gib": saves, "relief_peak_gib": peak}
    return {"id": name, **ESTIMATE_FIELDS, **known}


def case_result(case: Case, estimate: AnyEstimate) -> dict[str, Any]:
    """Return the estimate of a case; if it ran, its engine started and its hosts had enough memory."""
    return result_of(case.id, estimate, estimate.verdict if case.outcome in ("measured", "fits") else None)


def failed(name: str, message: str) -> dict[str, Any]:
    """Return the result for a case that cannot be estimated: empty fields, and the reason."""
    return {"id": name, **ESTIMATE_FIELDS, "verdict": "unknown", "error": message}


def _peak(estimate: AnyEstimate, phase: str) -> dict[str, Any]:
    """Return the peak with its range, its phase under a key, and host memory."""
    return {
        "peak_gib": gib_value(estimate.peak),
        "low_gib": gib_value(estimate.low),
        "high_gib": gib_value(estimate.high),
        phase: estimate.peak_phase.name,
        "host_ram_gib_per_node": gib_value(estimate.host.total if estimate.host else None),
    }


def _phase(phase: Phase) -> dict[str, Any]:
    """Return a phase with its components; pieces of the same kind are one."""
    sizes: dict[tuple[str, str], float] = {}
    for item in phase.allocations:
        key = item.key, item.kind.category.value
        sizes[key] = sizes.get(key, 0.0) + item.size
    parts = [{"name": name, "category": of, "gib": gib_value(size)} for (name, of), size in sizes.items()]
    return {"name": phase.name, "total_gib": gib_value(phase.total), "components": parts}


# -- answers


def answer_result(answer: Answer) -> dict[str, Any]:
    """Return an answer with the keys of ``ANSWER_FIELDS``, without figures if it is undecided."""
    best, estimate = answer.best, answer.best.estimate
    known = {
        **_shared(answer),
        "strategy": best.name,
        "capacity_gib": gib_value(estimate.capacity),
        "command": usable_command(answer),
        "undecided": list(estimate.undecided),
        "unsupported": list(estimate.unsupported),
        "warnings": [problem.named_message for problem in estimate.warnings],
    }
    if not estimate.undecided:
        known |= {
            **_peak(estimate, "peak_phase"),
            "largest_token_budget": answer.largest_token_budget,
            "longest_response": answer.longest_response,
        }
    return {**dict.fromkeys(ANSWER_FIELDS), **known}


def usable_command(answer: Answer) -> str | None:
    """Return the command of an answer; None if it does not fit or cannot be judged."""
    is_usable = answer.verdict not in ("does-not-fit", "unknown")
    return command_of(answer.best, answer.data) if is_usable else None


def settings_result(name: str, answer: Answer) -> dict[str, Any]:
    """Return an answer about given settings: the keys of ``ESTIMATE_FIELDS``, evidence and changes."""
    own = result_of(name, answer.best.estimate, answer.verdict)
    return {**own, "task": answer.task, **_shared(answer)}


def _shared(answer: Answer) -> dict[str, Any]:
    """Return what answers with chosen and with given settings say alike."""
    best, other = answer.best, answer.other_release
    runs: dict[str, Any] = {word: [run.id for run in answer.evidence if run.word == word] for word in WORDS}
    contested = answer.contested.items()
    return {
        "model": answer.request.model,
        "gpus": {"count": answer.all_gpus, "type": answer.request.gpu},
        "verdict": answer.verdict,
        **runs,
        "contested": [{"run": run, "url": url} for run, url in contested if run not in runs["claimed"]],
        "host_limit_gib": gib_value(best.host_limit),
        "measured_runs_of_this_kind": answer.trust.measured_runs,
        "offloaded": list(best.offloaded),
        "change": [change_result(change) for change in answer.changes],
        "assumed": list(answer.assumed),
        "reason": answer.reason,
        "other_release": other
        and {
            "version": version_text(other.request.version),
            "verdict": other.verdict,
            "peak_gib": gib_value(other.estimate.peak),
        },
    }


def fewest_result(item: Fewest) -> dict[str, Any]:
    """Return the fewest GPUs of one memory size; the fields of an answer are None if no number fits."""
    values = answer_result(item.found) if item.found else dict.fromkeys(ANSWER_FIELDS)
    return {
        "memory_gb": item.memory_gb,
        "types": [gpu.name for gpu in item.gpus],
        "gpus": {"count": item.count or None, "type": item.gpus[0].name},
        "without_offloading": item.without or None,
        "borderline": item.near or None,
        "why_none": item.why or None,
        **{name: values[name] for name in _FEWEST},
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
_NAMED = ("id", "row_id", "word")
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
    "measured_runs_of_this_kind",
)  # fmt: skip


def export_files(data: EstimatorContext) -> dict[str, tuple[str, str]]:
    """Return for each file what it contains, and its text, which depends only on the data."""
    used = {gpu.name: gpu for run in data.runs.values() if (gpu := data.gpu_of(run))}
    runs = [_run(run, data) for _, run in sorted(data.runs.items())]
    export = {
        "schema": 1,
        "extension_version": __version__,
        "verl_version": version_text(CURRENT),
        "last_updated": data.last_updated,
        "size_classes": SIZES,
        "runs": runs,
        "gpus": [gpu for _, gpu in sorted(used.items())],
        "accuracy": sorted(data.accuracy, key=lambda entry: entry.name),
    }
    text = json.dumps(export, indent=1, ensure_ascii=False, default=_fields)
    return {
        JSON: (N_("all recorded runs with their estimates, and the GPUs that they use."), f"{text}\n"),
        CSV: (N_("the runs, one per row, for spreadsheets."), _runs_csv(runs)),
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
        recorded = (field.value(run["record"]) for field in fields)
        values = [*map(run.get, _NAMED), *recorded, *map((run["computed"] or {}).get, _ESTIMATED)]
        rows.writerow(["" if value is None else as_text(value) for value in values])
    return stream.getvalue()


def _run(run: Run, data: EstimatorContext) -> dict[str, Any]:
    """Return a run with its estimate, as ``estimate --format json`` prints it, or why there is none."""
    computed, reason, gpu = None, None, data.gpu_of(run)
    try:
        result = settings_result(run.id, answer_run(run, data))
    except NoAnswerError as error:
        reason = str(error)
    else:
        computed = {name: result[name] for name in _ESTIMATED}
        if result["undecided"]:
            names = ", ".join(text.partition(": ")[0] for text in result["undecided"])
            computed, reason = None, f"unknown settings decide memory: {names}; add them to its file"
    return {
        "id": run.id,
        "row_id": row_id(run.id),
        "word": run.word,
        "record": run,
        "gpu": gpu.name if gpu else None,
        "computed": computed,
        "not_computed": reason,
    }
