"""The details of a run below its row: status, evidence, verdict and settings."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from docutils import nodes

from ..answer.command import SEPARATOR, launcher
from ..estimator.recorded import figures, has_own_rollout_gpus, version_of_run
from ..fields import every_field
from ..i18n import N_, _
from ..units import GIB, gib, gib_number
from .answer import evidence_items
from .blocks import between_commas, code_block, fill, in_a_row, listed, notes_title, titled, titled_item
from .estimate import answer, measured_text
from .runs import note_target, run_cell, run_title, status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..answer.answer import Answer
    from ..estimator.estimate import Estimate
    from ..links import Links
    from ..records import Run
    from .runs import Piece, PlacedNote

LIST_CLASS = "verl-facts"
INCOMPLETE = N_("The source quotes only some of the settings, so there is no estimate.")


def says_more(run: Run) -> bool:
    """Return whether a run has data besides its row."""
    return bool(run.settings or run.measured or run.notes)


def titles(runs: Sequence[Run]) -> dict[str, str]:
    """Return the titles of runs by id, with backend and engine if the titles are otherwise equal."""
    alike: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        alike[run_title(run)].append(run)
    found: dict[str, str] = {}
    for title, group in alike.items():
        backends: list[str] = [run.train for run in group]
        engines: list[str] = [run.infer.engine if run.infer else "" for run in group]
        differing = [names for names in (backends, engines) if len({*names}) > 1]
        for run, *parts in zip(group, *differing, strict=True):
            found[run.id] = listed([title, *filter(None, parts)])
    return found


def summary(run: Run, title: str, capacity: float | None, estimate: Estimate | None) -> list[nodes.Node]:
    """Make the line above the details: the run, its status, its peak and the GPU's capacity.

    Args:
        run: the run.
        title: its unique title, see ``titles``.
        capacity: the memory of its GPU in bytes; None if unknown.
        estimate: its estimate; None without complete settings.
    """
    known = []
    if run.measured and run.measured.gib:
        known.append(_("measured {peak}").format(peak=gib_number(run.measured.gib * GIB)))
    if told := estimate and figures(estimate):
        span = _("{low} to {high}").format(low=gib_number(told.low), high=gib_number(told.high))
        known.append(_("estimated {peak}").format(peak=span))
    texts = [status(run)]
    if known and capacity is None:
        texts.append(_("peak {figures} GiB").format(figures=listed(known)))
    elif known and capacity is not None:
        texts.append(_("peak {figures} of {capacity}").format(figures=listed(known), capacity=gib(capacity)))
    return fill(_("{run}: {facts}"), run=nodes.strong("", title), facts=_("; ").join(texts))


def verdict(run: Run, found: Answer | None, link: Callable[[str, str], nodes.Node]) -> list[nodes.Node]:
    """Make the answer about a run with settings, or the reason why there is none.

    Args:
        run: the run.
        found: the answer; None without complete settings.
        link: a function that makes a link to the row of another run, from its id and a text.
    """
    if found is not None:
        return answer(found, runs=evidence_items(found, run.id, link))
    return [nodes.paragraph("", _(INCOMPLETE))] if run.settings else []


def facts(run: Run, links: Links) -> nodes.bullet_list:
    """Make the list of facts: status, versions, script, evidence, measured figures; remarks follow."""
    items = nodes.bullet_list(classes=[LIST_CLASS])
    items += titled_item(_("Status"), [nodes.Text(_status(run))])
    for field in every_field().values():
        if field.detail and field.value(run) is not None:
            make = _TEXTS.get(field.name)
            content = [nodes.Text(make(run))] if make else _linked(run_cell(run, field, links).pieces)
            items += titled_item(_(field.detail), content)
    return items


def add_remarks(blocks: Mapping[str, nodes.Element], notes: Iterable[PlacedNote]) -> None:
    """Add remarks to the facts of their runs, numbered like the marks in the rows that link to them."""
    for placed in notes:
        for run in placed.anchors:
            title = nodes.strong("", _("Remark {mark}").format(mark=placed.mark))
            text = titled(title, " ".join(placed.note.text.split()))
            items = next(iter(blocks[run].findall(nodes.bullet_list)))
            items += nodes.list_item("", nodes.paragraph("", "", note_target(placed, run), *text))


def edit_link(address: str) -> list[nodes.Node]:
    """Make a link to edit the file of a run; none without an address."""
    link = nodes.reference("", _("Edit this row"), refuri=address)
    return [nodes.paragraph("", "", link)] if address else []


def _engine(run: Run) -> str:
    assert run.infer
    version = run.infer.version or _("version not recorded")
    return f"{run.infer.engine} {version}"


def _versions(run: Run) -> str:
    assert run.versions
    named = (("verl", run.versions.verl), ("PyTorch", run.versions.torch))
    return listed([f"{name} {version}" for name, version in named if version])


def _measured(run: Run) -> str:
    assert run.measured
    names = ("host_ram_gib", "step_seconds", "mfu", "response_tokens")
    others = listed(
        [
            _("{title}: {text}").format(title=_(field.heading), text=field.text(run))
            for field in (every_field()[f"measured.{name}"] for name in names)
            if field.value(run) is not None
        ]
    )
    if not run.measured.gib:
        return others
    return in_a_row(measured_text(run.measured), *filter(None, [others]))


#: Fields with a longer text in the details than in their column.
_TEXTS = {"infer": _engine, "versions": _versions, "measured": _measured}


def _status(run: Run) -> str:
    text = status(run)
    if run.contributor:
        text = _("{status}, contributed by {name}").format(status=text, name=run.contributor.name)
    if run.added:
        text = _("{status}, added {date}").format(status=text, date=run.added.isoformat())
    return text


def _linked(pieces: Sequence[Piece]) -> list[nodes.Node]:
    """Make the nodes of texts, linked if they have an address, with commas between."""
    return between_commas(
        nodes.reference("", text, refuri=address) if address else nodes.Text(text) for text, address in pieces
    )


def flags(run: Run, arguments: Sequence[str]) -> list[nodes.Node]:
    """Make the block with the settings as a command to copy; runs of other trainers show only the overrides.

    Args:
        run: the run.
        arguments: its settings for verl's launcher.
    """
    if not arguments:
        return []
    if has_own_rollout_gpus(run):
        title, code = _("Settings as overrides:"), " \\\n".join(arguments)
    else:
        command = launcher(version_of_run(run), run.settings, is_megatron=run.train == "megatron")
        title, code = _("Settings as a command:"), SEPARATOR.join([*command, *arguments])
    return [notes_title(title), code_block(code, "bash", "verl-flags")]
