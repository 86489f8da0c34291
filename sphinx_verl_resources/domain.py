"""The ``verl`` domain: the data of a build, what pages of ours show, and the links to it.

A page of ours is read again when the digest of all data, conf values and versions differs from the one that
it was read with. It is written again when the stamp of the last finished build differs.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from docutils import nodes
from sphinx import addnodes
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.domains import Domain, Index, IndexEntry, ObjType
from sphinx.errors import NoUri
from sphinx.roles import XRefRole
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole
from sphinx.util.nodes import make_refnode
from sphinx.util.osutil import relative_uri

from . import __version__
from .config import PREFIX, VALUES, VerlConfig, conf_place, read_config
from .dataset import configured_directory
from .diagnostics import NoAnswerError, Severity, did_you_mean, listed, one_line
from .i18n import N_, _
from .records import SIZES, is_address
from .selection import natural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from docutils.nodes import Element, Node, reference, system_message
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.builders import Builder
    from sphinx.config import Config
    from sphinx.domains.std import StandardDomain
    from sphinx.environment import BuildEnvironment

    from .dataset import Dataset
    from .diagnostics import Code

#: The kinds of objects; ``:any:`` prefers them in this order.
RUN, SIZE, GPU, MODEL = KINDS = ("run", "size", "gpu", "model")
#: Their names for readers, and where to record one.
LABELS = {RUN: N_("run"), SIZE: N_("size class"), GPU: N_("GPU"), MODEL: N_("model")}
RECORD = {GPU: "add it to gpus.yaml", MODEL: "add it to architectures.yaml"}
#: The kind of a link to a file next to the pages.
FILE = "file"
logger = logging.getLogger(__name__)


class Target(NamedTuple):
    """One object on one page.

    Attributes:
        anchor: its id on the page.
        title: the text of a reference without an explicit text.
        group: its heading in the index of runs; empty for other objects.
    """

    anchor: str
    title: str
    group: str = ""


class RunIndex(Index):
    """The index of all runs on pages, by size class; ``:ref:`verl-runindex``` links to it."""

    name = "runindex"
    localname = N_("Recorded runs")  # translated by the extension, because Sphinx needs plain text

    def generate(
        self, docnames: Iterable[str] | None = None
    ) -> tuple[list[tuple[str, list[IndexEntry]]], bool]:
        """Return the size classes that have a run, ascending, and their runs by title."""
        found: dict[str, list[IndexEntry]] = {size: [] for size in SIZES}
        for kind, name, page, shown in cast("VerlDomain", self.domain).every_object():
            if kind == RUN and (docnames is None or page in docnames):
                found[shown.group].append(IndexEntry(shown.title, 0, page, shown.anchor, name, "", ""))
        for entries in found.values():
            entries.sort(key=lambda entry: (natural(entry.name), entry.extra))
        return [(size, entries) for size, entries in found.items() if entries], False


class ObjectRole(XRefRole):
    """A link to an object on a page, by any of its names.

    Without an explicit text, the link shows the title of a run, or the name of another object as written. A
    leading ``~`` leaves out the owner of a model, as with modules elsewhere in Sphinx.
    """

    def process_link(
        self, env: BuildEnvironment, refnode: Element, has_explicit_title: bool, title: str, target: str
    ) -> tuple[str, str]:
        """Turn a name into the recorded one."""
        kind, name = refnode["reftype"], " ".join(target.split())
        if not has_explicit_title:
            refnode["refexplicit"] = kind != RUN
            name = name.removeprefix("~")
            title = name.rpartition("/")[2] if target.startswith("~") else name
        domain = VerlDomain.of(env)
        domain.use()
        return title, domain.canonical(kind, name) or name


class ValueRole(SphinxRole):
    """A role that shows a figure of the data, or the problem with the name of the figure.

    Attributes:
        value: a function of the data and the text of the role; it raises ``NoAnswerError``.
        reads: the parts of the data, besides the runs, that the figure depends on.
    """

    def __init__(self, value: Callable[[Dataset, str], str], *reads: str) -> None:
        self.value, self.reads = value, reads

    def run(self) -> tuple[list[Node], list[system_message]]:
        """Return the value."""
        domain = VerlDomain.of(self.env)
        domain.use(*self.reads)
        try:
            value, name = self.value(domain.records, " ".join(self.text.split())), "verl-value"
        except NoAnswerError as error:
            log_at(self.get_location(), error.code, f"{self.name}: {error}", self.config)
            value, name = f"[{self.name}: {str(error).partition(';')[0]}]", "verl-problem"
        # Sphinx compares the attribute with `is False`.
        return [nodes.inline(self.rawtext, value, classes=[name], support_smartquotes=False)], []


#: Figures about all data, for use in prose instead of typed numbers.
FIGURES: dict[str, Callable[[Dataset], str]] = {
    "last-updated": lambda data: data.last_updated or _("never"),
    "runs": lambda data: str(len(data.runs)),
    "runs-that-ran": lambda data: str(sum(run.word == "ran" for run in data.runs.values())),
    "gpus": lambda data: str(len(list(data.gpus))),
    "models": lambda data: str(len(list(data.architectures))),
}


def _figure(data: Dataset, text: str) -> str:
    if text not in FIGURES:
        raise NoAnswerError.because(f"unknown figure {text!r}", did_you_mean(text, FIGURES))
    return FIGURES[text](data)


def _figure_of_analysis(data: Dataset, text: str) -> str:
    from .analysis import value_text  # only pages with such a figure need it

    return value_text(data.analysis, text)


class VerlDomain(Domain):
    """The ``verl`` domain: the data of the current build, and what each document shows across builds."""

    name = label = "verl"
    #: ``pages``: per document of ours, the parts of the data that it uses.
    #: ``digest``: the digest of everything that our pages were read with.
    #: ``problems``: the problems of each part of the data with that digest.
    #: ``objects``: per document, then by kind and name, the objects on it that references can link to.
    #: ``files``: per document, the text of files that it needs, by their path in the output.
    initial_data = {"pages": {}, "digest": "", "problems": {}, "objects": {}, "files": {}}  # noqa: RUF012
    #: Increment when the structure of ``initial_data`` changes; Sphinx then reads every page again.
    data_version = 21
    dangling_warnings = {  # noqa: RUF012
        kind: f"unknown {label}, or no page shows it: %(target)s" for kind, label in LABELS.items()
    }
    object_types = {kind: ObjType(label, kind) for kind, label in LABELS.items()}  # noqa: RUF012
    indices = [RunIndex]  # noqa: RUF012
    roles = {  # noqa: RUF012
        **{kind: ObjectRole(innernodeclass=nodes.inline, warn_dangling=True) for kind in KINDS},
        "data": ValueRole(_figure),
        "memory": ValueRole(_figure_of_analysis, "analysis", "config_keys"),
    }

    #: The directory of conf.py, and the number of processes to use.
    confdir: Path
    jobs: int
    #: Whether the builder writes pages for browsers.
    for_browsers: bool
    #: Loads what other rooms add, see ``extension.ROOMS``.
    room: Callable[[str], Any]

    @classmethod
    def of(cls, env: BuildEnvironment) -> VerlDomain:
        """Return the domain of a build."""
        return cast("VerlDomain", env.get_domain(cls.name))

    # -- the data of one build

    @cached_property
    def settings(self) -> VerlConfig:
        """The values of conf.py."""
        return read_config(self.env.config, self.confdir)

    @cached_property
    def records(self) -> Any:
        """Read the data files once; each kind of record is loaded on first use."""
        directories = [configured_directory(name, self.confdir) for name in self.settings.data]
        return self.room("data")(directories, missing=conf_place(self.confdir, "data"))

    # -- pages

    @property
    def pages(self) -> dict[str, set[str]]:
        """The documents with a directive or role of ours, and the parts of the data that each uses."""
        return cast("dict[str, set[str]]", self.data["pages"])

    def use(self, *parts: str) -> None:
        """Note that the document being read is one of ours, and uses some parts of the data."""
        self.pages.setdefault(self.env.docname, set()).update(parts)

    def note_file(self, path: str, text: str) -> None:
        """Remember a file that the document being read needs, by its path in the output."""
        self.data["files"].setdefault(self.env.docname, {})[path] = text

    def may_show(self, docname: str, kind: str = "pages") -> bool:
        """Return whether a document, or a page joined to it, can contain our nodes; or may need ``files``."""
        kept = self.data[kind]
        return docname in kept or (bool(kept) and docname in self.env.toctree_includes)

    def outdated(self) -> set[str]:
        """Drop the data of the last build; return the documents to read again, and note the new digest."""
        self.__dict__.pop("records", None)
        self.__dict__.pop("settings", None)
        values = [getattr(self.env.config, PREFIX + name) for name in VALUES]
        now = _digest(__version__, values, self.records.digest)
        if self.data["digest"] == now:
            return set()
        self.data["digest"], self.data["problems"] = now, {}
        return set(self.pages)

    @property
    def stamp(self) -> str:
        """A digest of what our pages show in an output: the data, and the places that links point to."""
        labels = cast("StandardDomain", self.env.get_domain("std")).anonlabels
        names = (self.settings.add_run, self.settings.estimator_page)
        places = [labels.get(name.lower()) for name in names]
        return _digest(self.data["digest"], sorted(self.objects.items()), places)

    def report(self) -> None:
        """Print every problem of the data once per build, if any page uses the data.

        A build without changes repeats the messages of the last one, so that no error is overlooked.
        """
        known, parts = self.data["problems"], {"runs"}.union(*self.pages.values())
        for part in parts - known.keys():
            known[part] = self.records.diagnostics_of(part)
        found = {problem for part in parts for problem in known[part]}
        for problem in listed((*self.settings.problems, *sorted(found))):
            log_at(str(problem.place), problem.code, problem.text, self.env.config, problem.severity)

    # -- objects on pages that references can link to

    @property
    def objects(self) -> dict[str, dict[str, dict[str, Target]]]:
        """The objects by document name, then by kind and name."""
        return cast("dict[str, dict[str, dict[str, Target]]]", self.data["objects"])

    def here(self, kind: str) -> dict[str, Target]:
        """Return the objects of a kind on the document being read, by name."""
        return self.objects.setdefault(self.env.docname, {}).setdefault(kind, {})

    def canonical(self, kind: str, name: str) -> str | None:
        """Return the recorded name of an object, given any of its names; None if it is unknown."""
        if kind == SIZE:
            return next((size for size in SIZES if size.casefold() == name.casefold()), None)
        if kind == RUN:
            return name if name in self.records.runs else None
        entry = (self.records.gpus if kind == GPU else self.records.architectures).get(name)
        return entry.lookup_names[0] if entry else None

    def find(self, kind: str, name: str, docname: str = "") -> tuple[str, Target] | None:
        """Return the page of an object: ``docname``, or the page with the most objects of its kind.

        Returns:
            The document name, and the object there; None if no page shows it.
        """
        pages = [page for page, kinds in self.objects.items() if name in kinds.get(kind, ())]
        if not pages:
            return None
        page = min(pages, key=lambda page: (page != docname, -len(self.objects[page][kind]), page))
        return page, self.objects[page][kind][name]

    def every_object(self) -> Iterator[tuple[str, str, str, Target]]:
        """Yield kind, name, page and target of every object once."""
        every = {(kind, name) for kinds in self.objects.values() for kind in kinds for name in kinds[kind]}
        for kind, name in sorted(every):
            if found := self.find(kind, name):
                yield kind, name, *found

    # -- the interface of a Sphinx domain

    def clear_doc(self, docname: str) -> None:
        """Remove the data of a document."""
        for kept in ("pages", "objects", "files"):
            self.data[kept].pop(docname, None)

    def merge_domaindata(self, docnames: Iterable[str], otherdata: dict[str, Any]) -> None:
        """Add the data of documents that another process has read."""
        for kept in ("pages", "objects", "files"):
            self.data[kept] |= {name: otherdata[kept][name] for name in docnames if name in otherdata[kept]}

    def get_objects(self) -> Iterator[tuple[str, str, str, str, str, int]]:
        """Yield each object once, for search and for references from other projects.

        Search shows an object by its name; Sphinx would build wrong links from a title.
        """
        for kind, name, page, shown in self.every_object():
            yield name, name, kind, page, shown.anchor, 1

    def get_type_name(self, type: ObjType, primary: bool = False) -> str:  # noqa: A002 - Sphinx's name
        """Return the type of an object as search shows it."""
        return f"{self.label} {_(type.lname)}"

    def resolve_xref(
        self,
        env: BuildEnvironment,
        fromdocname: str,
        builder: Builder,
        typ: str,
        target: str,
        node: pending_xref,
        contnode: Element,
    ) -> reference | None:
        """Return a link to the target; None if this output does not contain it."""
        if typ == FILE and is_for_browsers(builder):
            # In a single page, the address of the document is only an anchor.
            page = builder.get_target_uri(fromdocname).partition("#")[0]
            address = relative_uri(page, target)
            return nodes.reference("", "", nodes.literal("", target), refuri=address, internal=True)
        found = self.find(typ, target, fromdocname)
        if found is None:
            return None
        page, shown = found
        if not node.get("refexplicit"):
            contnode = contnode.deepcopy()
            contnode.clear()
            contnode += nodes.Text(shown.title)
        try:
            return make_refnode(builder, fromdocname, page, shown.anchor, contnode, shown.title)
        except NoUri:
            return None  # this output leaves the page out

    def resolve_any_xref(
        self,
        env: BuildEnvironment,
        fromdocname: str,
        builder: Builder,
        target: str,
        node: pending_xref,
        contnode: Element,
    ) -> list[Any]:
        """Return the possible links of ``:any:`` or of a MyST link."""
        links = (
            (kind, self.resolve_xref(env, fromdocname, builder, kind, target, node, contnode))
            for kind in KINDS
        )
        return [(f"{self.name}:{kind}", link) for kind, link in links if link is not None]


def is_for_browsers(builder: Builder) -> bool:
    """Return whether pages are written for a browser rather than a book or a help viewer."""
    return isinstance(builder, StandaloneHTMLBuilder) and not builder.embedded


def _digest(*parts: object) -> str:
    return sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()


# -- links whose target is known only after all pages are read


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


def replace_missing(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.TextElement
) -> nodes.Node | None:
    """Handle ``missing-reference`` for the links above."""
    if "verl_instead" not in node:
        return None
    return nodes.inline("", "", *(inner.deepcopy() for inner in node["verl_instead"]))


def contribute_link(env: BuildEnvironment, target: str) -> nodes.Element:
    """Return an invitation that links to ``target``; if the label does not exist, a command follows it."""
    text = _("Add one.")
    command = nodes.literal("", "verl-resources new --help")
    return page_link(env, target, text, [nodes.Text(f"{text} "), command])


def log_at(
    place: str | Node, code: Code, message: str, config: Config, severity: Severity = Severity.ERROR
) -> None:
    """Print a problem at a node, or at a place written as ``get_location`` returns it."""
    # Sphinx 8 prints type and subtype unless that is switched off; if it does not, add them here.
    suffix = "" if config.show_warning_types else f" [verl.{code}]"
    write = logger.error if severity is Severity.ERROR else logger.warning
    write("%s", one_line(message) + suffix, location=place, type="verl", subtype=code)
