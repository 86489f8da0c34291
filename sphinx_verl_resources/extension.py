"""Registration with Sphinx, and the handlers of its events."""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from . import __version__
from .dataset import replace_file
from .diagnostics import Diagnostic, Location
from .domain import RunIndex, VerlDomain, digest, fall_back, is_for_browsers, log_at
from .i18n import CATALOG, LOCALE, _
from .nodes import add_nodes
from .records import SCRIPT_URL
from .rows import ELEMENT_ID, WriteRows

#: Increment when the content of pickled doctrees changes: when one of our nodes changes its name or module,
#: or our attributes of any node change. Sphinx then reads every page again. The data of the domain has a
#: separate number, ``VerlDomain.data_version``.
ENV_VERSION = 15

#: The directives, each loaded when a page has one.
DIRECTIVES = {
    "verl-runs": "record_tables:VerlRuns",
    "verl-gpus": "record_tables:VerlGpus",
    "verl-models": "record_tables:VerlModels",
    "verl-downloads": "fit.directives:VerlDownloads",
    "verl-memory": "analysis_pages:VerlMemory",
    "verl-memory-summary": "analysis_pages:VerlMemorySummary",
    "verl-requirements": "analysis_pages:VerlRequirements",
    "verl-config": "analysis_pages:VerlConfigAdvice",
    "verl-analysis": "analysis_pages:VerlAnalysis",
    "verl-accuracy": "fit.directives:VerlAccuracy",
    "verl-speed": "speed.table:VerlSpeed",
    "verl-fewest": "fit.directives:VerlFewest",
    "verl-what-if": "fit.form:VerlWhatIf",
}
#: The form of ``verl-memory`` with a run or settings.
ESTIMATE = "fit.directives:VerlEstimate"
#: What higher layers add to the core: details of a run, the address of its issue, the data and the form.
PARTS = {
    "details": "fit.directives:details_of",
    "issue": "logs.run_file:form_address",
    "data": "memory.registries:EstimatorContext",
    "form": "fit.form:settle_forms",
}
STATIC = Path(__file__).parent / "static"
STYLE_SHEET, FORM_STYLE_SHEET = "verl-resources.css", "verl-what-if.css"
#: What the HTML of a page with a form contains.
FORM = '<form class="verl-what-if'
#: The scripts by what the HTML of a page must contain: scrolling tables, tabs and folded blocks are on every
#: page of ours; the others are for filters and folded rows, and for forms.
SCRIPTS = {"": "verl-tables.js", ELEMENT_ID: "verl-resources.js", FORM: "verl-what-if.js"}
#: After the scripts of the theme.
AFTER_THE_THEME = 600

#: pdfTeX does not know the minus sign.
LATEX_MINUS = r"\ifdefined\DeclareUnicodeCharacter\DeclareUnicodeCharacter{2212}{\ensuremath{-}}\fi"


def load(place: str) -> Any:
    """Import something by its module and name, such as ``record_tables:VerlRuns``."""
    module, _colon, name = place.partition(":")
    return getattr(import_module(f".{module}", __package__), name)


class Directive(SphinxDirective):
    """Any directive of ours, before its class is loaded."""

    has_content = True
    optional_arguments = 1
    final_argument_whitespace = True
    #: Accepts every option as text, because docutils reports an unknown one in several lines and without a
    #: hint. If it were empty, docutils would read the options as the argument.
    option_spec: ClassVar = defaultdict(lambda: directives.unchanged, name=directives.unchanged)

    def run(self) -> list[nodes.Node]:
        """Load the directive's class, change to it, and run."""
        is_estimate = not self.arguments or not {"run", "model"}.isdisjoint(self.options)
        kind = ESTIMATE if self.name == "verl-memory" and is_estimate else DIRECTIVES[self.name]
        self.__class__ = load(kind)
        return self.run()


def setup_extension(app: Sphinx) -> ExtensionMetadata:
    """Register everything."""
    app.add_message_catalog(CATALOG, str(LOCALE))
    RunIndex.localname = _("Recorded runs")
    # If a value changes, `VerlDomain.outdated` names the pages to read again.
    app.add_config_value("verl_resources_data", [], "", (list, tuple))
    app.add_config_value("verl_resources_script_url", SCRIPT_URL, "", (str,))
    app.add_domain(VerlDomain)
    add_nodes(app)
    for name in DIRECTIVES:
        app.add_directive(name, Directive)
    app.add_post_transform(WriteRows)
    app.connect("config-inited", prepare_builders)
    app.connect("builder-inited", start)
    app.connect("env-get-outdated", lambda app, env, *changes: sorted(VerlDomain.of(env).outdated()))
    app.connect("env-updated", report)
    app.connect("build-finished", finish)
    app.connect("missing-reference", fall_back)
    app.connect("doctree-resolved", settle_forms)
    app.connect("html-page-context", add_assets)
    return {
        "version": __version__,
        "env_version": ENV_VERSION,
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }


def prepare_builders(app: Sphinx, config: Config) -> None:
    """Add the folder of the style sheet and the scripts, which HTML builders copy, and a character for LaTeX.

    This must happen before Sphinx compares the configuration with that of the last build.
    """
    # First, so that a file of the same name in the project's own folder wins.
    config.html_static_path = [str(STATIC), *config.html_static_path]
    preamble = f"{LATEX_MINUS}\n{config.latex_elements.get('preamble', '')}"
    config.latex_elements = {**config.latex_elements, "preamble": preamble}


def start(app: Sphinx) -> None:
    """Set what the domain needs to know of the application."""
    domain = VerlDomain.of(app.env)
    domain.app, domain.part = app, lambda name: load(PARTS[name])


def report(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Log the problems of the data after all pages are read; return the pages to write again."""
    domain, file = VerlDomain.of(env), stamp_file(app)
    if not domain.data["pages"]:
        return []
    domain.report()
    if file.is_file() and file.read_bytes() == domain.stamp.encode():
        return []
    file.unlink(missing_ok=True)  # until the build has finished
    return sorted(domain.data["pages"])


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write the files that pages need, and the stamp of a finished build.

    Without the stamp, the next build writes our pages again.
    """
    domain = VerlDomain.of(app.env)
    if error or not domain.data["pages"]:
        return
    documents = domain.data["files"].values() if is_for_browsers(app.builder) else ()
    texts = {Path(app.outdir, name): text for files in documents for name, text in files.items()}
    try:
        for path, text in {**texts, stamp_file(app): domain.stamp}.items():
            replace_file(path, text)
    except OSError as reason:
        message = f"{path} cannot be written: {reason.strerror}"
        log_at("", message, Diagnostic(Location(""), "file_unexpected", message), app.config)


def stamp_file(app: Sphinx) -> Path:
    """Return the file with the stamp of an output; builders may share the folder of doctrees."""
    return Path(app.doctreedir) / f"verl-{digest(app.builder.name, str(app.outdir))[:16]}"


def settle_forms(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Write the forms on a page as HTML."""
    if VerlDomain.of(app.env).may_show(docname, "files"):
        load(PARTS["form"])(app, doctree, docname)


def add_assets(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Add the style sheet and the scripts to a page of ours."""
    if doctree is None or not VerlDomain.of(app.env).may_show(pagename):
        return
    app.add_css_file(STYLE_SHEET)
    html = "".join(node.astext() for node in doctree.findall(nodes.raw))
    if FORM in html:
        app.add_css_file(FORM_STYLE_SHEET)
    for text, script in SCRIPTS.items():
        if text in html:
            app.add_js_file(script, priority=AFTER_THE_THEME, loading_method="defer")
