"""``.. verl-memory::`` with ``:run:`` or ``:model:``: what verl takes, phase by phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...catalog.selection import REGISTRIES
from ...diagnostics import Code, NoAnswerError, suggest_or
from ...i18n import _
from ..domain import VerlDomain
from ..queries import KnownValue
from . import options
from .base import ABOUT_TABLE, TABLE_OPTIONS
from .options import Option, OptionError
from .settings import Body, SettingsDirective

if TYPE_CHECKING:
    from collections.abc import Mapping

    from docutils import nodes

    from ...catalog.models.run import Measured
    from ...estimator.estimate import Estimate
    from ...estimator.savings import SavingSteps
    from ...estimator.versions import Version
    from ...query import Query

#: The options that ask for an estimate.
ASKING = ("run", "model")
#: What goes with ``:model:`` only.
OF_MODEL = ("gpus", "verl-version")
#: What can be shown of an estimate, and what is if nobody chooses.
PIECES = ("answer", "chart", "table", "components", "host", "savings")
DEFAULT_PIECES = ("answer", "table")
#: Options of the analysis, and what an estimate has instead.
INSTEAD = {
    "batch-size": "set data.train_batch_size below the options",
    "sequence-length": "set data.max_prompt_length and data.max_response_length below the options",
    "steps": "set the keys of verl below the options",
    "gib": "an estimate is in GiB",
    "no-remarks": "an estimate has none",
}
MOST_GPUS = 100_000
OPTIONS = (
    Option("run", "The recorded run, whose file says everything else.", "id of a run"),
    Option(
        "model",
        "The checkpoint. It goes with ``gpus`` and with settings below the options: YAML, with verl's keys "
        "dotted or nested. What is not set has verl's default.",
        "Hugging Face name",
    ),
    Option("gpus", "How many GPUs and which. It goes with ``model``.", "count and name, such as ``8*H100``"),
    Option(
        "verl-version",
        "The release of verl. It goes with ``model``.",
        "release, such as ``v0.7.1``",
        "the newest one known",
    ),
    Option(
        "show",
        "What to show, in this order. ``answer``: whether it fits, the peak with its range, the binding "
        "phase and what relieves it most, what verl's metric prints, host memory. ``chart``: a bar for each "
        "phase against what the GPU offers, drawn on pages of HTML, with the table behind it. ``table``: a "
        "row for each phase. ``components``: each part of the binding phase with its formula, the numbers "
        "put in, and how well it is known. ``host``: the same for the memory of a node. ``savings``: what "
        "each setting that saves memory buys, drawn and as a table, when all of them are switched off and "
        "then on again, one after another. Settings that the estimate leaves out are listed below in any "
        "case.",
        f"any of {', '.join(f'``{piece}``' for piece in PIECES)}, separated by commas",
        f"``{', '.join(DEFAULT_PIECES)}``",
    ),
    *ABOUT_TABLE,
)


class VerlEstimate(SettingsDirective):
    """The estimate of a recorded run, or of a model with settings of one's own."""

    option_spec: ClassVar[options.AnyOption] = options.AnyOption.of(*OPTIONS, elsewhere=INSTEAD)

    def show(self, given: Mapping[str, str], problems: options.Problems) -> list[nodes.Node]:
        """The pieces asked for, in the order asked for, and what the estimate leaves out."""
        pieces: tuple[str, ...] = DEFAULT_PIECES
        with problems.noted():
            pieces = options.with_table(options.choices(given, "show", PIECES) or DEFAULT_PIECES)
            options.need_table(given, TABLE_OPTIONS, pieces)
        with problems.noted():
            self._check_analysis(given)
        self._check_form(given)
        found = None
        with problems.noted():
            if "model" in given:
                found = self._of_model(given, self.settings(problems), problems)
            elif "run" in given:
                found = self._of_run(given)
        if problems or found is None:
            return []
        return self._pieces(found, pieces)

    def _check_form(self, given: Mapping[str, str]) -> None:
        if self.arguments:
            hint = "leave it out, or leave :run: and :model: out for the analysis"
            raise OptionError(f"the argument {self.arguments[0]!r} asks for the analysis of a model; {hint}")
        if not set(ASKING) & set(self.options):
            raise OptionError("name a run with :run:, or a checkpoint with :model: and :gpus:")
        if set(ASKING) <= set(given):
            raise OptionError(":run: and :model: do not go together; keep one of them")
        if "run" in given:
            mixed = next((f":{name}:" for name in OF_MODEL if name in given), "")
            if mixed or self.content:
                what = f"{mixed} goes" if mixed else "settings go"
                raise OptionError(f"{what} with :model:; a run has its own")

    def _check_analysis(self, given: Mapping[str, str]) -> None:
        name = next((name for name in INSTEAD if name in given), None)
        if name is not None:
            raise OptionError(f":{name}: is about the analysis of a model; {INSTEAD[name]}")

    def _of_run(self, given: Mapping[str, str]) -> Found:
        from ...estimator.questions import RecordedRun, RunEstimate, RunSavings
        from ...views.runs import run_title

        name = given["run"].strip()
        run = self.ask(RecordedRun(name))
        try:
            found = self.ask(RunEstimate(name))
        except NoAnswerError as error:
            if not run.settings:  # the message names the run
                raise
            raise OptionError(f"the run {name!r} cannot be estimated: {error}", error.code) from None
        return Found(run_title(run), found, RunSavings(name), run.measured)

    def _of_model(self, given: Mapping[str, str], body: Body, problems: options.Problems) -> Found | None:
        from ...estimator.questions import ModelEstimate, Savings

        count, gpu, version = 0, "", None
        with problems.noted():
            count, gpu = named_gpus(VerlDomain.of(self.env), given)
        with problems.noted():
            version = _version(given)
        model = given["model"].strip()
        question = ModelEstimate(model, count or 8, gpu or "H100", body.config, version)
        try:
            found = self.ask(question)
        except NoAnswerError as error:
            self.note_problems(error.diagnostics, body, problems)
            return None
        if not problems:
            self.note_problems(found.warnings, body, problems)
        title = _("{model} on {gpus}").format(model=model, gpus=f"{count}*{gpu}")
        return Found(title, found, Savings(question))

    def _pieces(self, found: Found, pieces: tuple[str, ...]) -> list[nodes.Node]:
        from ...views import estimate as render
        from ...views.phase_chart import phase_chart

        made: list[nodes.Node] = []
        title, estimate, measured = found.title, found.estimate, found.measured
        for piece in pieces:
            if piece == "answer":
                made += render.answer(estimate, measured)
            elif piece == "chart":
                drawn = phase_chart(estimate, _caption(title), measured)
                made.append(self.chart(drawn, self.options.get("run", title)))
            elif piece == "table":
                rows = render.phase_rows(estimate)
                made.append(self.table(render.TABLE_CLASS, rows, _caption(title), with_options=True))
            elif piece == "components":
                label = _("The parts of the binding phase, {phase}:").format(
                    phase=_(estimate.peak_phase.label)
                )
                made += render.part_list(label, estimate.peak_phase.breakdown)
            elif piece == "savings":
                made += self._savings(found)
            else:
                made += render.part_list(_("The parts of a node's host memory:"), estimate.host)
        if {"components", "host"}.intersection(pieces):
            made.append(render.evidence_legend())
        made += render.notes(estimate)
        return made

    def _savings(self, found: Found) -> list[nodes.Node]:
        """What each setting that saves memory buys: drawing, table, and how to read it."""
        from ...views import estimate as render
        from ...views import savings

        steps = self.ask(found.savings)
        caption = _("{what}: what each setting saves").format(what=found.title)
        drawn = savings.savings_chart(steps, caption)
        table = self.table(render.TABLE_CLASS, savings.saving_rows(steps), caption, with_options=False)
        name = f"savings-{self.options.get('run', found.title)}"
        return [self.chart(drawn, name), table, savings.saving_note()]


@dataclass(frozen=True)
class Found:
    """What is asked for.

    Attributes:
        title: of what.
        estimate: of it.
        savings: asks what each setting that saves memory buys.
        measured: what a run reported, if anything.
    """

    title: str
    estimate: Estimate
    savings: Query[SavingSteps]
    measured: Measured | None = None


def _caption(title: str) -> str:
    return _("{what}: memory per GPU, phase by phase").format(what=title)


def known_gpu(domain: VerlDomain, name: str, option: str) -> None:
    """Make sure that a GPU is in the registry; the page depends on that from now on.

    Raises:
        OptionError: it is not.
    """
    domain.ask(KnownValue("gpu", name))
    if domain.catalog.gpus.get(name) is None:
        hint = suggest_or(name, domain.catalog.gpus.names, REGISTRIES["gpu"])
        raise OptionError(f":{option}: there is no GPU {name!r}; {hint}", Code.unknown_gpu)


def named_gpus(domain: VerlDomain, given: Mapping[str, str]) -> tuple[int, str]:
    """How many GPUs and which; the page depends on the registry's knowing it.

    Raises:
        OptionError: they are not named, or in a way that cannot be used.
    """
    if "gpus" not in given:
        raise OptionError("say on how many GPUs and which, as in :gpus: 8*H100")
    count, gpu = options.resource(given, "gpus", MOST_GPUS)
    known_gpu(domain, gpu, "gpus")
    return count, gpu


def _version(given: Mapping[str, str]) -> Version | None:
    from ...estimator.versions import CURRENT, version_of, version_text

    if "verl-version" not in given:
        return None
    found = version_of(given["verl-version"].strip())
    if found is None:
        text = f"{given['verl-version']!r} is no release of verl"
        raise OptionError(f":verl-version: {text}; write it like {version_text(CURRENT)}")
    return found
