"""The fewest GPUs for each size class, by the memory of a GPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from docutils import nodes

from ..directive import ABOUT_TABLE, Option
from ..i18n import _
from ..memory.request import DEFAULT_TASK
from ..selection import sizes
from ..views.answer import row_link
from .settings_directive import SettingsDirective, numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..answer.sizes import FewestTable
    from .settings_directive import Settings

#: Memory of NVIDIA's GPUs used for training, in GB; a B200 has 180.
DEFAULT_MEMORIES = (24, 40, 80, 96, 141, 180)
#: Memory of the table that is shown first, in GB.
FIRST_MEMORY = 80
MOST_MEMORY = 10_000
NO_LEGEND = "no-legend"
_ABOUT = {
    "caption": "Beginning of each caption, before the memory and the GPUs.",
    "name": "Label for links from other pages to the table that is shown first.",
    "class": "Additional CSS classes of each table.",
}
OPTIONS = (
    Option(
        "memory",
        "Nominal memory of a GPU in GB, with a table for each value.",
        "numbers, separated by spaces or commas",
        f"``{' '.join(map(str, DEFAULT_MEMORIES))}``",
        numbers(MOST_MEMORY),
        DEFAULT_MEMORIES,
    ),
    Option("task", "Algorithm.", "``GRPO``, ``PPO`` or ``DAPO``", f"``{DEFAULT_TASK}``", value=DEFAULT_TASK),
    Option(
        "sizes",
        "Size classes to show.",
        "size classes, separated by spaces or commas",
        "all with a model: the analysis's or, if no tested run loads it, the one in most tested runs",
        sizes,
        (),
    ),
    Option(NO_LEGEND, "Leave out the legend, for example if another table on the page has it."),
    *(replace(option, help=_ABOUT[option.name]) for option in ABOUT_TABLE),
)


class VerlFewest(SettingsDirective):
    """The fewest GPUs for each size class: a table for each memory size, with tabs."""

    directive = "verl-fewest"
    takes = OPTIONS
    instead_of_argument = "list the size classes in :sizes:"

    #: The analysis has the models of size classes.
    reads = (*SettingsDirective.reads, "analysis")

    def show(self) -> list[nodes.Node]:
        """Return the tables, their legend, and the settings of the estimates."""
        from ..answer.question import known_task
        from ..answer.sizes import fewest_tables, size_models
        from ..views import fewest as render

        task, classes = self.values["task"], self.values["sizes"]
        settings = self.settings()
        if self.problems:
            return []
        tables = self.of_settings(
            fewest_tables,
            self.data,
            memories=self.values["memory"],
            task=task,
            sizes=classes,
            config=dict(settings),
        )
        if tables is None:
            return []
        title = self.values["caption"] or _("Fewest GPUs for {task}").format(task=known_task(task))
        models = {
            size: model for size, model in size_models(self.data).items() if not classes or size in classes
        }
        panels = self._panels(tables, models, title)
        return self._with_legend(panels, render.fewest_legend(tables), settings)

    def _with_legend(
        self, shown: nodes.Element, legend: Sequence[nodes.Node], settings: Settings
    ) -> list[nodes.Node]:
        """Return the content, its legend unless that is left out, and the settings of the estimates."""
        from ..answer.question import Question, request_of
        from ..memory.roles import LIMITS
        from ..memory.versions import CURRENT
        from ..views.fewest import fit_settings

        asked = request_of(Question("", task=self.values["task"], overrides=dict(settings)))
        defaults = self.data.defaults(CURRENT)
        every = {**{key: defaults.get(key) for key in LIMITS}, **asked.config}
        return [shown, *(() if NO_LEGEND in self.given else legend), fit_settings(every)]

    def _panels(self, tables: tuple[FewestTable, ...], models: dict[str, str], title: str) -> nodes.container:
        """Return the tables behind tabs, starting with ``FIRST_MEMORY`` if it is there."""
        from ..views import fewest as render

        memories = [table.memory_gb for table in tables]
        first = memories.index(FIRST_MEMORY) if FIRST_MEMORY in memories else 0
        panels = []
        for place, found in enumerate(tables):
            rows = render.fewest_rows(found, models, partial(row_link, self.env))
            table = self.table(rows, render.caption(title, found), with_options=False)
            table["classes"] += (self.values["class"] or "").split()
            if place == first:
                self.add_name(table)
            panel = render.panel(table, is_first=place == first)
            self.reserve(nodes.make_id(f"fewest-{found.memory_gb:g}-gb"), panel)
            panels.append(panel)
        return render.behind_tabs(tables, panels)
