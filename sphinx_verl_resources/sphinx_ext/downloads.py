"""``.. verl-downloads::``: the files with all data."""

from __future__ import annotations

from docutils import nodes

from .. import domain
from ..answer.export import export_files
from ..directive import VerlDirective
from ..i18n import _
from ..nodes import titled


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
            file = domain.link(self.env, domain.FILE, name, name, nodes.literal("", name))
            items += nodes.list_item("", nodes.paragraph("", "", *titled(file, _(content))))
        return [items]
