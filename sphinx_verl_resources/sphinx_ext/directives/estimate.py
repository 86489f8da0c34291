"""The estimate in ``.. verl-memory::`` with ``:run:`` or ``:model:``: what verl takes, phase by phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from ...diagnostics import NoAnswerError, did_you_mean
from ...i18n import _
from . import options
from .base import ABOUT_TABLE, TABLE_OPTIONS
from .options import Option

if TYPE_CHECKING:
    from docutils import nodes

    from ...catalog.models.run import Measured
    from ...estimator.estimate import Estimate
    from ...estimator.sweeps import SavingSteps
    from ...estimator.versions import Version
    from ...query import Query
    from .computed import SettingsDirective


def _version(text: str) -> Version:
    from ...estimator.versions import CURRENT, version_of, version_text

    found = version_of(text.strip())
    if found is None:
        raise NoAnswerError.because(
            f"{text!r} is no release of verl", f"write it like {version_text(CURRENT)}"
        )
    return found


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
OPTIONS = (
    Option("run", "The recorded run, whose file says everything else.", "id of a run"),
    Option(
        "model",
        "The checkpoint. It goes with ``gpus`` and with settings below the options: YAML, with verl's keys "
        "dotted or nested. What is not set has verl's default.",
        "Hugging Face name",
    ),
    Option(
        "gpus",
        "How many GPUs and which. It goes with ``model``.",
        "count and name, such as ``8*H100``",
        read=options.resource,
    ),
    Option(
        "verl-version",
        "The release of verl. It goes with ``model``.",
        "release, such as ``v0.7.1``",
        "the newest one known",
        _version,
    ),
    Option(
        "show",
        "What to show, in this order. ``answer``: whether it fits, the peak with its range, the peak "
        "phase and what relieves it most, what verl's metric prints, host memory. ``chart``: a bar for each "
        "phase against what the GPU offers, drawn on pages of HTML, with the table behind it. ``table``: a "
        "row for each phase. ``components``: each part of the peak phase with its formula, the numbers "
        "put in, and how well it is known. ``host``: the same for the memory of a node. ``savings``: what "
        "each setting that saves memory buys, drawn and as a table, when all of them are switched off and "
        "then on again, one after another. Settings that the estimate leaves out are listed below in any "
        "case.",
        f"any of {', '.join(f'``{piece}``' for piece in PIECES)}, separated by commas",
        f"``{', '.join(DEFAULT_PIECES)}``",
        options.pieces(*PIECES),
    ),
    *ABOUT_TABLE,
)


@dataclass(frozen=True)
class Found:
    """An estimate with what is known beside it.

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


def refuse_option(name: str) -> NoReturn:
    """Raise for an option that an estimate does not have."""
    if name in INSTEAD:
        message = "is about the analysis of a model"
        raise NoAnswerError.because(message, INSTEAD[name], key=f":{name}")
    hint = did_you_mean(name, [*(option.name for option in OPTIONS), *INSTEAD])
    raise NoAnswerError.because("unknown option", hint, key=f":{name}")


def show(directive: SettingsDirective) -> list[nodes.Node]:
    """Return the pieces asked for, in the order asked for, and what the estimate leaves out."""
    pieces: tuple[str, ...] = directive.values.get("show", DEFAULT_PIECES)
    directive.need_table(TABLE_OPTIONS, pieces)
    _check_form(directive)
    found = None
    with directive.noted():
        if "model" in directive.given:
            found = _of_model(directive)
        elif "run" in directive.given:
            found = _of_run(directive)
    if directive.problems or found is None:
        return []
    return _pieces(directive, found, pieces)


def _check_form(directive: SettingsDirective) -> None:
    given = directive.given
    if directive.arguments:
        message = f"the argument {directive.arguments[0]!r} asks for the analysis of a model"
        remedy = "leave it out, or leave :run: and :model: out for the analysis"
        raise NoAnswerError.because(message, remedy)
    if directive.options.keys().isdisjoint(ASKING):
        raise NoAnswerError.because("name a run with :run:, or a checkpoint with :model: and :gpus:")
    if given.keys() >= set(ASKING):
        raise NoAnswerError.because(":run: and :model: do not go together", "keep one of them")
    if "run" in given:
        mixed = next((f":{name}:" for name in OF_MODEL if name in given), "")
        if mixed or directive.content:
            what = f"{mixed} goes" if mixed else "settings go"
            raise NoAnswerError.because(f"{what} with :model:", "a run has its own")


def _of_run(directive: SettingsDirective) -> Found:
    from ...estimator.questions import RecordedRun, RunEstimate, Savings
    from ...views.runs import run_title

    name = directive.values["run"]
    run = directive.ask(RecordedRun(name))
    try:
        found = directive.ask(RunEstimate(name))
    except NoAnswerError as error:
        if not run.settings:  # the message names the run
            raise
        raise NoAnswerError.because(
            f"the run {name!r} cannot be estimated: {error}", code=error.code
        ) from None
    return Found(run_title(run), found, Savings(RunEstimate(name)), run.measured)


def _of_model(directive: SettingsDirective) -> Found | None:
    from ...estimator.questions import ModelEstimate, Savings

    body = directive.settings()
    count, gpu = directive.named_gpus()
    version, model = directive.values.get("verl-version"), directive.values["model"]
    query = ModelEstimate(model, count or 8, gpu or "H100", body.config, version)
    try:
        found = directive.ask(query)
    except NoAnswerError as error:
        directive.note_all(error.diagnostics, body)
        return None
    if not directive.problems:
        directive.note_all(found.warnings, body)
    title = _("{model} on {gpus}").format(model=model, gpus=f"{count}*{gpu}")
    return Found(title, found, Savings(query))


def _pieces(directive: SettingsDirective, found: Found, pieces: tuple[str, ...]) -> list[nodes.Node]:
    from ...views import estimate as render
    from ...views.analysis import TABLE_CLASS
    from ...views.charts import phase_chart

    made: list[nodes.Node] = []
    estimate, measured = found.estimate, found.measured
    caption = _("{what}: memory per GPU, phase by phase").format(what=found.title)
    for piece in pieces:
        if piece == "answer":
            made += render.answer(estimate, measured)
        elif piece == "chart":
            drawn = phase_chart(estimate, caption, measured)
            made.append(directive.chart(drawn, directive.options.get("run", found.title)))
        elif piece == "table":
            rows = render.phase_rows(estimate)
            made.append(directive.table(TABLE_CLASS, rows, caption, with_options=True))
        elif piece == "components":
            label = _("The parts of the peak phase, {phase}:").format(phase=_(estimate.peak_phase.label))
            made += render.part_list(label, estimate.peak_phase.breakdown)
        elif piece == "savings":
            made += _savings(directive, found)
        else:
            made += render.part_list(_("The parts of a node's host memory:"), estimate.host)
    if {"components", "host"}.intersection(pieces):
        made.append(render.evidence_legend())
    made += render.notes(estimate)
    return made


def _savings(directive: SettingsDirective, found: Found) -> list[nodes.Node]:
    """Return what each setting that saves memory buys: drawing, table, and how to read it."""
    from ...views.analysis import TABLE_CLASS
    from ...views.charts import savings_chart
    from ...views.estimate import saving_note, saving_rows

    steps = directive.ask(found.savings)
    caption = _("{what}: what each setting saves").format(what=found.title)
    drawn = savings_chart(steps, caption)
    table = directive.table(TABLE_CLASS, saving_rows(steps), caption, with_options=False)
    name = f"savings-{directive.options.get('run', found.title)}"
    return [directive.chart(drawn, name), table, saving_note()]
