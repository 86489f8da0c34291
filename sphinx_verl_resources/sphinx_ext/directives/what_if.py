"""``.. verl-what-if::``: a form that looks up what a combination of choices takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ...catalog.selection import REGISTRIES, phrases
from ...diagnostics import Code, NoAnswerError, suggest_or
from ..domain import VerlDomain
from ..queries import KnownValue
from . import options
from .estimate import MOST_GPUS, known_gpu
from .fit import DEFAULT_GPUS
from .options import Option, OptionError
from .settings import Body, SettingsDirective

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from docutils import nodes

    from ...estimator.grid import Axes, GridCells

#: Size classes whose models stand in the form where none is named: those that people train with FSDP.
DEFAULT_SIZES = ("0.5B", "1.5B", "3B", "7B", "14B", "32B", "70B")
DEFAULT_CARDS = ("RTX-4090", "A100-40GB", "A100-80GB", "H100", "H800", "H20", "H200", "B200")
#: The longest prompt and response, unless the page says otherwise.
LENGTHS = {"data.max_prompt_length": 1024, "data.max_response_length": 1024}
#: Of more, the file would be too large to be loaded with a page.
MOST_CELLS = 50_000
OPTIONS = (
    Option(
        "models",
        "The models to choose from.",
        "Hugging Face names, separated by commas",
        f"those that stand for the size classes from {DEFAULT_SIZES[0]} to {DEFAULT_SIZES[-1]}",
    ),
    Option(
        "gpus",
        "The GPUs to choose from, by any of their names, which the form shows as they are written.",
        "names of GPUs, separated by commas",
        f"``{', '.join(DEFAULT_CARDS)}``",
    ),
    Option(
        "counts",
        "Numbers of GPUs to choose from.",
        "numbers, separated by spaces or commas",
        f"``{' '.join(map(str, DEFAULT_GPUS))}``",
    ),
)


class VerlWhatIf(SettingsDirective):
    """A form for models, GPUs and settings; without JavaScript, a sentence that says what to do instead."""

    option_spec: ClassVar[options.AnyOption] = options.AnyOption.of(*OPTIONS)

    def show(self, given: Mapping[str, str], problems: options.Problems) -> list[nodes.Node]:
        """The sentence, which the script replaces; the grid is kept for those who write files."""
        from ...views import what_if as render

        axes = self._axes(given, problems)
        body = self.settings(problems)
        self._check_settings(body, problems)
        if axes is None or problems:
            return []
        cells = self._grid(axes, body, problems)
        if cells is None or problems:
            return []
        name, file, text = render.grid_file(axes, cells, _settings(body))
        VerlDomain.of(self.env).note_file(file, text)
        return [render.form(name, axes)]

    def _axes(self, given: Mapping[str, str], problems: options.Problems) -> Axes | None:
        """What can be chosen; None where something is wrong with it."""
        from ...estimator.grid import Axes

        models: tuple[str, ...] = ()
        cards: tuple[str, ...] = DEFAULT_CARDS
        counts: tuple[int, ...] = DEFAULT_GPUS
        with problems.noted():
            if self.arguments:
                raise OptionError("the directive takes no argument; name the models under :models:")
        with problems.noted():
            models = _names(given, "models", self._known_model) or self._default_models()
        with problems.noted():
            cards = _names(given, "gpus", self._known_card) or DEFAULT_CARDS
        with problems.noted():
            counts = options.count_list(given, "counts", MOST_GPUS) or DEFAULT_GPUS
        axes = Axes(models, counts, cards)
        with problems.noted():
            if axes.size > MOST_CELLS:
                what = f"the choices have {axes.size:,} combinations, and a form at most {MOST_CELLS:,}"
                raise OptionError(f"{what}; name fewer under :models:, :gpus: or :counts:")
        return None if problems else axes

    def _default_models(self) -> tuple[str, ...]:
        from ...estimator.questions import SizeModels

        return tuple(dict.fromkeys(model for _size, model in self.ask(SizeModels(DEFAULT_SIZES))))

    def _known_card(self, name: str) -> None:
        known_gpu(VerlDomain.of(self.env), name, "gpus")

    def _known_model(self, name: str) -> None:
        domain = VerlDomain.of(self.env)
        domain.ask(KnownValue("model", name))
        if domain.catalog.architectures.get(name) is None:
            hint = suggest_or(name, domain.catalog.architectures.names, REGISTRIES["model"])
            raise OptionError(f":models: there is no model {name!r}; {hint}", Code.unknown_model)

    def _check_settings(self, body: Body, problems: options.Problems) -> None:
        """Refuse settings that the form sets."""
        from ...estimator.grid import CHOSEN

        for key, place in body.places.items():
            with problems.noted():
                if key in CHOSEN:
                    raise OptionError(f"{key}: the choices of the form set it; leave it out", place=place)

    def _grid(self, axes: Axes, body: Body, problems: options.Problems) -> GridCells | None:
        from ...estimator.questions import Grid

        try:
            found = self.ask(Grid(axes, tuple(_settings(body).items())))
        except NoAnswerError as error:
            self.note_problems(error.diagnostics, body, problems)
            return None
        self.note_problems(found.warnings, body, problems)
        return found


def _settings(body: Body) -> dict[str, Any]:
    """The settings that hold for every choice."""
    return {**LENGTHS, **dict(body.config)}


def _names(given: Mapping[str, str], option: str, check: Callable[[str], None]) -> tuple[str, ...] | None:
    """The names in a list, each of which passes the check; None where the option is not given.

    Raises:
        OptionError: a name is not known or stands there twice, or there is none.
    """
    if option not in given:
        return None
    found: list[str] = []
    for name in phrases(given[option]):
        check(name)
        if name.casefold() in map(str.casefold, found):
            raise OptionError(f":{option}: {name!r} stands there twice; keep one of the two")
        found.append(name)
    if not found:
        raise OptionError(f":{option}: name at least one, or leave the option out")
    return tuple(found)
