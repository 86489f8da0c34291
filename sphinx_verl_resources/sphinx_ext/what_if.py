"""A form that answers whether a model fits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sphinx.util.parallel import ParallelTasks, parallel_available

from ..diagnostics import Diagnostic, NoAnswerError
from ..directive import Option
from ..domain import ESTIMATOR, GPU, LABEL, MODEL, OUT_OF_MEMORY, link_later
from ..i18n import N_, _
from ..records import MOST_GPUS
from ..registries import LIMITS
from ..selection import each_once, phrases
from ..texts import run_title
from ..views.answer import row_link
from .settings_directive import SettingsDirective, numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from docutils import nodes

    from ..answer.grid import Axes, GridCells
    from ..records import Run
    from .settings_directive import Settings

#: The choices in the form of ``verl-what-if``: GPUs of recorded runs and other common GPUs, numbers of GPUs,
#: and response lengths in tokens.
FORM_GPUS = (
    "RTX-4090", "RTX-5090", "A100-40GB", "L20", "L40S", "Ascend-A2", "Ascend-A3", "A100-80GB", "H100", "H800",
    "H20", "H200", "B200", "MI300X",
)  # fmt: skip
FORM_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
FORM_RESPONSES = (1024, 4096, 16384)
#: The link to the page about the estimator.
_MORE = N_("How figures are computed.")
#: Maximum number of answers in a form; about a thousand take a second.
MOST_CELLS = 100_000


def _names(text: str) -> tuple[str, ...]:
    found = phrases(text)
    each_once(found, str.casefold, "name at least one, or leave the option out")
    return tuple(found)


WHAT_IF_OPTIONS = (
    Option(
        "models",
        "Models to choose from.",
        "Hugging Face names, separated by commas",
        "the models of verl's scripts and recorded runs, without duplicates of the same shape",
        _names,
        (),
    ),
    Option(
        "gpus",
        "GPUs to choose from, by any of their names; the form shows the names as written.",
        "names of GPUs, separated by commas",
        f"``{', '.join(FORM_GPUS)}``",
        _names,
        FORM_GPUS,
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
        "Maximum response lengths to choose from, in tokens.",
        "numbers, separated by spaces or commas",
        f"``{' '.join(map(str, FORM_RESPONSES))}``",
        numbers(LIMITS["sequence-length"]),
        FORM_RESPONSES,
    ),
)


class VerlWhatIf(SettingsDirective):
    """A form for model, GPUs and response length, with an answer."""

    directive = "verl-what-if"
    takes = WHAT_IF_OPTIONS
    instead_of_argument = "list the models in :models:"

    def show(self) -> list[nodes.Node]:
        """Return the form with its first answer, and remember the files with all answers."""
        from ..views.what_if import form
        from ..views.what_if_answers import answers_file, answers_of, fields_of, first_answer, shared_data

        models, axes = self._choices()
        settings = self.settings()
        self._check_settings(settings)
        if self.problems:
            return []
        grids = self._grids(models, axes, settings)
        if all(cells.errors for cells in grids.values()):
            self.note_all(grids[models[0]].errors)
            return []
        told = (set(cells.warnings) for cells in grids.values() if not cells.errors)
        self.note_all(set.intersection(*told))
        runs = self._runs(dict.fromkeys(run for cells in grids.values() for run, *_how in cells.runs))
        answers = [answers_of(cells, runs) for cells in grids.values()]
        files = []
        for of_model in answers:
            name, path, text = answers_file(of_model)
            files.append(name)
            self.domain.note_file(path, text)
        fields, shared = fields_of(models, axes), shared_data(files, grids[models[0]])
        more = link_later(self.env, LABEL, ESTIMATOR, _(_MORE))
        return [
            form(
                fields,
                shared,
                first_answer(fields, shared, answers[fields[0]["first"]]),
                {run: title for run, (title, _script) in runs.items()},
                partial(row_link, self.env),
                more,
                link_later(self.env, LABEL, OUT_OF_MEMORY, _("Out of memory?")),
            )
        ]

    def _grids(self, models: Iterable[str], axes: Axes, settings: Settings) -> dict[str, GridCells]:
        """Compute the cells of each model, in several processes if Sphinx uses more than one."""
        from ..answer.grid import compute_grid

        def compute(model: str) -> GridCells:
            return compute_grid(model, axes, dict(settings), self.data)

        if self.domain.app.parallel < 2 or not parallel_available:
            return {model: compute(model) for model in models}
        found: dict[str, GridCells] = {}
        tasks = ParallelTasks(self.domain.app.parallel)
        for model in models:
            tasks.add_task(compute, model, found.__setitem__)
        tasks.join()
        return {model: found[model] for model in models}

    def _runs(self, ids: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return the titles of runs, each with the address of its script; empty if there is none."""
        links = self.domain.links
        runs = {run: self.data.runs[run] for run in ids}
        return {
            id_: (title_and_batch(run), links.file(run.script.ref, run.script.path) if run.script else "")
            for id_, run in runs.items()
        }

    def _choices(self) -> tuple[tuple[str, ...], Axes]:
        """Return the models and the other choices, and record their problems."""
        from ..answer.grid import Axes
        from ..answer.sizes import used_models

        models, gpus, counts, responses = map(
            self.values.__getitem__, ("models", "gpus", "counts", "responses")
        )
        self.check_recorded(MODEL, models, "models")
        self.check_recorded(GPU, gpus, "gpus")
        models, axes = models or used_models(self.data), Axes(counts, gpus, responses)
        size = len(models) * axes.size
        if size > MOST_CELLS:
            message = f"the form has {size:,} combinations; the maximum is {MOST_CELLS:,}"
            with self.noted():
                remedy = "list fewer in :models:, :gpus:, :counts: or :responses:"
                raise NoAnswerError.because(message, remedy)
        return models, axes

    def _check_settings(self, settings: Settings) -> None:
        """Record a problem for settings that the form itself sets."""
        from ..answer.grid import CHOSEN

        for key, _value in settings:
            if key in CHOSEN:
                message = f"{key} is set by the form"
                self.note(Diagnostic(self.place_of(key), "directive", message, "leave it out"))


def title_and_batch(run: Run) -> str:
    """Return the title of a run, with the largest batch that fitted if it is known."""
    title = run_title(run)
    return _("{run} (MaxBatch {count})").format(run=title, count=run.max_batch) if run.max_batch else title
