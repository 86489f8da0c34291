"""``.. verl-fit::``: a table of size classes by numbers of GPUs."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from ...catalog.names import MOST_GPUS
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

DEFAULT_TASK = "GRPO"
DEFAULT_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
SIZES = Option(
    "sizes",
    "The size classes to show.",
    "size classes, separated by spaces or commas",
    "all with a model, which is that of the analysis, or the one that most tested runs load where none "
    "of them loads that",
    sizes,
    (),
)
NO_LEGEND = Option(
    "no-legend",
    "Leave out what the words mean and how figures are made, where the page says it for another table.",
)
FIT_OPTIONS = (
    Option(
        "gpu",
        "The GPU, by any of its names. Required.",
        "name of a GPU",
        needed="say for which GPU, as in :gpu: H100",
    ),
    Option(
        "task",
        "The algorithm.",
        "``GRPO``, ``GRPO-LoRA``, ``PPO`` or ``DAPO``",
        f"``{DEFAULT_TASK}``",
        value=DEFAULT_TASK,
    ),
    SIZES,
    Option(
        "gpus",
        "Numbers of GPUs.",
        "numbers, separated by spaces or commas",
        f"``{' '.join(map(str, DEFAULT_COUNTS))}``",
        numbers(MOST_GPUS),
        DEFAULT_COUNTS,
    ),
    NO_LEGEND,
    *ABOUT_TABLE,
)


class VerlFit(SettingsDirective):
    """Size classes by numbers of GPUs, for one GPU and task."""

    directive = "verl-fit"
    takes = FIT_OPTIONS
    instead_of_argument = "name the size classes under :sizes:"

    def show(self) -> list[nodes.Node]:
        """Return the table, what its words mean, and what was assumed."""
        from ...answer.queries import Fit, SizeModels
        from ...answer.question import Question, request_of
        from ...estimator.queries import Defaults
        from ...estimator.tasks import LIMITS, known_task
        from ...estimator.versions import CURRENT, version_text
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
        table = self.table(inside, caption)
        defaults = dict(self.ask(Defaults(LIMITS)))
        asked = request_of(Question("", gpu=gpu, task=task, overrides=dict(settings)))
        every = {**defaults, **asked.config}
        words = [] if "no-legend" in self.given else render.fit_legend(rows, version_text(CURRENT))
        return [table, *words, render.fit_settings(every)]

    def _check_settings(
        self, settings: Settings, models: Sequence[str], gpu: str, counts: Sequence[int]
    ) -> None:
        """Note what is wrong with the settings, where they leave no estimate for any cell.

        What only some numbers of GPUs or models do not go with is no mistake: it is what the table shows.
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
        """Return whether there is an estimate, and what is wrong with what is asked."""
        try:
            return True, self.ask(query).warnings
        except NoAnswerError as error:
            return False, error.diagnostics
