"""``verl-resources diagnose``: find out from a log why a run ran out of memory, and what to do."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from ..commands import UsageError, command, given_data, option, report
from ..diagnostics import NoAnswerError
from ..fit import arguments
from ..fit.arguments import QUESTION, Asked, read_question
from ..fit.names import model_of, recorded_gpu
from ..fit.results import gib_value, result_of
from ..memory.request import MODEL, ROOT, Request
from ..memory.resolve import is_harmless
from ..scripts.settings import SettingsText
from .diagnosis import Diagnosis
from .diagnosis import diagnose as diagnose_log
from .log import Log, read_log
from .steps import steps_for
from .text import diagnosis_text

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
        asked = read_question(options, data)
        arguments.refuse_lone_variables(options)
        script = arguments.read_source(options.script, options) if options.script else SettingsText()
    except NoAnswerError as error:
        report(error.diagnostics)
        failed = {"phase": None, "error": arguments.errors_text(error.diagnostics)}
        return json.dumps(failed, indent=2) if options.format == "json" else "", 2
    if options.log == "-" and sys.stdin is None:
        raise UsageError("standard input is closed; give the name of the log's file")
    with nullcontext(sys.stdin.buffer) if options.log == "-" else arguments.open_file(options.log) as stream:
        log = read_log(stream, "standard input" if options.log == "-" else options.log, last_run=True)
    found = diagnose_log(log, _request(log, asked, script), asked.data, options.verl_version)
    known = {
        *found.request.config,
        *filter(is_harmless, script.unresolved),
        *([f"{MODEL}.path"] if found.request.model else []),
    }
    report(
        [*arguments.registry_problems(data), *asked.problems, *script.problems_besides(known), *log.problems]
    )
    code = 0 if found.failure else 1
    if options.format == "json":
        return json.dumps(_plain(found), indent=2), code
    return diagnosis_text(found, arguments.screen_width(), verbose=options.verbose), code


def _request(log: Log, asked: Asked, script: SettingsText) -> Request:
    """Return the run that the log and the arguments describe; without its settings if neither says any."""
    given, data, path = asked.request, asked.data, f"{MODEL}.path"
    config = {**script.values, **log.settings, **given.config}
    config = config if any(key.startswith(f"{ROOT}.") for key in config) else dict(given.config)
    named = model_of(data.architectures, config.get(path), log.model, left_open=script.unresolved.get(path))
    model, note = (given.model, given.model_note) if given.model else named.found or ("", "")
    return replace(
        given,
        model=model,
        model_note=note,
        config=config,
        gpu=given.gpu or recorded_gpu(log.gpu, data.gpus),
        backend="megatron" if "megatron" in (script.config_name or "") else None,
        unread=frozenset(script.unresolved) - config.keys(),
        incomplete=script.incomplete,
    )


def _plain(found: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis for programs, with sizes in GiB."""
    failure, request, own = found.failure, found.request, found.estimate
    count = request.gpus or (own.settings.gpus + own.settings.other_gpus if own else None)
    sizes = {**(failure.sizes if failure else {}), "besides_pytorch": found.holders.get("besides")}
    return {
        **{name: getattr(failure, name, None) for name in ("phase", "how", "form", "step")},
        "model": request.model or None,
        "gpus": {"count": count, "type": request.gpu},
        **{f"{name}_gib": gib_value(sizes.get(name)) for name in (*_SIZES, "besides_pytorch")},
        "estimate": result_of("log", own) if own else None,
        "no_estimate": found.no_estimate or None,
        "assumed": list(found.assumed),
        "differences": list(found.differences()),
        "missing": list(found.missing),
        "change": [
            {
                "overrides": dict(step.overrides),
                "peak_gib": gib_value(step.after.peak if step.after else None),
                "high_gib": gib_value(step.after.high if step.after else None),
                "cost": step.cost,
                "text": step.sentence,
            }
            for step in steps_for(found)
        ],
    }
