"""The command ``verl-resources``; and its commands ``check``, ``table`` and ``schema``.

Exit codes of every command: 0 success, 1 problems found or does not fit, 2 could not run.
"""

from __future__ import annotations

import argparse
import inspect
import io
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from . import __version__, dataset, selection
from .check import Check, Repository, open_repository
from .dataset import Directory
from .diagnostics import Diagnostic, NoAnswerError, capped, counted, one_line, printable, visible
from .memory.registries import EstimatorContext
from .records import PAGE_COLUMNS, SIZES
from .selection import FILTERS
from .texts import FORMATS, runs_text
from .validation import schema_text

#: The work of a command; it returns the result as text, and the exit code.
Work = Callable[[argparse.Namespace], tuple[str, int]]

#: The module of each command, in the order of the help text; it is loaded when the command is asked for.
COMMANDS = {
    "new": "logs.new", "check": "commands", "table": "commands", "export": "fit.commands",
    "estimate": "fit.commands", "plan": "fit.commands", "diagnose": "logs.diagnose", "schema": "commands",
}  # fmt: skip
#: The modules of higher layers with rules, which register themselves.
RULE_MODULES = ("memory.rules", "scripts.rules", "speed.rules")


class UsageError(Exception):
    """A one-line reason why a command cannot run."""


# -- commands and their arguments

#: The arguments of ``ArgumentParser.add_argument``.
Argument = tuple[tuple[str, ...], dict[str, Any]]


def option(*names: str, **settings: Any) -> Argument:
    """Return an argument of a command."""
    return names, settings


DATA = option("--data", action="append", default=[], metavar="DIR", help="data directory; may be repeated")
FORMAT = option("--format", choices=("text", "json"), default="text", help="default: text")
OUTPUT = option("--output", dest="result_file", metavar="FILE", help="write the result to this file instead")
PATHS = option("paths", nargs="*", metavar="PATH", help="data directory; for check also a path in one")


class Command(argparse.ArgumentParser):
    """A command of ``verl-resources``: the parser of its arguments, with the function to run.

    The docstring of the function is the help: a sentence, example command lines, and notes that end with the
    exit codes.
    """

    def __init__(self, run: Work, *options: Argument) -> None:
        purpose, *others = (inspect.getdoc(run) or "").split("\n\n")
        super().__init__(
            f"verl-resources {run.__name__}".removesuffix(" main"),
            description=purpose,
            epilog="\n\n".join(others),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.run = run
        for names, settings in options:
            self.add_argument(*names, **settings)

    def error(self, message: str) -> NoReturn:
        """Raise a usage error, whose message takes one line."""
        raise UsageError(f"{message}; see {self.prog} --help")


def command(*options: Argument) -> Callable[[Work], Command]:
    """Return a decorator that makes a function the command with its name."""
    return lambda run: Command(run, *options)


def command_named(name: str) -> Command:
    """Return a command."""
    function: Command = getattr(import_module(f".{COMMANDS[name]}", __package__), name)
    return function


def main(arguments: Sequence[str] | None = None) -> int:
    """Check and show the recorded hardware runs of verl's documentation; estimate GPU memory.

    See verl-resources COMMAND --help for examples. Problems go to standard error, one per line:
    path:line:col: LEVEL: message [code].

    Exit codes: 0 success, 1 problems or no fit, 2 could not run.
    """
    name, *words = [*(sys.argv[1:] if arguments is None else arguments)] or [""]
    code = 2
    try:
        if empty := [word for word in words if re.fullmatch(r"(--[\w-]+=(--)?)?", word)]:
            raise UsageError(f"the argument {empty[0]!r} has no value; is a variable of the shell unset?")
        if name not in COMMANDS:
            _explain([name] if name else [])
        command_line = command_named(name)
        # Words and options may come in any order, which subparsers do not support.
        options = command_line.parse_intermixed_args(words)
        text, code = command_line.run(options)
        file = getattr(options, "result_file", None)
        if file is not None and code != 2:
            write_file(Path(file), f"{text}\n")
        elif text and file is None:
            _print(text)
    except BrokenPipeError:  # the reader has seen enough
        return code
    except (UsageError, NoAnswerError, OSError, UnicodeError) as error:
        warn(f"verl-resources: {_reason(error)}")
        return 2
    return code


def _explain(words: Sequence[str]) -> None:
    """Print the help or the version, and exit; raise a usage error for anything but a command."""
    version = option("--version", action="version", version=f"%(prog)s {__version__}")
    parser = Command(main, version)  # type: ignore[arg-type]
    subparsers = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=argparse.ArgumentParser
    )
    for name in COMMANDS:
        subparsers.add_parser(name, help=command_named(name).description)
    parser.parse_args(words)


def _reason(error: Exception) -> str:
    """Return the reason on one line, without the system's error number."""
    if not isinstance(error, OSError):
        return one_line(str(error))
    file = f"{printable(str(error.filename))}: " if error.filename else ""
    reason = error.strerror or str(error)
    return f"{file}{reason[:1].lower()}{reason[1:]}"


def _print(text: str) -> None:
    try:
        print(visible(text), flush=True)
    except OSError:
        sys.stdout = io.StringIO()  # at exit, Python would try to write the rest
        raise


def warn(text: str) -> None:
    """Print a text to standard error; if that is impossible, the exit code must do."""
    with suppress(OSError):
        print(visible(text), file=sys.stderr, flush=True)


def report(problems: Sequence[Diagnostic]) -> bool:
    """Print problems to standard error, one per line, and return whether any is an error."""
    for problem in capped(problems):
        warn(str(problem))
    return any(problem.is_error for problem in problems)


# -- files that the user names


def write_file(path: Path, text: str) -> None:
    """Write a whole file or nothing; a link is kept and its target replaced.

    Raises:
        OSError: it cannot be written, or is not a regular file.
    """
    target = Path(os.path.realpath(path))
    try:
        dataset.refuse_link_in_data(path)
        if target.exists():
            dataset.refuse_irregular(target)
        dataset.replace_file(target, text)
    except OSError as error:
        error.filename = path
        raise


# -- data


def given_data(names: Sequence[str]) -> EstimatorContext:
    """Read the named directories after the bundled dataset, or the default one, if there is any.

    Raises:
        OSError: a path is not a directory with data.
    """
    return EstimatorContext(data_directories(names or enclosing_data()))


def data_directories(names: Sequence[str]) -> list[Directory]:
    """Return the data directories of these paths.

    Raises:
        OSError: a path is not a directory with data.
    """
    for name in names:
        if dataset.DATA_NAMES.isdisjoint(path.name for path in Path(name).iterdir()):
            raise OSError(0, "contains no data; give a folder that contains runs/", name)
    return [dataset.configured_directory(name, Path.cwd()) for name in names]


def enclosing_data(path: str = "data") -> list[str]:
    """Return the relative path of the first folder at or above a path that contains data; empty for none."""
    folders = [each for each in _upwards(path) if any((each / name).exists() for name in dataset.DATA_NAMES)]
    return [os.path.relpath(folder) for folder in folders[:1]]


def _upwards(path: str) -> tuple[Path, ...]:
    whole = Path(os.path.abspath(path))  # noqa: PTH100  # resolve() follows links
    return whole, *whole.parents


# -- check


def load_check(names: Sequence[str], repository: Repository | None = None) -> Check:
    """Load data directories, or the bundled dataset, and all rules.

    Args:
        names: the paths of the directories.
        repository: a checkout of verl.

    Raises:
        OSError: a path is not a directory with data.
    """
    for module in RULE_MODULES:
        import_module(f".{module}", __package__)
    directories = data_directories(names)
    return Check(EstimatorContext(directories), directories or [dataset.bundled_directory()], repository)


@command(
    PATHS,
    option("--repo", metavar="DIR", help="git checkout of verl: also check links and scripts; only read"),
    option("--strict", action="store_true", help="exit with 1 for warnings too"),
    FORMAT,
    OUTPUT,
)
def check(options: argparse.Namespace) -> tuple[str, int]:
    """Check run files, registries and cases.

    Examples:
      verl-resources check                                        # ./data, or the enclosing data directory
      verl-resources check data/runs/a.yaml                       # problems of one file only
      verl-resources check --repo ../verl                         # links and scripts too
      verl-resources check --format json --output problems.json   # for another program

    Exit codes: 0 no error, 1 errors found, 2 could not run. With --strict, warnings count as errors.
    """
    # A folder ./data without data is refused: a check of nothing would pass.
    default = ["data"] if Path("data").is_dir() else enclosing_data()
    for path in options.paths:
        Path(path).lstat()  # it must exist
        if Path(path).is_file() and not enclosing_data(path):
            raise UsageError(
                f"{printable(path)}: not in a data directory; put run files into its folder runs/"
            )
    directories = sorted({name for path in options.paths for name in enclosing_data(path) or [path]})
    repository = None if options.repo is None else open_repository(options.repo, printable(options.repo))
    check = load_check(directories or default, repository)
    places = {_upwards(path)[0] for path in options.paths}
    problems = [each for each in check.problems() if not places or places & {*_upwards(each.place.path)}]
    errors = sum(problem.is_error for problem in problems)
    code = int(bool(errors or (options.strict and problems)))
    if options.format == "json":
        return json.dumps([_json_object(problem) for problem in problems], indent=2), code
    report(problems)
    counts = {"run": len(check.files(dataset.RUNS)), "error": errors, "warning": len(problems) - errors}
    names = ", ".join(printable(directory.label) for directory in check.directories)
    return f"{names}: {', '.join(counted(number, word) for word, number in counts.items())}", code


def _json_object(problem: Diagnostic) -> dict[str, Any]:
    place, level, code = problem.place, problem.severity.name, f"verl.{problem.code}"
    where = {"path": place.path, "line": place.line, "column": place.column, "level": level, "code": code}
    return {**where, "message": problem.named_message, "hint": problem.remedy}


# -- table


def _several(name: str, read: Callable[[str], Sequence[Any]], help_text: str) -> Argument:
    """Return an option with a list, which may be repeated."""
    return option(name, action="extend", type=read, metavar="A,B,...", help=help_text)


def load_runs(options: argparse.Namespace) -> tuple[EstimatorContext, int]:
    """Return the data, and exit code 1 if runs with errors are missing; print the problems."""
    data = given_data([*options.paths, *options.data])
    return data, int(report(data.diagnostics_of("runs", "config_keys", "accuracy")))


@command(
    PATHS,
    DATA,
    _several("--size", selection.sizes, f"size classes: {', '.join(SIZES)}"),
    *(
        _several(f"--{name}", selection.phrases, f"only runs {each.meaning}, such as {each.example}")
        for name, each in FILTERS.items()
    ),
    _several("--columns", selection.columns, "fields to show; default: as on the page"),
    _several("--sort", selection.sort_fields, "fields to sort by; default: by size class, as on the page"),
    option("--format", choices=FORMATS, default="plain", help="format of the table; default: plain"),
    OUTPUT,
)
def table(options: argparse.Namespace) -> tuple[str, int]:
    """Print recorded runs as a table.

    Examples:
      verl-resources table --size 7B
      verl-resources table --gpu H100,H800 --train fsdp --sort=-gpus,model
      verl-resources table --format github --columns model,gpus,measured.gib
      verl-resources table docs/data --format list-table --output runs.rst   # a table to paste

    Filters, fields and order are those of the verl-runs directive. Reverse an order with --sort=-added.

    Exit codes: 0 success, 1 runs with errors are missing from the table, 2 could not run.
    """
    data, code = load_runs(options)
    sizes, sort = options.size or SIZES, options.sort or ()
    values = {name: words for name in FILTERS if (words := getattr(options, name)) is not None}
    filters = {name: selection.filter_values(data, name, words) for name, words in values.items()}
    runs = selection.select_runs(data, sizes, filters, sort)
    if not sort:
        runs.sort(key=lambda run: sizes.index(run.size))
    return runs_text(runs, options.columns or PAGE_COLUMNS, options.format), code


# -- schema

#: The model of each kind of file, loaded when it is asked for.
MODELS = {
    "accuracy": "memory.registries.AccuracyFile", "analysis": "registries.AnalysisFile",
    "architectures": "memory.architectures.ArchitectureFile", "cases": "memory.cases.CaseFile",
    "config_keys": "registries.ConfigKeyFile", "gpus": "registries.GpuFile", "run": "records.Run",
}  # fmt: skip


def schema_of(kind: str) -> str:
    """Return the JSON Schema of a kind of file."""
    module, _, name = MODELS[kind].rpartition(".")
    return schema_text(getattr(import_module(f".{module}", __package__), name))


@command(
    option("kind", nargs="?", choices=[*MODELS], help="kind of file; default: run, or all with --output"),
    option("--output", dest="folder", metavar="DIR", help="write to this directory instead"),
)
def schema(options: argparse.Namespace) -> tuple[str, int]:
    """Print or write the JSON Schemas of the data files.

    Examples:
      verl-resources schema run                    # print the schema of a run file
      verl-resources schema --output data/schema   # write all schemas

    Exit codes: 0 success, 2 could not run.
    """
    if not options.folder:
        return schema_of(options.kind or "run").rstrip("\n"), 0
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    for kind in [options.kind] if options.kind else MODELS:
        write_file(Path(options.folder, f"{kind}.json"), schema_of(kind))
    return "", 0
