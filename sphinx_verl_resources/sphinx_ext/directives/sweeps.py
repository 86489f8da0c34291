"""Many estimates at once: what runs on how many GPUs, what longer responses take, a form to choose in."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from ...catalog.names import MOST_GPUS
from ...catalog.selection import names, phrases, sizes
from ...diagnostics import Code, Diagnostic, NoAnswerError
from ...i18n import _
from ...views.blocks import legend
from ..domain import VerlDomain
from ..objects import GPU, MODEL
from ..references import row_link
from .base import ABOUT_TABLE
from .computed import SettingsDirective
from .options import Option, numbers, resource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from docutils import nodes

    from ...answer.grid import Axes
    from ...estimator.queries import ModelEstimate
    from .computed import Settings

DEFAULT_TASK = "GRPO"
DEFAULT_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
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
    Option(
        "sizes",
        "The size classes to show.",
        "size classes, separated by spaces or commas",
        "all with a model, which is that of the analysis, or the one that most tested runs load where none "
        "of them loads that",
        sizes,
        (),
    ),
    Option(
        "gpus",
        "Numbers of GPUs.",
        "numbers, separated by spaces or commas",
        f"``{' '.join(map(str, DEFAULT_COUNTS))}``",
        numbers(MOST_GPUS),
        DEFAULT_COUNTS,
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


DEFAULT_RESPONSES = (1024, 2048, 4096, 8192, 16384, 32768)
MOST_TOKENS = 10_000_000
LENGTHS_OPTIONS = (
    Option(
        "model",
        "The checkpoint. Required. Write verl's settings below the options.",
        "Hugging Face name",
        needed="name a checkpoint, as in :model: Qwen/Qwen2.5-7B-Instruct",
    ),
    Option("gpus", "How many GPUs and which. Required.", "count and name, such as ``8*H100``", read=resource),
    Option(
        "responses",
        "Limits of the responses, in tokens.",
        "numbers, separated by spaces or commas",
        f"``{' '.join(map(str, DEFAULT_RESPONSES))}``",
        numbers(MOST_TOKENS),
        DEFAULT_RESPONSES,
    ),
    *ABOUT_TABLE,
)


class VerlLengths(SettingsDirective):
    """One run with longer and longer responses."""

    directive = "verl-lengths"
    takes = LENGTHS_OPTIONS
    instead_of_argument = "name the checkpoint under :model:"

    def show(self) -> list[nodes.Node]:
        """Return the table, and what was computed."""
        from ...estimator.queries import Lengths, ModelEstimate
        from ...estimator.sweeps import RESPONSE
        from ...views.estimate import length_rows

        count, gpu = self.named_gpus()
        settings = self.settings()
        if RESPONSE in dict(settings):
            self.refuse(f"{RESPONSE} is what the rows differ in", "name the lengths under :responses:")
        if self.problems:
            return []
        model = self.values["model"]
        rows = self.ask(Lengths(ModelEstimate(model, count, gpu, settings), self.values["responses"]))
        if all(row.estimate is None for row in rows):
            self.note_all(rows[0].diagnostics)
            return []
        caption = _("{model} on {gpus}: longer responses").format(model=model, gpus=f"{count}*{gpu}")
        table = self.table(length_rows(rows), caption)
        text = _(
            "Per GPU, on the fullest. Token budgets that are not set are the smallest that hold one "
            "sequence. The KV cache is that of one rollout engine, with sequences of full length; fewer "
            "sequences at a time make the rollout slower and take no more memory."
        )
        return [table, legend(text)]


#: The size classes whose models the form offers by default: those that people train with FSDP.
DEFAULT_SIZES = ("0.5B", "1.5B", "3B", "7B", "14B", "32B", "70B")
DEFAULT_GPUS = ("RTX-4090", "A100-40GB", "A100-80GB", "H100", "H800", "H20", "H200", "B200")
FORM_COUNTS = (1, 2, 4, 8, 16, 32, 64)
FORM_RESPONSES = (1024, 2048, 4096, 8192, 16384, 32768)
#: Each is an answer, and a hundred take about a second.
MOST_CELLS = 10_000


def _names(text: str) -> tuple[str, ...]:
    return names(phrases(text), "name at least one, or leave the option out")


WHAT_IF_OPTIONS = (
    Option(
        "models",
        "The models to choose from.",
        "Hugging Face names, separated by commas",
        f"one for each size class from {DEFAULT_SIZES[0]} to {DEFAULT_SIZES[-1]}",
        _names,
        (),
    ),
    Option(
        "gpus",
        "The GPUs to choose from, by any of their names, which the form shows as they are written.",
        "names of GPUs, separated by commas",
        f"``{', '.join(DEFAULT_GPUS)}``",
        _names,
        DEFAULT_GPUS,
    ),
    Option(
        "counts",
        "Numbers of GPUs to choose from.",
        "numbers, separated by spaces or commas",
        f"``{' '.join(map(str, FORM_COUNTS))}``",
        numbers(MOST_GPUS),
        FORM_COUNTS,
    ),
    Option(
        "responses",
        "Limits of the responses to choose from, in tokens.",
        "numbers, separated by spaces or commas",
        f"``{' '.join(map(str, FORM_RESPONSES))}``",
        numbers(MOST_TOKENS),
        FORM_RESPONSES,
    ),
)


class VerlWhatIf(SettingsDirective):
    """A form for models, GPUs and settings; without JavaScript, a sentence that says what to do instead."""

    directive = "verl-what-if"
    takes = WHAT_IF_OPTIONS
    instead_of_argument = "name the models under :models:"

    def show(self) -> list[nodes.Node]:
        """Return the sentence, which the script replaces; the grid is kept for those who write files."""
        from ...answer.queries import Grid
        from ...estimator.queries import RecordedRun
        from ...views import what_if as render
        from ...views.runs import run_title

        axes = self._axes()
        settings = self.settings()
        self._check_settings(settings)
        if self.problems:
            return []
        cells = self.ask_about_settings(Grid(axes, settings))
        if cells is None:
            return []
        self.note_all(cells.warnings)
        name, file, text = render.grid_file(axes, cells)
        VerlDomain.of(self.env).note_file(file, text)
        titles = [(run, run_title(self.ask(RecordedRun(run)))) for run, _word in cells.runs]
        return [render.form(name, axes, [row_link(self.env, run, title) for run, title in titles])]

    def _axes(self) -> Axes:
        """Return what can be chosen, and note what is wrong with it."""
        from ...answer.grid import Axes

        models, gpus, counts, responses = map(
            self.values.__getitem__, ("models", "gpus", "counts", "responses")
        )
        self.check_recorded(MODEL, models, "models")
        self.check_recorded(GPU, gpus, "gpus")
        axes = Axes(models or self._default_models(), counts, gpus, responses)
        if axes.size > MOST_CELLS:
            message = f"the choices have {axes.size:,} combinations, and a form at most {MOST_CELLS:,}"
            self.refuse(message, "name fewer under :models:, :gpus:, :counts: or :responses:")
        return axes

    def _default_models(self) -> tuple[str, ...]:
        from ...answer.queries import SizeModels

        return tuple(dict.fromkeys(model for _size, model in self.ask(SizeModels(DEFAULT_SIZES))))

    def _check_settings(self, settings: Settings) -> None:
        """Note settings that the form sets."""
        from ...answer.grid import CHOSEN

        for key, _value in settings:
            if key in CHOSEN:
                message = f"{key}: the choices of the form set it"
                self.note(Diagnostic(self.place_of(key), Code.directive, message, "leave it out"))
