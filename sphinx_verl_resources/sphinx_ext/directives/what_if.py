"""``.. verl-what-if::``: a form that looks up what a combination of choices takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...catalog.selection import REGISTRIES, phrases
from ...diagnostics import Code, Diagnostic, NoAnswerError, suggest_or
from ..domain import VerlDomain
from ..queries import KnownValue
from .computed import Body, SettingsDirective
from .fit import DEFAULT_GPUS as DEFAULT_COUNTS
from .options import MOST_GPUS, Option, numbers

if TYPE_CHECKING:
    from docutils import nodes

    from ...estimator.grid import Axes

#: Size classes whose models stand in the form where none is named: those that people train with FSDP.
DEFAULT_SIZES = ("0.5B", "1.5B", "3B", "7B", "14B", "32B", "70B")
DEFAULT_GPUS = ("RTX-4090", "A100-40GB", "A100-80GB", "H100", "H800", "H20", "H200", "B200")
#: The longest prompt and response, unless the page says otherwise.
LENGTHS = {"data.max_prompt_length": 1024, "data.max_response_length": 1024}
#: Of more, the file would be too large to be loaded with a page.
MOST_CELLS = 50_000


def _names(text: str) -> tuple[str, ...]:
    """Read different names, separated by commas."""
    found: list[str] = []
    for name in phrases(text):
        if name.casefold() in map(str.casefold, found):
            raise NoAnswerError.because(f"{name!r} stands there twice", "keep one of the two")
        found.append(name)
    if not found:
        raise NoAnswerError.because("name at least one, or leave the option out")
    return tuple(found)


OPTIONS = (
    Option(
        "models",
        "The models to choose from.",
        "Hugging Face names, separated by commas",
        f"those that stand for the size classes from {DEFAULT_SIZES[0]} to {DEFAULT_SIZES[-1]}",
        _names,
    ),
    Option(
        "gpus",
        "The GPUs to choose from, by any of their names, which the form shows as they are written.",
        "names of GPUs, separated by commas",
        f"``{', '.join(DEFAULT_GPUS)}``",
        _names,
    ),
    Option(
        "counts",
        "Numbers of GPUs to choose from.",
        "numbers, separated by spaces or commas",
        f"``{' '.join(map(str, DEFAULT_COUNTS))}``",
        numbers(MOST_GPUS),
    ),
)


class VerlWhatIf(SettingsDirective):
    """A form for models, GPUs and settings; without JavaScript, a sentence that says what to do instead."""

    directive = "verl-what-if"
    takes = OPTIONS

    def show(self) -> list[nodes.Node]:
        """Return the sentence, which the script replaces; the grid is kept for those who write files."""
        from ...estimator.questions import Grid
        from ...views import what_if as render

        axes = self._axes()
        body = self.settings()
        self._check_settings(body)
        if self.problems:
            return []
        config = {**LENGTHS, **dict(body.config)}
        try:
            cells = self.ask(Grid(axes, tuple(config.items())))
        except NoAnswerError as error:
            self.note_all(error.diagnostics, body)
            return []
        self.note_all(cells.warnings, body)
        name, file, text = render.grid_file(axes, cells, config)
        VerlDomain.of(self.env).note_file(file, text)
        return [render.form(name, axes)]

    def _axes(self) -> Axes:
        """Return what can be chosen, and note what is wrong with it."""
        from ...estimator.grid import Axes

        self.refuse_argument("name the models under :models:")
        models: tuple[str, ...] = self.values.get("models", ())
        for name in models:
            with self.noted():
                self._check_model(name)
        gpus: tuple[str, ...] = self.values.get("gpus", DEFAULT_GPUS)
        for name in gpus:
            with self.noted():
                self.known_gpu(name, "gpus")
        counts = self.values.get("counts", DEFAULT_COUNTS)
        axes = Axes(models or self._default_models(), counts, gpus)
        with self.noted():
            if axes.size > MOST_CELLS:
                message = f"the choices have {axes.size:,} combinations, and a form at most {MOST_CELLS:,}"
                raise NoAnswerError.because(message, "name fewer under :models:, :gpus: or :counts:")
        return axes

    def _default_models(self) -> tuple[str, ...]:
        from ...estimator.questions import SizeModels

        return tuple(dict.fromkeys(model for _size, model in self.ask(SizeModels(DEFAULT_SIZES))))

    def _check_model(self, name: str) -> None:
        self.ask(KnownValue("model", name))
        models = VerlDomain.of(self.env).catalog.architectures
        if models.get(name) is None:
            hint = suggest_or(name, models.names, REGISTRIES["model"])
            message = f"there is no model {name!r}"
            raise NoAnswerError.because(message, hint, code=Code.unknown_model, key=":models")

    def _check_settings(self, body: Body) -> None:
        """Note settings that the form sets."""
        from ...estimator.grid import CHOSEN

        for key, place in body.places.items():
            if key in CHOSEN:
                message = f"{key}: the choices of the form set it"
                self.note(Diagnostic(place, Code.directive, message, "leave it out"))
