"""References to runs, size classes, GPUs and models: ``:verl:run:`` and its sisters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.roles import XRefRole

from ...catalog.names import sizes_hint
from ...catalog.selection import REGISTRIES
from ...diagnostics import Code, Severity, suggest_or
from ..domain import VerlDomain
from ..logs import log_at
from ..objects import GPU, KINDS, LABELS, MODEL, RUN, SIZE, canonical, names
from ..queries import Extension, ObjectName

if TYPE_CHECKING:
    from docutils.nodes import Element
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.domains import Domain
    from sphinx.environment import BuildEnvironment

#: The directive that shows each kind.
_DIRECTIVES = {RUN: "verl-runs", SIZE: "verl-runs", GPU: "verl-gpus", MODEL: "verl-models"}


class ObjectRole(XRefRole):
    """A link to where a page shows an object, by any of its names.

    Without a text of its own, a run is called by its title, anything else as the page calls it. A leading
    ``~`` leaves the owner of a model out, as it does with modules elsewhere in Sphinx.
    """

    def __init__(self) -> None:
        super().__init__(innernodeclass=nodes.inline, warn_dangling=True)

    def process_link(
        self, env: BuildEnvironment, refnode: Element, has_explicit_title: bool, title: str, target: str
    ) -> tuple[str, str]:
        """Turn a name into the one under which it is recorded; the page depends on that from now on."""
        kind = refnode["reftype"]
        name = " ".join(target.split())
        if not has_explicit_title:
            refnode["refexplicit"] = kind != RUN
            name = name.removeprefix("~")
            title = name.rpartition("/")[2] if target.startswith("~") else name
        domain = VerlDomain.of(env)
        recorded = canonical(domain.catalog, kind, name) or name
        domain.ask(Extension())
        domain.ask(ObjectName(kind, name, recorded))
        refnode["verl_name"] = name
        return title, recorded


def warn_missing(app: Sphinx, domain: Domain, node: pending_xref) -> bool | None:
    """Answer ``warn-missing-reference``: say what is missing, and which name is near."""
    if not isinstance(domain, VerlDomain) or node["reftype"] not in KINDS:
        return None
    kind, name = node["reftype"], node.get("verl_name", node["reftarget"])
    what = LABELS[kind]
    if canonical(domain.catalog, kind, name):
        message = (
            f"no page of this documentation shows the {what} {name!r}; put '.. {_DIRECTIVES[kind]}::' on one"
        )
    elif kind == SIZE:
        message = f"there is no size class {name!r}; {sizes_hint(name)}"
    else:
        hint = suggest_or(
            name, names(domain.catalog, kind), REGISTRIES.get(kind, "record it, or mend the name")
        )
        message = f"there is no {what} {name!r}; {hint}"
    log_at(_place(node), Code.reference, f"verl:{kind}: {message}", app.config, Severity.WARNING)
    return True


def _place(node: nodes.Node) -> str:
    """The nearest place that a node, or what it lies in, knows of."""
    around: nodes.Node | None = node
    while around is not None:
        if around.source and around.line:
            return f"{around.source}:{around.line}"
        around = around.parent
    return ""
