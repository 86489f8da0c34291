"""The tables of the fewest GPUs, one for each memory size, with tabs and a legend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from ..i18n import _
from ..units import crossed, short_number
from .blocks import LEGEND_CLASS, legend, listed, titled_item, verl_tabs
from .fit import UNDERCUTS, UNDERCUTS_MEANING, how_estimated, marked, size_cell, size_heading
from .table import Cell, table_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..answer.sizes import FewestCell, FewestTable

TABLE_CLASS = "verl-fewest"
PANELS_CLASS, PANEL_CLASS = "verl-panels", "verl-panel"
#: Class of the panel that is shown while no tab is chosen.
FIRST_CLASS = "verl-panel-first"


def _memory(table: FewestTable) -> str:
    """Return the nominal memory of a GPU."""
    return _("{number} GB").format(number=short_number(table.memory_gb))


def caption(title: str, table: FewestTable) -> str:
    """Return the caption of a table: the title, the memory, and the GPUs that have it."""
    ending = f"-{short_number(table.memory_gb)}GB"
    names = _(", ").join(name.removesuffix(ending) for name in table.gpus)
    return _("{title}, {memory} each: {names}").format(title=title, memory=_memory(table), names=names)


def fewest_rows(
    table: FewestTable, models: Mapping[str, str], link: Callable[[str, str], nodes.Element]
) -> nodes.tgroup:
    """Return a row for each size class.

    Args:
        table: the table for one memory size.
        models: the model of each size class.
        link: a function that makes a link to the row of a run, from its id and a text.
    """
    headings = [
        size_heading(),
        _("Full: ran"),
        _("Full: estimated"),
        _("LoRA: ran"),
        _("LoRA: estimated"),
    ]
    body = [
        [size_cell(size, models), *(make(cell) for cell in cells for make in (_ran(link), _estimated))]
        for size, *cells in table.rows
    ]
    return table_group(headings, body)


def _ran(link: Callable[[str, str], nodes.Element]) -> Callable[[FewestCell], Cell]:
    def make(cell: FewestCell) -> Cell:
        if not cell.run:
            return Cell.of("")
        text, about = crossed(cell.on), [cell.task, _("reported") if cell.word == "reported" else ""]
        if any(about):
            text = _("{gpus} ({about})").format(gpus=text, about=listed([*filter(None, about)]))
        return Cell([], links=[link(cell.run, text)])

    return make


def _estimated(cell: FewestCell) -> Cell:
    if cell.count is None:
        return Cell.of(_("unknown"))
    if not cell.count:
        from ..answer.layouts import COUNTS

        return Cell.of(_("none up to {count} GPUs").format(count=f"{COUNTS[-1]:,}"))
    return Cell.of(marked(f"{cell.count:,}", cell.undercuts))


def panel(table: nodes.table, *, is_first: bool) -> nodes.container:
    """Return the panel of a table; the first panel is shown while no tab is chosen."""
    return nodes.container("", table, classes=[PANEL_CLASS, *([FIRST_CLASS] if is_first else [])])


def behind_tabs(tables: Sequence[FewestTable], panels: Sequence[nodes.container]) -> nodes.container:
    """Return panels, which have ids, behind tabs; without tabs they follow one another."""
    links = [
        nodes.reference("", _tab(table, tables), refid=panel["ids"][0], internal=True)
        for table, panel in zip(tables, panels, strict=True)
    ]
    tabs = verl_tabs("", "", *links, format="html", label=_("Memory of a GPU"))
    return nodes.container("", tabs, *panels, classes=[PANELS_CLASS])


def _tab(table: FewestTable, tables: Sequence[FewestTable]) -> str:
    """Return the text of a tab: the memory, and a GPU if two vendors have the same memory."""
    alike = [each for each in tables if each.memory_gb == table.memory_gb]
    memory = _memory(table)
    return memory if len(alike) == 1 else _("{memory} ({gpu})").format(memory=memory, gpu=table.gpus[0])


def fewest_legend(tables: Iterable[FewestTable]) -> list[nodes.Node]:
    """Return the meaning of the columns, and the basis of the estimates."""
    from ..answer.question import USUAL_RANK

    cells = [cell for table in tables for _size, *both in table.rows for cell in both]
    words = nodes.bullet_list(classes=[LEGEND_CLASS])
    words += titled_item(
        _("Full, LoRA"), _("all parameters are trained, or adapters of rank {rank}.").format(rank=USUAL_RANK)
    )
    ran = _("No run of these models is recorded yet.")
    if any(cell.run for cell in cells):
        ran = _(
            "the recorded run on the fewest GPUs that have no more memory than this. A reported run is "
            "described in documentation or commit messages."
        )
    words += titled_item(_("Ran"), ran)
    words += titled_item(
        _("Estimated"),
        _(
            "the fewest GPUs on which the whole range of the estimate fits, for the first GPU in the "
            "caption, which has the least memory."
        ),
    )
    if any(cell.undercuts for cell in cells):
        words += titled_item(UNDERCUTS, _(UNDERCUTS_MEANING))
    return [words, legend(how_estimated())]
