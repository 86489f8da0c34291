"""The link that turns an empty place into an invitation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from ...i18n import _
from .links import link_to

if TYPE_CHECKING:
    from sphinx import addnodes
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

#: Where contributions go while a documentation does not explain it itself.
UPSTREAM_SCRIPTS = "https://github.com/verl-project/verl/blob/main/examples/tuning/README.md"


def contribute_link(target: str, docname: str) -> nodes.Element:
    """A link to ``target``: an address, or a label that may or may not exist."""
    link = link_to(target, _("Add the first one."), docname)
    link["verl_contribute"] = 1
    return link


def link_upstream(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, contnode: nodes.TextElement
) -> nodes.reference | None:
    """Answer ``missing-reference`` for the link above where the label does not exist."""
    if not node.get("verl_contribute"):
        return None
    return nodes.reference("", "", contnode, refuri=UPSTREAM_SCRIPTS)
