"""``verl-resources diagnose``: why a run ran out of memory, from its log, and what to change."""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

from ..catalog.yaml_data import printable
from ..diagnostics import Code, NoAnswerError
from ..estimator.export import gib_value, result_of
from ..estimator.versions import version_of
from ..intake.diagnosis import Given, diagnose
from ..intake.log import read_log
from ..intake.log_lines import BLOCK, blocks_of
from ..settings.overrides import read_overrides
from ..settings.read import read_settings
from ..settings.result import SettingsText
from ..views.diagnosis import diagnosis_text
from .command import Command, add_result_options, progress, report
from .data import add_data_option, given_data, registry_problems
from .files import open_file, read_text
from .question import COMMAND_LINE, gpus_argument, refused

if TYPE_CHECKING:
    import argparse

    from ..estimator.context import EstimatorContext
    from ..intake.diagnosis import Diagnosis
    from ..intake.log import LogText
    from ..intake.remedies import Advice

#: The name that means standard input.
_STANDARD_INPUT = "-"
_WIDEST = 100


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("log", metavar="LOG", help="what verl printed, of any size; - reads standard input")
    parser.add_argument(
        "words", nargs="*", metavar="MODEL | KEY=VALUE", help="what the log does not say, or says wrongly"
    )
    parser.add_argument("--script", metavar="FILE", help="launch script of the run; it is read and never run")
    parser.add_argument(
        "--gpus", metavar="NxGPU", type=gpus_argument, help="8xH100 for example, or only H100"
    )
    parser.add_argument("--model", metavar="NAME", help="Hugging Face name of the checkpoint")
    parser.add_argument("--verl-version", metavar="VERSION", help="of verl, 0.7.1 for example")
    parser.add_argument("--verbose", action="store_true", help="print the message and all phases, too")
    add_data_option(parser)
    add_result_options(parser)


def _run(options: argparse.Namespace) -> int:
    """Read the log, diagnose and print."""
    data = given_data(options.data)
    try:
        given = _given(options, data)
    except NoAnswerError as error:
        report(error.diagnostics)
        return 2
    found = diagnose(_log(options.log), given, data)
    report([*registry_problems(data), *found.log.problems])
    if options.format == "json":
        print(json.dumps(_plain(found), indent=2))
    else:
        width = min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns)
        print(diagnosis_text(found, verbose=options.verbose, width=width))
    return 0 if found.failure else 1


def _log(name: str) -> LogText:
    """Read the log, of which the last run counts.

    Raises:
        UsageError: it cannot be read.
    """
    if name == _STANDARD_INPUT:
        return read_log(
            progress(blocks_of(sys.stdin.buffer), "MiB of the log"), "standard input", last_run=True
        )
    with open_file(name) as stream:
        count = -(-os.fstat(stream.fileno()).st_size // BLOCK)
        blocks = progress(blocks_of(stream), "MiB of the log", count)
        return read_log(blocks, printable(name), last_run=True)


def _given(options: argparse.Namespace, data: EstimatorContext) -> Given:
    """Return what the user says.

    Raises:
        NoAnswerError: a model, a GPU or a version is not known, or a setting cannot be read.
        UsageError: the script cannot be read.
    """
    script = SettingsText({}, {})
    if options.script:
        script = read_settings(read_text(options.script), printable(options.script))
    own = read_overrides([word for word in options.words if "=" in word], COMMAND_LINE)
    errors = [problem for problem in (*script.problems, *own.problems) if problem.is_error]
    if errors:
        raise NoAnswerError(*errors)
    names = [word for word in (*options.words, options.model) if word and "=" not in word]
    if len(names) > 1:
        raise refused(
            Code.wrong_value, f"{names[0][:80]!r} and {names[1][:80]!r} are named", "name one model"
        )
    gpus = options.gpus or (None, None)
    if gpus[1]:
        data.registries.known_gpu(gpus[1])
    version = version_of(options.verl_version) if options.verl_version else None
    if options.verl_version and version is None:
        raise refused(
            Code.wrong_value, f"{options.verl_version[:80]!r} is no version", "write 0.7.1 for example"
        )
    return Given(
        model=data.registries.known_model(names[0]) if names else None,
        gpus=gpus,
        script=script.values,
        overrides=own.values,
        unread=frozenset(script.unresolved),
        version=version,
        backend="megatron" if "megatron" in (script.config_name or "") else None,
    )


def _plain(found: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis for programs; sizes are GiB."""
    failure, request = found.failure, found.request
    count = request.gpus
    if count is None and found.estimate:
        count = found.estimate.settings.gpus
    figures = ("tried", "in_use", "others", "allocated", "reserved_unallocated", "free", "capacity")
    return {
        "phase": failure.phase if failure else None,
        "how": failure.how if failure else None,
        "form": failure.form if failure else None,
        "step": failure.step if failure else None,
        "model": request.model or None,
        "gpus": {"count": count, "type": request.gpu},
        **{f"{name}_gib": gib_value(getattr(failure, name, None)) for name in figures},
        "estimate": result_of("log", found.estimate) if found.estimate else None,
        "no_estimate": found.no_estimate or None,
        "differences": list(found.differences),
        "missing": list(found.missing),
        "change": [_change(each) for each in found.advice],
    }


def _change(each: Advice) -> dict[str, Any]:
    return {
        "overrides": dict(each.remedy.overrides),
        "peak_gib": gib_value(each.after.peak if each.after else None),
        "high_gib": gib_value(each.after.high if each.after else None),
        "cost": each.remedy.cost,
        "text": each.remedy.text,
    }


DIAGNOSE = Command(
    "diagnose",
    "say why a run ran out of memory, from its log, and what to change",
    {
        "failed.log": "what the log alone tells",
        "failed.log --script run.sh --gpus 8xH100": "where it lacks something",
        "failed.log Qwen/Qwen2.5-7B --gpus 8xH100 --format json": "",
    },
    "0 a diagnosis was made, 1 the log has no failure for lack of memory, 2 could not run.",
    _add_arguments,
    _run,
    notes="The log is read and never sent anywhere. Settings that it prints stand above those of the script, "
    "and key=value overrides above both.",
)
