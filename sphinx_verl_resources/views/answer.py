"""An answer in sentences: related recorded runs, and measured runs of the same kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from ..i18n import N_, _, plural
from ..nodes import between_commas, titled
from ..records import WORDS
from ..texts import WORD_TEXTS, run_title
from .verdicts import as_title, in_a_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sphinx.addnodes import pending_xref
    from sphinx.environment import BuildEnvironment

    from ..answer.answer import Answer
    from ..answer.evidence import Trust

NO_RUN = N_("No recorded run is comparable.")
#: Prefix of a run's evidence word if it is not comparable, only the smallest of its model.
SMALLEST = "smallest-"

#: Maximum number of recorded runs to show.
_MOST = 3

#: Class of a text that explains a table.
LEGEND_CLASS = "verl-legend"


def row_link(env: BuildEnvironment, run: str, text: str) -> pending_xref:
    """Return a link to the row of a run; if no page shows the run, it becomes the text and the id."""
    from ..domain import RUN, link_later  # commands use this module without Sphinx

    return link_later(env, RUN, run, text, nodes.Text(f"{text} ({run})"))


def legend(text: str) -> nodes.paragraph:
    """Make the paragraph that explains a table."""
    return nodes.paragraph("", text, classes=[LEGEND_CLASS])


def titled_item(title: str, content: str | Sequence[nodes.Node]) -> nodes.list_item:
    """Make a list item that begins with a bold title."""
    return nodes.list_item("", nodes.paragraph("", "", *titled(nodes.strong("", title), content)))


def evidence_items(
    found: Answer, own: str | None, link: Callable[[str, str], nodes.Node]
) -> Iterator[nodes.list_item]:
    """Yield the recorded runs related to an answer, by their evidence word.

    Args:
        found: the answer.
        own: the id of the recorded run that it is about; if that ran, no other run is shown.
        link: a function that makes a link to the row of a run, from its id and a text.
    """
    has_run = any((run.id, run.word) == (own, "ran") for run in found.evidence)
    others = [] if has_run else [run for run in found.evidence if run.id != own]
    for word in WORDS:
        runs = [run for run in others[:_MOST] if run.word == word]
        if runs:
            title = as_title(_(WORD_TEXTS[word]))
            yield titled_item(title, between_commas(link(run.id, run_title(run)) for run in runs))


def measured_text(trust: Trust) -> str:
    """Return a sentence with the number of measured runs of this kind and the average error."""
    if trust.mean_error is None:
        return _("No run of this kind was measured.")
    return plural(
        "One run of this kind was measured; its estimate was {share} % off.",
        "{count} runs of this kind were measured; their estimates were {share} % off on average.",
        trust.measured_runs,
    ).format(count=trust.measured_runs, share=round(100 * trust.mean_error))


def trust_text(trust: Trust) -> str:
    """Return ``measured_text``, and the smallest recorded run if the estimate is below it."""
    text = measured_text(trust)
    if trust.undercuts and trust.smallest:
        below = _("No such run of this model used so little GPU memory; the smallest is {run}.")
        text = in_a_row(text, below.format(run=run_title(trust.smallest)))
    return text
