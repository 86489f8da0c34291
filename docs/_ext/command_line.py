"""``.. docs-commands:: GROUP``: the reference of commands, made from the parsers that read them."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from reference_lists import Generated

from sphinx_verl_resources.cli.main import COMMANDS, build_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

    from sphinx_verl_resources.cli.command import Command

#: Whom each command is for, in the order of the page.
GROUPS = {
    "contributors": ("new", "check", "completion"),
    "maintainers": ("import-rst", "backtest", "export", "schema"),
    "readers": ("plan", "estimate", "table"),
}
_PROGRAM = "verl-resources"


@dataclass(frozen=True)
class Help:
    """The parts of what stands below the options of a command.

    Attributes:
        examples: pairs of a command line and what is said of it, which may be nothing.
        text: paragraphs.
        exit_codes: the last sentence.
    """

    examples: tuple[tuple[str, str], ...]
    text: tuple[str, ...]
    exit_codes: str


def help_of(text: str) -> Help:
    """The parts of an epilog: examples, paragraphs, and the exit codes at its end."""
    examples: list[tuple[str, str]] = []
    paragraphs: list[str] = []
    codes = ""
    for block in text.strip().split("\n\n"):
        lines = block.splitlines()
        if lines[0] == "examples:":
            examples += [_example(line) for line in _whole_lines(lines[1:])]
            continue
        begins = next(
            (index for index, line in enumerate(lines) if line.startswith("Exit codes: ")), len(lines)
        )
        said, codes = lines[:begins], codes or " ".join(lines[begins:])
        if said:
            paragraphs.append(" ".join(said))
    return Help(tuple(examples), tuple(paragraphs), codes.removeprefix("Exit codes: "))


def _whole_lines(lines: list[str]) -> Iterator[str]:
    """Lines, with those that go on behind a backslash put together."""
    joined = ""
    for line in lines:
        joined += line.strip() if joined else line
        if joined.endswith("\\"):
            joined = joined[:-1].rstrip() + " "
            continue
        yield joined
        joined = ""


def _example(line: str) -> tuple[str, str]:
    """A command and what is said of it, which stands behind two blanks at least."""
    command, _, meaning = re.sub(r"\s{2,}(# )?", "\0", line.strip()).partition("\0")
    return command, meaning


class Commands(Generated):
    """The commands of a group, a section each."""

    required_arguments = 1

    def lines(self) -> Iterator[str]:
        commands = {command.name: command for command in COMMANDS}
        parsers = build_parser()[1]
        for name in GROUPS[self.arguments[0]]:
            yield from _command(commands[name], parsers[name])


def _command(command: Command, parser: argparse.ArgumentParser) -> Iterator[str]:
    said = help_of(command.examples)
    yield from (f".. _command-{command.name}:", "", command.name, "." * len(command.name), "")
    yield from (f".. program:: {_PROGRAM} {command.name}", "", str(parser.description), "")
    yield from (".. code-block:: text", "")
    parser.formatter_class = partial(
        argparse.RawDescriptionHelpFormatter, width=80
    )  # whoever builds the page
    usage = parser.format_usage().removeprefix("usage: ")
    yield from (f"   {line}" for line in usage.splitlines())
    yield ""
    for action in parser._actions:
        if action.dest != "help":
            yield from _option(action, parser)
    if said.examples:
        yield from ("Examples:", "", ".. code-block:: console", "")
        for example, meaning in said.examples:
            if meaning:
                yield f"   # {meaning}"
            yield f"   $ {example}"
        yield ""
    for paragraph in said.text:
        yield from (_plain(paragraph), "")
    yield from (f"Exit codes: {said.exit_codes}", "")


def _option(action: argparse.Action, parser: argparse.ArgumentParser) -> Iterator[str]:
    """An option, or an argument by the word that stands for it."""
    metavar = str(action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else ""))
    takes = f" {metavar or action.dest.upper()}" if action.nargs != 0 else ""
    names = [f"{name}{takes}" for name in action.option_strings] or [metavar or action.dest]
    text = (action.help or "") % {"default": action.default, "prog": parser.prog}
    yield from (f".. option:: {', '.join(names)}", "", f"   {_plain(text[:1].upper() + text[1:])}.", "")


def _plain(text: str) -> str:
    """Text of a terminal, which reStructuredText leaves as it is."""
    return re.sub(r"([\\*`|_])", r"\\\1", text)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("docs-commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
