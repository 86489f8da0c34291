"""``.. verl-fit::``: which size class runs on how many GPUs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from ...diagnostics import NoAnswerError
from ...i18n import _
from ..domain import VerlDomain
from . import options
from .base import ABOUT_TABLE
from .estimate import MOST_GPUS, known_gpu
from .links import row_link
from .options import Option, OptionError
from .settings import Body, SettingsDirective

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from docutils import nodes

    from ...diagnostics import Diagnostic
    from ...estimator.questions import ModelEstimate

DEFAULT_TASK = "GRPO"
DEFAULT_GPUS = (1, 2, 4, 8, 16, 32, 64, 128)
OPTIONS = (
    Option("gpu", "The GPU, by any of its names. Required.", "name of a GPU"),
    Option("task", "The algorithm.", "``GRPO``, ``GRPO-LoRA``, ``PPO`` or ``DAPO``", f"``{DEFAULT_TASK}``"),
    Option(
        "sizes",
        "The size classes to show.",
        "size classes, separated by spaces or commas",
        "all that a model stands for: that of the analysis, or else the one that most tested runs load",
    ),
    Option(
        "gpus",
        "Numbers of GPUs.",
        "numbers, separated by spaces or commas",
        f"``{' '.join(map(str, DEFAULT_GPUS))}``",
    ),
    Option(
        "no-legend",
        "Leave out what the words mean and how figures are made, where the page says it for another table.",
    ),
    *ABOUT_TABLE,
)


class VerlFit(SettingsDirective):
    """Size classes by numbers of GPUs, for one GPU and task."""

    option_spec: ClassVar[options.AnyOption] = options.AnyOption.of(*OPTIONS)

    def show(self, given: Mapping[str, str], problems: options.Problems) -> list[nodes.Node]:
        """The table, what its words mean, and what was assumed."""
        from ...estimator.layouts import LIMITS
        from ...estimator.planner import TASKS, task_settings
        from ...estimator.questions import Defaults, Fit, SizeModels
        from ...estimator.versions import CURRENT, version_text
        from ...views import fit as render

        gpu = ""
        sizes: tuple[str, ...] = ()
        counts: tuple[int, ...] = DEFAULT_GPUS
        with problems.noted():
            if self.arguments:
                raise OptionError("the directive takes no argument; name the size classes under :sizes:")
        with problems.noted():
            if "gpu" not in given:
                raise OptionError("say for which GPU, as in :gpu: H100")
            gpu = given["gpu"].strip()
            known_gpu(VerlDomain.of(self.env), gpu, "gpu")
        with problems.noted():
            sizes = options.sizes(given["sizes"]) if "sizes" in given else ()
        with problems.noted():
            counts = options.count_list(given, "gpus", MOST_GPUS) or DEFAULT_GPUS
        task = given.get("task", DEFAULT_TASK).strip()
        body = self.settings(problems)
        models = dict(self.ask(SizeModels(sizes)))
        if not problems:
            shown = [models[size] for size in sizes or models if size in models]
            self._check_settings(body, shown, gpu, counts, problems)
        if problems:
            return []
        rows = self.ask(Fit(gpu, task, sizes, counts, body.config))
        name = next(known for known in TASKS if known.casefold() == task.casefold())
        inside = render.fit_rows(rows, models, partial(row_link, self.env))
        caption = _("{task} on {gpu}: what fits").format(task=name, gpu=gpu)
        table = self.table(render.TABLE_CLASS, inside, caption, with_options=True)
        defaults = dict(self.ask(Defaults(LIMITS)))
        settings = {**(task_settings(task) or {}), **defaults, **dict(body.config)}
        legend = [] if "no-legend" in given else render.fit_legend(rows, version_text(CURRENT))
        return [table, *legend, render.fit_settings(settings)]

    def _check_settings(
        self, body: Body, models: Iterable[str], gpu: str, counts: Iterable[int], problems: options.Problems
    ) -> None:
        """Say what is wrong with the settings, where they leave no estimate for any cell.

        What only some numbers of GPUs or models do not go with is no mistake: it is what the table shows.
        """
        from ...estimator.questions import ModelEstimate

        if not body.config:
            return
        asked = (ModelEstimate(model, count, gpu, body.config) for model in models for count in counts)
        refused: Sequence[Diagnostic] = ()
        for estimated, found in map(self._problems, asked):
            if estimated:
                self.note_problems(found, body, problems)
                return
            refused = refused or found
        self.note_problems(refused, body, problems)

    def _problems(self, question: ModelEstimate) -> tuple[bool, Sequence[Diagnostic]]:
        """Whether there is an estimate, and what is wrong with what is asked."""
        try:
            return True, self.ask(question).warnings
        except NoAnswerError as error:
            return False, error.diagnostics
