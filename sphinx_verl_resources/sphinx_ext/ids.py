"""Unique ids of our elements on a page."""

from __future__ import annotations

import re
from itertools import count

from docutils import nodes

#: Ids of size-class sections. The pattern must not match the id of a section called "Size matters".
SIZE_ID = re.compile(r"size-\d+(-\d+)?b(-\d+)*")
#: The key of our ids in ``temp_data`` while Sphinx reads a page.
_OWN_IDS = "verl_ids"


def free_id(stem: str, node: nodes.Element, document: nodes.document) -> str:
    """Reserve ``stem`` for ``node``; if it is taken on the page, ``stem-2`` and so on."""
    own: dict[str, nodes.Element] = document.settings.env.temp_data.setdefault(_OWN_IDS, {})
    names = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
    found = next(name for name in names if name not in own and name not in document.ids)
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
