"""``.. verl-downloads::``: the files with all data."""

from __future__ import annotations

from docutils import nodes

from .. import __version__, domain
from ..answer.export import export_of
from ..directive import VerlDirective
from ..i18n import _
from ..nodes import titled
from ..printed import CONTENTS, download_texts


class VerlDownloads(VerlDirective):
    """A list of the files to download, which HTML builders write next to the pages."""

    directive = "verl-downloads"
    instead_of_argument = "leave it out"
    reads = ("config_keys", "accuracy")

    def show(self) -> list[nodes.Node]:
        """Return the list, and remember the files for the builder."""
        for name, text in download_texts(export_of(self.data, __version__)).items():
            self.domain.note_file(name, text)
        items = nodes.bullet_list(classes=[self.directive])
        for name, content in CONTENTS.items():
            file = domain.link(self.env, domain.FILE, name, name, [nodes.literal("", name)])
            items += nodes.list_item("", nodes.paragraph("", "", *titled(file, _(content))))
        return [items]
