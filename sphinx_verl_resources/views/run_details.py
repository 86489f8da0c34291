"""The details of a run below its row: how it is known, where it can be checked, its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from ..catalog.fields import every_field
from ..estimator.recorded import possible
from ..i18n import N_, _
from ..settings.writing import overrides
from ..units import GIB, gib, gib_number
from .answer import evidence_items
from .blocks import between_commas, code_block, fill, listed, notes_title, titled_item
from .estimate import answer
from .runs import run_cell, run_title, status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..answer.answer import Answer
    from ..catalog.links import Links
    from ..catalog.models.run import Run
    from ..estimator.estimate import Estimate
    from .runs import Piece

LIST_CLASS = "verl-facts"
INCOMPLETE = N_("The source quotes only some of the settings, so there is no estimate.")
NO_SETTINGS = N_("No settings are recorded, so there is no estimate.")


def summary(run: Run, capacity: float | None, estimate: Estimate | None) -> list[nodes.Node]:
    """Make the line above the details: the run, how it is known, its peak and capacity, its evidence.

    Args:
        run: the record.
        capacity: bytes that its GPU offers, if that is known.
        estimate: from complete settings; None without.
    """
    facts = [status(run), _peak(run, capacity, estimate)]
    if run.evidence or run.script:
        found = dict.fromkeys(item.kind for item in run.evidence)
        found.update(dict.fromkeys(["script"] if run.script else []))
        facts.append(_("evidence: {kinds}").format(kinds=listed(list(found))))
    return fill(_("{run}: {facts}"), run=nodes.strong("", run_title(run)), facts=_("; ").join(facts))


def _peak(run: Run, capacity: float | None, estimate: Estimate | None) -> str:
    """Return the measured and the estimated peak, as far as they are known."""
    figures = []
    if run.measured and run.measured.gib:
        figures.append(_("measured {peak}").format(peak=gib_number(run.measured.gib * GIB)))
    high = possible(estimate, estimate.high) if estimate and not estimate.undecided else None
    if estimate and high is not None:
        span = _("{low} to {high}").format(low=gib_number(estimate.low), high=gib_number(high))
        figures.append(_("estimated {peak}").format(peak=span))
    if not figures:
        return _("peak not recorded")
    if capacity is None:
        return _("peak {figures} GiB").format(figures=listed(figures))
    return _("peak {figures} of {capacity}").format(figures=listed(figures), capacity=gib(capacity))


def verdict(run: Run, found: Answer | None, link: Callable[[str, str], nodes.Node]) -> list[nodes.Node]:
    """Make the answer about a run, or the reason why there is none.

    Args:
        run: the record.
        found: the answer; None without complete settings.
        link: makes a link to the row of another run, from its id and a text.
    """
    if found is not None:
        return answer(found, run.measured, evidence_items(found, run.id, link))
    return [nodes.paragraph("", _(INCOMPLETE if run.settings else NO_SETTINGS))]


def facts(run: Run, links: Links, edit: str) -> nodes.bullet_list:
    """Make the list of facts: status, versions, script, evidence.

    Args:
        run: the record.
        links: makes the addresses.
        edit: the address at which its file is edited; empty if that is not known.
    """
    items = nodes.bullet_list(classes=[LIST_CLASS])
    items += titled_item(_("Status"), [nodes.Text(_status(run))])
    for field in every_field().values():
        if field.detail and field.value(run) is not None:
            make = _TEXTS.get(field.name)
            content = [nodes.Text(make(run))] if make else _linked(run_cell(run, field, links).pieces)
            items += titled_item(_(field.detail), content)
    if edit:
        link = nodes.reference("", _("Edit this row"), refuri=edit)
        items += nodes.list_item("", nodes.paragraph("", "", link))
    return items


def _engine(run: Run) -> str:
    assert run.infer
    version = run.infer.version or _("version not recorded")
    return f"{run.infer.engine} {version}"


def _versions(run: Run) -> str:
    assert run.versions
    named = (("verl", run.versions.verl), ("PyTorch", run.versions.torch))
    return listed([f"{name} {version}" for name, version in named if version])


#: Fields of which the details say more than their column.
_TEXTS = {"infer": _engine, "versions": _versions}


def _status(run: Run) -> str:
    text = status(run)
    if run.contributor:
        text = _("{status}, contributed by {name}").format(status=text, name=run.contributor.name)
    if run.added:
        text = _("{status}, in the data since {date}").format(status=text, date=run.added.isoformat())
    return text


def _linked(pieces: Sequence[Piece]) -> list[nodes.Node]:
    """Make the nodes of texts with their addresses, with commas between."""
    return between_commas(
        nodes.reference("", text, refuri=address) if address else nodes.Text(text) for text, address in pieces
    )


def flags(run: Run) -> list[nodes.Node]:
    """Make the block with the settings as arguments of verl's launcher, to be copied."""
    if not run.settings:
        return []
    code = " \\\n".join(overrides(run.settings))
    return [notes_title(_("The settings, as overrides:")), code_block(code, "bash", "verl-flags")]
