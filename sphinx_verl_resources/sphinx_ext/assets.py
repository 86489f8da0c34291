"""Files next to the pages: the style sheet, scripts, answers of forms, and downloads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.util.osutil import relative_uri

from ..views.file_names import ANSWERS_FILES, CSV, DOWNLOAD_CLASS, JSON
from ..views.table import is_ours
from .domain import VerlDomain

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.builders import Builder
    from sphinx.config import Config
    from sphinx.environment import BuildEnvironment

STATIC = Path(__file__).parent.parent / "static"
STYLE_SHEET = "verl-resources.css"
#: Handles scrolling tables, tabs and folded blocks.
TABLE_SCRIPT = "verl-tables.js"
#: Pages with one of our nodes of these types need the style sheet.
_STYLED = (nodes.table, nodes.container, nodes.definition_list)


def add_static_path(app: Sphinx, config: Config) -> None:
    """Add the folder of the style sheet and the scripts, which HTML builders copy.

    This must happen before Sphinx compares the configuration with that of the last build.
    """
    # First, so that a file of the same name in the project's own folder wins.
    config.html_static_path = [str(STATIC), *config.html_static_path]


def link_style_sheet(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Add the style sheet and the script for tables to a page that needs them."""
    if doctree is None or not VerlDomain.of(app.env).may_show(pagename):
        return
    if any(isinstance(node, _STYLED) and is_ours(node) for node in doctree.findall(nodes.Element)):
        app.add_css_file(STYLE_SHEET)
        if is_for_browsers(app.builder):
            app.add_js_file(TABLE_SCRIPT, loading_method="defer")


def write_files(app: Sphinx, env: BuildEnvironment) -> None:
    """Write missing and changed files, and delete files that no page needs."""
    if not is_for_browsers(app.builder):
        return
    out = Path(app.outdir)
    wanted = {out / path: content for path, content in VerlDomain.of(env).files.items()}
    for pattern in (ANSWERS_FILES, JSON, CSV):
        for old in out.glob(pattern):
            if old not in wanted:
                old.unlink()
    for path, content in wanted.items():
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def may_need_files(app: Sphinx, pagename: str) -> bool:
    """Return whether a page for browsers, or a page joined to it, may need files."""
    return is_for_browsers(app.builder) and VerlDomain.of(app.env).may_need_files(pagename)


def is_for_browsers(builder: Builder) -> bool:
    """Return whether pages are written for a browser rather than a book or a help viewer."""
    return isinstance(builder, StandaloneHTMLBuilder) and not builder.embedded


def link_downloads(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link the files to download; other builders show only their names."""
    if not may_need_files(app, docname):
        return
    # In a single page, the target is only an anchor.
    page = app.builder.get_target_uri(docname).partition("#")[0]
    for node in list(doctree.findall(nodes.inline)):
        if DOWNLOAD_CLASS in node["classes"]:
            address = relative_uri(page, node.astext())
            node.replace_self(nodes.reference("", "", *node.children, refuri=address, internal=True))
