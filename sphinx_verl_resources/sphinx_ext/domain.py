"""The ``verl`` domain: the data of a build, and what pages of ours show.

A page of ours is read again when the digest of all data, conf values, translations and versions differs from
the one that it was read with. It is written again when the stamp of the last finished build differs.
"""

from __future__ import annotations

import zlib
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

from docutils import nodes
from sphinx.domains import Domain, ObjType
from sphinx.errors import NoUri
from sphinx.util.nodes import make_refnode

from .. import __version__
from ..dataset import configured_directory
from ..diagnostics import listed
from ..estimator.context import EstimatorContext
from ..i18n import _
from . import objects
from .config import conf_place, config_problems, label_problems, read_config
from .logs import log_diagnostic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from docutils.nodes import Element, reference
    from sphinx.addnodes import pending_xref
    from sphinx.builders import Builder
    from sphinx.domains.std import StandardDomain
    from sphinx.environment import BuildEnvironment

    from .config import VerlConfig


class VerlDomain(Domain):
    """The ``verl`` domain: the data of the current build, and what each document shows across builds."""

    name = "verl"
    label = "verl"
    #: ``pages``: per document of ours, the parts of the data that it uses.
    #: ``digest``: the digest of everything that our pages were read with.
    #: ``problems``: the problems of conf.py and of each part of the data with that digest.
    #: ``objects``: per document, the objects on it that references can link to.
    #: ``files``: per document, the files that it needs, compressed, by their path in the output.
    initial_data = {"pages": {}, "digest": "", "problems": {}, "objects": {}, "files": {}}  # noqa: RUF012
    #: Increment when the structure of ``initial_data`` changes; Sphinx then reads every page again.
    data_version = 19
    object_types = {kind: ObjType(label, kind) for kind, label in objects.LABELS.items()}  # noqa: RUF012

    #: The directory of conf.py.
    confdir: Path
    #: The number of processes that Sphinx may use.
    jobs = 1
    #: A digest of the translations of this build, see ``i18n.use_language``.
    words = ""

    @classmethod
    def of(cls, env: BuildEnvironment) -> VerlDomain:
        """Return the domain of a build."""
        return cast("VerlDomain", env.get_domain(cls.name))

    # -- the data of one build

    @cached_property
    def settings(self) -> VerlConfig:
        """The values of conf.py."""
        return read_config(self.env.config)

    @cached_property
    def records(self) -> EstimatorContext:
        """Read the data files once; each kind of record is loaded on first use."""
        directories = [configured_directory(name, self.confdir) for name in self.settings.directories]
        return EstimatorContext(directories, missing=conf_place(self.confdir, "data"))

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
        labels = {name.lower(): self.std.anonlabels.get(name.lower()) for name in self.settings.labels}
        places = repr((sorted(self.shown.items()), sorted(labels.items())))
        return sha256(f"{self.data['digest']}\0{places}".encode("utf-8", "surrogatepass")).hexdigest()

    # -- pages

    @property
    def pages(self) -> dict[str, set[str]]:
        """The documents with a directive or role of ours, and the parts of the data that each uses."""
        return cast("dict[str, set[str]]", self.data["pages"])

    def use(self, *parts: str) -> None:
        """Note that the document being read is one of ours, and uses some parts of the data."""
        self.pages.setdefault(self.env.docname, set()).update(parts)

    def may_show(self, docname: str) -> bool:
        """Return whether a document, or a page joined to it, can contain our nodes."""
        return docname in self.pages or docname in self.env.toctree_includes

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
        if "conf.py" not in known:
            known["conf.py"] = config_problems(self.settings, self.confdir)
        for part in {"runs", *parts} - known.keys():
            known[part] = self.records.diagnostics_of(part)
        beyond = sorted(problem for part in parts - {"runs"} for problem in known[part])
        labels = label_problems(self.settings, self.confdir, self.std.anonlabels)
        for problem in listed((*known["conf.py"], *known["runs"], *beyond, *labels)):
            log_diagnostic(problem, self.env.config)

    @property
    def std(self) -> StandardDomain:
        """Sphinx's domain of labels."""
        return cast("StandardDomain", self.env.get_domain("std"))

    # -- files next to the pages

    def note_file(self, path: str, text: str) -> None:
        """Remember a file that the document being read needs, by its path in the output.

        It is stored here rather than in the document, which every builder copies and some print.
        """
        self.data["files"].setdefault(self.env.docname, {})[path] = zlib.compress(text.encode())

    def may_need_files(self, docname: str) -> bool:
        """Return whether a document, or a page joined to it, may need files in the output."""
        files = self.data["files"]
        return docname in files or (bool(files) and docname in self.env.toctree_includes)

    @property
    def files(self) -> dict[str, bytes]:
        """The files that all documents need, by path in the output."""
        kept = {path: packed for files in self.data["files"].values() for path, packed in files.items()}
        return {path: zlib.decompress(packed) for path, packed in sorted(kept.items())}

    # -- objects on pages that references can link to

    @property
    def shown(self) -> objects.Objects:
        """The objects by document name, then by kind and name."""
        return cast("objects.Objects", self.data["objects"])

    def note_object(self, kind: str, name: str, target: objects.Target) -> bool:
        """Remember that the document being read shows an object, see ``objects.note``."""
        return objects.note(self.shown, self.env.docname, kind, name, target)

    # -- the interface of a Sphinx domain

    def clear_doc(self, docname: str) -> None:
        """Remove the data of a document."""
        self.pages.pop(docname, None)
        self.shown.pop(docname, None)
        self.data["files"].pop(docname, None)

    def merge_domaindata(self, docnames: Iterable[str], otherdata: dict[str, Any]) -> None:
        """Add the data of documents that another process has read."""
        for docname in docnames:
            for kept in ("pages", "objects", "files"):
                if docname in otherdata[kept]:
                    self.data[kept][docname] = otherdata[kept][docname]

    def get_objects(self) -> Iterator[tuple[str, str, str, str, str, int]]:
        """Yield each object once, for search and for references from other projects.

        Search shows an object by its name; Sphinx would build wrong links from a title.
        """
        for kind, name, page, shown in objects.every(self.shown):
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
        found = objects.find(self.shown, typ, target, fromdocname)
        if found is None:
            return None
        page, shown = found
        if not node.get("refexplicit"):
            contnode = contnode.deepcopy()
            contnode.children = []
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
        found = []
        for kind, name in objects.matches(self.shown, target):
            link = self.resolve_xref(env, fromdocname, builder, kind, name, node, contnode)
            if link is not None:
                found.append((f"{self.name}:{kind}", link))
        return found
