"""``.. verl-memory::`` with a run or with settings: the estimate, phase by phase."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..diagnostics import NoAnswerError
from ..directive import ABOUT_TABLE, Option, choices
from ..i18n import _
from ..views.answer import row_link
from .settings_directive import SettingsDirective

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from docutils import nodes

    from ..answer.answer import Answer
    from ..memory.versions import Version
    from ..records import Measured


def _resource(text: str) -> tuple[int, str]:
    from ..memory.request import parse_gpus

    count, gpu = parse_gpus(text)
    if count is None or gpu is None:
        raise NoAnswerError.because(f"write the number and type of GPUs as in 8*H100, not {text!r}")
    return count, gpu


def _version(text: str) -> Version:
    from ..memory.versions import CURRENT, version_of, version_text

    found = version_of(text.strip())
    if found is None:
        raise NoAnswerError.because(
            f"{text!r} is not a release of verl", f"write it like {version_text(CURRENT)}"
        )
    return found


#: The options that select the estimate, and those that require ``:model:``.
ASKING, OF_MODEL = ("run", "model"), ("gpus", "verl-version")
ESTIMATE_OPTIONS = (
    Option("run", "Recorded run; its file provides everything else.", "id of a run"),
    Option(
        "model",
        "Model. Requires ``gpus``. Write settings below the options, as YAML with verl's keys dotted or "
        "nested. Unset keys use verl's defaults.",
        "Hugging Face name",
    ),
    Option(
        "gpus",
        "Number and type of GPUs. Requires ``model``.",
        "count and name, such as ``8*H100``",
        read=_resource,
    ),
    Option(
        "verl-version",
        "Release of verl. Requires ``model``.",
        "release, such as ``v0.7.1``",
        "the newest supported one",
        _version,
    ),
    choices(
        "Parts to show, in this order. ``answer``: whether it fits, the peak with its range, the peak phase, "
        "changes that make it fit if it does not, the value of verl's metric, host memory. ``chart``: a bar "
        "for each phase against the GPU's capacity, drawn in HTML, with the table. ``table``: a "
        "row for each phase. ``components``: each part of the peak phase with its formula, its numbers and "
        "its evidence. ``host``: the same for the memory of a node. Settings that the estimate leaves out "
        "are always listed below.",
        ("answer", "chart", "table", "components", "host"),
        ("answer", "table"),
    ),
    *ABOUT_TABLE,
)


class VerlEstimate(SettingsDirective):
    """The estimate of a run or of settings."""

    directive = "verl-memory"
    takes = ESTIMATE_OPTIONS

    def show(self) -> list[nodes.Node]:
        """Return the requested pieces, and the settings that the estimate leaves out."""
        self._check_form()
        found: tuple[Answer, str, Measured | None] | None = None
        with self.noted():
            if "model" in self.given:
                found = self._of_model()
            elif "run" in self.given:
                found = self._of_run()
        return [] if self.problems or found is None else self._show_estimate(*found)

    def _check_form(self) -> None:
        if self.arguments:
            message = f"the argument {self.arguments[0]!r} selects the analysis of a model"
            remedy = "remove it, or remove :run: and :model: for the analysis"
            raise NoAnswerError.because(message, remedy)
        if self.options.keys().isdisjoint(ASKING):
            hint = "name a size class or a model, as in '.. verl-memory:: 8B', or set :run: or :model:"
            raise NoAnswerError.because(hint, code="unknown_size")
        if self.given.keys() >= set(ASKING):
            raise NoAnswerError.because(":run: and :model: cannot be combined", "keep one of them")
        if "run" in self.given:
            mixed = next((f":{name}:" for name in OF_MODEL if name in self.given), "")
            if mixed or self.content:
                what = f"{mixed} requires" if mixed else "settings require"
                raise NoAnswerError.because(f"{what} :model:", "a run has its own")

    def _of_run(self) -> tuple[Answer, str, Measured | None]:
        """Return the answer, its title, and the measured figures of the run."""
        from ..answer.answer import answer_run
        from ..memory.recorded import recorded_run
        from ..texts import run_title

        name = self.values["run"]
        run = recorded_run(self.data, name)
        try:
            found = answer_run(run, self.data)
        except NoAnswerError as error:
            if not run.settings:  # the message names the run
                raise
            raise NoAnswerError.because(
                f"the run {name!r} cannot be estimated: {error}", code=error.diagnostics[0].code
            ) from None
        return found, run_title(run), run.measured

    def _of_model(self) -> tuple[Answer, str, None] | None:
        """Return the answer and its title; if there is none, record problems and return None."""
        from ..answer.answer import answer_settings
        from ..memory.registries import known_model
        from ..memory.request import Request
        from ..memory.versions import CURRENT

        settings = self.settings()
        count, gpu = self.named_gpus()
        model, note = known_model(self.values["model"], self.data.architectures)
        version = self.values["verl-version"] or CURRENT
        request = Request(model, dict(settings), count or 8, gpu or "H100", version=version, model_note=note)
        found = self.of_settings(answer_settings, request, self.data)
        if found is None:
            return None
        if not self.problems:
            self.note_all(found.best.estimate.warnings)
        return found, _("{model} on {gpus}").format(model=model, gpus=f"{count}×{gpu}"), None

    def _show_estimate(self, answer: Answer, title: str, measured: Measured | None) -> list[nodes.Node]:
        from ..memory.recorded import credible
        from ..views import estimate as render
        from ..views.charts import phase_chart

        found = answer.best.estimate
        caption = _("{what}: memory per GPU, phase by phase").format(what=title)
        made: dict[str, Callable[[], Iterable[nodes.Node]]] = dict.fromkeys(self.values["show"], list)
        made["answer"] = lambda: self._answer(answer, measured)
        if shown := credible(found):
            name = self.values["run"] or title
            made |= {
                "chart": lambda: [self.chart(phase_chart(shown, caption, measured), name)],
                "table": lambda: [self.table(render.phase_rows(shown), caption)],
                "components": lambda: render.peak_parts(shown),
                "host": lambda: render.host_parts(shown),
            }
        content = [node for piece in self.values["show"] for node in made[piece]()]
        if shown and {"components", "host"}.intersection(self.values["show"]):
            content.append(render.evidence_legend())
        return [*content, *render.notes(found)]

    def _answer(self, found: Answer, measured: Measured | None) -> list[nodes.Node]:
        """Return the answer in words, with related recorded runs."""
        from ..views.answer import evidence_items
        from ..views.estimate import answer

        runs = evidence_items(found, self.values["run"], partial(row_link, self.env))
        return answer(found, measured, runs)
