"""``.. verl-memory::`` and its summary: the analysis of models, and the estimate of a run or of settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from ...catalog.names import ASSUMED_SUBJECTS, COMPONENTS, LIMITS, TOTAL
from ...diagnostics import Code, NoAnswerError
from ...i18n import _, plural
from . import estimate, options
from .base import ABOUT_TABLE, TABLE_OPTIONS
from .computed import WITHOUT_REMARKS, AnalysisDirective, SettingsDirective
from .options import Option, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from docutils import nodes

    from ...analysis.analysis import Outcome

#: What can be shown of a model.
PIECES = ("specification", "formulas", "chart", "table")

#: Options of every table of the analysis; the first three have the names in ``LIMITS``.
NUMBERS = (
    Option(
        "gpus",
        "The number of GPUs that share the model.",
        f"1 to {LIMITS['gpus']:,}",
        "as recorded for the model, otherwise :verl:memory:`GPUs`",
        number(LIMITS["gpus"]),
    ),
    Option(
        "batch-size",
        "Sequences at a time.",
        f"1 to {LIMITS['batch-size']:,}",
        ":verl:memory:`batch size`",
        number(LIMITS["batch-size"]),
    ),
    Option(
        "sequence-length",
        "Tokens of each sequence.",
        f"1 to {LIMITS['sequence-length']:,}",
        ":verl:memory:`sequence length`",
        number(LIMITS["sequence-length"]),
    ),
    Option("gib", "Show sizes in GiB too."),
    WITHOUT_REMARKS,
    *ABOUT_TABLE,
)
ANALYSIS_OPTIONS = (
    Option(
        "steps",
        "The optimisations to take, in this order.",
        "names of steps, separated by commas, or ``none``",
        "all: ``fsdp``, ``gradient-checkpointing``, ``activation-offload``, ``dynamic-batching``",
    ),
    Option(
        "show",
        "What to show, in this order. ``chart`` is drawn on pages of HTML and has the table behind it: where "
        "``table`` is not asked for, it follows the chart.",
        f"any of {', '.join(f'``{piece}``' for piece in PIECES)}, separated by commas",
        "all of it",
        options.pieces(*PIECES),
    ),
    *NUMBERS,
)


class VerlMemory(SettingsDirective):
    """The estimate of a run or of settings, where an option asks for it, or else the analysis of a model."""

    directive = "verl-memory"

    @classmethod
    def forms(cls) -> Mapping[str, tuple[Option, ...]]:
        """Return the options of both forms."""
        return {"analysis": ANALYSIS_OPTIONS, "estimate": estimate.OPTIONS}

    @property
    def form(self) -> str:
        """Return the form that is asked for, or that has the options and the text."""
        if not self.options.keys().isdisjoint(estimate.ASKING):
            return "estimate"
        foreign = bool(self.content) or not self.options.keys() <= {item.name for item in ANALYSIS_OPTIONS}
        return "estimate" if foreign and not self.arguments else "analysis"

    def refuse_option(self, name: str) -> NoReturn:
        """Name what an estimate has instead of an option of the analysis."""
        if self.form == "estimate":
            estimate.refuse_option(name)
        super().refuse_option(name)

    def check_text(self) -> None:
        """Accept settings for an estimate only."""
        if self.content and self.form == "analysis":
            raise NoAnswerError.because(
                "settings go with :model: and :gpus:, and a model by its size has none"
            )

    def show(self) -> list[nodes.Node]:
        """Return the pieces asked for, in the order asked for."""
        return estimate.show(self) if self.form == "estimate" else self._analysis()

    def _analysis(self) -> list[nodes.Node]:
        """Return components, chain and running totals of one model."""
        from ...analysis.questions import Memory

        pieces: tuple[str, ...] = self.values.get("show", PIECES)
        steps: tuple[str, ...] | None = None
        with self.noted("steps"):
            steps = self._steps()
        with self.noted("gpus"):
            self._check_sharing(steps)
        self.need_table(("gib", *TABLE_OPTIONS), pieces)
        if not self.arguments:
            hint = (
                "name a size class or a model, as in '.. verl-memory:: 8B', a run with :run:, or a "
                "checkpoint with :model: and :gpus:"
            )
            raise NoAnswerError.because(hint, code=Code.unknown_size)
        name = " ".join(self.arguments[0].split())
        if self.problems:
            self.ask(Memory(name))  # to say in the same build that there is no such model
            return []
        gpus, batch, length = map(self.values.get, LIMITS)
        return self._pieces(self.ask(Memory(name, gpus, batch, length, steps)), pieces)

    def _steps(self) -> tuple[str, ...] | None:
        from ...analysis.questions import Names

        text = self.given.get("steps")
        if text is None or text.strip().lower() == "none":
            return None if text is None else ()
        return options.choices(self.ask(Names("steps")), "none")(text)

    def _check_sharing(self, steps: tuple[str, ...] | None) -> None:
        """Refuse a number of GPUs where no step shares anything among them."""
        from ...analysis.questions import Names, SharingSteps

        if "gpus" in self.given:
            sharing = self.ask(SharingSteps())
            taken = self.ask(Names("steps")) if steps is None else steps
            if not set(sharing).intersection(taken):
                needed = " or ".join(repr(name) for name in sharing) or "that shares something among GPUs"
                message = f"has no effect without the step {needed}"
                raise NoAnswerError.because(message, "take it, or leave :gpus: out")

    def _pieces(self, outcome: Outcome, pieces: tuple[str, ...]) -> list[nodes.Node]:
        from ...views import analysis as render
        from ...views.analysis import waterfall_chart

        subjects = [*ASSUMED_SUBJECTS] if "specification" in pieces else []
        if {"formulas", "table"}.intersection(pieces):
            subjects += [*COMPONENTS, TOTAL, *(step.name for step in outcome.steps)]
        marks, remarks = self.remarks(subjects)
        name = outcome.shape.name
        made: dict[str, nodes.Node] = {}
        for piece in pieces:
            if piece == "specification":
                rows = render.specification_rows(outcome, marks)
                caption = _("{model}: the model").format(model=name)
                made[piece] = self.table(render.TABLE_CLASS, rows, caption, with_options=False)
            elif piece == "formulas":
                made[piece] = render.formula_list(outcome, {} if "table" in pieces else marks)
            elif piece == "chart":
                made[piece] = self.chart(waterfall_chart(outcome.waterfall(), _caption(outcome)), name)
            else:
                rows = render.waterfall_rows(outcome, marks, with_gib="gib" in self.given)
                made[piece] = self.table(render.TABLE_CLASS, rows, _caption(outcome), with_options=True)
        return [*made.values(), *remarks]


def _caption(outcome: Outcome) -> str:
    batch, length = outcome.batch_size, outcome.sequence_length
    caption = plural(
        "{model}: memory for {batch} sequence of {length} tokens",
        "{model}: memory for {batch} sequences of {length} tokens",
        batch,
    ).format(model=outcome.shape.name, batch=batch, length=length)
    if all(step.gpus is None for step in outcome.steps):
        return caption
    gpus = plural("{caption} on {count} GPU", "{caption} on {count} GPUs", outcome.gpus)
    return gpus.format(caption=caption, count=outcome.gpus)


class VerlMemorySummary(AnalysisDirective):
    """A table with one model a row."""

    directive = "verl-memory-summary"
    takes = NUMBERS

    def show(self) -> list[nodes.Node]:
        """Return the table."""
        from ...analysis.questions import Memory, OwnModels
        from ...views import analysis as render
        from ...views.blocks import legend

        sizes = tuple(map(self.values.get, LIMITS))
        outcomes: list[Outcome] = []
        for name in self.models(OwnModels()):
            with self.noted():
                outcomes.append(self.ask(Memory(name, *sizes)))
        if self.problems:
            return []
        steps = [step.name for outcome in outcomes[:1] for step in outcome.steps]
        marks, remarks = self.remarks([TOTAL, *steps])
        rows = render.summary_rows(outcomes, marks, with_gib="gib" in self.given)
        table = self.table(render.SUMMARY_CLASS, rows, _("GB per GPU, step by step"), with_options=True)
        if len({outcome.gpus for outcome in outcomes}) > 1:
            return [table, legend(_(render.DIFFERENT_GPUS)), *remarks]
        return [table, *remarks]
