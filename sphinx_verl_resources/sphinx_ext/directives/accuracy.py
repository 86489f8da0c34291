"""``.. verl-accuracy::``: the error of the estimator for every recorded case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from ...catalog.names import CASE_GROUPS
from ...i18n import _, plural
from .base import ABOUT_TABLE, VerlDirective
from .options import Option, choices, listed, pieces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...catalog.names import Verdict
    from ...estimator.backtest import Outcomes, Score


OPTIONS = (
    pieces(
        "Parts to show, in this order. ``summary``: a row for each group of cases, with their number, the "
        "mean, median and worst error, and the share of observed values inside the range; then the cases by "
        "verdict and outcome. ``plot``: computed against observed values, drawn in HTML and followed by a "
        "table of the cases, unless ``cases`` is listed too. ``cases``: every case with its computed and "
        "observed value and its source, folded in HTML. Contested and unscored cases are marked with the "
        "reason and not counted.",
        ("summary", "plot", "cases"),
        ("summary",),
    ),
    Option(
        "group",
        "Groups of cases to include.",
        f"any of {listed(CASE_GROUPS)}, separated by commas",
        "all",
        choices(CASE_GROUPS),
        CASE_GROUPS,
    ),
    *ABOUT_TABLE,
)


class VerlAccuracy(VerlDirective):
    """The errors by group, and every case with its observed value."""

    directive = "verl-accuracy"
    takes = OPTIONS
    instead_of_argument = "list groups in :group:"

    def show(self) -> list[nodes.Node]:
        """Return the requested pieces in the given order."""
        from ...estimator.backtest import verdict_counts
        from ...estimator.queries import Accuracies
        from ...views import accuracy as render
        from ...views.blocks import legend

        shown: tuple[str, ...] = self.values["show"]
        about = self.given_about_table()
        if about and len({"cases" if piece == "plot" else piece for piece in shown}) > 1:
            self.refuse("applies to one table", "choose it with :show: summary or :show: cases", about)
        if self.problems:
            return []
        scores, summaries = self.ask(Accuracies(self.values["group"]))
        made: list[nodes.Node] = []
        for piece in shown:
            if piece == "summary":
                rows = render.summary_rows(summaries)
                made.append(self.table(rows, _("How far computed values are from observed ones")))
                made.append(legend(_("Errors are absolute, in percent of the observed value.")))
                made += self._verdicts(verdict_counts(scores))
            elif piece == "plot":
                made += self._plot(render.plotted(scores), with_table="cases" not in shown)
            else:
                made += self._cases(scores, _("Every case"))
        return made

    def _verdicts(self, counts: Mapping[Verdict, Outcomes]) -> list[nodes.Node]:
        from ...views.accuracy import verdict_rows
        from ...views.blocks import legend

        if not any(map(any, counts.values())):
            return []
        caption = _("Verdicts and outcomes of verl's runs")
        text = _("Scored cases only, without plain fine-tuning, which uses a small part of its GPU.")
        return [self.table(verdict_rows(counts), caption, with_options=False), legend(text)]

    def _plot(self, scores: Sequence[Score], *, with_table: bool) -> list[nodes.Node]:
        from ...views.accuracy import accuracy_plot

        caption = _("Computed against observed, case by case")
        drawn = [self.chart(accuracy_plot(scores, caption), "accuracy")] if scores else []
        return [*drawn, *(self._cases(scores, caption) if with_table else ())]

    def _cases(self, scores: Sequence[Score], caption: str) -> list[nodes.Node]:
        from ...views import accuracy as render
        from ...views.blocks import details

        reasons = dict.fromkeys(filter(None, map(render.reason, scores)))
        targets = self.targets({text: f"verl-case-note-{number}" for number, text in enumerate(reasons, 1)})
        marks = {
            text: (f"[{number}]", target["ids"][0])
            for number, (text, target) in enumerate(targets.items(), 1)
        }
        content: list[nodes.Node] = [self.table(render.case_rows(scores, marks), caption)]
        if reasons:
            content.append(render.reason_list(reasons, targets))
        text = plural("{count} case", "{count} cases", len(scores)).format(count=len(scores))
        return [details([nodes.Text(text)], content)]
