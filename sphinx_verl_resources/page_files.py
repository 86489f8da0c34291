"""Files beside the pages, which builders of HTML write: what scripts look up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.builders.html import StandaloneHTMLBuilder

from .domain import VerlDomain
from .render.what_if import FORM_CLASS, GRID_FILES, SCRIPT, file_of_form

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

#: After the scripts of the theme, the grids before the script that reads them.
_AFTER_THE_THEME = 600


def write_files(app: Sphinx, env: BuildEnvironment) -> None:
    """Write static files that are missing or have changed, and take away those that nobody needs."""
    if not has_scripts(app):
        return
    folder = Path(app.outdir) / "_static"
    wanted = VerlDomain.of(env).files
    for old in folder.glob(GRID_FILES):
        if old.name not in wanted:
            old.unlink()
    for name, content in wanted.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def load_scripts(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Load script and grids on a page that has a form."""
    if doctree is None or not has_scripts(app) or not VerlDomain.of(app.env).may_show(pagename):
        return
    grids = dict.fromkeys(_grids(doctree))
    for name in grids:
        app.add_js_file(name, priority=_AFTER_THE_THEME, loading_method="defer")
    if grids:
        app.add_js_file(SCRIPT, priority=_AFTER_THE_THEME + 1, loading_method="defer")


def _grids(doctree: nodes.document) -> Iterator[str]:
    for node in doctree.findall(nodes.container):
        if FORM_CLASS in node["classes"]:
            yield file_of_form(node)


def has_scripts(app: Sphinx) -> bool:
    """Whether pages are written for a browser, and not for a book or the help of a program."""
    return isinstance(app.builder, StandaloneHTMLBuilder) and not app.builder.embedded
