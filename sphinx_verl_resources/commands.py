"""The command ``verl-resources``; and its commands ``check``, ``table``, ``export`` and ``schema``.

Exit codes of every command: 0 success, 1 problems found or does not fit, 2 could not run.
"""

from __future__ import annotations

import argparse
import inspect
import io
import json
import os
import secrets
import sys
from errno import ENOTDIR
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, NoReturn

from . import __version__, dataset, selection
from .check import Check, open_repository
from .diagnostics import NoAnswerError, counted, listed, one_line, printable
from .estimator.accuracy_records import AccuracyFile
from .estimator.architectures import ArchitectureFile
from .estimator.case_records import CaseFile
from .estimator.context import EstimatorContext
from .printed import CSV, FORMATS, JSON, download_texts, runs_text
from .records import PAGE_COLUMNS, SIZES, Links, Run
from .registries import AnalysisFile, ConfigKeyFile, GpuFile
from .run_cells import COMPUTED
from .selection import FILTERS
from .strict_yaml import MAX_BYTES
from .validation import schema_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .check import Repository
    from .dataset import DataFile, Directory
    from .diagnostics import Diagnostic

    #: The work of a command; it returns the result as text, and the exit code.
    Work = Callable[[argparse.Namespace], tuple[str, int]]

#: The module of each command, in the order of the help text; it is loaded when the command is asked for.
COMMANDS = {
    "new": "cli.new", "check": "commands", "table": "commands", "export": "commands",
    "estimate": "cli.estimate", "plan": "cli.plan", "diagnose": "cli.diagnose", "schema": "commands",
}  # fmt: skip
#: The modules with rules of the rooms, which register themselves.
RULES = ("estimator.rules", "settings.rules")


class UsageError(Exception):
    """A one-line reason why a command cannot run."""


# -- commands and their arguments

#: The arguments of ``ArgumentParser.add_argument``.
Option = tuple[tuple[str, ...], dict[str, Any]]


def option(*names: str, **settings: Any) -> Option:
    """Return an argument of a command."""
    return names, settings


DATA = option("--data", action="append", default=[], metavar="DIR", help="data directory; may be repeated")
FORMAT = option("--format", choices=("text", "json"), default="text", help="default: text")
OUTPUT = option("--output", dest="result_file", metavar="FILE", help="write the result to this file instead")
_PATHS = option("paths", nargs="*", metavar="PATH", help="data directory; for check also a path in one")


class Command(NamedTuple):
    """A command of ``verl-resources``: a function, and its arguments."""

    run: Work
    options: tuple[Option, ...]

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return self.run.__name__

    @property
    def paragraphs(self) -> list[str]:
        """The help: the purpose, the examples, and notes."""
        return (inspect.getdoc(self.run) or "").split("\n\n")

    def parser(self, prog: str = "") -> argparse.ArgumentParser:
        """Return the parser of its arguments."""
        purpose, *others = self.paragraphs
        parser = _Parser(
            prog=prog or f"verl-resources {self.name}",
            description=purpose,
            epilog="\n\n".join(others),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for names, settings in self.options:
            parser.add_argument(*names, **settings)
        return parser


class _Parser(argparse.ArgumentParser):
    """A parser whose errors take one line."""

    def error(self, message: str) -> NoReturn:
        """Raise a usage error."""
        raise UsageError(f"{message}; see {self.prog} --help")


def command(*options: Option) -> Callable[[Work], Command]:
    """Return a decorator that makes a function the command with its name.

    Its docstring is the help: a sentence, example command lines, and notes that end with the exit codes.
    """
    return lambda run: Command(run, options)


def command_named(name: str) -> Command:
    """Return a command."""
    found: Command = getattr(import_module(f".{COMMANDS[name]}", __package__), name)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Check and show the recorded hardware runs of verl's documentation; estimate GPU memory.

    See verl-resources COMMAND --help for examples. Problems go to standard error, one per line:
    path:line:col: LEVEL: message [code].

    Exit codes: 0 success, 1 problems or no fit, 2 could not run.
    """
    name, *words = [*(sys.argv[1:] if arguments is None else arguments)] or [""]
    code = 2
    try:
        if name not in COMMANDS:
            _explain([name] if name else [])
        chosen = command_named(name)
        # Words and options may come in any order, which subparsers do not support.
        options = chosen.parser().parse_intermixed_args(words)
        text, code = chosen.run(options)
        file = getattr(options, "result_file", None)
        if file and code != 2:
            write_file(Path(file), f"{text}\n")
        elif text and not file:
            _print(text)
    except BrokenPipeError:  # the reader has seen enough
        return code
    except (UsageError, NoAnswerError, OSError, UnicodeError) as error:
        print(f"verl-resources: {_reason(error)}", file=sys.stderr)
        return 2
    return code


def _explain(words: Sequence[str]) -> None:
    """Print the help or the version, and exit; raise a usage error for anything but a command."""
    version = option("--version", action="version", version=f"%(prog)s {__version__}")
    parser = Command(main, (version,)).parser("verl-resources")  # type: ignore[arg-type]
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        subparsers.add_parser(name, help=command_named(name).paragraphs[0])
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
        print(text, flush=True)
    except OSError:
        sys.stdout = io.StringIO()  # at exit, Python would try to write the rest
        raise


def report(problems: Sequence[Diagnostic]) -> bool:
    """Print problems to standard error, one per line, and return whether any is an error."""
    for problem in listed(problems):
        print(problem, file=sys.stderr)
    return any(problem.is_error for problem in problems)


# -- files that the user names


def open_file(name: str) -> BinaryIO:
    """Open a file of any size.

    Raises:
        OSError: it cannot be read or is not a regular file.
    """
    dataset.refuse_link_in_data(Path(name))
    dataset.refuse_irregular(Path(name))
    return Path(name).open("rb")


def read_file(name: str) -> DataFile:
    """Read a file, or the first part of one that is too large.

    Raises:
        OSError: it cannot be read or is not a regular file.
    """
    with open_file(name) as stream:
        return dataset.DataFile(Path(name), name, stream.read(MAX_BYTES + 1))


def read_text(name: str) -> str:
    """Read the text of a file.

    Raises:
        OSError: it cannot be read or is not a regular file.
        UsageError: it is not text.
    """
    try:
        return read_file(name).content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{printable(name)}: not UTF-8 text, at byte {error.start}") from None


def write_file(path: Path, text: str) -> None:
    """Write a whole file or nothing; a link is kept and its target replaced.

    Raises:
        OSError: it cannot be written, or is not a regular file.
    """
    target = Path(os.path.realpath(path))
    # Files whose names begin with a dot are not read as data.
    written = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        dataset.refuse_link_in_data(path)
        if target.exists():
            dataset.refuse_irregular(target)
        written.write_text(text, "utf-8", "backslashreplace")
        written.replace(target)
    except OSError as error:
        error.filename = path
        raise
    finally:
        written.unlink(missing_ok=True)


# -- data


def given_data(names: Sequence[str]) -> EstimatorContext:
    """Read the named directories after the bundled dataset, or the default one, if there is any.

    Raises:
        OSError: a path is not a directory with data.
    """
    return EstimatorContext(data_directories(names or default_data()))


def data_directories(names: Sequence[str]) -> list[Directory]:
    """Return the data directories of these paths.

    Raises:
        OSError: a path is not a directory with data.
    """
    for name in names:
        if dataset.DATA_NAMES.isdisjoint(path.name for path in Path(name).iterdir()):
            raise NotADirectoryError(ENOTDIR, "contains no data; give a folder that contains runs/", name)
    return [dataset.configured_directory(name, Path.cwd()) for name in names]


def default_data() -> list[str]:
    """Return ./data or the enclosing data directory; empty for the bundled dataset."""
    return first_with_data(Path("data"), Path.cwd(), *Path.cwd().parents)


def first_with_data(*folders: Path) -> list[str]:
    """Return the relative path of the first of these folders that contains data, or an empty list."""
    found = [folder for folder in folders if any((folder / name).exists() for name in dataset.DATA_NAMES)]
    return [os.path.relpath(folder) for folder in found[:1]]


# -- check


def load_check(names: Sequence[str], repository: Repository | None = None) -> Check:
    """Load data directories, or the bundled dataset, and all rules.

    Args:
        names: the paths of the directories.
        repository: a checkout of verl.

    Raises:
        OSError: a path is not a directory with data.
    """
    for module in RULES:
        import_module(f".{module}", __package__)
    directories = data_directories(names)
    return Check(EstimatorContext(directories), directories or [dataset.bundled_directory()], repository)


@command(
    _PATHS,
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
    default = ["data"] if Path("data").is_dir() else default_data()
    directories = sorted({_directory_of(path) for path in options.paths}) or default
    repository = None if options.repo is None else open_repository(options.repo, printable(options.repo))
    check = load_check(directories, repository)
    asked = {dataset.plain_path(Path(path)) for path in options.paths}
    problems = [each for each in check.problems() if not asked or asked & {*_upwards(each.place.path)}]
    errors = sum(problem.is_error for problem in problems)
    code = int(bool(errors or (options.strict and problems)))
    if options.format == "json":
        return json.dumps([_plain(problem) for problem in problems], indent=2), code
    report(problems)
    counts = {"run": len(check.files(dataset.RUNS)), "error": errors, "warning": len(problems) - errors}
    shown = ", ".join(printable(directory.shown) for directory in check.directories)
    return f"{shown}: {', '.join(counted(number, word) for word, number in counts.items())}", code


def _directory_of(path: str) -> str:
    """Return the data directory at or above a path, which must exist."""
    Path(path).lstat()
    return next(iter(first_with_data(*_upwards(path))), path)


def _upwards(path: str) -> tuple[Path, ...]:
    place = dataset.plain_path(Path(path))
    return place, *place.parents


def _plain(problem: Diagnostic) -> dict[str, Any]:
    place, level, code = problem.place, problem.severity.name, f"verl.{problem.code}"
    where = {"path": place.path, "line": place.line, "column": place.column, "level": level, "code": code}
    return {**where, "message": problem.named_message, "hint": problem.remedy}


# -- table and export

_CHOICES = {
    "size": f"size classes: {', '.join(SIZES)}",
    **{name: f"only runs {each.meaning}, such as {each.example}" for name, each in FILTERS.items()},
    "columns": "fields to show; default: as on the page",
    "sort": "fields to sort by; a leading - reverses the order; default: by size class, as on the page",
}


def _loaded(options: argparse.Namespace) -> tuple[EstimatorContext, int]:
    """Return the data, and exit code 1 if runs with errors are missing; print the problems."""
    data = given_data([*options.paths, *options.data])
    return data, int(report(data.diagnostics_of("runs", "accuracy")))


@command(
    _PATHS,
    DATA,
    *(option(f"--{name}", action="append", metavar="A,B,...", help=_CHOICES[name]) for name in _CHOICES),
    option("--format", choices=FORMATS, default="plain", help="format of the table; default: plain"),
    OUTPUT,
)
def table(options: argparse.Namespace) -> tuple[str, int]:
    """Print recorded runs as a table.

    Examples:
      verl-resources table --size 7B
      verl-resources table --gpu H100,H800 --train fsdp --sort=-gpus,model
      verl-resources table --format github --columns model,gpus,measured.gib,estimate.peak
      verl-resources table docs/data --format list-table --output runs.rst   # a table to paste

    Filters, fields and order are those of the verl-runs directive. Reverse an order with --sort=-added.

    Exit codes: 0 success, 1 runs with errors are missing from the table, 2 could not run.
    """
    from .views.estimate import run_texts_of

    given = {name: ",".join(words) for name in _CHOICES if (words := getattr(options, name)) is not None}
    columns = selection.columns(given["columns"], COMPUTED) if "columns" in given else PAGE_COLUMNS
    sizes = selection.sizes(given["size"]) if "size" in given else ()
    sort = selection.sort_fields(given["sort"], COMPUTED) if "sort" in given else ()
    data, code = _loaded(options)
    filters = tuple(
        (name, selection.filter_values(data, name, selection.phrases(given[name])))
        for name in FILTERS
        if name in given
    )
    runs = selection.select_runs(data, selection.RunSelection(sizes, filters, sort))
    if not sort:
        runs.sort(key=lambda run: (sizes or SIZES).index(run.size))
    computed = {run.id: run_texts_of(run, data) for run in runs} if COMPUTED.keys() & {*columns} else {}
    return runs_text(runs, columns, Links(), options.format, computed), code


@command(
    _PATHS,
    DATA,
    option("--format", choices=("json", "csv"), help="default: by the name of the file, otherwise json"),
    OUTPUT,
)
def export(options: argparse.Namespace) -> tuple[str, int]:
    """Export every recorded run with its estimate, for programs and spreadsheets.

    Examples:
      verl-resources export                               # print JSON
      verl-resources export --format csv                  # print a table for spreadsheets
      verl-resources export docs/data --output runs.csv   # write it to a file

    The results are verl-resources.json and verl-resources.csv, the downloads of the verl-downloads
    directive.

    Exit codes: 0 success, 1 runs with errors are missing from the export, 2 could not run.
    """
    from .answer.export import export_of

    data, code = _loaded(options)
    form = options.format or Path(options.result_file or "").suffix
    texts = download_texts(export_of(data, __version__))
    return texts[CSV if form.lower() in {"csv", ".csv"} else JSON].rstrip("\n"), code


# -- schema

#: The model of each kind of file.
MODELS: dict[str, type[Any]] = {
    "accuracy": AccuracyFile, "analysis": AnalysisFile, "architectures": ArchitectureFile, "cases": CaseFile,
    "config_keys": ConfigKeyFile, "gpus": GpuFile, "run": Run,
}  # fmt: skip


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
        return schema_text(MODELS[options.kind or "run"]).rstrip("\n"), 0
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    for kind in [options.kind] if options.kind else MODELS:
        write_file(Path(options.folder, f"{kind}.json"), schema_text(MODELS[kind]))
    return "", 0
