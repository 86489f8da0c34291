"""The directive ``verl-speed``: the fastest recorded runs."""

from __future__ import annotations

from docutils import nodes

from ..directive import ABOUT_TABLE, VerlDirective
from ..domain import RUN, link_later
from ..i18n import _
from ..nodes import table_group
from ..texts import run_cells, run_heading, run_title
from .runs import fastest_runs

#: The columns; the first one links to the row.
COLUMNS = (
    "model", "gpus", "task", "train", "trainer", "measured.tokens_per_second_per_gpu",
    "measured.step_seconds", "measured.response_tokens", "checked",
)  # fmt: skip


class VerlSpeed(VerlDirective):
    """The fastest recorded run of each model, task and GPU, by trainer and with or without adapters."""

    directive = "verl-speed"
    takes = ABOUT_TABLE
    instead_of_argument = "leave it out"

    def show(self) -> list[nodes.Node]:
        """Return the table."""
        rows = []
        for run in fastest_runs(self.data):
            cells = run_cells(run, COLUMNS, self.domain.links)
            cells[0].pieces, text = [], run.short_name
            cells[0].after.append(link_later(self.env, RUN, run.id, text, nodes.Text(run_title(run))))
            rows.append(cells)
        if not rows:
            return [nodes.paragraph("", _("No run of this kind has a recorded speed."))]
        caption = _("The fastest recorded run of each model, task and GPU")
        return [self.table(table_group(map(run_heading, COLUMNS), rows), caption)]
