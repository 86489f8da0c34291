"""The ``verl`` domain: the data of a build, and what pages of ours show.

A page of ours is read again when the digest of all data, conf values, translations and versions differs from
the one that it was read with. It is written again when the stamp of the last finished build differs.
"""

from __future__ import annotations

import zlib
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from docutils import nodes
from sphinx.domains import Domain, Index, IndexEntry, ObjType
from sphinx.errors import NoUri
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

from . import __version__
from .config import LABELS as CONF_LABELS
from .config import VerlConfig, conf_place
from .dataset import configured_directory
from .diagnostics import Severity, listed, one_line
from .fields import natural
from .i18n import N_, _
from .records import SIZES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from docutils.nodes import Element, reference
    from sphinx.addnodes import pending_xref
    from sphinx.builders import Builder
    from sphinx.config import Config
    from sphinx.domains.std import StandardDomain
    from sphinx.environment import BuildEnvironment

    from .diagnostics import Code, Diagnostic

#: The kinds of objects; ``:any:`` prefers them in this order.
RUN, SIZE, GPU, MODEL = KINDS = ("run", "size", "gpu", "model")
#: Their names for readers.
LABELS = {RUN: N_("run"), SIZE: N_("size class"), GPU: N_("GPU"), MODEL: N_("model")}
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


class VerlDomain(Domain):
    """The ``verl`` domain: the data of the current build, and what each document shows across builds."""

    name = "verl"
    label = "verl"
    #: ``pages``: per document of ours, the parts of the data that it uses.
    #: ``digest``: the digest of everything that our pages were read with.
    #: ``problems``: the problems of each part of the data with that digest.
    #: ``objects``: per document, then by kind and name, the objects on it that references can link to.
    #: ``files``: per document, the files that it needs, compressed, by their path in the output.
    initial_data = {"pages": {}, "digest": "", "problems": {}, "objects": {}, "files": {}}  # noqa: RUF012
    #: Increment when the structure of ``initial_data`` changes; Sphinx then reads every page again.
    data_version = 20
    object_types = {kind: ObjType(label, kind) for kind, label in LABELS.items()}  # noqa: RUF012

    #: The directory of conf.py, the number of processes to use, and a digest of the translations.
    confdir: Path
    jobs = 1
    words = ""
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
        return VerlConfig.read(self.env.config)

    @cached_property
    def records(self) -> Any:
        """Read the data files once; each kind of record is loaded on first use."""
        directories = [configured_directory(name, self.confdir) for name in self.settings.directories]
        return self.room("data")(directories, missing=conf_place(self.confdir, "data"))

    def forget(self) -> None:
        """Drop the loaded data, so that the next build of the same application reads it again."""
        self.__dict__.pop("records", None)
        self.__dict__.pop("settings", None)

    @property
    def digest(self) -> str:
        """A digest of everything that our pages depend on."""
        found = (__version__, self.words, repr(self.settings), self.records.digest)
        return sha256("\0".join(found).encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def stamp(self) -> str:
        """A digest of what our pages show in an output: the data, and the places that links point to."""
        labels = {name: self.labels.get(getattr(self.settings, name).lower()) for name in CONF_LABELS}
        places = repr((sorted(self.objects.items()), labels))
        return sha256(f"{self.data['digest']}\0{places}".encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def labels(self) -> dict[str, tuple[str, str]]:
        """The labels of all pages."""
        return cast("StandardDomain", self.env.get_domain("std")).anonlabels

    # -- pages

    @property
    def pages(self) -> dict[str, set[str]]:
        """The documents with a directive or role of ours, and the parts of the data that each uses."""
        return cast("dict[str, set[str]]", self.data["pages"])

    def use(self, *parts: str) -> None:
        """Note that the document being read is one of ours, and uses some parts of the data."""
        self.pages.setdefault(self.env.docname, set()).update(parts)

    def may_show(self, docname: str, kind: str = "pages") -> bool:
        """Return whether a document, or a page joined to it, can contain our nodes; or may need ``files``."""
        kept = self.data[kind]
        return docname in kept or (bool(kept) and docname in self.env.toctree_includes)

    def outdated(self) -> set[str]:
        """Return the documents to read again, and note the digest that they will be read with."""
        now = self.digest
        if self.data["digest"] == now:
            return set()
        self.data["digest"], self.data["problems"] = now, {}
        return set(self.pages)

    def report(self) -> None:
        """Print every problem of the data once per build, if any page uses the data.

        A build without changes repeats the messages of the last one, so that no error is overlooked.
        """
        if not self.pages:
            return
        known, parts = self.data["problems"], {part for used in self.pages.values() for part in used}
        for part in {"runs", *parts} - known.keys():
            known[part] = self.records.diagnostics_of(part)
        beyond = sorted(problem for part in parts - {"runs"} for problem in known[part])
        conf = self.settings.problems(self.confdir, self.labels)
        for problem in listed((*conf, *known["runs"], *beyond)):
            log_diagnostic(problem, self.env.config)

    def note_file(self, path: str, text: str) -> None:
        """Remember a file that the document being read needs, by its path in the output.

        It is stored here rather than in the document, which every builder copies and some print.
        """
        self.data["files"].setdefault(self.env.docname, {})[path] = zlib.compress(text.encode())

    @property
    def files(self) -> dict[str, bytes]:
        """The files that all documents need, by path in the output."""
        kept = {path: packed for files in self.data["files"].values() for path, packed in files.items()}
        return {path: zlib.decompress(packed) for path, packed in sorted(kept.items())}

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

    def names(self, kind: str) -> list[str]:
        """Return all names of the runs, GPUs or models, for hints."""
        if kind == RUN:
            return list(self.records.runs)
        return cast("list[str]", (self.records.gpus if kind == GPU else self.records.architectures).names)

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
        for kind in KINDS:
            names = {name for kinds in self.objects.values() for name in kinds.get(kind, ())}
            for name in sorted(names):
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


# -- messages of a build


def log_diagnostic(problem: Diagnostic, config: Config) -> None:
    """Print ``path:line:col: LEVEL: message [verl.code]``."""
    log_at(str(problem.place), problem.code, problem.text, config, problem.severity)


def log_at(place: str, code: Code, message: str, config: Config, severity: Severity = Severity.ERROR) -> None:
    """Print a problem at a place in a document, written as ``get_location`` returns it."""
    # Sphinx 8 prints type and subtype unless that is switched off; if it does not, add them here.
    suffix = "" if config.show_warning_types else f" [verl.{code}]"
    write = logger.error if severity is Severity.ERROR else logger.warning
    write("%s", one_line(message) + suffix, location=place, type="verl", subtype=code)
