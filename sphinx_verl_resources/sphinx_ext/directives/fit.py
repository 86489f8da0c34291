"""``.. verl-fit::``: a table of size classes by numbers of GPUs."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from ...catalog.names import DEFAULT_TASK, MOST_GPUS
from ...catalog.selection import sizes
from ...diagnostics import NoAnswerError
from ...i18n import _
from ..objects import GPU
from ..references import row_link
from .base import ABOUT_TABLE
from .computed import SettingsDirective
from .options import Option, numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from docutils import nodes

    from ...diagnostics import Diagnostic
    from ...estimator.queries import ModelEstimate
    from .computed import Settings

DEFAULT_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
SIZES = Option(
    "sizes",
    "Size classes to show.",
    "size classes, separated by spaces or commas",
    "all with a model: the analysis's or, if no tested run loads it, the one in most tested runs",
    sizes,
    (),
)
NO_LEGEND = "no-legend"
WITHOUT_LEGEND = Option(
    NO_LEGEND,
    "Leave out the legend, for example if another table on the page has it.",
)


def task_option(tasks: str) -> Option:
    """Return the option ``:task:``, with these values."""
    return Option("task", "Algorithm.", tasks, f"``{DEFAULT_TASK}``", value=DEFAULT_TASK)


FIT_OPTIONS = (
    Option(
        "gpu",
        "GPU, by any of its names. Required.",
        "name of a GPU",
        needed="set a GPU, as in :gpu: H100",
    ),
    task_option("``GRPO``, ``GRPO-LoRA``, ``PPO`` or ``DAPO``"),
    SIZES,
    Option(
        "gpus",
        "Numbers of GPUs.",
        "numbers, separated by spaces or commas",
        f"``{' '.join(map(str, DEFAULT_COUNTS))}``",
        numbers(MOST_GPUS),
        DEFAULT_COUNTS,
    ),
    WITHOUT_LEGEND,
    *ABOUT_TABLE,
)


class SizesDirective(SettingsDirective):
    """A directive whose rows are size classes, for one task."""

    instead_of_argument = "list the size classes in :sizes:"

    def with_legend(
        self, shown: nodes.Element, legend: Sequence[nodes.Node], settings: Settings
    ) -> list[nodes.Node]:
        """Return the content, its legend unless that is left out, and the settings of the estimates."""
        from ...answer.question import Question, request_of
        from ...estimator.queries import Defaults
        from ...estimator.tasks import LIMITS
        from ...views.fit import fit_settings

        asked = request_of(Question("", task=self.values["task"], overrides=dict(settings)))
        every = {**dict(self.ask(Defaults(LIMITS))), **asked.config}
        return [shown, *(() if NO_LEGEND in self.given else legend), fit_settings(every)]


class VerlFit(SizesDirective):
    """Size classes by numbers of GPUs, for one GPU and task."""

    directive = "verl-fit"
    takes = FIT_OPTIONS

    def show(self) -> list[nodes.Node]:
        """Return the table, its legend, and the settings of the estimates."""
        from ...answer.queries import Fit, SizeModels
        from ...estimator.tasks import known_task
        from ...views import fit as render

        gpu, task, classes, counts = map(self.values.__getitem__, ("gpu", "task", "sizes", "gpus"))
        if gpu:
            self.check_recorded(GPU, (gpu,), "gpu")
        settings = self.settings()
        models = dict(self.ask(SizeModels(classes)))
        if not self.problems:
            shown = [models[size] for size in classes or models if size in models]
            self._check_settings(settings, shown, gpu, counts)
        if self.problems:
            return []
        rows = self.ask(Fit(gpu, task, classes, counts, settings))
        inside = render.fit_rows(rows, models, partial(row_link, self.env))
        caption = _("{task} on {gpu}: what fits").format(task=known_task(task), gpu=gpu)
        return self.with_legend(self.table(inside, caption), render.fit_legend(rows), settings)

    def _check_settings(
        self, settings: Settings, models: Sequence[str], gpu: str, counts: Sequence[int]
    ) -> None:
        """Record the problems of the settings if no cell has an estimate.

        Settings that exclude only some models or numbers of GPUs are valid: the table shows which.
        """
        from ...estimator.queries import ModelEstimate

        refused: Sequence[Diagnostic] = ()
        for model, count in product(models, counts) if settings else ():
            estimated, found = self._problems_of(ModelEstimate(model, count, gpu, settings))
            if estimated:
                self.note_all(found)
                return
            refused = refused or found
        self.note_all(refused)

    def _problems_of(self, query: ModelEstimate) -> tuple[bool, Sequence[Diagnostic]]:
        """Return whether there is an estimate, and the problems of the query."""
        try:
            return True, self.ask(query).warnings
        except NoAnswerError as error:
            return False, error.diagnostics
