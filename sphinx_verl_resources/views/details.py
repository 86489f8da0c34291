"""Blocks that readers can unfold: a summary, and the content below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

DETAILS_CLASS = "verl-details"


class verl_details(nodes.General, nodes.Element):  # noqa: N801 - docutils names nodes in lower case
    """A block that HTML can fold; its first child is a ``verl_summary``."""


class verl_summary(nodes.General, nodes.TextElement):  # noqa: N801
    """The visible line of a folded block."""


def details(summary: Sequence[nodes.Node], content: Sequence[nodes.Node]) -> verl_details:
    """Make a folded block.

    Args:
        summary: inline nodes.
        content: the folded part.
    """
    block = verl_details(classes=[DETAILS_CLASS])
    block += verl_summary("", "", *summary)
    block += list(content)
    return block
