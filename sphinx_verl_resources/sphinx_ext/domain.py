"""The ``verl`` domain: the catalog of a build, and who uses what of it.

What a page uses is remembered as a question and a fingerprint of its answer. A page is read again exactly
when the answer to one of its questions changes, whatever happened on disk.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Any, cast

from docutils import nodes
from sphinx.domains import Domain, ObjType
from sphinx.errors import NoUri
from sphinx.util.nodes import make_refnode

from .. import __version__
from ..analysis.question import Answer, Question
from ..catalog.figures import FIGURES
from ..catalog.names import SIZES
from ..diagnostics import NoAnswerError, nearest
from ..estimator.question import EstimatorQuestion
from ..i18n import _
from . import objects
from .build_data import BuildData
from .config import LABELS, config_problems, label_problems
from .logs import log_diagnostic
from .uses import ConfigUse, EntriesUse, ExtensionUse, FigureUse, KnownUse, ObjectUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from docutils.nodes import Element, reference
    from sphinx.addnodes import pending_xref
    from sphinx.builders import Builder
    from sphinx.environment import BuildEnvironment

    from ..catalog.models.architecture import Architecture
    from ..catalog.models.gpu import Gpu
    from .uses import Asked, Use


class VerlDomain(BuildData, Domain):
    """Holds the catalog while a build runs, and what each document uses between builds."""

    name = "verl"
    label = "verl"
    #: ``uses``: per document, each question it asks and the fingerprint of the answer.
    #: ``state``: of all data and configuration, when the answers were last known to be right.
    #: ``problems``: what was wrong with them then.
    #: ``analysis_problems``: what was wrong with the analysis; None where no page used it.
    #: ``objects``: per document, what it shows that can be referred to.
    #: ``files``: per document, the files that it needs in the output, by their path there, compressed.
    #: ``written``: per output, the answers that each document showed when it was last written.
    initial_data = {  # noqa: RUF012 - Sphinx 8 and 9 annotate it differently
        "uses": {},
        "state": "",
        "problems": (),
        "analysis_problems": None,
        "objects": {},
        "files": {},
        "written": {},
    }
    #: Raise when ``initial_data`` or what lies in it takes another shape: a question or a diagnostic another
    #: name, module or other fields. Sphinx then reads everything again. A fingerprint that is made otherwise
    #: is no reason: a new version of the extension reads all its pages again anyway, see ``ExtensionUse``.
    data_version = 11
    object_types = {  # noqa: RUF012
        kind: ObjType(label, kind) for kind, label in objects.LABELS.items()
    }

    #: A digest of the words of this build, see ``words.use_language``.
    words = ""

    @classmethod
    def of(cls, env: BuildEnvironment) -> VerlDomain:
        """The domain of a build."""
        return cast("VerlDomain", env.get_domain(cls.name))

    @property
    def uses(self) -> dict[str, dict[Use, str]]:
        """By document name."""
        return cast("dict[str, dict[Use, str]]", self.data["uses"])

    @property
    def _every_use(self) -> set[Use]:
        return {use for uses in self.uses.values() for use in uses}

    def report(self) -> bool:
        """Print every problem of the data, once a build, for as long as any page uses the data.

        Builds in which nothing has changed repeat what the last one found: an error that is printed once
        and then forgotten is one that ships.

        Returns:
            Whether data or configuration are new, and with them what this remembers.
        """
        if not self.uses:
            return False
        is_new = bool(self.data["state"] != self._state)
        if is_new:
            self.data["state"] = self._state
            self.data["problems"] = (*config_problems(self.settings, self.confdir), *self.catalog.diagnostics)
            self.data["analysis_problems"] = None
        for problem in self.data["problems"]:
            log_diagnostic(problem, self.env.config)
        self._report_analysis()
        for problem in label_problems(self.settings, self.confdir, self.env.domains["std"].anonlabels):
            log_diagnostic(problem, self.env.config)
        return is_new

    def _report_analysis(self) -> None:
        """The same for the analysis, which costs nothing where no page shows any of it."""
        asked = [use for use in self._every_use if isinstance(use, Question | EstimatorQuestion)]
        if not asked:
            return
        if self.data["analysis_problems"] is None:
            from ..analysis.printed import analysis_problems

            problems = list(analysis_problems(self.analysis))
            of_estimator = [use for use in asked if isinstance(use, EstimatorQuestion)]
            problems += self._facts[1] if of_estimator else []
            problems += self.cases.diagnostics if any(use.of_cases for use in of_estimator) else []
            self.data["analysis_problems"] = tuple(problems)
        for problem in self.data["analysis_problems"]:
            log_diagnostic(problem, self.env.config)

    # -- who uses what

    def note_dependency(self, use: Use) -> None:
        """Remember that the document being read asks this question."""
        self.uses.setdefault(self.env.docname, {})[use] = self._fingerprint(use)

    def may_show(self, docname: str) -> bool:
        """Whether something of ours can stand in a document, be it from other pages that are joined to it."""
        return docname in self.uses or docname in self.env.toctree_includes

    def ask(self, question: Question[Answer] | EstimatorQuestion[Answer]) -> Answer:
        """The answer to a question about the analysis; the document being read depends on it from now on.

        Raises:
            NoAnswerError: there is none; on this, too, the document depends.
        """
        self.note_dependency(question)
        answer = self._answer(question)
        if isinstance(answer, NoAnswerError):
            # Without the way that it took when it was asked before.
            raise answer.with_traceback(None)
        return cast("Answer", answer)

    def outdated(self) -> set[str]:
        """The documents whose answers have changed since they were read."""
        if not self.uses or self.data["state"] == self._state:
            return set()
        answers = {use: self._fingerprint(use) for use in self._every_use}
        return {
            doc for doc, uses in self.uses.items() if any(answers[use] != seen for use, seen in uses.items())
        }

    def unwritten(self, output: str) -> list[str]:
        """The documents whose answers ``output`` does not show yet, which is taken to be mended now.

        Builders that share an environment each read what has changed since any of them did, and so would
        leave their own older pages as they are.
        """
        written = self.data["written"].get(output, {})
        now = {
            doc: _digest(sorted(f"{use} {seen} {self._link(use, doc)}" for use, seen in uses.items()))
            for doc, uses in self.uses.items()
        }
        self.data["written"][output] = now
        return sorted(doc for doc, answers in now.items() if written.get(doc) != answers)

    @property
    def _state(self) -> str:
        """Equal states give equal answers; needs neither YAML nor pydantic."""
        return f"{__version__} {self.words} {self.snapshot.digest} {self.settings}"

    def _fingerprint(self, use: Use) -> str:
        if isinstance(use, ExtensionUse):
            return f"{__version__} {self.words}"
        if isinstance(use, ObjectUse):
            # Where it stands is known when all pages have been read, see ``unwritten``.
            recorded = self.canonical(use.kind, use.name)
            return recorded or f"unknown; {nearest(use.name, self.names(use.kind))}"
        if isinstance(use, EntriesUse):
            return _digest(entry.model_dump_json() for entry in self.entries(use))
        if isinstance(use, ConfigUse):
            return repr(getattr(self.settings, use.name))
        if isinstance(use, FigureUse):
            return FIGURES[use.name](self.catalog)
        if isinstance(use, Question | EstimatorQuestion):
            return _digest((repr(self._answer(use)),))
        from ..catalog.selection import gpu_name, is_known, other_values, select_broken, select_runs

        if isinstance(use, KnownUse):
            known = is_known(self.catalog, use.name, use.value)
            return "known" if known else f"unknown; {other_values(self.catalog, use.name, use.value)}"
        # What the registries say of a run shows in whether it is chosen, whether it is usable at all, and in
        # what its GPU is called where a reader filters.
        runs = select_runs(self.catalog, use.query)
        parts = [f"{run.model_dump_json()} {gpu_name(self.catalog, run)}" for run in runs]
        parts.extend(f"broken {file.shown} {file.size}" for file in select_broken(self.catalog, use.query))
        return _digest(parts)

    def _answer(self, question: Asked) -> Any:
        """The answer, or the error that says why there is none; found once per build."""
        if question not in self._answers:
            try:
                if isinstance(question, EstimatorQuestion):
                    self._answers[question] = question.answer(self.world)
                else:
                    self._answers[question] = question.answer(self.analysis)
            except NoAnswerError as error:
                self._answers[question] = error
        return self._answers[question]

    # -- what stands beside pages

    def note_file(self, path: str, text: str) -> None:
        """Remember a file that the document being read needs, by its path in the output.

        Kept here and not in the document, which every builder copies and some print.
        """
        self.data["files"].setdefault(self.env.docname, {})[path] = zlib.compress(text.encode())

    @property
    def files(self) -> dict[str, bytes]:
        """What all documents need, by path in the output."""
        kept = {path: packed for files in self.data["files"].values() for path, packed in files.items()}
        return {path: zlib.decompress(packed) for path, packed in sorted(kept.items())}

    # -- what pages show that can be referred to

    @property
    def shown(self) -> objects.Objects:
        """By document name, then by kind and name."""
        return cast("objects.Objects", self.data["objects"])

    def note_object(self, kind: str, name: str, shown: objects.Target) -> bool:
        """Remember that the document being read shows an object, see ``objects.note``."""
        return objects.note(self.shown, self.env.docname, kind, name, shown)

    def canonical(self, kind: str, name: str) -> str | None:
        """The name under which an object is recorded that goes by ``name``; None if there is none."""
        if kind == objects.RUN:
            return name if name in self.catalog.runs else None
        if kind == objects.SIZE:
            return next((size for size in SIZES if size.casefold() == name.casefold()), None)
        if kind == objects.GPU:
            gpu = self.catalog.gpus.get(name)
            return gpu.name if gpu else None
        model = self.catalog.architectures.get(name)
        return model.hf_id if model else None

    def names(self, kind: str) -> list[str]:
        """Every name by which an object of a kind can be called, for hints."""
        if kind == objects.RUN:
            return list(self.catalog.runs)
        if kind == objects.SIZE:
            return list(SIZES)
        return (self.catalog.gpus if kind == objects.GPU else self.catalog.architectures).names

    def entries(self, use: EntriesUse) -> tuple[Gpu, ...] | tuple[Architecture, ...]:
        """The entries of a registry, in its order or in that of the names; unknown names are left out."""
        registry = self.catalog.gpus if use.kind == objects.GPU else self.catalog.architectures
        return registry.select(use.names)

    def _link(self, use: Use, docname: str) -> Any:
        """Where a link of a document leads, which is known when all pages have been read."""
        if isinstance(use, ObjectUse):
            return objects.find(self.shown, use.kind, use.target, docname)
        if isinstance(use, ConfigUse) and use.name in LABELS:
            return self.env.domains["std"].anonlabels.get(getattr(self.settings, use.name).lower())
        return None

    # -- what Sphinx asks of a domain

    def clear_doc(self, docname: str) -> None:
        """Forget what a document used."""
        self.uses.pop(docname, None)
        self.shown.pop(docname, None)
        self.data["files"].pop(docname, None)

    def merge_domaindata(self, docnames: Iterable[str], otherdata: dict[str, Any]) -> None:
        """Take over what another process has read."""
        for docname in docnames:
            for kept in ("uses", "objects", "files"):
                if docname in otherdata[kept]:
                    self.data[kept][docname] = otherdata[kept][docname]

    def get_objects(self) -> Iterator[tuple[str, str, str, str, str, int]]:
        """What search and other projects' references find, each object once.

        An object is shown by its name. Sphinx's search would build wrong links from a title.
        """
        for kind, name, page, shown in objects.every(self.shown):
            yield name, name, kind, page, shown.anchor, 1

    def get_type_name(self, type: ObjType, primary: bool = False) -> str:  # noqa: A002 - Sphinx's name
        """What search calls an object."""
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
        """A link to what the target names; None where this output has none."""
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
        """What ``:any:``, and a link of MyST, may mean."""
        found = []
        for kind, name in objects.matches(self.shown, target):
            link = self.resolve_xref(env, fromdocname, builder, kind, name, node, contnode)
            if link is not None:
                found.append((f"{self.name}:{kind}", link))
        return found


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
