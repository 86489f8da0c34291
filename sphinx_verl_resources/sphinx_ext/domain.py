"""The ``verl`` domain: the data of a build, and the queries of each page.

The domain keeps each page's queries with the fingerprints of their answers. It reads a page again exactly
when one of these fingerprints changes.
"""

from __future__ import annotations

import zlib
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from docutils import nodes
from sphinx.domains import Domain, ObjType
from sphinx.errors import NoUri
from sphinx.util.nodes import make_refnode
from sphinx.util.parallel import ParallelTasks, parallel_available

from ..dataset import configured_directory
from ..diagnostics import NoAnswerError, listed
from ..i18n import _
from ..query import Answer, Query, digest, plain
from . import objects
from .config import conf_place, config_problems, label_problems, read_config
from .logs import log_diagnostic
from .queries import BuildData, Extension

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from docutils.nodes import Element, reference
    from sphinx.addnodes import pending_xref
    from sphinx.builders import Builder
    from sphinx.domains.std import StandardDomain
    from sphinx.environment import BuildEnvironment

    from ..dataset import Dataset
    from ..query import DataPart
    from .config import VerlConfig


class Found(NamedTuple):
    """An answer, or the error raised instead, with its fingerprint."""

    answer: Any
    fingerprint: str


class VerlDomain(Domain):
    """The ``verl`` domain: the data of the current build, and each document's queries across builds."""

    name = "verl"
    label = "verl"
    #: ``uses``: per document, each query and the fingerprint of its answer.
    #: ``state``: a digest of the data and configuration with which all answers were last up to date.
    #: ``problems``: the problems of conf.py and of each part of the data that was used since.
    #: ``objects``: per document, the objects on it that references can link to.
    #: ``files``: per document, the files that it needs, compressed, by their path in the output.
    #: ``written``: per output, the answers that each document showed when it was last written.
    initial_data = {  # noqa: RUF012 - Sphinx 8 and 9 annotate it differently
        "uses": {},
        "state": "",
        "problems": {},
        "objects": {},
        "files": {},
        "written": {},
    }
    #: Increment when the structure of ``initial_data`` changes: when a query, a diagnostic or a function used
    #: by a query moves, or changes its fields or arguments. Sphinx then reads every page again. A new way to
    #: compute fingerprints needs no change here: a new version of the extension reads all its pages again,
    #: see ``Extension``.
    data_version = 18
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

    # -- the data of one build, each part loaded on first use

    @cached_property
    def records(self) -> BuildData:
        """Read the data files once, with conf.py and the translations."""
        settings = read_config(self.env.config)
        directories = [configured_directory(name, self.confdir) for name in settings.directories]
        place = conf_place(self.confdir, "data")
        return BuildData(directories, place, settings, self.words, self.shown, self.std)

    @cached_property
    def _found(self) -> dict[Query[Any], Found]:
        return {}

    @property
    def settings(self) -> VerlConfig:
        """The values of conf.py."""
        return self.records.settings

    @property
    def catalog(self) -> Dataset:
        """The runs and the registries."""
        return self.records

    def forget(self) -> None:
        """Drop the loaded data, so that the next build of the same application reads it again."""
        self.__dict__.pop("records", None)
        self._found.clear()

    @property
    def uses(self) -> dict[str, dict[Query[Any], str]]:
        """The queries of each document, with the fingerprints of their answers."""
        return cast("dict[str, dict[Query[Any], str]]", self.data["uses"])

    @property
    def _queries(self) -> set[Query[Any]]:
        return {query for uses in self.uses.values() for query in uses}

    def report(self) -> bool:
        """Print every problem of the data once per build, if any page uses the data.

        A build without changes repeats the messages of the last one, so that no error is overlooked.

        Returns:
            True if the data or the configuration have changed, and Sphinx should save the domain's data.
        """
        if not self.uses:
            return False
        is_new = bool(self.data["state"] != self._state)
        if is_new:
            self.data["state"] = self._state
            self.data["problems"] = {"conf.py": config_problems(self.settings, self.confdir)}
        known = self.data["problems"]
        parts: set[DataPart] = {part for query in self._queries for part in query.reads}
        for part in {"runs", *parts} - known.keys():
            known[part] = self.records.diagnostics_of(part)
        beyond = sorted(problem for part in parts for problem in known[part])
        labels = label_problems(self.settings, self.confdir, self.std.anonlabels)
        for problem in listed((*known["conf.py"], *known["runs"], *beyond, *labels)):
            log_diagnostic(problem, self.env.config)
        self._found.clear()
        return is_new

    # -- the queries of each page

    def may_show(self, docname: str) -> bool:
        """Return whether a document, or a page joined to it, can contain our nodes."""
        return docname in self.uses or docname in self.env.toctree_includes

    def ask(self, query: Query[Answer]) -> Answer:
        """Answer a query, and make the document being read depend on the answer.

        Raises:
            NoAnswerError: there is no answer. The document depends on this too.
        """
        found = self._find(query)
        self.uses.setdefault(self.env.docname, {})[query] = found.fingerprint
        if isinstance(found.answer, NoAnswerError):
            # Without the traceback of the first call.
            raise found.answer.with_traceback(None)
        return cast("Answer", found.answer)

    def outdated(self) -> set[str]:
        """Return the documents with an answer that has changed since they were read."""
        if not self.uses or self.data["state"] == self._state:
            return set()
        now = {query: self._find(query).fingerprint for query in self._queries}
        return {
            doc for doc, uses in self.uses.items() if any(now[query] != was for query, was in uses.items())
        }

    def unwritten(self, output: str) -> list[str]:
        """Return the documents whose answers ``output`` does not show yet, and record them as written.

        Builders that share an environment read a changed page only once. Without this, the other builders
        would keep their older version of it.
        """
        written = self.data["written"].get(output, {})
        now = {
            doc: digest(
                sorted(
                    digest(query.key(), was, plain(query.place(self.records, doc)))
                    for query, was in uses.items()
                )
            )
            for doc, uses in self.uses.items()
        }
        self.data["written"][output] = now
        return sorted(doc for doc, answers in now.items() if written.get(doc) != answers)

    @property
    def _state(self) -> str:
        """A digest of everything that answers depend on; computing it needs neither YAML nor pydantic."""
        return digest(Extension().answer(self.records), self.records.digest, plain(self.settings))

    @property
    def std(self) -> StandardDomain:
        """Sphinx's domain of labels."""
        return cast("StandardDomain", self.env.get_domain("std"))

    def _find(self, query: Query[Any]) -> Found:
        """Return the answer, computed once per build."""
        if query not in self._found:
            try:
                answer = query.answer(self.records)
                self._found[query] = Found(answer, query.fingerprint(answer))
            except NoAnswerError as error:
                self._found[query] = Found(error, digest("no answer", str(error)))
        return self._found[query]

    def find_ahead(self, queries: Iterable[Query[Any]]) -> None:
        """Answer slow queries in several processes, if Sphinx uses more than one."""
        left = [query for query in queries if query not in self._found]
        if self.jobs > 1 and parallel_available:
            tasks = ParallelTasks(self.jobs)
            for query in left:
                tasks.add_task(self._find, query, self._found.__setitem__)
            tasks.join()

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
        self.uses.pop(docname, None)
        self.shown.pop(docname, None)
        self.data["files"].pop(docname, None)

    def merge_domaindata(self, docnames: Iterable[str], otherdata: dict[str, Any]) -> None:
        """Add the data of documents that another process has read."""
        for docname in docnames:
            for kept in ("uses", "objects", "files"):
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
