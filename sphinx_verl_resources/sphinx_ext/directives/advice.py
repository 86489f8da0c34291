"""``.. verl-config::`` and ``.. verl-analysis::``: settings to use, and what else the analysis says."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ...analysis.questions import Assumed, Configured, Entries, KeyProblem, Memory, Names, OwnModels
from ...catalog.names import ASSUMED_SUBJECTS, COMPONENTS
from ...diagnostics import Code, Severity, did_you_mean
from ...i18n import _
from ...views import advice
from ..logs import log_at
from . import options
from .analysis import WITHOUT_REMARKS, AnalysisDirective
from .base import ABOUT_TABLE, TABLE_OPTIONS
from .options import Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from docutils import nodes

PIECES = ("yaml", "command-line", "table")


class VerlConfigAdvice(AnalysisDirective):
    """The settings advised for a model: as YAML, as overrides, and explained."""

    option_spec: ClassVar[options.AnyOption] = options.AnyOption.of(
        Option(
            "show",
            "What to show, in this order: the settings to copy, as YAML or as overrides, and what each key "
            "does.",
            f"any of {', '.join(f'``{piece}``' for piece in PIECES)}, separated by commas",
            "all of it",
        ),
        WITHOUT_REMARKS,
        *ABOUT_TABLE,
    )

    def show(self, given: Mapping[str, str], problems: options.Problems) -> list[nodes.Node]:
        """The pieces asked for, in the order asked for."""
        pieces: tuple[str, ...] = PIECES
        with problems.noted():
            pieces = options.choices(given, "show", PIECES) or PIECES
        if not self.arguments:
            known = ", ".join(self.ask(Names("configurations")))
            raise OptionError(f"name the model that the settings are for: {known}", Code.unknown_size)
        record, keys = self.ask(Configured(self.arguments[0].strip()))
        with problems.noted():
            options.need_table(given, TABLE_OPTIONS, pieces)
        if problems:
            return []
        marks, remarks = self.remarks(record.settings) if "table" in pieces else ({}, [])
        made: list[nodes.Node] = []
        for piece in pieces:
            if piece == "yaml":
                made.append(advice.settings_yaml(record.settings))
            elif piece == "command-line":
                made.append(advice.settings_command(record.settings, keys))
            else:
                rows = advice.settings_rows(record.settings, keys, marks)
                caption = _("{model}: settings").format(model=record.name)
                made.append(self.table(advice.CONFIG_CLASS, rows, caption, with_options=True))
        self._warn(record.settings)
        return [*made, *remarks]

    def _warn(self, settings: Mapping[str, object]) -> None:
        """Say where the settings are shown that verl does not take them."""
        for key in settings:
            found = self.ask(KeyProblem(key))
            if found:
                message, hint = found
                text = f"{self.name}: {message}; {hint}"
                log_at(self.get_location(), Code.config_key, text, self.config, Severity.WARNING)


class VerlAnalysis(AnalysisDirective):
    """One part of the analysis: assumptions, priorities, trade-offs or monitoring."""

    option_spec: ClassVar[options.AnyOption] = options.AnyOption.of(WITHOUT_REMARKS, *ABOUT_TABLE)

    def show(self, given: Mapping[str, str], problems: options.Problems) -> list[nodes.Node]:
        """The part that the argument names."""
        parts = {
            "assumptions": self._assumptions,
            "priorities": self._priorities,
            "trade-offs": self._trade_offs,
            "monitoring": self._monitoring,
        }
        name = self.arguments[0].strip().lower() if self.arguments else ""
        if name not in parts:
            what = f"there is no part {name!r}" if name else "name a part"
            raise OptionError(f"{what}; {did_you_mean(name, parts)}")
        return [] if problems else parts[name]()

    def _table(self, rows: nodes.tgroup, caption: str) -> nodes.table:
        return self.table(advice.ANALYSIS_CLASS, rows, caption, with_options=True)

    def _assumptions(self) -> list[nodes.Node]:
        assumed = self.ask(Assumed())
        marks, remarks = self.remarks((*COMPONENTS, *ASSUMED_SUBJECTS))
        return [self._table(advice.assumption_rows(assumed, marks), _("Assumptions")), *remarks]

    def _priorities(self) -> list[nodes.Node]:
        priorities = self.ask(Entries("priorities"))
        outcomes = [self.ask(Memory(name)) for name in self.ask(OwnModels())]
        marks, remarks = self.remarks(item.name for item in priorities)
        rows = advice.priority_rows(priorities, outcomes, marks)
        return [self._table(rows, _("What to switch on first")), *remarks]

    def _trade_offs(self) -> list[nodes.Node]:
        items = self.ask(Entries("trade_offs"))
        marks, remarks = self.remarks(item.name for item in items)
        return [self._table(advice.trade_off_rows(items, marks), _("Memory against speed")), *remarks]

    def _monitoring(self) -> list[nodes.Node]:
        commands, metrics = self.ask(Entries("commands")), self.ask(Entries("metrics"))
        marks, remarks = self.remarks(item.name for item in (*commands, *metrics))
        rows = advice.metric_rows(metrics, self.ask(Assumed()), marks)
        return [*advice.command_list(commands, marks), self._table(rows, _("What to watch")), *remarks]
