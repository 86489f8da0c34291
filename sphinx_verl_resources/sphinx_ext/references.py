"""Roles, and links whose target is known only after all pages are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from docutils.parsers.rst.states import Inliner
from sphinx import addnodes
from sphinx.roles import XRefRole
from sphinx.util.docutils import SphinxRole

from ..diagnostics import Code, NoAnswerError, Severity, did_you_mean, suggest_or
from ..i18n import _
from ..links import is_address
from ..records import sizes_hint
from ..selection import FILTERS
from .domain import VerlDomain
from .logs import log_at
from .objects import GPU, KINDS, LABELS, MODEL, RUN, SIZE, canonical, names

if TYPE_CHECKING:
    from collections.abc import Callable

    from docutils.nodes import Element, Node, system_message
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.domains import Domain
    from sphinx.environment import BuildEnvironment

    from ..dataset import Dataset

#: The directive that shows each kind.
_DIRECTIVES = {RUN: "verl-runs", SIZE: "verl-runs", GPU: "verl-gpus", MODEL: "verl-models"}


#: The command that explains how to contribute a run, shown if no page does.
HOW_TO_CONTRIBUTE = "verl-resources new --help"


def link_to(target: str, text: str, docname: str) -> nodes.Element:
    """Return a link to an address, or to a label that may or may not exist."""
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
    """Return a link that is removed if the label does not exist."""
    link = link_to(target, text, docname)
    link["verl_optional"] = 1
    return link


def row_link(env: BuildEnvironment, run: str, text: str) -> nodes.Element:
    """Return a link to the row of a run; if no page shows the run, it becomes the text and the id."""
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


def contribute_link(target: str, docname: str) -> nodes.Element:
    """Return an invitation that links to ``target``; if the label does not exist, a command follows it."""
    link = link_to(target, _("Add one."), docname)
    link["verl_contribute"] = 1
    return link


def replace_missing(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.TextElement
) -> nodes.TextElement | None:
    """Handle ``missing-reference`` for the links above."""
    if node.get("verl_contribute"):
        command = nodes.literal("", HOW_TO_CONTRIBUTE)
        return nodes.inline("", "", contnode, nodes.Text(" "), command)
    if node.get("verl_optional"):
        return nodes.inline()
    if node.get("verl_row"):
        return nodes.inline("", "", contnode, nodes.Text(f" ({node['reftarget']})"))
    return None


class PlacedRole(SphinxRole):
    """A role that knows its line on a MyST page, also inside and below an ``eval-rst``.

    After the first ``eval-rst`` of a page, the reporter asks the parser of that block for every line.
    """

    def get_source_info(self, lineno: int | None = None) -> tuple[Any, Any]:
        """Return file and line; versions of Sphinx differ in their types."""
        document = self.inliner.document
        parser = getattr(getattr(self.inliner.reporter, "get_source_and_line", None), "__self__", None)
        if parser is not None and getattr(parser, "document", document) is document:
            return super().get_source_info(lineno)
        at = lineno or self.lineno
        if not isinstance(self.inliner, Inliner) or not (document.current_source and document.current_line):
            return document["source"], at
        # Only one of the two counts included lines.
        return document.current_source, min(at, document.current_line)


class ObjectRole(XRefRole, PlacedRole):
    """A link to an object on a page, by any of its names.

    Without an explicit text, the link shows the title of a run, or the name of another object as written. A
    leading ``~`` leaves out the owner of a model, as with modules elsewhere in Sphinx.
    """

    def __init__(self) -> None:
        super().__init__(innernodeclass=nodes.inline, warn_dangling=True)

    def process_link(
        self, env: BuildEnvironment, refnode: Element, has_explicit_title: bool, title: str, target: str
    ) -> tuple[str, str]:
        """Turn a name into the recorded one."""
        kind = refnode["reftype"]
        name = " ".join(target.split())
        if not has_explicit_title:
            refnode["refexplicit"] = kind != RUN
            name = name.removeprefix("~")
            title = name.rpartition("/")[2] if target.startswith("~") else name
        domain = VerlDomain.of(env)
        recorded = canonical(domain.records, kind, name) or name
        domain.use()
        refnode["verl_name"] = name
        return title, recorded


def warn_missing(app: Sphinx, domain: Domain, node: pending_xref) -> bool | None:
    """Handle ``warn-missing-reference``: log which object is missing, and a similar name."""
    if not isinstance(domain, VerlDomain) or node["reftype"] not in KINDS:
        return None
    kind, name = node["reftype"], node.get("verl_name", node["reftarget"])
    what = LABELS[kind]
    if canonical(domain.records, kind, name):
        message = f"no page shows the {what} {name!r}; add '.. {_DIRECTIVES[kind]}::' to a page"
    elif kind == SIZE:
        message = f"unknown size class {name!r}; {sizes_hint(name)}"
    else:
        hint = suggest_or(
            name,
            names(domain.records, kind),
            FILTERS[kind].remedy if kind in FILTERS else "record it, or fix the name",
        )
        message = f"unknown {what} {name!r}; {hint}"
    log_at(_place(node), Code.reference, f"verl:{kind}: {message}", app.config, Severity.WARNING)
    return True


def _place(node: nodes.Node) -> str:
    """Return the place of a node, or of the nearest node around it that has one."""
    around: nodes.Node | None = node
    while around is not None:
        if around.source and around.line:
            return f"{around.source}:{around.line}"
        around = around.parent
    return ""


class ValueRole(PlacedRole):
    """A role that shows the value of the figure in its text."""

    full_name: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ()

    def run(self) -> tuple[list[Node], list[system_message]]:
        """Return the value, or the problem with the name."""
        domain = VerlDomain.of(self.env)
        domain.use(*self.reads)
        try:
            value = self.value(domain, " ".join(self.text.split()))
        except NoAnswerError as error:
            message = f"{self.full_name}: {error}"
            log_at(self.get_location(), error.code, message, self.config)
            return [self._inline(f"[{message.partition(';')[0]}]", "verl-problem")], []
        return [self._inline(value, "verl-value")], []

    def value(self, domain: VerlDomain, text: str) -> str:
        """Return the value for ``text``.

        Raises:
            NoAnswerError: there is none.
        """
        raise NotImplementedError

    def _inline(self, text: str, name: str) -> nodes.inline:
        node = nodes.inline(self.rawtext, text, classes=[name])
        node["support_smartquotes"] = False  # Sphinx compares it with `is False`
        return node


#: Figures about all data, for use in prose instead of typed numbers.
FIGURES: dict[str, Callable[[Dataset], str]] = {
    "last-updated": lambda data: data.last_updated or _("never"),
    "runs": lambda data: str(len(data.runs)),
    "runs-that-ran": lambda data: str(sum(run.word == "ran" for run in data.runs.values())),
    "gpus": lambda data: str(len(list(data.gpus))),
    "models": lambda data: str(len(list(data.architectures))),
}


class DataRole(ValueRole):
    """A figure about the runs and registries."""

    full_name = "verl:data"

    def value(self, domain: VerlDomain, text: str) -> str:
        """Return the figure."""
        if text not in FIGURES:
            raise NoAnswerError.because(f"unknown figure {text!r}", did_you_mean(text, FIGURES))
        return FIGURES[text](domain.records)


class MemoryRole(ValueRole):
    """A figure of the memory analysis."""

    full_name = "verl:memory"
    reads = ("analysis", "config_keys")

    def value(self, domain: VerlDomain, text: str) -> str:
        """Return the figure from the analysis."""
        from ..analysis.values import value_text

        return value_text(domain.records.analysis, text)
