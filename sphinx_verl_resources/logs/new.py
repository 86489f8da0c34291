"""``verl-resources new``: write a run file from a launch script and a log, or from an issue."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from ..commands import FORMAT, UsageError, command, enclosing_data, option, report, write_file
from ..dataset import DATA_NAMES, RUNS, DataFile, configured_directory
from ..diagnostics import Diagnostic, Location, NoAnswerError, Severity, printable
from ..fit import arguments
from ..memory.registries import EstimatorContext
from ..records import Run, size_class
from ..scripts.read import read_settings
from ..scripts.settings import SettingsText
from ..validation import validated
from .draft import Sources, fields_of_issue, fields_of_run
from .log import Log, read_log
from .run_file import SCHEMA_LINE, TODO, form_address, run_text, suggested_id

#: A line that only a log has.
_OF_LOG = re.compile(rb"(?m)^.{0,160}?(\(\w+ pid=\d+\) |\bstep:\d+ - )")
#: Configurations of verl and its recipes, which build on the defaults of verl's trainer.
_OF_VERL = re.compile(r"\w*(ppo|dapo|distill|prime|spin|sppo|flowrl|entropy)\w*_trainer")


@command(
    arguments.SCRIPT,
    option("--log", metavar="FILE", help="output of verl, of any size"),
    option("--issue", metavar="FILE", help="text of an issue in which somebody reports a run; - reads stdin"),
    option("--blank", action="store_true", help="write a template to fill in"),
    option("--output", metavar="DIR", help="data directory; default: ./data, or the enclosing one"),
    option("--id", metavar="NAME", help="default: model, task and GPUs"),
    option("--force", action="store_true", help="replace an existing file"),
    arguments.ENV,
    option("--dry-run", action="store_true", help="print the file; write nothing"),
    option("--verbose", action="store_true", help="print all messages, not only the first ten"),
    FORMAT,
    *arguments.GPUS,
    option("--model", metavar="NAME", help="Hugging Face name of the model"),
    option("--task", metavar="NAME", help="GRPO, GRPO-LoRA, PPO, DAPO …"),
)
def new(options: argparse.Namespace) -> tuple[str, int]:
    """Write a run file from a launch script and its log, or a template to fill in.

    Examples:
      verl-resources new --script run.sh --log run.log   # fill in what both contain; the rest is TODO
      verl-resources new --script run.sh --gpus 8xH100
      verl-resources new --script run.sh --dry-run       # print the file; write nothing
      verl-resources new --blank                         # write a template to fill in

    The log is what ran: where it differs from the script, it is recorded. Options such as --gpus and
    --model override both. Only metrics, the configuration, versions and the GPU are taken from the log.
    Private settings such as paths and account names are left out and listed.

    Exit codes: 0 written or printed, 1 no run file could be made from the script and the log, 2 could
    not run.
    """
    sources = [name for name in ("script", "log", "issue", "blank") if getattr(options, name)]
    if len(sources) != 1 and sources != ["script", "log"]:
        raise UsageError("give a launch script with --script, its --log or both; or --issue; or --blank")
    arguments.refuse_lone_variables(options)
    default = ["data"] if options.dry_run or Path("data").is_dir() else enclosing_data()
    if not (names := [options.output] if options.output else default):
        raise UsageError("no data directory here; give one with --output DIR")
    directory = configured_directory(names[0], Path.cwd())  # it may not exist yet
    has_data = any((directory.path / name).exists() for name in DATA_NAMES)
    data = EstimatorContext([directory] if has_data else [])
    try:
        fields, problems = _fields(options, data)
    except NoAnswerError as error:
        report(error.diagnostics)
        return "", 1
    text = run_text(fields)
    if not (directory.path / "schema/run.json").is_file():
        text = text.removeprefix(f"{SCHEMA_LINE}\n")
    name = f"{RUNS}/{fields['id']}.yaml"
    file = DataFile(directory.path / name, f"{directory.label}/{name}", text.encode())
    lines = text.splitlines()  # errors in those to fill in are left out
    errors = (problem for problem in validated(file.document, Run)[1] if problem.is_error)
    wrong = [error for error in errors if TODO not in lines[min(error.place.line, len(lines)) - 1]]
    problems = [*arguments.registry_problems(data), *problems, *wrong]
    if (report if options.verbose else arguments.report_first)(problems):
        return "", 1
    if not options.dry_run:
        if os.path.lexists(file.path) and not options.force:
            hint = f"--force replaces it, --id {file.path.stem}-2 writes another file"
            raise UsageError(f"{printable(file.label)}: already exists; {hint}")
        file.path.parent.mkdir(parents=True, exist_ok=True)
        write_file(file.path, text)
    path, parts = printable(file.label), enumerate(lines, 1)
    result = {
        "path": path,
        "written": not options.dry_run,
        "id": fields["id"],
        "text": text,
        "todo": [{"line": at, "text": line.strip()} for at, line in parts if TODO in line.partition("#")[0]],
        "next": f"verl-resources check {shlex.quote(path)}",
        "submit": None if options.blank else form_address(fields),
    }
    return json.dumps(result, indent=2) if options.format == "json" else _text(result), 0


def _fields(options: argparse.Namespace, data: EstimatorContext) -> tuple[dict[str, Any], list[Diagnostic]]:
    """Return the fields of the file, from the script and the log or from an issue, and their problems.

    Raises:
        NoAnswerError: a file cannot be read, or an option names an unknown GPU.
    """
    if options.issue:
        body = sys.stdin.read() if options.issue == "-" else arguments.read_text(options.issue)
        fields, problems = fields_of_issue(body, options.issue), list[Diagnostic]()
    else:
        sources = _sources(options)
        fields = fields_of_run(sources, options, data)
        problems = [] if options.blank else sources.problems
    model = data.architectures.get(str(fields["model"]))
    fields = {
        "id": suggested_id(fields) if options.id is None else options.id,
        "size": size_class(model.parameters) if model else TODO,
        **dict.fromkeys(("tag", "train"), TODO),
        "infer": {"engine": TODO, "version": TODO},
        "contributor": {"name": TODO, "url": TODO},
        "kind": "tested",
        "added": date.today(),  # noqa: DTZ011  # the user's local date
        "evidence": [{"kind": "log", "url": TODO}],
        **fields,
    }
    return fields, problems


def _sources(options: argparse.Namespace) -> Sources:
    """Read the script and the log.

    Raises:
        NoAnswerError: the script cannot be read, or is a log.
    """
    script, log, has_defaults, problems = SettingsText(), Log(), False, list[Diagnostic]()
    if options.script:
        with arguments.open_file(options.script) as stream:
            if _OF_LOG.search(stream.read(1 << 16)):
                place, remedy = Location(options.script), "give it with --log"
                raise NoAnswerError(Diagnostic(place, "file_unreadable", "--script is given a log", remedy))
        script = arguments.read_source(options.script, options)
        has_defaults = _add_configuration(script, Path(options.script))
    if options.log:
        with arguments.open_file(options.log) as stream:
            log = read_log(stream, options.log)
        if failure := log.failure:
            remedy = f"find out why with verl-resources diagnose {printable(shlex.quote(options.log))}"
            message, level = "the run ran out of memory here", Severity.ERROR
            if not failure.is_evidence:
                message, level = "a process of the run died here", Severity.WARNING
            problems.append(Diagnostic(failure.place, "out_of_memory", message, remedy, level))
        if not (log.figures.steps or log.settings or log.problems or (failure and failure.is_evidence)):
            message, remedy = (
                "the log has no configuration and no metrics",
                "give it unpacked, from its first line",
            )
            problems.append(Diagnostic(Location(options.log), "file_empty", message, remedy))
    return Sources(script, options.script or "", log, has_defaults, problems)


def _add_configuration(script: SettingsText, path: Path) -> bool:
    """Add the configuration that a script selects, if it is beside it.

    Returns:
        Whether verl's defaults hold for what neither sets.
    """
    selected = str(script.config_name or script.values.get("config") or "ppo_trainer")
    file = path.parent / f"{Path(selected).stem}.yaml"
    if file.is_file():
        config = read_settings(arguments.read_text(str(file)), str(file))
        script.values = {**config.values, **script.values}
        script.places = {**config.places, **script.places}
    elif not _OF_VERL.fullmatch(selected):
        message = f"the configuration {selected!r} was not read, because it is not beside the script"
        script.warn(Location(str(path)), "unresolved", message, "copy it there")
        return False
    return True


def _text(new: Mapping[str, Any]) -> str:
    """Return the report as text."""
    parts = [f"wrote {new['path']}" if new["written"] else new["text"].rstrip("\n")]
    todo = [f"  {new['path']}:{item['line']}: {item['text']}" for item in new["todo"]]
    parts += ["\n".join(["to fill in:", *todo])] if todo else []
    parts += [f"then: {new['next']}"] if new["written"] else []
    parts += [f"or submit it with this form: {new['submit']}"] if new["submit"] else []
    return "\n\n".join(parts)
