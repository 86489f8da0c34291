"""The ``verl`` domain: the data of a build, what pages of ours show, and the links to it.

A page of ours is read again when the digest of all data, conf values and versions differs from the one that
it was read with. It is written again when the stamp of the last finished build differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, cast

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.config import Config
from sphinx.domains import Domain, Index, IndexEntry, ObjType
from sphinx.domains.std import StandardDomain
from sphinx.environment import BuildEnvironment
from sphinx.roles import XRefRole
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole
from sphinx.util.nodes import make_refnode
from sphinx.util.osutil import relative_uri

from . import __version__
from .dataset import Dataset, configured_directory
from .diagnostics import Diagnostic, Location, NoAnswerError, capped, did_you_mean, one_line
from .i18n import N_, _
from .records import SIZES, Links, is_address
from .selection import natural

#: The kinds of objects; ``:any:`` prefers them in this order.
RUN, SIZE, GPU, MODEL = OBJECT_KINDS = ("run", "size", "gpu", "model")
#: Their names for readers, and where to record one.
LABELS = {RUN: "run", SIZE: "size class", GPU: "GPU", MODEL: "model"}
RECORD = {GPU: "add it to gpus.yaml", MODEL: "add it to architectures.yaml"}
#: The kinds of a link to a file next to the pages, and to a label.
FILE, LABEL = "file", "label"
#: The labels that pages of ours link to, if a page of the project has them.
PAGES = ADD_A_RUN, ESTIMATOR, OUT_OF_MEMORY = "verl-add-a-run", "verl-estimator", "out-of-memory"
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
        by_size: dict[str, list[IndexEntry]] = {size: [] for size in SIZES}
        for kind, name, page, entry in cast("VerlDomain", self.domain).every_object():
            if kind == RUN and (docnames is None or page in docnames):
                by_size[entry.group].append(IndexEntry(entry.title, 0, page, entry.anchor, name, "", ""))
        for entries in by_size.values():
            entries.sort(key=lambda entry: (natural(entry.name), entry.extra))
        return [(size, entries) for size, entries in by_size.items() if entries], False


class ObjectRole(XRefRole):
    """A link to an object on a page, by any of its names.

    Without an explicit text, the link shows the title of a run, or the name of another object as written. A
    leading ``~`` leaves out the owner of a model, as with modules elsewhere in Sphinx.
    """

    def process_link(
        self, env: BuildEnvironment, refnode: nodes.Element, has_explicit_title: bool, title: str, target: str
    ) -> tuple[str, str]:
        """Turn a name into the recorded one."""
        kind, name = refnode["reftype"], " ".join(target.split())
        if not has_explicit_title:
            refnode["refexplicit"] = kind != RUN
            name = name.removeprefix("~")
            title = name.rpartition("/")[2] if target.startswith("~") else name
        domain = VerlDomain.of(env)
        domain.use()
        if kind in (GPU, MODEL):
            entry = (domain.records.gpus if kind == GPU else domain.records.architectures).get(name)
            return title, entry.lookup_names[0] if entry else name
        return title, name.upper() if kind == SIZE else name


class ValueRole(SphinxRole):
    """A role that shows a figure of the data, or the problem with the name of the figure.

    Attributes:
        value: a function of the data and the text of the role; it raises ``NoAnswerError``.
        reads: the parts of the data, besides the runs, that the figure depends on.
    """

    def __init__(self, value: Callable[[Dataset, str], str], *reads: str) -> None:
        self.value, self.reads = value, reads

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the value."""
        domain = VerlDomain.of(self.env)
        domain.use(*self.reads)
        try:
            value, name = self.value(domain.records, " ".join(self.text.split())), "verl-value"
        except NoAnswerError as error:
            log_at(self.get_location(), f"{self.name}: {error}", error.diagnostics[0], self.config)
            value, name = f"[{self.name}: {error.diagnostics[0].named_message}]", "verl-problem"
        # Sphinx compares the attribute with `is False`.
        return [nodes.inline(self.rawtext, value, classes=[name], support_smartquotes=False)], []


def _figure(data: Dataset, text: str) -> str:
    if text not in data.figures:
        raise NoAnswerError.because(f"unknown figure {text!r}", did_you_mean(text, data.figures))
    return data.figures[text] or _("never")


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
        **{kind: ObjectRole(innernodeclass=nodes.inline, warn_dangling=True) for kind in OBJECT_KINDS},
        "data": ValueRole(_figure),
        "memory": ValueRole(_figure_of_analysis, "analysis", "config_keys"),
    }

    #: Set when the builder starts: the application, and a function that loads a part of ``extension.PARTS``.
    app: Sphinx
    part: Callable[[str], Any]

    @classmethod
    def of(cls, env: BuildEnvironment) -> VerlDomain:
        """Return the domain of a build."""
        return cast("VerlDomain", env.get_domain(cls.name))

    # -- conf.py and the data of one build

    def conf_place(self, name: str) -> Location:
        """Return the line of conf.py that sets a value; the first line if there is none."""
        file = Path(self.app.confdir, "conf.py")
        text = file.read_text("utf-8", errors="replace") if file.is_file() else ""
        match = re.search(rf"^{name}\b", text, re.MULTILINE)
        return Location("conf.py", text.count("\n", 0, match.start() if match else 0) + 1, 1)

    @cached_property
    def links(self) -> Links:
        """The links to verl's repository; the default in place of an invalid template, see ``report``."""
        template = str(self.env.config.verl_resources_script_url)
        fields = sorted(re.findall(r"\{[^}]*\}?|\}", template))
        host = re.match(r"https?://[^/{]+/", template)  # which data must not name
        is_right = fields == ["{path}", "{ref}"] and host and is_address(re.sub("[{}]", "", template))
        return Links(template) if is_right else Links()

    @cached_property
    def records(self) -> Any:
        """Read the data files once; each kind of record is loaded on first use."""
        value, confdir = self.env.config.verl_resources_data, Path(self.app.confdir)
        names = value if isinstance(value, (list, tuple)) else [value]
        directories = [configured_directory(str(name), confdir) for name in names]
        return self.part("data")(directories, missing=self.conf_place("verl_resources_data"))

    # -- pages

    def use(self, *parts: str) -> None:
        """Note that the document being read is one of ours, and uses some parts of the data."""
        self.data["pages"].setdefault(self.env.docname, set()).update(parts)

    def note_file(self, path: str, text: str) -> None:
        """Remember a file that the document being read needs, by its path in the output."""
        self.data["files"].setdefault(self.env.docname, {})[path] = text

    def may_show(self, docname: str, kind: str = "pages") -> bool:
        """Return whether a document, or a page joined to it, can contain our nodes; or may need ``files``."""
        documents = self.data[kind]
        return docname in documents or (bool(documents) and docname in self.env.toctree_includes)

    def outdated(self) -> set[str]:
        """Drop the data of the last build; return the documents to read again, and note the new digest."""
        self.__dict__.pop("records", None)
        now = digest(__version__, self.links.script_url, self.records.digest)
        if self.data["digest"] == now:
            return set()
        self.data["digest"], self.data["problems"] = now, {}
        return set(self.data["pages"])

    @property
    def stamp(self) -> str:
        """A digest of what our pages show in an output: the data, and the places that links point to."""
        pages = [self.find(LABEL, name) for name in PAGES]
        return digest(self.data["digest"], sorted(self.objects.items()), pages)

    def report(self) -> None:
        """Print every problem of the data once per build, if any page uses the data.

        A build without changes repeats the messages of the last one, so that no error is overlooked.
        """
        by_part, parts = self.data["problems"], {"runs"}.union(*self.data["pages"].values())
        for part in parts - by_part.keys():
            by_part[part] = self.records.diagnostics_of(part)
        problems = sorted({problem for part in parts for problem in by_part[part]})
        if self.links.script_url != self.env.config.verl_resources_script_url:
            name, remedy = "verl_resources_script_url", "the default is used instead"
            message = f"{name} must be an address with {{ref}}, {{path}} and no other placeholder"
            problems.insert(0, Diagnostic(self.conf_place(name), "config", message, remedy))
        for problem in capped(problems):
            log_at(str(problem.place), problem.text, problem, self.env.config)

    # -- objects on pages that references can link to

    @property
    def objects(self) -> dict[str, dict[str, dict[str, Target]]]:
        """The objects by document name, then by kind and name."""
        return cast("dict[str, dict[str, dict[str, Target]]]", self.data["objects"])

    def here(self, kind: str) -> dict[str, Target]:
        """Return the objects of a kind on the document being read, by name."""
        return self.objects.setdefault(self.env.docname, {}).setdefault(kind, {})

    def find(self, kind: str, name: str, docname: str = "") -> tuple[str, Target] | None:
        """Return where a label or an object is: on ``docname``, or the page with the most of its kind.

        Returns:
            The document name, and the place there; None if there is none.
        """
        if kind == LABEL:
            page, anchor = cast("StandardDomain", self.env.get_domain("std")).anonlabels.get(name, ("", ""))
            return (page, Target(anchor, "")) if page else None
        pages = [page for page, kinds in self.objects.items() if name in kinds.get(kind, ())]
        if not pages:
            return None
        page = min(pages, key=lambda page: (page != docname, -len(self.objects[page][kind]), page))
        return page, self.objects[page][kind][name]

    def every_object(self) -> Iterator[tuple[str, str, str, Target]]:
        """Yield kind, name, page and target of every object once."""
        every = {(kind, name) for kinds in self.objects.values() for kind in kinds for name in kinds[kind]}
        for kind, name in sorted(every):
            if place := self.find(kind, name):
                yield kind, name, *place

    # -- the interface of a Sphinx domain

    def clear_doc(self, docname: str) -> None:
        """Remove the data of a document."""
        for section in ("pages", "objects", "files"):
            self.data[section].pop(docname, None)

    def merge_domaindata(self, docnames: Iterable[str], otherdata: dict[str, Any]) -> None:
        """Add the data of documents that another process has read."""
        for section in ("pages", "objects", "files"):
            new = otherdata[section]
            self.data[section] |= {name: new[name] for name in docnames if name in new}

    def get_objects(self) -> Iterator[tuple[str, str, str, str, str, int]]:
        """Yield each object once, for search and for references from other projects.

        Search shows an object by its name; Sphinx would build wrong links from a title.
        """
        for kind, name, page, entry in self.every_object():
            yield name, name, kind, page, entry.anchor, 1

    def resolve_xref(
        self,
        env: BuildEnvironment,
        fromdocname: str,
        builder: Builder,
        typ: str,
        target: str,
        node: pending_xref,
        contnode: nodes.Element,
    ) -> nodes.reference | None:
        """Return a link to the target; None if this output does not contain it."""
        if typ == FILE and is_for_browsers(builder):
            address = file_address(builder, fromdocname, target)
            return nodes.reference("", "", nodes.literal("", target), refuri=address, internal=True)
        place = self.find(typ, target, fromdocname)
        if place is None:
            return None
        page, entry = place
        if not node.get("refexplicit"):
            contnode = contnode.copy()
            contnode += nodes.Text(entry.title)
        return make_refnode(builder, fromdocname, page, entry.anchor, contnode, entry.title)

    def resolve_any_xref(
        self,
        env: BuildEnvironment,
        fromdocname: str,
        builder: Builder,
        target: str,
        node: pending_xref,
        contnode: nodes.Element,
    ) -> list[Any]:
        """Return the possible links of ``:any:`` or of a MyST link."""
        resolve = partial(self.resolve_xref, env, fromdocname, builder)
        links = {kind: resolve(kind, target, node, contnode) for kind in OBJECT_KINDS}
        return [(f"{self.name}:{kind}", link) for kind, link in links.items() if link]


def is_for_browsers(builder: Builder) -> bool:
    """Return whether pages are written for a browser rather than a book or a help viewer."""
    return isinstance(builder, StandaloneHTMLBuilder) and not builder.embedded


def digest(*parts: object) -> str:
    """Return a digest of plain values."""
    return sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()


# -- links whose target is known only after all pages are read


def file_address(builder: Builder, docname: str, name: str) -> str:
    """Return the address of a file in the output from a page."""
    # In a single page, the address of the document is only an anchor.
    return relative_uri(builder.get_target_uri(docname).partition("#")[0], name)


def link_later(env: BuildEnvironment, kind: str, name: str, text: str, *instead: nodes.Node) -> pending_xref:
    """Return a link to an object, a file or a label; ``instead`` replaces it if there is no target."""
    about = {"refdomain": VerlDomain.name, "reftype": kind, "reftarget": name, "refdoc": env.docname}
    return pending_xref("", nodes.inline("", text), **about, refexplicit=True, verl_instead=instead)


def fall_back(app: Sphinx, env: BuildEnvironment, node: pending_xref, *_: object) -> nodes.inline | None:
    """Handle ``missing-reference`` for the links above."""
    return nodes.inline("", "", *node["verl_instead"]) if "verl_instead" in node else None


def log_at(place: str, text: str, problem: Diagnostic, config: Config) -> None:
    """Print the text of a problem at a place, which is written as ``get_location`` returns it."""
    # Sphinx 8 prints type and subtype unless that is switched off; if it does not, add them here.
    suffix = "" if config.show_warning_types else f" [verl.{problem.code}]"
    write = logger.error if problem.is_error else logger.warning
    write("%s", one_line(text) + suffix, location=place, type="verl", subtype=problem.code)
