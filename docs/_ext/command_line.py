"""``.. docs-commands:: GROUP``: the command reference, generated from the parsers."""

from __future__ import annotations

import argparse
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from reference_lists import Generated

from sphinx_verl_resources.cli.main import all_commands, build_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

    from sphinx_verl_resources.cli.command import Command

#: Commands by audience, in the order of the page.
GROUPS = {
    "contributors": ("new", "check"),
    "maintainers": ("backtest", "export", "schema"),
    "readers": ("plan", "diagnose", "estimate", "table"),
}
_PROGRAM = "verl-resources"


class Commands(Generated):
    """A section for each command of a group."""

    required_arguments = 1

    def lines(self) -> Iterator[str]:
        commands = {command.name: command for command in all_commands()}
        parsers = build_parser()[1]
        for name in GROUPS[self.arguments[0]]:
            yield from _command(commands[name], parsers[name])


def _command(command: Command, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from (f".. _command-{command.name}:", "", command.name, "." * len(command.name), "")
    yield from (f".. program:: {_PROGRAM} {command.name}", "", str(parser.description), "")
    yield from (".. code-block:: text", "")
    parser.formatter_class = partial(
        argparse.RawDescriptionHelpFormatter, width=80
    )  # independent of the terminal
    usage = parser.format_usage().removeprefix("usage: ")
    yield from (f"   {line}" for line in usage.splitlines())
    yield ""
    for action in parser._actions:
        if action.dest != "help":
            yield from _option(action, parser)
    yield from ("Examples:", "", ".. code-block:: console", "")
    for line, does in command.lines.items():
        if does:
            yield f"   # {does}"
        yield f"   $ {line}"
    yield from ("", _plain(command.notes), "", f"Exit codes: {command.exit_codes}", "")


def _option(action: argparse.Action, parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield an option, or an argument with its placeholder."""
    metavar = str(action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else ""))
    takes = f" {metavar or action.dest.upper()}" if action.nargs != 0 else ""
    names = [f"{name}{takes}" for name in action.option_strings] or [metavar or action.dest]
    text = (action.help or "") % {"default": action.default, "prog": parser.prog}
    yield from (f".. option:: {', '.join(names)}", "", f"   {_plain(text[:1].upper() + text[1:])}.", "")


def _plain(text: str) -> str:
    """Escape a terminal's text for reStructuredText."""
    return re.sub(r"([\\*`|_])", r"\\\1", text)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("docs-commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
