"""``verl-resources completion``: what a shell needs to complete commands, options, choices and files."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from ..catalog.names import ENGINES, KINDS, SIZES, TAGS, TRAIN_BACKENDS
from ..estimator.planner import TASKS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

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
    """The arguments of the command."""
    parser.add_argument("shell", choices=SHELLS, help="whose language the script is in")


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    try:
        import shtab
    except ImportError:
        print(
            "verl-resources: completion needs the library shtab, which is not installed; "
            "pip install 'sphinx-verl-resources[completion]'",
            file=sys.stderr,
        )
        return 2
    from .main import build_parser

    parser, commands = build_parser()
    for command in commands.values():
        _say_what_completes(command._actions, shtab.FILE, shtab.DIRECTORY)
    print(shtab.complete(parser, shell=options.shell))
    return 0


def _say_what_completes(actions: Iterable[Any], file: object, directory: object) -> None:
    """Have words and files offered where an argument takes them; its metavar says what it takes."""
    for action in actions:
        if action.choices is None and action.dest in _WORDS:
            action.choices = _WORDS[action.dest]
        elif takes_directory(action):
            action.complete = directory
        elif takes_file(action):
            action.complete = file


def takes_directory(action: argparse.Action) -> bool:
    """Whether a directory stands there, and no file."""
    return action.metavar == "DIR"


def takes_file(action: argparse.Action) -> bool:
    """Whether a file may stand there."""
    return re.search(r"FILE|PATH|\.(yaml|rst)\b", str(action.metavar or "")) is not None
