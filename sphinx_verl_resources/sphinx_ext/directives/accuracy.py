"""``.. verl-accuracy::``: what every recorded case says about the estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...diagnostics import NoAnswerError
from ...i18n import _
from .base import ABOUT_TABLE, TABLE_OPTIONS
from .computed import AnalysisDirective
from .options import Option, choices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from docutils import nodes

    from ...estimator.backtest import Score

PIECES = ("summary", "plot", "cases")
OPTIONS = (
    Option(
        "show",
        "``summary``: a row for each group of cases, with their number, the mean, median and worst error, "
        "and the share of the observed values inside the range. ``plot``: computed against observed, drawn "
        "on pages of HTML, with a table of the cases behind it: those of the plot, where ``cases`` is not "
        "asked for. ``cases``: every case, computed beside observed, with its source. A case that is "
        "contested or not scored is marked with the reason and never counted.",
        "any of ``summary``, ``plot``, ``cases``, separated by commas",
        "``summary``",
        choices(PIECES),
    ),
    Option(
        "group",
        "Only these groups of cases.",
        "any of ``training``, ``verl-log``, ``easyr1``, ``other``, separated by commas",
        "all",
    ),
    *ABOUT_TABLE,
)


class VerlAccuracy(AnalysisDirective):
    """The errors by group, and every case beside what was observed."""

    directive = "verl-accuracy"
    takes = OPTIONS

    def show(self) -> list[nodes.Node]:
        """Return the pieces asked for, in the order asked for."""
        from ...estimator.backtest import GROUPS, verdict_shares
        from ...estimator.questions import Accuracies, CaseFilesWithErrors
        from ...views import accuracy as render

        self.refuse_argument("name groups under :group:")
        pieces: tuple[str, ...] = self.values.get("show", PIECES[:1])
        self._check_name(pieces)
        groups = tuple(GROUPS)
        with self.noted("group"):
            groups = choices(GROUPS)(self.given["group"]) if "group" in self.given else groups
        if self.problems:
            return []
        scores, summaries = self.ask(Accuracies(groups))
        made = self.file_boxes(self.ask(CaseFilesWithErrors()))
        for piece in pieces:
            if piece == "summary":
                rows = render.summary_rows(summaries)
                caption = _("How far computed values are from observed ones")
                made.append(self.table(render.TABLE_CLASS, rows, caption, with_options=True))
                made.append(render.verdict_sentence(verdict_shares(scores)))
            elif piece == "plot":
                made += self._plot(scores, with_table="cases" not in pieces)
            else:
                made += self._cases(scores, _("Every case"))
        return made

    def _check_name(self, pieces: Sequence[str]) -> None:
        """Refuse options about one table where there are two."""
        name = next((name for name in TABLE_OPTIONS if name in self.given), "")
        if name and len({"cases" if piece == "plot" else piece for piece in pieces}) > 1:
            with self.noted(name):
                raise NoAnswerError.because(
                    "is about one table", "choose it with :show: summary or :show: cases"
                )

    def _plot(self, scores: Sequence[Score], *, with_table: bool) -> list[nodes.Node]:
        from ...views.accuracy import accuracy_plot, plotted

        shown = plotted(scores)
        caption = _("Computed against observed, case by case")
        made: list[nodes.Node] = [self.chart(accuracy_plot(shown, caption), "accuracy")] if shown else []
        return [*made, *self._cases(shown, caption)] if with_table else made

    def _cases(self, scores: Sequence[Score], caption: str) -> list[nodes.Node]:
        from ...views import accuracy as render

        reasons = dict.fromkeys(filter(None, map(render.reason, scores)))
        ids = {text: f"verl-case-note-{number}" for number, text in enumerate(reasons, 1)}
        targets = self.targets(ids)
        marks = {
            text: (f"[{number}]", target["ids"][0])
            for number, (text, target) in enumerate(targets.items(), 1)
        }
        rows = render.case_rows(scores, marks)
        table = self.table(render.TABLE_CLASS, rows, caption, with_options=True)
        return [table, render.reason_list(reasons, targets)] if reasons else [table]
