"""``.. verl-accuracy::``: every recorded case, computed and observed."""

from __future__ import annotations

from docutils import nodes

from ...estimator.accuracy_records import CASE_GROUPS, TRAINING
from ...i18n import _, plural
from .base import ABOUT_TABLE, VerlDirective
from .options import Option, choices, listed

#: The groups of runs of verl.
GROUPS = tuple(group for group in CASE_GROUPS if group != TRAINING)
OPTIONS = (
    Option(
        "group",
        "Groups of cases to include.",
        f"any of {listed(GROUPS)}, separated by commas",
        "all",
        choices(GROUPS),
        GROUPS,
    ),
    *ABOUT_TABLE,
)


class VerlAccuracy(VerlDirective):
    """Every case with its computed and observed value."""

    directive = "verl-accuracy"
    takes = OPTIONS
    instead_of_argument = "list groups in :group:"

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts of the data that scores depend on."""
        return ("config_keys", "accuracy", "cases")

    def show(self) -> list[nodes.Node]:
        """Return the table, folded in HTML, with the reasons why some cases do not count."""
        from ...estimator.backtest import scores_of
        from ...views import accuracy as render
        from ...views.blocks import details

        scores = scores_of(self.data, self.values["group"])
        reasons = dict.fromkeys(filter(None, map(render.reason, scores)))
        targets = self.targets({text: f"verl-case-note-{number}" for number, text in enumerate(reasons, 1)})
        marks = {
            text: (f"[{number}]", target["ids"][0])
            for number, (text, target) in enumerate(targets.items(), 1)
        }
        content: list[nodes.Node] = [self.table(render.case_rows(scores, marks), _("Every case"))]
        if reasons:
            content.append(render.reason_list(reasons, targets))
        text = plural("{count} case", "{count} cases", len(scores)).format(count=len(scores))
        return [details([nodes.Text(text)], content)]
