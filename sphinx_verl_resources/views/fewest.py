"""The tables of the fewest GPUs, one for each memory size, with tabs and a legend."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from docutils import nodes

from ..i18n import N_, _
from ..nodes import Cell, code_block, details, listed, table_group
from ..texts import flat_yaml
from ..units import crossed, short_number
from .answer import LEGEND_CLASS, legend, titled_item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..answer.sizes import FewestCell, FewestTable
    from ..nodes import verl_details

TABLE_CLASS = "verl-fewest"
PANELS_CLASS, PANEL_CLASS, TABS_CLASS = "verl-panels", "verl-panel", "verl-tabs"
#: Class of the panel that is shown while no tab is chosen.
FIRST_CLASS = "verl-panel-first"
#: Mark of an estimate that is below every recorded run of its model.
UNDERCUTS = "†"
UNDERCUTS_MEANING = N_("less total GPU memory than any recorded run of this model that ran or was reported.")


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
        _("Size class (model)"),
        _("Full: ran"),
        _("Full: estimated"),
        _("LoRA: ran"),
        _("LoRA: estimated"),
    ]
    body = [
        [_size_cell(size, models), *(make(cell) for cell in cells for make in (_ran(link), _estimated))]
        for size, *cells in table.rows
    ]
    group = table_group(headings, body)
    first = next(group.findall(nodes.colspec))
    first["stub"] = 1  # its cells are headings too
    return group


def _size_cell(size: str, models: Mapping[str, str]) -> Cell:
    """Return the cell of a size class with its model."""
    model = models.get(size, "").rpartition("/")[2]
    return Cell.of(_("{size} ({model})").format(size=size, model=model))


def _marked(text: str, undercuts: bool) -> str:
    """Return an estimate, with a mark on the same line if it undercuts every recorded run."""
    return f"{text}\N{NO-BREAK SPACE}{UNDERCUTS}" if undercuts else text


def _ran(link: Callable[[str, str], nodes.Element]) -> Callable[[FewestCell], Cell]:
    def make(cell: FewestCell) -> Cell:
        if not cell.run:
            return Cell.of("")
        text, about = crossed(cell.on), [cell.task, _("reported") if cell.word == "reported" else ""]
        if any(about):
            text = _("{gpus} ({about})").format(gpus=text, about=listed([*filter(None, about)]))
        return Cell([], [link(cell.run, text)])

    return make


def _estimated(cell: FewestCell) -> Cell:
    if cell.count is None:
        return Cell.of(_("unknown"))
    if not cell.count:
        from ..answer.layouts import COUNTS

        return Cell.of(_("none up to {count} GPUs").format(count=f"{COUNTS[-1]:,}"))
    return Cell.of(_marked(f"{cell.count:,}", cell.undercuts))


def panel(table: nodes.table, *, is_first: bool) -> nodes.container:
    """Return the panel of a table; the first panel is shown while no tab is chosen."""
    return nodes.container("", table, classes=[PANEL_CLASS, *([FIRST_CLASS] if is_first else [])])


def behind_tabs(tables: Sequence[FewestTable], panels: Sequence[nodes.container]) -> nodes.container:
    """Return panels, which have ids, behind tabs; without tabs they follow one another."""
    links = "".join(
        f'<a class="reference internal" href="#{panel["ids"][0]}">{escape(_tab(table, tables))}</a>'
        for table, panel in zip(tables, panels, strict=True)
    )
    label = escape(_("Memory of a GPU"))
    tabs = f'<div class="{TABS_CLASS}" role="group" aria-label="{label}">{links}</div>\n'
    return nodes.container("", nodes.raw("", tabs, format="html"), *panels, classes=[PANELS_CLASS])


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
    return [words, legend(_how_estimated())]


def _how_estimated() -> str:
    """Return the sentences about the basis of all estimates in a table."""
    from ..memory.versions import CURRENT, version_text

    return _(
        "Estimates are for verl {version} with the settings below, gradient checkpointing, no padding and a "
        "dynamic batch size. They use the FSDP or Megatron layout that fits with the least offloading, then "
        "the one with the largest token budget. A replica of the rollout engine uses as many GPUs as it "
        "needs."
    ).format(version=version_text(CURRENT))


def fit_settings(settings: Mapping[str, Any]) -> verl_details:
    """Return a folded block with the settings of the estimates."""
    from ..memory.roles import LIMITS

    block = code_block(flat_yaml(settings), "yaml", TABLE_CLASS)
    prompt, response = (settings[key] for key in LIMITS)
    title = _("Settings of the estimates: prompts of up to {prompt} and responses of up to {response} tokens")
    return details([nodes.Text(title.format(prompt=prompt, response=response))], [block])
