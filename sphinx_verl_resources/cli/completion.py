"""``verl-resources completion``: what a shell needs to complete commands, options, choices and files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..catalog.names import ENGINES, KINDS, SIZES, TAGS, TRAIN_BACKENDS
from ..estimator.planner import TASKS
from .terminal import UsageError

if TYPE_CHECKING:
    import argparse

NAME = "completion"
HELP = "print a script with which a shell completes commands, options and file names"
EXAMPLES = """\
examples:
  verl-resources completion bash > verl-resources.bash
  verl-resources completion zsh > _verl-resources

Source the first in ~/.bashrc; put the second into a folder of zsh's $fpath. It needs the library shtab:
pip install 'sphinx-verl-resources[completion]'.

Exit codes: 0 good, 2 could not run."""
SHELLS = ("bash", "zsh", "tcsh")
#: Options whose values are known, though others may stand there too.
_WORDS: dict[str, tuple[str, ...]] = {
    "size": SIZES, "tag": TAGS, "kind": KINDS, "train": TRAIN_BACKENDS, "infer": ENGINES,
    "task": tuple(TASKS),
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("shell", choices=SHELLS, help="whose language the script is in")


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    try:
        import shtab
    except ImportError:
        raise UsageError(
            "completion needs the library shtab, which is not installed; "
            "pip install 'sphinx-verl-resources[completion]'"
        ) from None
    for command in options.commands:
        _mark_completions(command, shtab.FILE, shtab.DIRECTORY)
    print(shtab.complete(options.parser, shell=options.shell))
    return 0


def _mark_completions(command: argparse.ArgumentParser, file: object, directory: object) -> None:
    """Offer words and files for the arguments that take them; the metavar tells which do."""
    action: Any
    for action in command._actions:  # argparse has no other way, and shtab reads the same list
        if action.choices is None and action.dest in _WORDS:
            action.choices = _WORDS[action.dest]
        elif takes_directory(action):
            action.complete = directory
        elif takes_file(action):
            action.complete = file


def takes_directory(action: argparse.Action) -> bool:
    """Return whether an argument takes a directory, and no file."""
    return action.metavar == "DIR"


def takes_file(action: argparse.Action) -> bool:
    """Return whether an argument may be a file."""
    return re.search(r"FILE|PATH|\.(yaml|rst)\b", str(action.metavar or "")) is not None
