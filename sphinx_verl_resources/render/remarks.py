"""Remarks of the analysis: marks where they belong, and the list that they lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from .runs import NOTES_CLASS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..catalog.links import Links
    from ..catalog.models.analysis import Remark, Source, VerlState

#: The attribute of a target that tells its number.
NUMBER = "verl_number"


def place_remarks(
    remarks: Iterable[Remark], document: nodes.document
) -> tuple[dict[str, list[tuple[str, str]]], list[tuple[Remark, nodes.target]]]:
    """Number the remarks of a page.

    A remark that the page has already keeps its number, and marks lead to where it stands.

    Returns:
        Marks by what they are about, and the remarks that are new to the page with their targets.
    """
    marks: dict[str, list[tuple[str, str]]] = {}
    new: list[tuple[Remark, nodes.target]] = []
    for remark in remarks:
        anchor = f"verl-remark-{remark.name}"
        target = document.ids.get(anchor)
        if target is None:
            number = 1 + sum(NUMBER in node for node in document.ids.values())
            target = nodes.target("", "", ids=[anchor])
            target[NUMBER] = number
            document.ids[anchor] = target
            new.append((remark, target))
        mark = f"[{target[NUMBER]}]"
        for subject in remark.about:
            marks.setdefault(subject, []).append((mark, anchor))
    return marks, new


def remark_list(
    placed: Sequence[tuple[Remark, nodes.target]], verl: VerlState | None, links: Links
) -> list[nodes.Element]:
    """The remarks under a sentence that says what they are, each with its sources."""
    if not placed:
        return []
    as_of = f", as of {verl.date.isoformat()}" if verl else ""
    title = nodes.paragraph("", f"Where verl works differently{as_of}:", classes=["verl-notes-title"])
    items = nodes.enumerated_list(classes=[NOTES_CLASS], enumtype="arabic", prefix="", suffix=".")
    if placed[0][1][NUMBER] > 1:
        items["start"] = placed[0][1][NUMBER]
    for remark, target in placed:
        paragraph = nodes.paragraph("", "", target, nodes.Text(" ".join(remark.text.split())))
        for index, source in enumerate(remark.sources):
            paragraph += nodes.Text(" (" if index == 0 else ", ")
            paragraph += _source(source, verl, links)
        paragraph += nodes.Text(")")
        items += nodes.list_item("", paragraph)
    return [title, items]


def _source(source: Source, verl: VerlState | None, links: Links) -> nodes.Node:
    if source.path is None:
        return nodes.reference("", source.text or "", refuri=source.url)
    name = source.path.rsplit("/", 1)[-1]
    if verl is None:
        return nodes.Text(name)
    return nodes.reference("", name, refuri=links.file(verl.ref, source.path, source.lines))
