"""Changes in words, for pages and terminals: the settings, the peak that remains, and the cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from ..i18n import N_, _
from ..nodes import fill
from ..units import gib
from .verdicts import in_a_row, label

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..answer.answer import Answer
    from ..answer.changes import Change
    from ..answer.suggestions import Cost

#: Maximum number of changes to show.
MOST = 3
COSTS: Mapping[Cost, str] = {
    "none": N_("costs no time"),
    "little": N_("costs little time"),
    "much": N_("costs a lot of time"),
}
_TEXT = N_("{settings}: {peak} (up to {high}), {cost}.")
_TEXT_WITH_VERDICT = N_("{settings}: {peak} (up to {high}), {cost}: {verdict}.")


def heading(changes: Sequence[Change], *, likely: bool) -> str:
    """Return the title of some changes.

    Args:
        changes: at least one.
        likely: whether the run may fit without them.
    """
    if changes[0].verdict != "fits":
        return _("Nothing makes it fit; this comes closest")
    return _("If it runs out of memory") if likely else _("What makes it fit")


def change_text(change: Change) -> str:
    """Return a change as a sentence, with its caveats.

    >>> from sphinx_verl_resources.answer.changes import Change
    >>> settings = ("trainer.nnodes=2", "trainer.n_gpus_per_node=8")
    >>> change_text(Change({}, settings, 61.2 * 2**30, 66.0 * 2**30, "fits", "none"))
    'trainer.nnodes=2 trainer.n_gpus_per_node=8: 61.2 GiB (up to 66.0 GiB), costs no time.'
    """
    settings = " ".join(change.arguments)
    return "".join(node.astext() for node in _sentence(change, settings, change.caveats))


def change_item(change: Change, caveats: Sequence[str]) -> nodes.list_item:
    """Make a list item for a change, with some of its caveats."""
    settings = nodes.literal("", " ".join(change.arguments))
    return nodes.list_item("", nodes.paragraph("", "", *_sentence(change, settings, caveats)))


def _sentence(change: Change, settings: str | nodes.Node, caveats: Sequence[str]) -> list[nodes.Node]:
    text = _TEXT if change.verdict == "fits" else _TEXT_WITH_VERDICT
    return fill(
        in_a_row(_(text), *map(_, caveats)),
        settings=settings,
        peak=gib(change.peak),
        high=gib(change.high),
        cost=_(COSTS[change.cost]),
        verdict=label(change.verdict),
    )


def changes_item(found: Answer) -> list[nodes.Node]:
    """Make the item with the changes that make a run fit, the most advisable first; none if it fits.

    Each caveat is shown once, with the first change that has it.
    """
    changes, best = found.changes[:MOST], found.best.estimate
    if not changes:
        return []
    items, told = nodes.bullet_list(), set[str]()
    for change in changes:
        items += change_item(change, [text for text in change.caveats if text not in told])
        told.update(change.caveats)
    title = heading(changes, likely=best.ran or best.verdict != "does-not-fit")
    first = nodes.paragraph("", "", *fill(_("{title}:"), title=nodes.strong("", title)))
    return [nodes.list_item("", first, items)]
