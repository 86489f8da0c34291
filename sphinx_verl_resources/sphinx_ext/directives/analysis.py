"""The rest of the analysis: requirements, advised settings, printed figures, and what else it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes

from ...catalog.names import ASSUMED_SUBJECTS, COMPONENTS, REQUIREMENTS
from ...diagnostics import Code, Diagnostic, Location, NoAnswerError, Severity, did_you_mean
from ...i18n import _
from .base import ABOUT_TABLE, TABLE_OPTIONS
from .computed import WITHOUT_REMARKS, AnalysisDirective
from .options import Option, choices

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...catalog.models.analysis import Cause

PIECES = ("yaml", "command-line", "table")


class VerlPublished(AnalysisDirective):
    """A table of printed figures for each model, and the causes of all differences."""

    directive = "verl-published"

    def show(self) -> list[nodes.Node]:
        """Return tables, then causes."""
        from ...analysis.questions import Names, OriginalFigures
        from ...views import analysis as render

        answers = []
        for name in self.models(Names("printed")):
            with self.noted():
                answers.append((name, *self.ask(OriginalFigures(name))))
        if self.problems:
            return []
        causes: dict[str, Cause] = {cause.name: cause for answer in answers for cause in answer[-1]}
        targets = self.targets({code: nodes.make_id(f"verl-cause-{code}") for code in causes})
        anchors = {code: target["ids"][0] for code, target in targets.items()}
        tables: list[nodes.Node] = []
        for name, found, _causes in answers:
            rows = render.original_rows(found, anchors)
            caption = _("{model}, as printed").format(model=name)
            tables.append(self.table(render.ORIGINAL_CLASS, rows, caption, with_options=False))
        return [*tables, render.cause_list(causes.values(), targets)] if causes else tables


class VerlRequirements(AnalysisDirective):
    """A table of verdicts for each model."""

    directive = "verl-requirements"
    takes = (WITHOUT_REMARKS,)

    def show(self) -> list[nodes.Node]:
        """Return one table a model, what the columns are, and remarks."""
        from ...analysis.questions import Assumed, Names, Required
        from ...views import analysis as render

        answers = []
        for name in self.models(Names("requirements")):
            with self.noted():
                answers.append((name, self.ask(Required(name))))
        if self.problems:
            return []
        marks, remarks = self.remarks([REQUIREMENTS])
        tables: list[nodes.Node] = []
        for name, verdicts in answers:
            rows = render.requirement_rows(verdicts, marks.get(REQUIREMENTS, ()))
            caption = _("{model}: how many GPUs").format(model=name)
            tables.append(self.table(render.REQUIREMENTS_CLASS, rows, caption, with_options=False))
        legend = render.requirement_legend(self.ask(Assumed()).memory_limit)
        return [legend, *tables, *remarks]


class VerlConfigAdvice(AnalysisDirective):
    """The settings advised for a model: as YAML, as overrides, and explained."""

    directive = "verl-config"
    takes = (
        Option(
            "show",
            "What to show, in this order: the settings to copy, as YAML or as overrides, and what each key "
            "does.",
            f"any of {', '.join(f'``{piece}``' for piece in PIECES)}, separated by commas",
            "all of it",
            choices(PIECES),
        ),
        WITHOUT_REMARKS,
        *ABOUT_TABLE,
    )

    def show(self) -> list[nodes.Node]:
        """Return the pieces asked for, in the order asked for."""
        from ...analysis.questions import Configured, Names
        from ...views import advice as render

        pieces = self.values.get("show", PIECES)
        if not self.arguments:
            known = ", ".join(self.ask(Names("configurations")))
            message = f"name the model that the settings are for: {known}"
            raise NoAnswerError.because(message, code=Code.unknown_size)
        record, keys = self.ask(Configured(self.arguments[0].strip()))
        self.need_table(TABLE_OPTIONS, pieces)
        if self.problems:
            return []
        marks, remarks = self.remarks(record.settings) if "table" in pieces else ({}, [])
        made: list[nodes.Node] = []
        for piece in pieces:
            if piece == "yaml":
                made.append(render.settings_yaml(record.settings))
            elif piece == "command-line":
                made.append(render.settings_command(record.settings, keys))
            else:
                rows = render.settings_rows(record.settings, keys, marks)
                caption = _("{model}: settings").format(model=record.name)
                made.append(self.table(render.CONFIG_CLASS, rows, caption, with_options=True))
        self._warn(record.settings)
        return [*made, *remarks]

    def _warn(self, settings: Iterable[str]) -> None:
        """Warn where the settings are shown that verl does not take them."""
        from ...analysis.questions import KeyProblem

        for key in settings:
            found = self.ask(KeyProblem(key))
            if found:
                self.log(Diagnostic(Location(""), Code.config_key, *found, severity=Severity.WARNING))


class VerlAnalysis(AnalysisDirective):
    """One part of the analysis: assumptions, priorities, trade-offs or monitoring."""

    directive = "verl-analysis"
    takes = (WITHOUT_REMARKS, *ABOUT_TABLE)

    def show(self) -> list[nodes.Node]:
        """Return the part that the argument names."""
        parts = {
            "assumptions": self._assumptions,
            "priorities": self._priorities,
            "trade-offs": self._trade_offs,
            "monitoring": self._monitoring,
        }
        name = self.arguments[0].strip().lower() if self.arguments else ""
        if name not in parts:
            message = f"there is no part {name!r}" if name else "name a part"
            raise NoAnswerError.because(message, did_you_mean(name, parts))
        return [] if self.problems else parts[name]()

    def _table(self, rows: nodes.tgroup, caption: str) -> nodes.table:
        from ...views import advice as render

        return self.table(render.ANALYSIS_CLASS, rows, caption, with_options=True)

    def _entries(self, section: str) -> tuple[Any, ...]:
        from ...analysis.questions import Entries

        return self.ask(Entries(section))

    def _assumptions(self) -> list[nodes.Node]:
        from ...analysis.questions import Assumed
        from ...views import advice as render

        marks, remarks = self.remarks((*COMPONENTS, *ASSUMED_SUBJECTS))
        rows = render.assumption_rows(self.ask(Assumed()), marks)
        return [self._table(rows, _("Assumptions")), *remarks]

    def _priorities(self) -> list[nodes.Node]:
        from ...analysis.questions import Memory, OwnModels
        from ...views import advice as render

        priorities = self._entries("priorities")
        outcomes = [self.ask(Memory(name)) for name in self.ask(OwnModels())]
        marks, remarks = self.remarks(item.name for item in priorities)
        rows = render.priority_rows(priorities, outcomes, marks)
        return [self._table(rows, _("What to switch on first")), *remarks]

    def _trade_offs(self) -> list[nodes.Node]:
        from ...views import advice as render

        items = self._entries("trade_offs")
        marks, remarks = self.remarks(item.name for item in items)
        return [self._table(render.trade_off_rows(items, marks), _("Memory against speed")), *remarks]

    def _monitoring(self) -> list[nodes.Node]:
        from ...analysis.questions import Assumed
        from ...views import advice as render

        commands, metrics = self._entries("commands"), self._entries("metrics")
        marks, remarks = self.remarks(item.name for item in (*commands, *metrics))
        rows = render.metric_rows(metrics, self.ask(Assumed()), marks)
        return [*render.command_list(commands, marks), self._table(rows, _("What to watch")), *remarks]
