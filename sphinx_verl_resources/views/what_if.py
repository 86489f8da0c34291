"""The what-if form as nodes: its fields, the answer to its first choice, and the text for other formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes

from ..i18n import N_, _
from ..nodes import between_commas, details, fill, titled, verl_details
from ..texts import WORD_TEXTS
from .answer import SMALLEST
from .verdicts import as_title, mark, stop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .what_if_answers import Shown

    Link = Callable[[str, str], nodes.Node]

FORM_CLASS = "verl-what-if"
#: Prefix of the class of an answer's line, before the name of the line.
LINE_CLASS = "verl-if-"
#: Class of the part of a line that the script replaces.
TEXT_CLASS = "verl-if-text"
#: Class of the sentence about a table that not every page has.
FEWEST_CLASS = "verl-if-fewest"
#: The lines for recorded runs, with their titles, by the evidence word of the runs.
NAMED: Mapping[str, str] = {
    "ran": WORD_TEXTS["ran"],
    "reported": WORD_TEXTS["reported"],
    SMALLEST + "ran": N_("smallest that ran"),
    SMALLEST + "reported": N_("smallest reported"),
}


class verl_what_if(nodes.container):  # noqa: N801 - docutils names nodes in lower case
    """A form with an answer; for builders without forms, a container.

    Attributes:
        fields: see ``fields_of``.
        data: the data of the script, for JSON.
        runs: the ids of the recorded runs that the links in its last child point to.
    """


class verl_if_line(nodes.paragraph):  # noqa: N801
    """A line of an answer.

    Attributes:
        is_used: whether it has content for the first choice.
    """


class verl_if_actions(nodes.container):  # noqa: N801
    """The actions below an answer in a browser.

    Attributes:
        command: the command to copy.
        script: the address of a launch script and the title of its run; both empty without one.
    """


def form(
    fields: Sequence[Mapping[str, Any]],
    data: Mapping[str, Any],
    shown: Shown,
    runs: Mapping[str, str],
    link: Link,
    more: nodes.Node,
    remedies: nodes.Node,
) -> verl_what_if:
    """Return the form with the answer to its first choice.

    Args:
        fields: see ``fields_of``.
        data: see ``shared_data``.
        shown: that answer.
        runs: by id, the titles of the recorded runs in all answers.
        link: a function that makes a link to the row of a run, from its id and a text.
        more: a link to the page about the estimator.
        remedies: a link to the page on running out of memory.
    """
    answer = nodes.container("", *_lines(shown, link), classes=["verl-if-answer"])
    actions = [_why(shown, more), nodes.inline("", "", remedies)]
    answer += verl_if_actions(
        "", *actions, classes=["verl-if-actions"], command=shown.command, script=shown.script
    )
    links = nodes.paragraph("", "", *(link(run, title) for run, title in runs.items()))
    return verl_what_if(
        "",
        _elsewhere(shown),
        answer,
        links,
        classes=[FORM_CLASS],
        fields=list(fields),
        data=dict(data),
        runs=list(runs),
    )


def _elsewhere(shown: Shown) -> nodes.paragraph:
    """Return the instructions for readers without the form."""
    text = _("With JavaScript, this page answers other questions too. Without it, run {command}.{table}")
    content = fill(
        text,
        command=nodes.literal("", shown.plan),
        table=nodes.inline("", _(" The table of the fewest GPUs is on this page."), classes=[FEWEST_CLASS]),
    )
    return nodes.paragraph("", "", *content, classes=[LINE_CLASS + "elsewhere"])


def _lines(shown: Shown, link: Link) -> list[nodes.Node]:
    """Return the lines of an answer; the script fills in the empty ones."""
    texts, is_to_change = shown.lines, shown.badge[0] != "fits"
    problem = nodes.inline(classes=[LINE_CLASS + "problem"])
    return [
        _line("asked", [_text(texts["asked"])]),
        _line("verdict", [problem, mark(*shown.badge), stop(), nodes.Text(" "), _text(texts["verdict"])]),
        _line("none", [_text(texts["none"])], is_used=bool(texts["none"])),
        *(_titled(name, as_title(_(text)), *_links(shown, name, link)) for name, text in NAMED.items()),
        _titled("estimated", _("Estimated"), nodes.Text(texts["estimated"])),
        _titled("trust", _("How sure"), nodes.Text(texts["trust"])),
        _titled("change", _("To make it fit"), nodes.Text(texts["change"])),
        _titled("plan", _("To find settings"), nodes.literal("", shown.plan), is_used=is_to_change),
        _titled("host", _("Host memory"), nodes.Text(texts["host"])),
    ]


def _links(shown: Shown, name: str, link: Link) -> list[nodes.Node]:
    links = between_commas(link(run, title) for run, title, line, _script in shown.runs if line == name)
    return fill(shown.lines["smallest"], run=links) if links and name.startswith(SMALLEST) else links


def _why(shown: Shown, more: nodes.Node) -> verl_details:
    """Return the folded block with the basis of the answer."""
    content = [
        _titled("phase", _("Peak phase"), nodes.Text(shown.lines["phase"])),
        nodes.paragraph("", "", nodes.Text(shown.rests_on), nodes.Text(" "), more),
    ]
    return details([nodes.Text(_("Why"))], content, LINE_CLASS + "why")


def _text(text: str, *content: nodes.Node) -> nodes.inline:
    # The script replaces this text, so Sphinx must not change its quotation marks.
    return nodes.inline("", text, *content, classes=[TEXT_CLASS], support_smartquotes=False)


def _line(name: str, content: Sequence[nodes.Node], *, is_used: bool = True) -> verl_if_line:
    return verl_if_line("", "", *content, classes=[LINE_CLASS + name], is_used=is_used, translatable=0)


def _titled(name: str, title: str, *content: nodes.Node, is_used: bool | None = None) -> verl_if_line:
    """Return a line that begins with a title; it is used if it has content."""
    if is_used is None:
        is_used = any(node.astext() for node in content)
    return _line(name, titled(nodes.strong("", title), [_text("", *content)]), is_used=is_used)
