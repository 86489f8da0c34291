"""A converter of examples from reStructuredText to MyST Markdown."""

from __future__ import annotations

import re
import textwrap

_DIRECTIVE = re.compile(r"^\.\. ([\w-]+)::(.*)\n((?:   .*\n|\n(?=   ))*)", re.MULTILINE)
_ROLE = re.compile(r":verl:([a-z]+):(?=`)")


def in_myst(text: str) -> str:
    r"""Convert directives to fenced blocks, and roles to braces.

    >>> print(in_myst(".. verl-gpus:: H100\n   :caption: One\n\nSee :verl:gpu:`H100`.\n"), end="")
    ```{verl-gpus} H100
    :caption: One
    ```
    <BLANKLINE>
    See {verl:gpu}`H100`.
    """
    return _ROLE.sub(r"{verl:\1}", _DIRECTIVE.sub(_fenced, text))


def _fenced(match: re.Match[str]) -> str:
    name, argument, inside = match.groups()
    return f"```{{{name}}}{argument}\n{textwrap.dedent(inside)}```\n"
