"""Roles, and links whose target is known only after all pages are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from sphinx import addnodes
from sphinx.roles import XRefRole
from sphinx.util.docutils import SphinxRole

from .diagnostics import NoAnswerError, Severity, did_you_mean, suggest_or
from .domain import GPU, KINDS, LABELS, MODEL, RUN, SIZE, VerlDomain, log_at
from .i18n import _
from .links import is_address
from .records import sizes_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from docutils.nodes import Element, Node, system_message
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.domains import Domain
    from sphinx.environment import BuildEnvironment

    from .dataset import Dataset

#: The directive that shows each kind, and where to record one of it.
_SHOWN_BY = {RUN: "verl-runs", SIZE: "verl-runs", GPU: "verl-gpus", MODEL: "verl-models"}
RECORD = {GPU: "add it to gpus.yaml", MODEL: "add it to architectures.yaml"}
#: The command that explains how to contribute a run, shown if no page does.
HOW_TO_CONTRIBUTE = "verl-resources new --help"


def link(env: BuildEnvironment, kind: str, name: str, text: str, instead: Sequence[nodes.Node]) -> Element:
    """Return a link to a label (kind ``std:ref``) or an object; ``instead`` replaces it if there is none."""
    domain, _colon, role = kind.rpartition(":")
    about = {"refdomain": domain or "verl", "reftype": role, "reftarget": name, "refdoc": env.docname}
    inside = nodes.inline("", text)
    return addnodes.pending_xref("", inside, **about, refexplicit=True, refwarn=0, verl_instead=[*instead])


def page_link(
    env: BuildEnvironment, target: str, text: str, instead: Sequence[nodes.Node] = ()
) -> nodes.Element:
    """Return a link to an address, or to a label that may or may not exist."""
    if is_address(target):
        return nodes.reference("", text, refuri=target)
    return link(env, "std:ref", target.lower(), text, instead)


def row_link(env: BuildEnvironment, run: str, text: str) -> nodes.Element:
    """Return a link to the row of a run; if no page shows the run, it becomes the text and the id."""
    return link(env, RUN, run, text, [nodes.Text(f"{text} ({run})")])


def contribute_link(env: BuildEnvironment, target: str) -> nodes.Element:
    """Return an invitation that links to ``target``; if the label does not exist, a command follows it."""
    text = _("Add one.")
    return page_link(env, target, text, [nodes.Text(f"{text} "), nodes.literal("", HOW_TO_CONTRIBUTE)])


def replace_missing(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.TextElement
) -> nodes.Node | None:
    """Handle ``missing-reference`` for the links above."""
    if "verl_instead" not in node:
        return None
    return nodes.inline("", "", *(inner.deepcopy() for inner in node["verl_instead"]))


def warn_missing(app: Sphinx, domain: Domain, node: pending_xref) -> bool | None:
    """Handle ``warn-missing-reference``: log which object is missing, and a similar name."""
    if not isinstance(domain, VerlDomain) or node["reftype"] not in KINDS:
        return None
    kind, name = node["reftype"], node.get("verl_name", node["reftarget"])
    if domain.canonical(kind, name):
        message = f"no page shows the {LABELS[kind]} {name!r}; add '.. {_SHOWN_BY[kind]}::' to a page"
    elif kind == SIZE:
        message = f"unknown size class {name!r}; {sizes_hint(name)}"
    else:
        otherwise = RECORD.get(kind, "record it, or fix the name")
        message = f"unknown {LABELS[kind]} {name!r}; {suggest_or(name, domain.names(kind), otherwise)}"
    place: nodes.Node | None = node
    while place is not None and not (place.source and place.line):
        place = place.parent
    where = f"{place.source}:{place.line}" if place else ""
    log_at(where, "reference", f"verl:{kind}: {message}", app.config, Severity.WARNING)
    return True


class ObjectRole(XRefRole):
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
        domain.use()
        refnode["verl_name"] = name
        return title, domain.canonical(kind, name) or name


class ValueRole(SphinxRole):
    """A role that shows the value of the figure in its text, or the problem with the name."""

    full_name: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ()

    def run(self) -> tuple[list[Node], list[system_message]]:
        """Return the value."""
        domain = VerlDomain.of(self.env)
        domain.use(*self.reads)
        try:
            value, name = self.value(domain.records, " ".join(self.text.split())), "verl-value"
        except NoAnswerError as error:
            log_at(self.get_location(), error.code, f"{self.full_name}: {error}", self.config)
            value, name = f"[{self.full_name}: {str(error).partition(';')[0]}]", "verl-problem"
        # Sphinx compares the attribute with `is False`.
        return [nodes.inline(self.rawtext, value, classes=[name], support_smartquotes=False)], []

    def value(self, data: Dataset, text: str) -> str:
        """Return the value for ``text``.

        Raises:
            NoAnswerError: there is none.
        """
        raise NotImplementedError


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

    def value(self, data: Dataset, text: str) -> str:
        """Return the figure."""
        if text not in FIGURES:
            raise NoAnswerError.because(f"unknown figure {text!r}", did_you_mean(text, FIGURES))
        return FIGURES[text](data)


class MemoryRole(ValueRole):
    """A figure of the memory analysis."""

    full_name = "verl:memory"
    reads = ("analysis", "config_keys")

    def value(self, data: Dataset, text: str) -> str:
        """Return the figure from the analysis."""
        from .analysis import value_text

        return value_text(data.analysis, text)
