"""Links whose target is known only when all pages have been read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes
from sphinx import addnodes

from ...catalog.links import is_address
from ..domain import VerlDomain
from ..objects import RUN
from ..queries import ObjectName

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment


def link_to(target: str, text: str, docname: str) -> nodes.Element:
    """A link to an address, or to a label that may or may not exist."""
    if is_address(target):
        return nodes.reference("", text, refuri=target)
    return addnodes.pending_xref(
        "",
        nodes.inline("", text),
        refdomain="std",
        reftype="ref",
        reftarget=target.lower(),
        refexplicit=True,
        refwarn=0,
        refdoc=docname,
    )


def link_if_any(target: str, text: str, docname: str) -> nodes.Element:
    """The same, and nothing at all where the label does not exist."""
    link = link_to(target, text, docname)
    link["verl_optional"] = 1
    return link


def row_link(env: BuildEnvironment, run: str, text: str) -> nodes.Element:
    """A link to the row of a run; where no page shows it, the text and the id."""
    VerlDomain.of(env).ask(ObjectName(RUN, run, run))
    return addnodes.pending_xref(
        "",
        nodes.inline("", text),
        refdomain="verl",
        reftype=RUN,
        reftarget=run,
        refexplicit=True,
        refwarn=0,
        refdoc=env.docname,
        verl_row=1,
    )


def replace_missing(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, contnode: nodes.TextElement
) -> nodes.inline | None:
    """Answer ``missing-reference`` for the links above."""
    if node.get("verl_optional"):
        return nodes.inline()
    if node.get("verl_row"):
        return nodes.inline("", "", contnode, nodes.Text(f" ({node['reftarget']})"))
    return None
