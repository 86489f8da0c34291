"""``.. verl-accuracy::``: every recorded case, computed and observed; ``.. verl-downloads::``: all data."""

from __future__ import annotations

from docutils import nodes

from .. import domain
from ..answer.export import export_files
from ..directive import ABOUT_TABLE, VerlDirective, choices
from ..i18n import _, plural
from ..memory.registries import CASE_GROUPS
from ..nodes import titled

OPTIONS = (choices("Groups of cases to include.", CASE_GROUPS, name="group"), *ABOUT_TABLE)


class VerlAccuracy(VerlDirective):
    """Every case with its computed and observed value."""

    directive = "verl-accuracy"
    takes = OPTIONS
    instead_of_argument = "list groups in :group:"

    reads = ("config_keys", "accuracy", "cases")

    def show(self) -> list[nodes.Node]:
        """Return the table, folded in HTML, with the reasons why some cases do not count."""
        from ..memory.recorded import scores_of
        from ..nodes import details
        from ..views import accuracy as render

        scores = scores_of(self.data, self.values["group"])
        reasons = dict.fromkeys(filter(None, map(render.reason, scores)))
        targets = {text: nodes.target() for text in reasons}
        marks = {
            text: (f"[{number}]", self.reserve(f"verl-case-note-{number}", target))
            for number, (text, target) in enumerate(targets.items(), 1)
        }
        content: list[nodes.Node] = [self.table(render.case_rows(scores, marks), _("Every case"))]
        if reasons:
            content.append(render.reason_list(reasons, targets))
        text = plural("{count} case", "{count} cases", len(scores)).format(count=len(scores))
        return [details([nodes.Text(text)], content)]


class VerlDownloads(VerlDirective):
    """A list of the files to download, which HTML builders write next to the pages."""

    directive = "verl-downloads"
    instead_of_argument = "leave it out"
    reads = ("config_keys", "accuracy")

    def show(self) -> list[nodes.Node]:
        """Return the list, and remember the files for the builder."""
        items = nodes.bullet_list(classes=[self.directive])
        for name, (content, text) in export_files(self.data).items():
            self.domain.note_file(name, text)
            file = domain.link_later(self.env, domain.FILE, name, name, nodes.literal("", name))
            items += nodes.list_item("", nodes.paragraph("", "", *titled(file, _(content))))
        return [items]
