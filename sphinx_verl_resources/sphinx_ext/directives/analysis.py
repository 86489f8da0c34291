"""Directives of the analysis except ``verl-memory``: requirements, settings and advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...analysis_records import REQUIREMENTS
from ...diagnostics import Code, Diagnostic, Location, NoAnswerError, Severity, did_you_mean
from ...i18n import _
from .base import ABOUT_TABLE
from .computed import WITHOUT_REMARKS, AnalysisDirective
from .options import pieces

if TYPE_CHECKING:
    from docutils import nodes


class VerlRequirements(AnalysisDirective):
    """A table of verdicts for each model."""

    directive = "verl-requirements"
    takes = (WITHOUT_REMARKS,)

    def show(self) -> list[nodes.Node]:
        """Return a legend, a table for each model, and remarks."""
        from ...analysis.analysis import assumptions_of
        from ...analysis.sections import names, required
        from ...views import analysis as render

        answers = self.of_each(self.models(names, "requirements"), required)
        if self.problems:
            return []
        tables: list[nodes.Node] = []
        for name, verdicts in answers:
            rows = render.requirement_rows(verdicts, self.marks(REQUIREMENTS))
            caption = _("{model}: how many GPUs").format(model=name)
            tables.append(self.table(rows, caption, with_options=False))
        legend = render.requirement_legend(self.of_analysis(assumptions_of).memory_limit)
        return [legend, *tables, *self.remarks()]


class VerlConfigAdvice(AnalysisDirective):
    """The settings advised for a model: as YAML, as overrides, and explained."""

    directive = "verl-config"
    takes = (
        pieces(
            "Parts to show, in this order: the settings to copy, as YAML or as overrides, and a table of "
            "what each key does.",
            ("yaml", "command-line", "table"),
        ),
        WITHOUT_REMARKS,
        *ABOUT_TABLE,
    )

    def show(self) -> list[nodes.Node]:
        """Return the requested pieces in the given order."""
        from ...analysis.sections import configured, names
        from ...views import advice as render

        if not self.arguments:
            known = ", ".join(self.of_analysis(names, "configurations"))
            message = f"name a model: {known}"
            raise NoAnswerError.because(message, code=Code.unknown_size)
        record, keys, wrong = self.of_analysis(configured, self.arguments[0].strip())
        self.need_table()
        if self.problems:
            return []
        made: list[nodes.Node] = []
        for piece in self.values["show"]:
            if piece == "yaml":
                made.append(render.settings_yaml(record.settings))
            elif piece == "command-line":
                made.append(render.settings_command(record.settings, keys))
            else:
                rows = render.settings_rows(record.settings, keys, self.marks)
                made.append(self.table(rows, _("{model}: settings").format(model=record.name)))
        for message, remedy in wrong:
            self.log(Diagnostic(Location(""), Code.config_key, message, remedy, Severity.WARNING))
        return [*made, *self.remarks()]


class VerlAnalysis(AnalysisDirective):
    """One part of the analysis: assumptions, priorities, trade-offs or monitoring."""

    directive = "verl-analysis"
    takes = (WITHOUT_REMARKS, *ABOUT_TABLE)

    def show(self) -> list[nodes.Node]:
        """Return the part in the argument."""
        parts = {
            "assumptions": self._assumptions,
            "priorities": self._priorities,
            "trade-offs": self._trade_offs,
            "monitoring": self._monitoring,
        }
        name = self.arguments[0].strip().lower() if self.arguments else ""
        if name not in parts:
            message = f"unknown part {name!r}" if name else "name a part"
            raise NoAnswerError.because(message, did_you_mean(name, parts))
        return [] if self.problems else [*parts[name](), *self.remarks()]

    def _assumptions(self) -> list[nodes.Element]:
        from ...analysis.analysis import assumptions_of
        from ...views.advice import assumption_rows

        return [self.table(assumption_rows(self.of_analysis(assumptions_of), self.marks), _("Assumptions"))]

    def _priorities(self) -> list[nodes.Element]:
        from ...analysis.analysis import analyse
        from ...analysis.sections import entries, own_models
        from ...views.advice import priority_rows

        outcomes = [self.of_analysis(analyse, name) for name in self.of_analysis(own_models)]
        rows = priority_rows(self.of_analysis(entries, "priorities"), outcomes, self.marks)
        return [self.table(rows, _("What to switch on first"))]

    def _trade_offs(self) -> list[nodes.Element]:
        from ...analysis.sections import entries
        from ...views.advice import trade_off_rows

        rows = trade_off_rows(self.of_analysis(entries, "trade_offs"), self.marks)
        return [self.table(rows, _("Memory against speed"))]

    def _monitoring(self) -> list[nodes.Element]:
        from ...analysis.analysis import assumptions_of
        from ...analysis.sections import entries
        from ...views.advice import command_list, metric_rows

        metrics, assumed = self.of_analysis(entries, "metrics"), self.of_analysis(assumptions_of)
        commands = command_list(self.of_analysis(entries, "commands"), self.marks)
        return [*commands, self.table(metric_rows(metrics, assumed, self.marks), _("What to watch"))]
