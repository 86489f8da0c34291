"""``verl-resources diagnose``: find out from a log why a run ran out of memory, and what to do."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from ..commands import UsageError, command, given_data, option, report
from ..diagnostics import NoAnswerError
from ..fit import arguments, bars
from ..fit.arguments import QUESTION, Query, read_question
from ..fit.command import as_arguments
from ..fit.names import model_of, recorded_gpu
from ..fit.results import gib_value, result_of
from ..fit.terminal import wrap_lines
from ..fit.words import COSTS, label
from ..memory.keys import is_harmless
from ..memory.phases import LABELS
from ..memory.request import MODEL, ROOT, Request
from ..scripts.settings import SettingsText
from ..units import gib, gib_number
from .actions import actions_for, size_in
from .diagnosis import Diagnosis
from .diagnosis import diagnose as diagnose_log
from .facts import HOST_MEMORY, PEAK_ALLOCATED
from .log import Log, read_log

#: The phases of a failure; an estimate does not have the last three.
PHASES = {**LABELS, "startup": "Start", "checkpoint": "Checkpoint", "host": "Host memory"}
_ARGUMENTS = "the model's name, --gpus 8xH100, --script run.sh and settings as key=value"
_HOLDERS = {"pytorch": "PyTorch", "besides": "this process besides PyTorch", "others": "other processes"}
_NO_MESSAGE = (
    "If it did run out of memory, pass its complete output: the worker's message may be in Ray's own logs, "
    "/tmp/ray/session_latest/logs."
)
_NO_ACTION = (
    "Without the settings, no step is sure to help. Add them, or see “Out of memory?” in the documentation.",
    "No setting lowers this phase, by the estimate.",
)
_SIZES = ("tried", "in_use", "others", "allocated", "reserved_unallocated", "free", "capacity")


@command(
    option("log", metavar="LOG", help="the output of verl, of any size; - reads standard input"),
    option("words", nargs="*", metavar="MODEL | KEY=VALUE", help="what is missing or wrong in the log"),
    arguments.SCRIPT,
    arguments.ENV,
    *QUESTION,
)
def diagnose(options: argparse.Namespace) -> tuple[str, int]:
    """Find out from a log why a run ran out of memory, and what to do.

    Examples:
      verl-resources diagnose failed.log                                 # with the log alone
      verl-resources diagnose failed.log --script run.sh --gpus 8xH100   # add what the log lacks
      verl-resources diagnose failed.log Qwen/Qwen2.5-7B --gpus 8xH100 --format json

    The log stays on this machine. Settings in the log override the script's, and key=value overrides
    both.

    Exit codes: 0 a diagnosis was made, 1 the log has no out-of-memory failure, 2 could not run.
    """
    data = given_data(options.data)
    try:
        question = read_question(options, data)
        arguments.refuse_lone_variables(options)
        script = arguments.read_source(options.script, options) if options.script else SettingsText()
    except NoAnswerError as error:
        report(error.diagnostics)
        failed = {"phase": None, "error": arguments.errors_text(error.diagnostics)}
        return json.dumps(failed, indent=2) if options.format == "json" else "", 2
    if options.log == "-" and sys.stdin is None:
        raise UsageError("standard input is closed; give the name of the log's file")
    with nullcontext(sys.stdin.buffer) if options.log == "-" else arguments.open_file(options.log) as stream:
        log = read_log(stream, "standard input" if options.log == "-" else options.log)
    diagnosis = diagnose_log(log, _request(log, question, script), question.data, options.verl_version)
    keys = {*diagnosis.request.config, *filter(is_harmless, script.unresolved)}
    keys |= {f"{MODEL}.path"} if diagnosis.request.model else set()
    problems = [*question.problems, *script.problems_besides(keys), *log.problems]
    report([*arguments.registry_problems(data), *problems])
    code = 0 if diagnosis.failure else 1
    if options.format == "json":
        return json.dumps(_json_object(diagnosis), indent=2), code
    return diagnosis_text(diagnosis, arguments.screen_width(), verbose=options.verbose), code


def _request(log: Log, question: Query, script: SettingsText) -> Request:
    """Return the run that the log and the arguments describe; without its settings if neither says any."""
    request, data, path = question.request, question.data, f"{MODEL}.path"
    config = {**script.values, **log.settings, **request.config}
    config = config if any(key.startswith(f"{ROOT}.") for key in config) else dict(request.config)
    mention = model_of(data.architectures, config.get(path), log.model, left_open=script.unresolved.get(path))
    model, note = (request.model, request.model_note) if request.model else mention.model or ("", "")
    return replace(
        request,
        model=model,
        model_note=note,
        config=config,
        gpu=request.gpu or recorded_gpu(log.gpu, data.gpus),
        backend="megatron" if "megatron" in (script.config_name or "") else None,
        unread=frozenset(script.unresolved) - config.keys(),
        incomplete=script.incomplete,
    )


def _json_object(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis for programs, with sizes in GiB."""
    failure, request, own = diagnosis.failure, diagnosis.request, diagnosis.estimate
    count = request.gpus or (own.settings.gpus + own.settings.other_gpus if own else None)
    sizes = {**(failure.sizes if failure else {}), "besides_pytorch": diagnosis.holders.get("besides")}
    return {
        **{name: getattr(failure, name, None) for name in ("phase", "how", "form", "step")},
        "model": request.model or None,
        "gpus": {"count": count, "type": request.gpu},
        **{f"{name}_gib": gib_value(sizes.get(name)) for name in (*_SIZES, "besides_pytorch")},
        "estimate": result_of("log", own) if own else None,
        "no_estimate": diagnosis.no_estimate or None,
        "assumed": list(diagnosis.assumed),
        "differences": list(diagnosis.differences()),
        "missing": list(diagnosis.missing),
        "change": [
            {
                "overrides": dict(action.overrides),
                **{f"{name}_gib": gib_value(getattr(action.after, name, None)) for name in ("peak", "high")},
                "cost": action.cost,
                "text": action.sentence,
            }
            for action in actions_for(diagnosis)
        ],
    }


# -- text


def diagnosis_text(diagnosis: Diagnosis, width: int = 100, *, verbose: bool = False) -> str:
    """Return a diagnosis as text.

    Args:
        diagnosis: the diagnosis.
        width: characters per line.
        verbose: whether to add the message and the phases of the estimate.
    """
    parts = [
        wrap_lines([_happened(diagnosis), *_measured(diagnosis)], width),
        wrap_lines(_estimate(diagnosis), width),
        wrap_lines(_actions(diagnosis), width, "   "),
        wrap_lines(_missing(diagnosis), width),
        *(_details(diagnosis, width) if verbose else ()),
    ]
    return "\n\n".join(filter(None, parts))


def _happened(of: Diagnosis) -> str:
    failure, figures = of.failure, of.log.figures
    if failure is None:
        last = f" Its last figures are from step {figures.last_step}." if figures.steps else ""
        return f"The log contains no out-of-memory message.{last} {_NO_MESSAGE}"
    after = f", after step {failure.step}" if failure.step is not None else ""
    after = after or (", before the first step ended" if of.log.settings else "")
    if not failure.is_evidence:
        return f"A process died{after}. The log does not say why."
    if failure.phase == "unknown":
        one_of = f": one of {', '.join(PHASES[each] for each in failure.phases)}" if failure.phases else ""
        return f"Out of memory{after}; the log does not show the phase{one_of}."
    where = "host memory" if failure.phase == "host" else f"GPU memory in the phase “{PHASES[failure.phase]}”"
    return f"Out of {where}{after}."


def _measured(of: Diagnosis) -> Iterator[str]:
    """Yield what the log measured: the sizes in the message, who holds the memory, and the last metric."""
    failure, log, own = of.failure, of.log, of.estimate
    sizes = {name: gib(size) for name, size in failure.sizes.items()} if failure else {}
    on_host = failure is not None and failure.phase == "host"
    texts = {"tried": "Requested: {}", "free": "free: {}", "capacity": "in all: {}"}
    if figures := [text.format(sizes[name]) for name, text in texts.items() if name in sizes]:
        yield f"{'; '.join(figures)}."
    holders = [f"{who} {gib(of.holders[name])}" for name, who in _HOLDERS.items() if name in of.holders]
    if not holders and "in_use" in sizes:
        holders = [f"{'node' if on_host else 'this process'} {sizes['in_use']}"]
    if holders:
        yield f"In use: {', '.join(holders)}."
    if of.is_in_pieces:
        yield f"PyTorch's unused {sizes['reserved_unallocated']} are in pieces that are too small."
    if log.sleep:
        freed, rest = gib(log.sleep["freed"]), gib(log.sleep["left"])
        yield f"vLLM's sleep freed {freed}; {rest} stayed in use."
    name = HOST_MEMORY if on_host else PEAK_ALLOCATED
    if values := log.figures.values(name):
        beside = f" (estimate: {gib(own.torch_peak)})" if own and not on_host else ""
        last = f"{values[-1]:.1f} GiB in step {log.figures.last_step}{beside}"
        yield f"{name}: {values[0]:.1f} GiB at first, {last}."


def _estimate(of: Diagnosis) -> Iterator[str]:
    """Yield the estimate of the phase that failed, or of the peak, what it assumes, and contradictions."""
    own, phase = of.estimate, of.phase
    if own is None:
        yield from [f"No estimate: {of.no_estimate}."] if of.no_estimate else []
    elif of.failure and of.failure.phase == "host":
        yield f"Estimate: {gib(own.host.total)} of host memory per node."
    else:
        part = own.of_phase(phase.name) if phase else own
        what = "this phase" if phase else f"the peak, in the phase “{own.peak_phase.label}”"
        has = f" The GPU has {gib(own.capacity)}: {label(part.verdict)}." if own.capacity else ""
        yield f"Estimate of {what}: {gib(part.peak)} (range {gib_number(part.low)} to {gib(part.high)}).{has}"
    if of.assumed:
        yield f"It assumes {'; '.join(of.assumed)}."
    yield from of.differences()


def _actions(of: Diagnosis) -> Iterator[str]:
    actions = actions_for(of)
    if actions:
        yield "What to do, in this order:"
    elif of.failure:
        yield _NO_ACTION[of.estimate is not None]
    failure, before = of.failure, of.estimate
    for number, action in enumerate(actions, 1):
        settings = " ".join(as_arguments(action.overrides, of.request.version, of.data))
        effects = []
        if failure and before and action.after and failure.phase not in ("startup", "checkpoint"):
            old, new = size_in(before, failure), size_in(action.after, failure)
            effects += [f"{gib_number(old)} → {gib(new)}"] if abs(new - old) > 0.01 * old else []
            effects += [f"the GPU then {label(action.after.verdict)}"] if failure.phase == "host" else []
        effects += [COSTS[action.cost]] if action.overrides and action.cost in COSTS else []
        parts = (f"{settings}:" * bool(settings), f"{', '.join(effects)}." * bool(effects), action.sentence)
        yield f"{number}. {' '.join(filter(None, parts))}"


def _missing(of: Diagnosis) -> Iterator[str]:
    if of.missing:
        yield f"Not in the log: {'; '.join(of.missing)}."
    if of.failure and of.failure.is_evidence and not (of.estimate or of.is_easyr1):
        yield f"For an estimate, add what you know of {_ARGUMENTS}."


def _details(of: Diagnosis, width: int) -> Iterator[str]:
    if of.failure:
        yield f"{of.failure.place}: {of.failure.text}"
    if own := of.estimate:
        yield "\n".join([*(f"Ignored: {text}" for text in own.unsupported), bars.phase_bars_text(own, width)])
