"""Estimates and answers as plain values for programs, and the files with all runs; sizes are GiB."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..diagnostics import NoAnswerError
from ..i18n import N_
from ..memory.estimate import AnyEstimate, Estimate
from ..memory.versions import CURRENT, version_text
from ..records import SIZES, WORDS, Record, Run, row_id
from ..selection import Field, as_text
from ..units import GIB
from .answer import Answer, answer_run
from .command import command_of
from .layouts import Layout
from .levers import best_suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..memory.cases import Case
    from ..memory.phases import Phase
    from ..memory.registries import EstimatorContext
    from ..memory.request import Verdict
    from .changes import Change

#: The fields of an estimate after its id, in order, and their values without figures.
ESTIMATE_FIELDS: Mapping[str, Any] = {
    "fits": None, "verdict": None, "fits_up_to_tokens": None, "peak_gib": None, "low_gib": None,
    "high_gib": None, "capacity_gib": None, "binding_phase": None, "relief": None, "relief_saves_gib": None,
    "relief_peak_gib": None, "logged_max_allocated_gib": None, "logged_low_gib": None,
    "logged_high_gib": None, "host_ram_gib_per_node": None, "phases": [], "undecided": [], "unsupported": [],
    "warnings": [], "verl_version": None,
}  # fmt: skip
#: The fields of an answer, in order.
ANSWER_FIELDS = (
    "model", "gpus", "verdict", *WORDS, "contested", "strategy", "peak_gib", "low_gib", "high_gib",
    "capacity_gib", "peak_phase", "host_ram_gib_per_node", "host_limit_gib", "largest_token_budget",
    "longest_response", "measured_runs_of_this_kind", "offloaded", "change", "command", "assumed", "speed",
    "reason", "other_release", "undecided", "unsupported", "warnings",
)  # fmt: skip
#: The sizes of estimates and answers.
_SIZES = ("peak_gib", "low_gib", "high_gib", "host_ram_gib_per_node")
#: The fields of an answer that the fewest GPUs of a memory size have.
FEWEST_FIELDS = ("verdict", "strategy", *_SIZES, "capacity_gib", "peak_phase", "host_limit_gib", "offloaded")


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
    values = {
        "fits": {"fits": True, "does-not-fit": False}.get(verdict),
        "verdict": verdict,
        "fits_up_to_tokens": estimate.fits_up_to_tokens,
        **_figures(estimate, "binding_phase"),
        "warnings": [problem.message for problem in estimate.warnings],
        "verl_version": version_text(estimate.version) if estimate.version else None,
    }
    if not estimate.undecided:
        values["phases"] = [_phase(phase) for phase in estimate.phases]
        names = ("logged_max_allocated_gib", "logged_low_gib", "logged_high_gib")
        sizes = (estimate.torch_peak, *estimate.torch_peak_range)
        values |= zip(names, map(gib_value, sizes), strict=True)
        if best := best_suggestion(estimate):
            saves, peak = gib_value(best.saves), gib_value(best.peak)
            values |= {"relief": best.setting, "relief_saves_gib": saves, "relief_peak_gib": peak}
    return {"id": name, **ESTIMATE_FIELDS, **values}


def _figures(estimate: AnyEstimate, phase: str) -> dict[str, Any]:
    """Return what estimates and answers share: sizes, the peak phase under a key, and unread settings."""
    values: dict[str, Any] = {"capacity_gib": gib_value(estimate.capacity)}
    values |= {"undecided": list(estimate.undecided), "unsupported": list(estimate.unsupported)}
    if not estimate.undecided:
        host = estimate.host.total if estimate.host else None
        sizes = map(gib_value, (estimate.peak, estimate.low, estimate.high, host))
        values |= {**dict(zip(_SIZES, sizes, strict=True)), phase: estimate.peak_phase.name}
    return values


def case_result(case: Case, estimate: AnyEstimate) -> dict[str, Any]:
    """Return the estimate of a case; if it ran, its engine started and its hosts had enough memory."""
    return result_of(case.id, estimate, estimate.verdict if case.outcome in ("measured", "fits") else None)


def failed(name: str, message: str) -> dict[str, Any]:
    """Return the result for a case that cannot be estimated: empty fields, and the reason."""
    return {"id": name, **ESTIMATE_FIELDS, "verdict": "unknown", "error": message}


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
    best, is_known = answer.best, not answer.best.estimate.undecided
    return {
        **dict.fromkeys(ANSWER_FIELDS),
        **_shared(answer),
        **_figures(best.estimate, "peak_phase"),
        "strategy": best.name,
        "largest_token_budget": answer.largest_token_budget if is_known else None,
        "longest_response": answer.longest_response if is_known else None,
        "command": usable_command(answer),
        "warnings": [problem.named_message for problem in best.estimate.warnings],
    }


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
    runs: dict[str, Any] = {word: [run.id for run in answer.evidence if run.word == word] for word in WORDS}
    contested = answer.contested.items()
    release = None
    if other := answer.other_release:
        version, peak = version_text(other.request.version), gib_value(other.estimate.peak)
        release = {"version": version, "verdict": other.verdict, "peak_gib": peak}
    return {
        "model": answer.request.model,
        "gpus": {"count": answer.all_gpus, "type": answer.request.gpu},
        "verdict": answer.verdict,
        **runs,
        "contested": [{"run": run, "url": url} for run, url in contested if run not in runs["claimed"]],
        "host_limit_gib": gib_value(answer.best.host_limit),
        "measured_runs_of_this_kind": answer.trust.measured_runs,
        "offloaded": list(answer.best.offloaded),
        "change": [change_result(change) for change in answer.changes],
        "assumed": list(answer.assumed),
        "reason": answer.reason,
        "other_release": release,
    }


def change_result(change: Change) -> dict[str, Any]:
    """Return a change as plain values."""
    peak, high = gib_value(change.peak), gib_value(change.high)
    return {"overrides": dict(change.overrides), "peak_gib": peak, "high_gib": high, "cost": change.cost}


def figures_of_fewest(answer: Answer) -> dict[str, Any]:
    """Return the figures of the answer for the fewest GPUs."""
    best, values = answer.best, _figures(answer.best.estimate, "peak_phase")
    values |= {"verdict": answer.verdict, "strategy": best.name, "offloaded": list(best.offloaded)}
    values["host_limit_gib"] = gib_value(best.host_limit)
    return {name: values.get(name) for name in FEWEST_FIELDS}


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


def _runs_csv(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the runs for spreadsheets."""
    stream = io.StringIO()
    rows = csv.writer(stream, lineterminator="\n")
    rows.writerow([*_NAMED, *_RECORDED.values(), *(f"computed_{name}" for name in _ESTIMATED)])
    for run in runs:
        recorded = (Field(*pair).value(run["record"]) for pair in _RECORDED.items())
        values = [*map(run.get, _NAMED), *recorded, *map((run["computed"] or {}).get, _ESTIMATED)]
        rows.writerow(["" if value is None else as_text(value) for value in values])
    return stream.getvalue()


def _run(run: Run, data: EstimatorContext) -> dict[str, Any]:
    """Return a run with its estimate, as ``estimate --format json`` prints it, or why there is none."""
    computed, reason, gpu = None, None, data.gpu_of(run)
    try:
        answer = answer_run(run, data)
        own = answer.best.estimate
        if own.undecided:
            names = ", ".join(text.partition(": ")[0] for text in own.undecided)
            reason = f"unknown settings decide memory: {names}; add them to its file"
        else:
            computed = {**_figures(own, "binding_phase"), "verdict": answer.verdict}
            computed["fits_up_to_tokens"] = own.fits_up_to_tokens
            computed["measured_runs_of_this_kind"] = answer.trust.measured_runs
            computed = {name: computed[name] for name in _ESTIMATED}
    except NoAnswerError as error:
        reason = str(error)
    facts = {"id": run.id, "row_id": row_id(run.id), "word": run.word, "record": run}
    return {**facts, "gpu": gpu and gpu.name, "computed": computed, "not_computed": reason}
