"""Remarks of the analysis: marks next to figures, and the lists that the marks link to.

The order of remarks is known only when a page is written, because ``only`` and joined pages change it. Until
then marks and lists are placeholders, and remarks have names instead of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from docutils import nodes

from ..i18n import _
from .blocks import notes_title, numbered_notes, recorded
from .table import BEFORE_MARK

if TYPE_CHECKING:
    from ..analysis_records import Remark, Source, VerlState
    from ..links import Links
    from .table import verl_marks

#: A function that returns the names of the remarks about a subject.
Marks = Callable[[str], Sequence[str]]


def no_marks(subject: str) -> Sequence[str]:
    """Return no names, for remarks that have their marks elsewhere."""
    return ()


class verl_remarks(nodes.General, nodes.Element):  # noqa: N801 - docutils names nodes in lower case
    """A list that is numbered when the page is written: a heading, a paragraph per remark, a last paragraph.

    Attributes:
        remarks: names of the remarks, in the order of the paragraphs.
    """


def remark_list(
    remarks: Sequence[Remark], verl: VerlState | None, links: Links, more: nodes.Element
) -> verl_remarks:
    """Return a list of remarks with their sources, below a heading; ``more`` ends the list."""
    if verl:
        title = _("Where verl works differently, as of {date}:").format(date=verl.date.isoformat())
    else:
        title = _("Where verl works differently:")
    content = verl_remarks("", remarks=[remark.name for remark in remarks])
    content += notes_title(title)
    for remark in remarks:
        paragraph = recorded(remark.text)
        for index, source in enumerate(remark.sources):
            paragraph += nodes.Text(" (" if index == 0 else ", ")
            paragraph += _source(source, verl, links)
        paragraph += nodes.Text(")")
        content += paragraph
    content += notes_title(more)
    return content


def _source(source: Source, verl: VerlState | None, links: Links) -> nodes.Node:
    if source.path is None:
        return nodes.reference("", source.text or "", refuri=source.url)
    name = source.path.rsplit("/", 1)[-1]
    if verl is None:
        return nodes.Text(name)
    return nodes.reference("", name, refuri=links.file(verl.ref, source.path, source.lines))


class Numbering:
    """The numbers of a page's remarks, in the order of their marks."""

    def __init__(self) -> None:
        """Start without numbers."""
        self._numbers: dict[str, int] = {}
        self._listed: set[str] = set()

    def mark(self, placeholder: verl_marks) -> None:
        """Replace a placeholder with the numbers of its remarks."""
        references: list[nodes.Node] = []
        for name in placeholder["remarks"]:
            number = self._numbers.setdefault(name, len(self._numbers) + 1)
            reference = nodes.reference("", f"[{number}]", refid=_anchor(name), internal=True)
            reference["classes"].append("verl-mark")
            references += [nodes.Text(BEFORE_MARK), reference]
        placeholder.replace_self(references)

    def list(self, placeholder: verl_remarks) -> None:
        """Replace a placeholder with its remarks that have a mark and are not listed yet."""
        title, *paragraphs, more = placeholder.children
        texts = dict(zip(placeholder["remarks"], paragraphs, strict=True))
        new = [name for name in self._numbers if name in texts and name not in self._listed]
        # Once on a page, and only if its link has a target.
        below = [] if self._listed or not more.astext() else [more]
        self._listed.update(new)
        if not new:
            placeholder.parent.remove(placeholder)
            return
        for name in new:
            texts[name].insert(0, nodes.target("", "", ids=[_anchor(name)]))
        notes = numbered_notes(*(texts[name] for name in new), start=self._numbers[new[0]])
        notes.source, notes.line = placeholder.source, placeholder.line
        placeholder.replace_self([title, notes, *below])


def _anchor(name: str) -> str:
    return f"verl-remark-{name}"
