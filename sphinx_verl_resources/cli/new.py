"""``verl-resources new``: write a run file from a launch script and a log, and report its contents."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from dataclasses import fields, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..commands import (
    FORMAT,
    UsageError,
    command,
    enclosing_data,
    option,
    report,
    write_file,
)
from ..dataset import DATA_NAMES, RUNS, DataFile, configured_directory
from ..diagnostics import Diagnostic, Location, NoAnswerError, Severity, printable
from ..fit.results import result_of
from ..fit.words import short
from ..intake.draft import draft_run, id_of
from ..intake.run_text import ID_FORM, TODO, blank_text, is_id, run_text, text_for
from ..intake.sources import Sources, UserInput
from ..logs.log import read_log
from ..memory.estimate import estimate
from ..memory.recorded import request_of_run
from ..memory.registries import EstimatorContext
from ..records import ENGINES, PAGE_COLUMNS, TRAIN_BACKENDS, Run
from ..scripts.read import read_script
from ..scripts.settings import refusal
from ..scripts.unread import unread_settings
from ..texts import runs_text
from ..validation import models_in, validated
from .question import gpus_argument
from .sources import (
    ENV,
    SCRIPT,
    open_file,
    read_text,
    refuse_lone_variables,
    registry_problems,
    report_first,
    with_unused,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..intake.draft import Draft

#: The counter that verl prints as ``perf/max_memory_allocated_gb``.
_COUNTER = "torch-max-allocated"


def _id(text: str) -> str:
    if not is_id(text):
        raise argparse.ArgumentTypeError(f"invalid id {text[:80]!r}; an id has {ID_FORM}")
    return text


@command(
    SCRIPT,
    option("--log", metavar="FILE", help="output of verl, of any size"),
    option("--blank", action="store_true", help="write a template with every field explained"),
    option("--output", metavar="DIR", help="data directory; default: ./data, or the enclosing one"),
    option("--id", type=_id, metavar="NAME", help="default: model, task and GPUs"),
    option("--force", action="store_true", help="replace an existing file"),
    ENV,
    option("--dry-run", action="store_true", help="print the file; write nothing"),
    option("--verbose", action="store_true", help="print all messages, not only the first ten"),
    FORMAT,
    option(
        "--gpus",
        "--gpu",
        metavar="N*GPU",
        type=gpus_argument,
        default=(None, None),
        help="number and type, such as 8*H100, or only H100",
    ),
    option("--model", metavar="NAME", help="Hugging Face name of the model"),
    option("--task", metavar="NAME", help="GRPO, GRPO-LoRA, PPO, DAPO …"),
    option("--train", choices=TRAIN_BACKENDS, help="training backend"),
    option("--infer", dest="engine", choices=ENGINES, help="rollout engine"),
    option(
        "--infer-version",
        dest="engine_version",
        metavar="VERSION",
        help="version of the rollout engine, such as 0.8.3",
    ),
    option("--verl-version", metavar="VERSION", help="release or commit of verl"),
    option("--despite-out-of-memory", action="store_true", help="write a run that ran out of memory"),
)
def new(options: argparse.Namespace) -> tuple[str, int]:
    """Write a run file from a launch script and its log, or a template to fill in.

    Examples:
      verl-resources new --script run.sh --log run.log   # fill in what both contain; the rest is TODO
      verl-resources new --script run.sh --gpus 8*H100
      verl-resources new --script run.sh --dry-run       # print the file; write nothing
      verl-resources new --blank                         # write a template with every field explained

    Options such as --gpus and --model override the script and the log. Only metrics, the configuration,
    versions and the GPU are taken from the log. Private settings such as paths and account names are
    left out and listed.

    Exit codes: 0 written or printed, 1 no run file could be made from the script and the log, 2 could
    not run.
    """
    has_sources = bool(options.script or options.log)
    if options.blank and has_sources:
        raise UsageError("--blank cannot be combined with --script or --log")
    if not options.blank and not has_sources:
        raise UsageError("give a launch script with --script FILE, or write a template with --blank")
    refuse_lone_variables(options)
    directory = _output(options)
    tell = report if options.verbose else report_first
    registries, problems = _registries(directory)
    sources, unread = _sources(options)
    if not_training := refusal(sources.script):
        report([not_training])
        return "", 1
    problems += [*unread, *_refusals(sources, options)]
    if any(problem.is_error for problem in problems):
        tell(problems)
        return "", 1
    user = UserInput(**{field.name: getattr(options, field.name) for field in fields(UserInput)})
    draft = draft_run(sources, user, registries, date.today())  # noqa: DTZ011  # the user's local date
    text = blank_text(draft.fields) if options.blank else run_text(draft.fields, draft.remarks)
    text = text_for(text, directory)
    file = _file(directory, draft, text)
    wrong = _wrong(file, text.splitlines())
    tell([*problems, *([] if options.blank else draft.problems), *wrong])
    if wrong:
        return "", 1
    if not options.dry_run:
        _write(file, text, draft, options)
    computed = _estimate(draft.fields, registries, sources)
    result = _report(draft.fields, text, printable(file.shown), computed, written=not options.dry_run)
    as_json = options.format == "json"
    return json.dumps(result, indent=2) if as_json else _report_text(result, draft.fields), 0


def _sources(options: argparse.Namespace) -> tuple[Sources, list[Diagnostic]]:
    """Read the script and the log; also return warnings about unread text that may contain settings.

    Raises:
        UsageError: one of them cannot be read.
    """
    sources, problems = Sources(), list[Diagnostic]()
    if options.script:
        text, shown = read_text(options.script).removeprefix("\ufeff"), options.script
        environment = dict(options.env)
        script = with_unused(read_script(text, shown, environment), environment)
        problems += unread_settings(text, script, shown)
        sources = Sources(script, text, shown, Path(options.script))
    if options.log:
        with open_file(options.log) as stream:
            sources = replace(sources, log=read_log(stream, options.log))
    return sources, problems


def _refusals(sources: Sources, options: argparse.Namespace) -> list[Diagnostic]:
    """Return the reasons not to write a run."""
    reasons = [problem for problem in sources.script.problems if problem.is_error]
    log = sources.log
    if log and log.failure and log.failure.is_evidence:
        message = "the run ran out of memory here"
        remedy = (
            f"find out why with: verl-resources diagnose {printable(shlex.quote(options.log))}; rows are for "
            "runs that fit; --despite-out-of-memory overrides this"
        )
        severity = Severity.WARNING if options.despite_out_of_memory else Severity.ERROR
        reasons.append(Diagnostic(log.failure.place, "out_of_memory", message, remedy, severity))
    if log and not log.figures.steps and not log.settings:
        message = "this log contains neither a configuration nor the metrics of a step"
        remedy = "give verl's console output from its first line"
        place, severity = Location(log.shown, 1, 1), Severity.WARNING if sources.file else Severity.ERROR
        reasons.append(Diagnostic(place, "file_empty", message, remedy, severity))
    return reasons


def _output(options: argparse.Namespace) -> Path:
    """Return the data directory to write into; it need not exist for ``--dry-run``.

    Raises:
        UsageError: there is none.
    """
    own = ["data"] if options.dry_run or Path("data").is_dir() else enclosing_data()
    name = options.output or next(iter(own), None)
    if name is None:
        raise UsageError("no data directory here; give one with --output DIR")
    path = Path(name)
    if os.path.lexists(path) and not path.is_dir():
        raise UsageError(f"{printable(name)}: not a directory; give a data directory with --output")
    return path


def _registries(directory: Path) -> tuple[EstimatorContext, list[Diagnostic]]:
    """Return the registries, in which the directory's entries override the bundled ones."""
    has_data = any((directory / name).exists() for name in DATA_NAMES)
    data = EstimatorContext([configured_directory(str(directory), Path.cwd())] if has_data else [])
    return data, registry_problems(data)


def _file(directory: Path, draft: Draft, text: str) -> DataFile:
    """Return the file to write."""
    name = f"{RUNS}/{draft.fields['id']}.yaml"
    shown = Path(configured_directory(str(directory), Path.cwd()).shown, name)
    return DataFile(directory / name, shown.as_posix(), text.encode())


def _wrong(file: DataFile, lines: Sequence[str]) -> list[Diagnostic]:
    """Return the errors of a run file except its TODOs."""
    _, problems = validated(file.document, Run)
    errors = [problem for problem in problems if problem.is_error]
    return [error for error in errors if TODO not in lines[min(error.place.line, len(lines)) - 1]]


def _write(file: DataFile, text: str, draft: Draft, options: argparse.Namespace) -> None:
    """Write the file.

    Raises:
        UsageError: it already exists or cannot be written.
    """
    if os.path.lexists(file.path) and not options.force:
        taken = {path.stem for path in file.path.parent.glob("*.yaml")}
        train = draft.fields["train"]
        other = id_of(draft.fields, "" if train == TODO else train, taken)
        raise UsageError(
            f"{printable(file.shown)}: already exists; --force replaces it, --id {other} writes another file"
        )
    file.path.parent.mkdir(parents=True, exist_ok=True)
    write_file(file.path, text)


def _report(
    fields: Mapping[str, Any],
    text: str,
    shown: str,
    estimated: tuple[dict[str, Any] | None, str],
    *,
    written: bool,
) -> dict[str, Any]:
    """Return the report about a new file, for programs."""
    todo = [
        {"line": number, "text": code.strip()}
        for number, line in enumerate(text.splitlines(), 1)
        if not line.startswith("#") and TODO in (code := line.partition("  # ")[0])
    ]
    computed, reason = estimated
    measured = fields.get("measured", {})
    peak = measured.get("gib") if measured.get("counter") == _COUNTER else None
    difference = None
    if peak and computed and computed["capacity_gib"]:  # the rollout engine has a share of the capacity
        difference = round(computed["logged_max_allocated_gib"] / peak - 1, 4)
    return {
        "path": shown,
        "written": written,
        "id": fields["id"],
        "text": text,
        "todo": todo,
        "estimate": computed,
        "no_estimate": reason or None,
        "measured_gib": peak,
        "difference": difference,
        "next": f"verl-resources check {shlex.quote(shown)}",
    }


def _report_text(new: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    """Return the report as text."""
    parts = [f"wrote {new['path']}" if new["written"] else new["text"].rstrip("\n")]
    parts.append(runs_text([_unchecked_run(fields)], PAGE_COLUMNS, "plain"))
    parts.append("\n".join(_estimate_lines(new)))
    if new["todo"]:
        lines = [f"  {new['path']}:{item['line']}: {item['text']}" for item in new["todo"]]
        parts.append("\n".join(["to fill in:", *lines]))
    if new["written"]:
        parts.append(f"next: {new['next']}")
    return "\n\n".join(parts)


def _estimate_lines(new: Mapping[str, Any]) -> list[str]:
    found, measured = new["estimate"], new["measured_gib"]
    if found is None:
        return [f"no estimate: {new['no_estimate']}"]
    if found["capacity_gib"] is None:  # the rollout engine's memory is a share of it
        return ["estimate: unknown, because the GPU is; --gpus names it"]
    lines = [
        f"estimate: {short(found['verdict'], found['fits_up_to_tokens'])}; peak {found['peak_gib']:.1f} GiB "
        f"per GPU (range {found['low_gib']:.1f} to {found['high_gib']:.1f} GiB), "
        f"in phase {found['binding_phase']}; the GPU has {found['capacity_gib']:.1f} GiB"
    ]
    computed = found["logged_max_allocated_gib"]
    ends = f"range {found['logged_low_gib']:.1f} to {found['logged_high_gib']:.1f} GiB"
    if not measured:
        lines.append(f"perf/max_memory_allocated_gb: computed {computed:.1f} GiB ({ends}), not measured")
        return lines
    inside = found["logged_low_gib"] <= measured <= found["logged_high_gib"]
    difference = (computed / measured - 1) * 100
    off = f"{abs(difference):.1f} % {'more' if difference > 0 else 'less'}"
    lines.append(
        f"perf/max_memory_allocated_gb: measured {measured:.1f} GiB, "
        f"{'within' if inside else 'OUTSIDE'} the {ends}; computed {computed:.1f} GiB, {off}"
    )
    if not inside:
        lines.append("  check that the log is from this script; if so, explain the difference in a note")
    return lines


def _estimate(
    fields: Mapping[str, Any], registries: EstimatorContext, sources: Sources
) -> tuple[dict[str, Any] | None, str]:
    """Return an estimate as plain values, or the reason why there is none."""
    missing = [name for name in ("model", "task", "train") if fields[name] == TODO]
    missing += ["gpus.count"] if fields["gpus"]["count"] == TODO else []
    if missing:
        return None, f"unknown {', '.join(missing)}"
    gpus, infer = fields["gpus"], fields["infer"]
    known = {
        **fields,
        "gpus": {**gpus, "type": None if gpus["type"] == TODO else gpus["type"]},
        "infer": None if infer["engine"] == TODO else infer,
    }
    try:
        request = request_of_run(_unchecked_run(known), registries)
        request = replace(request, unread=sources.open, incomplete=sources.script.incomplete)
        found = estimate(request, registries)
    except NoAnswerError as error:
        return None, str(error)
    if found.undecided:
        return None, f"not read: {'; '.join(found.undecided)}"
    return result_of(fields["id"], found), ""


def _unchecked_run(fields: Mapping[str, Any]) -> Run:
    """Return a run without validation; any field may contain TODO.

    >>> _unchecked_run({"id": "a", "gpus": {"count": 2, "type": "TODO"}}).gpus.type
    'TODO'
    """
    made: dict[str, Any] = {"settings": {}, "infer": None, "evidence": ()}
    for name, value in fields.items():
        made[name] = value
        for model in models_in(Run.model_fields[name].annotation):
            if isinstance(value, list):
                made[name] = tuple(model.model_construct(**item) for item in value)
            elif value is not None:
                made[name] = model.model_construct(**value)
    return Run.model_construct(**made)
