"""Estimates and answers as plain values for programs, and the files with all runs; sizes are GiB."""

from __future__ import annotations

import csv
import io
import json
from functools import lru_cache
from typing import Any

from .. import __version__
from ..diagnostics import NoAnswerError
from ..i18n import N_
from ..memory.cases import Case
from ..memory.estimate import AnyEstimate, Estimate
from ..memory.phases import Phase
from ..memory.registries import EstimatorContext
from ..memory.request import Verdict, dotted_leaves
from ..memory.versions import CURRENT, version_text
from ..records import SIZES, WORDS, Record, Run, row_id
from ..units import GIB
from .answer import Answer, answer_run
from .changes import Change
from .evidence import contested_by
from .levers import best_suggestion
from .search import Layout
from .words import why

#: The figures of an answer, which the fewest GPUs of a memory size have, too.
FEWEST_FIELDS = (
    "verdict", "strategy", "peak_gib", "low_gib", "high_gib", "capacity_gib", "peak_phase",
    "host_ram_gib_per_node", "host_limit_gib", "offloaded",
)  # fmt: skip
#: The fields of an answer, in order.
ANSWER_FIELDS = (
    "model", "gpus", *FEWEST_FIELDS, *WORDS, "contested", "largest_token_budget", "longest_response",
    "measured_runs_of_this_kind", "change", "command", "assumed", "speed", "reason", "other_release",
    "undecided", "unsupported", "warnings",
)  # fmt: skip
#: PyTorch's counter with its range, see ``AnyEstimate.torch_peak``.
_LOGGED = ("logged_max_allocated_gib", "logged_low_gib", "logged_high_gib")


def gib_value(size: float | None) -> float | None:
    """Convert bytes to GiB (2^30 bytes), with three decimals; None stays None."""
    return None if size is None else round(size / GIB, 3)


# -- estimates


def result_of(name: str, estimate: AnyEstimate, verdict: Verdict | None = None) -> dict[str, Any]:
    """Return an estimate, without figures if it is undecided.

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
    verdict, figures = verdict or estimate.verdict, _figures(estimate, "binding_phase")
    host, is_known = figures.pop("host_ram_gib_per_node"), not estimate.undecided
    counters = (estimate.torch_peak, *estimate.torch_peak_range) if is_known else (None, None, None)
    return {
        "id": name,
        "fits": {"fits": True, "does-not-fit": False}.get(verdict),
        "verdict": verdict,
        "fits_up_to_tokens": estimate.fits_up_to_tokens,
        **figures,
        "relief": best_suggestion(estimate) if is_known and isinstance(estimate, Estimate) else None,
        **dict(zip(_LOGGED, map(gib_value, counters), strict=True)),
        "host_ram_gib_per_node": host,
        "phases": [_phase(phase) for phase in estimate.phases if is_known],
        "undecided": list(estimate.undecided),
        "unsupported": list(estimate.unsupported),
        "warnings": [problem.message for problem in estimate.warnings],
        "verl_version": version_text(estimate.version) if estimate.version else None,
    }


def _figures(estimate: AnyEstimate, phase: str) -> dict[str, Any]:
    """Return sizes, and the peak phase under a key; if the estimate is undecided, only the capacity."""
    names = ("peak_gib", "low_gib", "high_gib", "capacity_gib", phase, "host_ram_gib_per_node")
    if estimate.undecided:
        return {**dict.fromkeys(names), "capacity_gib": gib_value(estimate.capacity)}
    sizes = map(gib_value, (estimate.peak, estimate.low, estimate.high, estimate.capacity))
    host = gib_value(estimate.host.total if estimate.host else None)
    return dict(zip(names, (*sizes, estimate.peak_phase.name, host), strict=True))


def case_result(case: Case, estimate: AnyEstimate) -> dict[str, Any]:
    """Return the estimate of a case; if it ran, its engine started and its hosts had enough memory."""
    return result_of(case.id, estimate, estimate.verdict if case.outcome in ("measured", "fits") else None)


def failure(name: str, message: str) -> dict[str, Any]:
    """Return the result for a case that cannot be estimated: empty fields, and the reason."""
    nothing = AnyEstimate(phases=(), kind="", errors=(0.0, 0.0), capacity=None, undecided=(message,))
    return {**result_of(name, nothing), "undecided": [], "error": message}


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
    own = answer.best.estimate
    values = {
        **_common(answer),
        **figures_of_fewest(answer),
        "largest_token_budget": None if own.undecided else answer.largest_token_budget,
        "longest_response": None if own.undecided else answer.longest_response,
        "command": answer.command,
        "undecided": list(own.undecided),
        "unsupported": list(own.unsupported),
        "warnings": [problem.named_message for problem in own.warnings],
    }
    return {name: values.get(name) for name in ANSWER_FIELDS}


def settings_result(name: str, answer: Answer) -> dict[str, Any]:
    """Return an answer about given settings: the estimate, evidence and changes."""
    return {**result_of(name, answer.best.estimate, answer.verdict), "task": answer.task, **_common(answer)}


def _common(answer: Answer) -> dict[str, Any]:
    """Return what answers with chosen and with given settings say alike."""
    runs: dict[str, Any] = {word: [run.id for run in answer.evidence if run.word == word] for word in WORDS}
    failures = [run for run in answer.evidence if run.word != "claimed" and contested_by(run)]
    speed, other = answer.speed(), answer.other_release
    fields = ("tokens_per_second_per_gpu", "step_seconds", "steps", "response_tokens")
    release = other and {
        "version": version_text(other.request.version),
        "verdict": other.verdict,
        "peak_gib": gib_value(other.estimate.peak),
    }
    return {
        **_verdict_fields(answer),
        **runs,
        "contested": [{"run": run.id, "url": contested_by(run)} for run in failures],
        "measured_runs_of_this_kind": answer.accuracy.cases if answer.accuracy else 0,
        "change": [change_result(change) for change in answer.changes],
        "assumed": list(answer.assumed),
        "speed": speed
        and {
            "run": speed.timed.run.id,
            **{name: getattr(speed.timed.measured, name) for name in fields},
            "differs": list(speed.differs),
            "not_stated": list(speed.unstated),
        },
        "reason": answer.reason,
        "other_release": release,
    }


def change_result(change: Change) -> dict[str, Any]:
    """Return a change as plain values."""
    peak, high = gib_value(change.peak), gib_value(change.high)
    return {"overrides": dict(change.overrides), "peak_gib": peak, "high_gib": high, "cost": change.cost}


def _verdict_fields(answer: Answer) -> dict[str, Any]:
    """Return the model and the GPUs of an answer, its verdict, and what depends on the host's memory."""
    best, gpus = answer.best, {"count": answer.all_gpus, "type": answer.request.gpu}
    about = {"model": answer.request.model, "gpus": gpus, "verdict": answer.verdict}
    return {**about, "offloaded": list(best.offloaded), "host_limit_gib": gib_value(best.host_limit)}


def figures_of_fewest(answer: Answer) -> dict[str, Any]:
    """Return an answer with the keys of ``FEWEST_FIELDS``, its model and its GPUs."""
    best = answer.best
    return {**_verdict_fields(answer), "strategy": best.name, **_figures(best.estimate, "peak_phase")}


# -- files with all runs

#: The files.
JSON, CSV = "verl-resources.json", "verl-resources.csv"
#: The columns of the CSV file: fields of a run, and values beside it in the JSON file.
_COLUMNS = (
    "id", "row_id", "word", "contested", "size", "tag", "model", "task", "gpus.count", "gpus.type",
    "gpus.memory_gb", "gpus.nodes", "train", "infer.engine", "infer.version", "trainer", "max_batch",
    "added", "measured.gib", "measured.counter", "measured.host_ram_gib",
    "measured.tokens_per_second_per_gpu", "measured.step_seconds", "measured.steps", "measured.mfu",
    "measured.response_tokens", "script.ref", "script.path", "contributor.name", "computed.peak_gib",
    "computed.low_gib", "computed.high_gib", "computed.capacity_gib", "computed.verdict",
    "computed.fits_up_to_tokens", "computed.binding_phase", "computed.measured_runs_of_this_kind",
)  # fmt: skip


@lru_cache(maxsize=1)
def export_files(data: EstimatorContext) -> dict[str, tuple[str, str]]:
    """Return for each file what it contains, and its text, which depends only on the data."""
    gpus = {gpu.name: gpu for run in data.runs.values() if (gpu := data.gpu_of(run))}
    runs = [_run(run, data) for _, run in sorted(data.runs.items())]
    export = {
        "schema": 1,
        "extension_version": __version__,
        "verl_version": version_text(CURRENT),
        "last_updated": data.figures["last-updated"],
        "size_classes": SIZES,
        "runs": runs,
        "gpus": [gpu for _, gpu in sorted(gpus.items())],
        "accuracy": sorted(data.accuracy, key=lambda entry: entry.name),
    }
    text, stream = json.dumps(export, indent=1, ensure_ascii=False, default=_fields), io.StringIO()
    table = csv.DictWriter(stream, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(dict(dotted_leaves({**run["record"], **run})) for run in runs)
    return {
        JSON: (N_("all recorded runs with their estimates, and the GPUs that they use."), f"{text}\n"),
        CSV: (N_("the runs, one per row, for spreadsheets."), stream.getvalue()),
    }


def _fields(record: Record) -> dict[str, Any]:
    """Return the fields of a record, as in its file."""
    return record.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _run(run: Run, data: EstimatorContext) -> dict[str, Any]:
    """Return a run with the figures of its estimate, or why there are none."""
    figures, reason, gpu = None, None, data.gpu_of(run)
    try:
        answer = answer_run(run, data)
        estimate = answer.best.estimate
        if estimate.undecided:
            reason = why(answer.best, answer.reason)
        else:
            figures = {
                **_figures(estimate, "binding_phase"),
                "verdict": answer.verdict,
                "fits_up_to_tokens": estimate.fits_up_to_tokens,
                "measured_runs_of_this_kind": answer.accuracy.cases if answer.accuracy else 0,
            }
    except NoAnswerError as error:
        reason = str(error)
    facts = {"id": run.id, "row_id": row_id(run.id), "word": run.word, "contested": contested_by(run)}
    values = {"gpu": gpu and gpu.name, "computed": figures, "not_computed": reason}
    return {**facts, "record": _fields(run), **values}
