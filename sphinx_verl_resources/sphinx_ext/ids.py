"""Unique ids of our elements on a page."""

from __future__ import annotations

import re
from collections import ChainMap
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

from ..catalog.names import free_name
from ..views.blocks import verl_details
from ..views.drawing import verl_chart
from ..views.fewest import PANEL_CLASS
from .domain import VerlDomain

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

#: Ids of size-class sections. The pattern must not match the id of a section called "Size matters".
SIZE_ID = re.compile(r"size-\d+(-\d+)?b(-\d+)*")
#: The key of our ids in ``temp_data`` while Sphinx reads a page.
_OWN_IDS = "verl_ids"


def free_id(stem: str, node: nodes.Element, document: nodes.document) -> str:
    """Reserve ``stem`` for ``node``; if it is taken on the page, ``stem-2`` and so on."""
    own: dict[str, nodes.Element] = document.settings.env.temp_data.setdefault(_OWN_IDS, {})
    found = free_name(stem, ChainMap(own, document.ids))
    own[found] = document.ids[found] = node
    return found


def claimed_id(stem: str, node: nodes.Element, document: nodes.document) -> str:
    """Reserve ``stem`` for ``node``, and rename a section of the page whose title produced it."""
    section = document.ids.get(stem)
    own = document.settings.env.temp_data.get(_OWN_IDS, {})
    if not isinstance(section, nodes.section) or stem in own:
        return free_id(stem, node, document)
    del document.ids[stem]
    section["ids"].remove(stem)
    found = free_id(stem, node, document)
    if not section["ids"]:
        section["ids"].append(free_id(f"title-{stem}", section, document))
    new = section["ids"][0]
    for name in section["names"]:
        if document.nameids.get(name) == stem:
            document.nameids[name] = new
    return found


def is_own(id_: str, node: nodes.Element) -> bool:
    """Return whether one of our directives created the id of a node."""
    if SIZE_ID.fullmatch(id_):
        return True
    if isinstance(node, (nodes.table, nodes.target, verl_chart)):
        return id_.startswith(("verl-", "gpu-", "model-"))
    return isinstance(node, verl_details) or PANEL_CLASS in node["classes"]


def row_ids(node: nodes.Element) -> Collection[str]:
    """Return the ids reserved for rows that are not rendered yet."""
    anchors: Mapping[str, str] = node.get("anchors", {})
    return anchors.values()


def rename_links(node: nodes.Element, renamed: Mapping[str, str]) -> None:
    """Point a link to its new id, and rename the ids reserved for rows."""
    if "anchors" in node:
        node["anchors"] = {run: renamed.get(id_, id_) for run, id_ in node["anchors"].items()}
    if isinstance(node, nodes.reference) and "refid" in node:
        node["refid"] = renamed.get(node["refid"], node["refid"])


class SettleIds(SphinxTransform):
    """A transform that renames our ids that occur elsewhere on a MyST page too.

    MyST parses an ``eval-rst`` as a separate document, without the ids of the page.
    """

    #: Before sections become captions, and before names become ids.
    default_priority = 195

    def apply(self, **kwargs: Any) -> None:
        """Rename the ids, and update the links to them."""
        own: dict[str, nodes.Element] = self.env.temp_data.get(_OWN_IDS) or {}
        if not own:
            return
        every = list(self.document.findall(nodes.Element))
        others = {id_ for node in every for id_ in node["ids"] if own.get(id_) is not node}
        taken = {*own, *others}
        renamed: dict[str, str] = {}
        for id_ in sorted(others & own.keys()):
            renamed[id_] = free_name(id_, taken)
            taken.add(renamed[id_])
        for node in every if renamed else ():
            self._rename(node, own, renamed)
        if renamed:
            VerlDomain.of(self.env).rename_anchors(renamed)

    def _rename(
        self, node: nodes.Element, own: Mapping[str, nodes.Element], renamed: Mapping[str, str]
    ) -> None:
        node["ids"] = [renamed.get(id_, id_) if own.get(id_) is node else id_ for id_ in node["ids"]]
        rename_links(node, renamed)
        if isinstance(node, addnodes.index):
            node["entries"] = [
                (kind, text, renamed.get(anchor, anchor), *more)
                for kind, text, anchor, *more in node["entries"]
            ]
