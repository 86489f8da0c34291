"""``.. verl-memory::``: where the memory goes, by the analysis of a model or the estimate of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from ...analysis.analysis import LIMITS
from ...analysis.questions import Memory, Names, OwnModels, SharingSteps
from ...catalog.names import ASSUMED_SUBJECTS, COMPONENTS, TOTAL
from ...diagnostics import Code
from ...i18n import _, plural
from ...views.memory import (
    DIFFERENT_GPUS,
    SUMMARY_CLASS,
    TABLE_CLASS,
    formula_list,
    specification_rows,
    summary_rows,
    waterfall_rows,
)
from ...views.waterfall_chart import waterfall_chart
from . import options
from .analysis import WITHOUT_REMARKS, AnalysisDirective
from .base import ABOUT_TABLE, TABLE_OPTIONS, VerlDirective
from .estimate import ASKING, VerlEstimate
from .options import Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    ),
    Option(
        "batch-size", "Sequences at a time.", f"1 to {LIMITS['batch-size']:,}", ":verl:memory:`batch size`"
    ),
    Option(
        "sequence-length",
        "Tokens of each sequence.",
        f"1 to {LIMITS['sequence-length']:,}",
        ":verl:memory:`sequence length`",
    ),
    Option("gib", "Show sizes in GiB too."),
    WITHOUT_REMARKS,
    *ABOUT_TABLE,
)
OPTIONS = (
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
    ),
    *NUMBERS,
)


class VerlMemory(SphinxDirective):
    """The estimate of a run or of settings, where an option asks for it, or else the analysis of a model."""

    has_content = VerlDirective.has_content
    optional_arguments = VerlDirective.optional_arguments
    final_argument_whitespace = VerlDirective.final_argument_whitespace
    #: The two forms; each has options of its own.
    forms: ClassVar[Mapping[str, type[VerlDirective]]]
    option_spec: ClassVar[options.AnyOption] = options.AnyOption()

    def run(self) -> list[nodes.Node]:
        """Leave it to one of the two."""
        foreign = bool(self.content) or not self.options.keys() <= ModelAnalysis.option_spec.keys()
        asks = set(ASKING).intersection(self.options) or (foreign and not self.arguments)
        form = VerlEstimate if asks else ModelAnalysis
        return form(
            self.name,
            self.arguments,
            self.options,
            self.content,
            self.lineno,
            self.content_offset,
            self.block_text,
            self.state,
            self.state_machine,
        ).run()


class ModelAnalysis(AnalysisDirective):
    """Components, chain and running totals of one model."""

    option_spec: ClassVar[options.AnyOption] = options.AnyOption.of(*OPTIONS)

    def check_text(self) -> None:
        """Settings belong to an estimate."""
        if self.content:
            raise OptionError("settings go with :model: and :gpus:, and a model by its size has none")

    def show(self, given: Mapping[str, str], problems: options.Problems) -> list[nodes.Node]:
        """The pieces asked for, in the order asked for."""
        numbers = options.counts(given, LIMITS, problems)
        pieces: tuple[str, ...] = PIECES
        steps: tuple[str, ...] | None = None
        with problems.noted():
            pieces = options.with_table(options.choices(given, "show", PIECES) or PIECES)
        with problems.noted():
            steps = self._steps(given)
        with problems.noted():
            self._check_combination(given, pieces, steps)
        if not self.arguments:
            hint = (
                "name a size class or a model, as in '.. verl-memory:: 8B', a run with :run:, or a "
                "checkpoint with :model: and :gpus:"
            )
            raise OptionError(hint, Code.unknown_size)
        name = " ".join(self.arguments[0].split())
        if problems:
            self.ask(Memory(name))  # to say in the same build that there is no such model
            return []
        sizes = numbers["gpus"], numbers["batch-size"], numbers["sequence-length"]
        return self._pieces(self.ask(Memory(name, *sizes, steps)), pieces)

    def _steps(self, given: Mapping[str, str]) -> tuple[str, ...] | None:
        if given.get("steps", "").strip().lower() == "none":
            return ()
        return options.choices(given, "steps", self.ask(Names("steps")), "none") if "steps" in given else None

    def _check_combination(
        self, given: Mapping[str, str], pieces: tuple[str, ...], steps: tuple[str, ...] | None
    ) -> None:
        if "gpus" in given:
            sharing = self.ask(SharingSteps())
            taken = self.ask(Names("steps")) if steps is None else steps
            if not set(sharing).intersection(taken):
                needed = " or ".join(repr(name) for name in sharing) or "that shares something among GPUs"
                raise OptionError(
                    f":gpus: has no effect without the step {needed}; take it, or leave :gpus: out"
                )
        options.need_table(given, ("gib", *TABLE_OPTIONS), pieces)

    def _pieces(self, outcome: Outcome, pieces: tuple[str, ...]) -> list[nodes.Node]:
        subjects = [*ASSUMED_SUBJECTS] if "specification" in pieces else []
        if {"formulas", "table"}.intersection(pieces):
            subjects += [*COMPONENTS, TOTAL, *(step.name for step in outcome.steps)]
        marks, remarks = self.remarks(subjects)
        name = outcome.shape.name
        made: dict[str, nodes.Node] = {}
        for piece in pieces:
            if piece == "specification":
                rows = specification_rows(outcome, marks)
                caption = _("{model}: the model").format(model=name)
                made[piece] = self.table(TABLE_CLASS, rows, caption, with_options=False)
            elif piece == "formulas":
                made[piece] = formula_list(outcome, {} if "table" in pieces else marks)
            elif piece == "chart":
                made[piece] = self.chart(waterfall_chart(outcome.waterfall(), _caption(outcome)), name)
            else:
                rows = waterfall_rows(outcome, marks, with_gib="gib" in self.options)
                made[piece] = self.table(TABLE_CLASS, rows, _caption(outcome), with_options=True)
        return [*made.values(), *remarks]


VerlMemory.forms = {"analysis": ModelAnalysis, "estimate": VerlEstimate}


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
    """One model a row."""

    option_spec: ClassVar[options.AnyOption] = options.AnyOption.of(*NUMBERS)

    def show(self, given: Mapping[str, str], problems: options.Problems) -> list[nodes.Node]:
        """The table."""
        numbers = options.counts(given, LIMITS, problems)
        outcomes: list[Outcome] = []
        with problems.noted():
            for name in self.models(OwnModels()):
                question = Memory(name, numbers["gpus"], numbers["batch-size"], numbers["sequence-length"])
                with problems.noted():
                    outcomes.append(self.ask(question))
        if problems:
            return []
        steps = [step.name for outcome in outcomes[:1] for step in outcome.steps]
        marks, remarks = self.remarks([TOTAL, *steps])
        rows = summary_rows(outcomes, marks, with_gib="gib" in self.options)
        table = self.table(SUMMARY_CLASS, rows, _("GB per GPU, step by step"), with_options=True)
        if len({outcome.gpus for outcome in outcomes}) > 1:
            note = nodes.paragraph("", _(DIFFERENT_GPUS), classes=["verl-legend"])
            return [table, note, *remarks]
        return [table, *remarks]
