"""``.. verl-downloads::``: links to everything recorded, as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import __version__
from ..domain import VerlDomain
from .analysis import AnalysisDirective
from .options import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from docutils import nodes

    from . import options


class VerlDownloads(AnalysisDirective):
    """A list of the files, which builders of HTML write next to the pages."""

    def show(self, given: Mapping[str, str], problems: options.Problems) -> list[nodes.Node]:
        """The list; the files are kept for those who write them."""
        from ...estimator.questions import Exported
        from ...views.downloads import download_list, download_texts

        if self.arguments:
            raise OptionError("the directive takes no argument; leave it out")
        if problems:
            return []
        domain = VerlDomain.of(self.env)
        for name, text in download_texts(self.ask(Exported(__version__))).items():
            domain.note_file(name, text)
        return [download_list()]
