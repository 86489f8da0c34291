"""Registration with Sphinx, and the handlers of its events."""

from __future__ import annotations

from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.util.osutil import relative_uri

from . import __version__
from .config import register_config
from .directive import VerlDirective
from .domain import KINDS, RunIndex, VerlDomain
from .filter_bar import ELEMENT_ID, AddFilterBar
from .i18n import _, use_language
from .nodes import add_nodes
from .references import DataRole, MemoryRole, ObjectRole, replace_missing, warn_missing
from .registry_tables import DOWNLOAD_CLASS
from .run_tables import WriteHtmlRows, WriteRows

if TYPE_CHECKING:
    from collections.abc import Set

    from sphinx.application import Sphinx
    from sphinx.builders import Builder
    from sphinx.config import Config
    from sphinx.environment import BuildEnvironment
    from sphinx.util.typing import ExtensionMetadata

#: Increment when the content of pickled doctrees changes: when one of our nodes changes its name or module,
#: or our attributes of any node change. Sphinx then reads every page again. The data of the domain has a
#: separate number, ``VerlDomain.data_version``.
ENV_VERSION = 11
#: Sphinx reads up to this many pages in one process.
MANY_PAGES = 5

#: The directives, each loaded when a page has one.
DIRECTIVES = {
    "verl-runs": "run_tables:VerlRuns",
    "verl-gpus": "registry_tables:VerlGpus",
    "verl-models": "registry_tables:VerlModels",
    "verl-downloads": "registry_tables:VerlDownloads",
    "verl-memory": "analysis_pages:VerlMemory",
    "verl-memory-summary": "analysis_pages:VerlMemorySummary",
    "verl-requirements": "analysis_pages:VerlRequirements",
    "verl-config": "analysis_pages:VerlConfigAdvice",
    "verl-analysis": "analysis_pages:VerlAnalysis",
    "verl-accuracy": "sphinx_ext.accuracy:VerlAccuracy",
    "verl-fewest": "sphinx_ext.fewest:VerlFewest",
    "verl-what-if": "sphinx_ext.what_if:VerlWhatIf",
}
#: The form of ``verl-memory`` with a run or settings.
ESTIMATE = "sphinx_ext.estimate:VerlEstimate"
#: What other rooms add to the core: computed columns, details of a run, the export, and the kind of data.
ROOMS = {
    "columns": "views.estimate:run_texts_of",
    "details": "views.run_details:details_of",
    "export": "answer.export:export_of",
    "data": "estimator.context:EstimatorContext",
    "form": "sphinx_ext.form:settle_forms",
}
STATIC = Path(__file__).parent / "static"
STYLE_SHEET = "verl-resources.css"
#: The script of every page of ours: scrolling tables, tabs and folded blocks.
TABLE_SCRIPT = "verl-tables.js"
#: Scripts by what the HTML of a page must contain: filters, folded rows and sorting; and forms.
SCRIPTS = {ELEMENT_ID: "verl-resources.js", '<form class="verl-what-if': "verl-what-if.js"}
#: After the scripts of the theme.
AFTER_THE_THEME = 600


def load(place: str) -> Any:
    """Import something by its module and name, such as ``run_tables:VerlRuns``."""
    module, _colon, name = place.partition(":")
    return getattr(import_module(f".{module}", __package__), name)


class Directive(VerlDirective):
    """Any directive of ours, before its class is loaded."""

    def run(self) -> list[nodes.Node]:
        """Load the class of the directive, and run it."""
        kind = load(DIRECTIVES[self.name])
        if self.name == "verl-memory":
            other = not self.options.keys() <= {option.name for option in kind.takes} or bool(self.content)
            if not {"run", "model"}.isdisjoint(self.options) or (other and not self.arguments):
                kind = load(ESTIMATE)
        loaded = kind(
            self.name,
            self.arguments,
            self.options,
            self.content,
            self.lineno,
            self.content_offset,
            self.block_text,
            self.state,
            self.state_machine,
        )
        return loaded.run()  # type: ignore[no-any-return]


def setup_extension(app: Sphinx) -> ExtensionMetadata:
    """Register everything."""
    choose_language(app)  # for the title of the index, which Sphinx needs here
    register_config(app)
    app.add_domain(VerlDomain)
    add_nodes(app)
    for name in DIRECTIVES:
        app.add_directive(name, Directive)
    index = type("RunIndex", (RunIndex,), {"localname": _(RunIndex.localname)})
    app.add_index_to_domain("verl", index)
    for kind in KINDS:
        app.add_role_to_domain("verl", kind, ObjectRole())
    app.add_role_to_domain("verl", "data", DataRole())
    app.add_role_to_domain("verl", "memory", MemoryRole())
    for transform in (WriteHtmlRows, WriteRows, AddFilterBar):
        app.add_post_transform(transform)
    app.connect("config-inited", add_static_path)
    app.connect("builder-inited", start)
    app.connect("env-get-outdated", find_outdated)
    app.connect("env-updated", report)
    app.connect("env-updated", write_files)
    app.connect("build-finished", finish)
    app.connect("missing-reference", replace_missing)
    app.connect("warn-missing-reference", warn_missing)
    app.connect("doctree-resolved", complete)
    app.connect("html-page-context", add_assets)
    return {
        "version": __version__,
        "env_version": ENV_VERSION,
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }


def choose_language(app: Sphinx) -> str:
    """Choose the language; return a digest of the translations, see ``use_language``."""
    return use_language(app.config.language, [Path(app.srcdir) / name for name in app.config.locale_dirs])


# -- what is read again, and written again


def start(app: Sphinx) -> None:
    """Set what the domain needs to know of the application."""
    domain = VerlDomain.of(app.env)
    domain.confdir, domain.jobs = Path(app.confdir), app.parallel
    domain.room = lambda name: load(ROOMS[name])


def find_outdated(
    app: Sphinx, env: BuildEnvironment, added: Set[str], changed: Set[str], removed: Set[str]
) -> list[str]:
    """Return the pages to read again after a change of the data, conf.py or the project's translations."""
    domain = VerlDomain.of(env)
    domain.forget()
    # Again, because Sphinx has only now compiled the project's own translations, see ``gettext_auto_build``.
    domain.words = choose_language(app)
    outdated = domain.outdated() - removed
    if app.parallel > 1 and len(added | changed | outdated) > MANY_PAGES:
        _runs = domain.records.runs  # otherwise each of these processes would load them
    return sorted(outdated)


def report(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Log the problems of the data after all pages are read; return the pages to write again."""
    domain = VerlDomain.of(env)
    domain.report()
    file = stamp_file(app)
    if not domain.pages or (file.is_file() and file.read_text() == domain.stamp):
        return []
    file.unlink(missing_ok=True)  # until the build has finished
    return sorted(domain.pages)


def finish(app: Sphinx, error: Exception | None) -> None:
    """Leave the stamp of a finished build, without which the next one writes our pages again."""
    if error is None and app.env and VerlDomain.of(app.env).pages:
        stamp_file(app).write_text(VerlDomain.of(app.env).stamp)


def stamp_file(app: Sphinx) -> Path:
    """Return the file with the stamp of an output; builders may share the folder of doctrees."""
    output = sha256(f"{app.builder.name} {app.outdir}".encode()).hexdigest()
    return Path(app.doctreedir) / f"verl-{output[:16]}"


# -- files next to the pages


def add_static_path(app: Sphinx, config: Config) -> None:
    """Add the folder of the style sheet and the scripts, which HTML builders copy.

    This must happen before Sphinx compares the configuration with that of the last build.
    """
    # First, so that a file of the same name in the project's own folder wins.
    config.html_static_path = [str(STATIC), *config.html_static_path]


def add_assets(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Add the style sheet and the scripts to a page of ours."""
    if doctree is None or not VerlDomain.of(app.env).may_show(pagename):
        return
    app.add_css_file(STYLE_SHEET)
    if not is_for_browsers(app.builder):
        return
    app.add_js_file(TABLE_SCRIPT, loading_method="defer")
    html = "".join(node.astext() for node in doctree.findall(nodes.raw))
    for text, script in SCRIPTS.items():
        if text in html:
            app.add_js_file(script, priority=AFTER_THE_THEME, loading_method="defer")


def is_for_browsers(builder: Builder) -> bool:
    """Return whether pages are written for a browser rather than a book or a help viewer."""
    return isinstance(builder, StandaloneHTMLBuilder) and not builder.embedded


def write_files(app: Sphinx, env: BuildEnvironment) -> None:
    """Write the files that pages need, and delete those that no page needs any more."""
    domain = VerlDomain.of(env)
    if not is_for_browsers(app.builder):
        return
    out = Path(app.outdir)
    list_of_files = Path(app.doctreedir) / f"{stamp_file(app).name}-files"
    before = list_of_files.read_text().split("\n") if list_of_files.is_file() else []
    if not domain.files and not before:
        return
    for path in {*filter(None, before)} - domain.files.keys():
        (out / path).unlink(missing_ok=True)
    for path, content in domain.files.items():
        if not (out / path).is_file() or (out / path).read_bytes() != content:
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (out / path).write_bytes(content)
    list_of_files.write_text("\n".join(domain.files))


def complete(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link the files to download, and complete forms; other builders show only the names of files."""
    if not VerlDomain.of(app.env).may_show(docname, "files"):
        return
    for_browsers = is_for_browsers(app.builder)
    load(ROOMS["form"])(doctree, for_browsers=for_browsers)
    # In a single page, the target is only an anchor.
    page = app.builder.get_target_uri(docname).partition("#")[0]
    for node in list(doctree.findall(nodes.inline)) if for_browsers else ():
        if DOWNLOAD_CLASS in node["classes"]:
            address = relative_uri(page, node.astext())
            node.replace_self(nodes.reference("", "", *node.children, refuri=address, internal=True))
