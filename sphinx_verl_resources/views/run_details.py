"""The details of a recorded run, below its table."""

from __future__ import annotations

from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING

from docutils import nodes

from ..answer.answer import answer_run
from ..answer.command import SEPARATOR, as_arguments, launcher
from ..diagnostics import NoAnswerError
from ..i18n import N_, _
from ..memory.recorded import credible, estimate_run, figures, has_own_rollout_gpus, version_of_run
from ..memory.registries import capacity_of
from ..nodes import between_commas, code_block, details, link, listed, notes_title, titled
from ..records import row_id
from ..selection import FIELDS
from ..texts import WORD_TEXTS, field_pieces, row_classes, run_title
from ..units import GIB, gib, gib_number
from .answer import evidence_items, row_link, titled_item
from .charts import phase_chart
from .estimate import MEMORY_CLASS, answer, phase_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..directive import VerlDirective
    from ..nodes import verl_details
    from ..records import Run

INCOMPLETE = N_("The source quotes only some of the settings, so there is no estimate.")


def details_of(directive: VerlDirective, run: Run, remarks: Sequence[nodes.list_item]) -> verl_details:
    """Return the facts of a run with its estimate and settings, folded below status and peak.

    Args:
        directive: the directive that shows the run.
        run: the run.
        remarks: the remarks about the run.
    """
    items = nodes.bullet_list(classes=["verl-facts"])
    for field in FIELDS:
        if field.detail and field.value(run) is not None:
            values = starmap(link, field_pieces(run, field.name, directive.domain.links))
            items += titled_item(_(field.detail), between_commas(values))
    items += remarks
    peak, more = _estimated(directive, run)
    title = nodes.strong("", listed([run_title(run), run.train]))
    status = listed(filter(None, [run.tag, _(WORD_TEXTS[run.word])]))
    facts = _("; ").join(filter(None, [status, peak]))
    block = details(titled(title, facts), [items, *more], f"verl-details {row_classes(run)}")
    directive.reserve(f"{row_id(run.id)}-details", block)
    return block


def _estimated(directive: VerlDirective, run: Run) -> tuple[str, list[nodes.Node]]:
    """Return the measured and estimated peak of a run in words, and the answer with chart and settings.

    Args:
        directive: the directive that shows the run.
        run: the run.

    Returns:
        The peak, an empty text if it is unknown; and nodes.
    """
    data = directive.data
    gpu = data.gpu_of(run)
    capacity = capacity_of(gpu) if gpu else None
    try:
        estimate = estimate_run(run, data)
    except NoAnswerError:
        estimate = None
    content: list[nodes.Node] = []
    known = []
    if run.measured and run.measured.gib:
        known.append(_("measured {peak}").format(peak=gib_number(run.measured.gib * GIB)))
    if estimate is None or not estimate.is_complete:
        content = [nodes.paragraph("", _(INCOMPLETE))] if run.settings else []
    else:
        if told := figures(estimate):
            low, _peak, high = told
            peak = _("{low} to {high}").format(low=gib_number(low), high=gib_number(high))
            known.append(_("estimated {peak}").format(peak=peak))
        found = answer_run(run, data)
        content = answer(found, runs=evidence_items(found, run.id, partial(row_link, directive.env)))
        if shown := credible(estimate):
            drawing = phase_chart(shown, run_title(run), run.measured)
            rows = phase_rows(shown)
            # Without a caption, the table is not numbered with the page's tables.
            table = directive.table(rows, with_options=False, table_class=MEMORY_CLASS)
            content += [directive.chart(drawing, run.id), table]
    arguments = as_arguments(run.settings, version_of_run(run), data)
    text = ""
    if known:
        text = _("peak {figures} of {capacity}") if capacity else _("peak {figures} GiB")
        text = text.format(figures=listed(known), capacity=capacity and gib(capacity))
    return text, [*content, *flags(run, arguments)]


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
