"""The style sheet and the script, on the pages that need them and on no other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes

from .domain import VerlDomain
from .page_data import shown_runs

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

STATIC = Path(__file__).parent.parent / "static"
STYLE_SHEET = "verl-resources.css"
SCRIPT = "verl-resources.js"


def add_static_path(app: Sphinx, config: Config) -> None:
    """Have both copied by the builders that write HTML.

    Done before Sphinx compares the configuration with that of the last build, which would differ otherwise.
    """
    # In front, so that a file of the same name in the project's own folder wins.
    config.html_static_path = [str(STATIC), *config.html_static_path]


def link_style_sheet(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Link the style sheet from a page that needs it."""
    if doctree is None or not VerlDomain.of(app.env).may_show(pagename):
        return
    if any(True for _ in doctree.findall(_is_ours)):
        app.add_css_file(STYLE_SHEET)


def link_script(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Link the script from a page with runs that can be filtered and sorted."""
    if shown_runs(app, pagename, doctree):
        app.add_js_file(SCRIPT, loading_method="defer")


def _is_ours(node: nodes.Node) -> bool:
    return isinstance(node, (nodes.table, nodes.container, nodes.definition_list)) and any(
        name.startswith("verl-") for name in node["classes"]
    )
