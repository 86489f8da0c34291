"""``.. verl-fit::`` and ``.. verl-lengths::``: what runs on how many GPUs, and what longer responses take."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from docutils import nodes

from ...catalog.selection import sizes
from ...diagnostics import NoAnswerError
from ...i18n import _
from ..references import row_link
from .base import ABOUT_TABLE
from .computed import Body, SettingsDirective
from .options import MOST_GPUS, Option, numbers, resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...diagnostics import Diagnostic
    from ...estimator.questions import ModelEstimate

DEFAULT_TASK = "GRPO"
DEFAULT_GPUS = (1, 2, 4, 8, 16, 32, 64, 128)
FIT_OPTIONS = (
    Option("gpu", "The GPU, by any of its names. Required.", "name of a GPU"),
    Option("task", "The algorithm.", "``GRPO``, ``GRPO-LoRA``, ``PPO`` or ``DAPO``", f"``{DEFAULT_TASK}``"),
    Option(
        "sizes",
        "The size classes to show.",
        "size classes, separated by spaces or commas",
        "all that a model stands for: that of the analysis, or else the one that most tested runs load",
        sizes,
    ),
    Option(
        "gpus",
        "Numbers of GPUs.",
        "numbers, separated by spaces or commas",
        f"``{' '.join(map(str, DEFAULT_GPUS))}``",
        numbers(MOST_GPUS),
    ),
    Option(
        "no-legend",
        "Leave out what the words mean and how figures are made, where the page says it for another table.",
    ),
    *ABOUT_TABLE,
)


class VerlFit(SettingsDirective):
    """Size classes by numbers of GPUs, for one GPU and task."""

    directive = "verl-fit"
    takes = FIT_OPTIONS

    def show(self) -> list[nodes.Node]:
        """Return the table, what its words mean, and what was assumed."""
        from ...estimator.planner import LIMITS, TASKS, task_settings
        from ...estimator.questions import Defaults, Fit, SizeModels
        from ...estimator.versions import CURRENT, version_text
        from ...views import fit as render

        self.refuse_argument("name the size classes under :sizes:")
        gpu = self.values.get("gpu", "")
        with self.noted():
            if "gpu" not in self.given:
                raise NoAnswerError.because("say for which GPU, as in :gpu: H100")
            self.known_gpu(gpu, "gpu")
        classes: tuple[str, ...] = self.values.get("sizes", ())
        counts: tuple[int, ...] = self.values.get("gpus", DEFAULT_GPUS)
        task = self.values.get("task", DEFAULT_TASK)
        body = self.settings()
        models = dict(self.ask(SizeModels(classes)))
        if not self.problems:
            shown = [models[size] for size in classes or models if size in models]
            self._check_settings(body, shown, gpu, counts)
        if self.problems:
            return []
        rows = self.ask(Fit(gpu, task, classes, counts, body.config))
        name = next(known for known in TASKS if known.casefold() == task.casefold())
        inside = render.fit_rows(rows, models, partial(row_link, self.env))
        caption = _("{task} on {gpu}: what fits").format(task=name, gpu=gpu)
        table = self.table(render.TABLE_CLASS, inside, caption, with_options=True)
        defaults = dict(self.ask(Defaults(LIMITS)))
        settings = {**(task_settings(task) or {}), **defaults, **dict(body.config)}
        legend = [] if "no-legend" in self.given else render.fit_legend(rows, version_text(CURRENT))
        return [table, *legend, render.fit_settings(settings)]

    def _check_settings(self, body: Body, models: Iterable[str], gpu: str, counts: Iterable[int]) -> None:
        """Note what is wrong with the settings, where they leave no estimate for any cell.

        What only some numbers of GPUs or models do not go with is no mistake: it is what the table shows.
        """
        from ...estimator.questions import ModelEstimate

        if not body.config:
            return
        asked = (ModelEstimate(model, count, gpu, body.config) for model in models for count in counts)
        refused: Sequence[Diagnostic] = ()
        for estimated, found in map(self._problems_of, asked):
            if estimated:
                self.note_all(found, body)
                return
            refused = refused or found
        self.note_all(refused, body)

    def _problems_of(self, query: ModelEstimate) -> tuple[bool, Sequence[Diagnostic]]:
        """Return whether there is an estimate, and what is wrong with what is asked."""
        try:
            return True, self.ask(query).warnings
        except NoAnswerError as error:
            return False, error.diagnostics


DEFAULT_RESPONSES = (1024, 2048, 4096, 8192, 16384, 32768)
MOST_TOKENS = 10_000_000
LENGTHS_OPTIONS = (
    Option("model", "The checkpoint. Required. Settings stand below the options.", "Hugging Face name"),
    Option("gpus", "How many GPUs and which. Required.", "count and name, such as ``8*H100``", read=resource),
    Option(
        "responses",
        "Limits of the responses, in tokens.",
        "numbers, separated by spaces or commas",
        f"``{' '.join(map(str, DEFAULT_RESPONSES))}``",
        numbers(MOST_TOKENS),
    ),
    *ABOUT_TABLE,
)


class VerlLengths(SettingsDirective):
    """One run with longer and longer responses."""

    directive = "verl-lengths"
    takes = LENGTHS_OPTIONS

    def show(self) -> list[nodes.Node]:
        """Return the table, and what was computed."""
        from ...estimator.questions import Lengths, ModelEstimate
        from ...estimator.sweeps import RESPONSE
        from ...views.estimate import LENGTHS_CLASS, length_rows

        self.refuse_argument("name the checkpoint under :model:")
        with self.noted():
            if "model" not in self.given:
                raise NoAnswerError.because("name a checkpoint, as in :model: Qwen/Qwen2.5-7B-Instruct")
        count, gpu = self.named_gpus()
        body = self.settings()
        with self.noted():
            if RESPONSE in dict(body.config):
                message = f"{RESPONSE} is what the rows differ in"
                raise NoAnswerError.because(message, "name the lengths under :responses:")
        if self.problems:
            return []
        model, responses = self.values["model"], self.values.get("responses", DEFAULT_RESPONSES)
        rows = self.ask(Lengths(ModelEstimate(model, count, gpu, body.config), responses))
        if all(row.estimate is None for row in rows):
            self.note_all(rows[0].diagnostics, body)
            return []
        caption = _("{model} on {gpus}: longer responses").format(model=model, gpus=f"{count}*{gpu}")
        table = self.table(LENGTHS_CLASS, length_rows(rows), caption, with_options=True)
        legend = _(
            "Per GPU, on the fullest. Token budgets that are not set are the smallest that hold one "
            "sequence. The KV cache is that of one rollout engine, with sequences of full length; fewer "
            "sequences at a time make the rollout slower and take no more memory."
        )
        return [table, nodes.paragraph("", legend, classes=["verl-legend"])]
