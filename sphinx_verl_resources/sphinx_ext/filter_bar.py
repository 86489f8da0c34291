"""The bar above the tables of runs that filters them, and the buttons below that unfold more runs.

They are part of the HTML, so that nothing moves when the script starts. The style sheet shows them only if
scripts run.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from docutils import nodes

from ..i18n import _, plural
from ..records import run_class
from ..views.blocks import verl_details
from ..views.table import verl_rows
from .assets import is_for_browsers
from .domain import VerlDomain
from .html_pages import AccessibleTables, verl_scroll
from .ids import SIZE_ID
from .page_data import ELEMENT_ID, as_script, page_data
from .transforms import OnOurPages, ancestors

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

#: Filters, folds and sorts the rows.
FILTER_SCRIPT = "verl-resources.js"
#: Class of rows and blocks that are folded until a reader unfolds them.
MORE_CLASS = "verl-more"
_RUN_CLASS = run_class("")


class verl_controls(nodes.General, nodes.Element):  # noqa: N801 - docutils names nodes in lower case
    """Controls for the script of a page.

    Attributes:
        html: their markup.
    """


class AddFilterBar(OnOurPages):
    """A transform that puts a bar before the tables of runs, and a button below each that folds rows."""

    default_priority = AccessibleTables.default_priority + 5
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Add the controls to a page with runs."""
        rows = list(self.document.findall(verl_rows))
        ids = list(dict.fromkeys(name for one in rows for name in map(_run_id, one["names"])))
        if not ids:
            return
        catalog = VerlDomain.of(self.env).records
        more = {run_id for run_id in ids if catalog.runs[run_id].word != "ran"}
        if len(more) == len(ids):
            more = set()  # None of them ran: show all.
        for one in rows if more else ():
            _fold_rows(one, more)
        for block in self.document.findall(verl_details):
            if more.intersection(map(_run_id, block["classes"])):
                block["classes"].append(MORE_CLASS)
        place = _outermost(rows[0])
        bar = verl_controls("", html=_bar(page_data(catalog, ids), len(more)))
        place.parent.insert(place.parent.index(place), bar)


def _run_id(name: str) -> str:
    """Return the run id in the class of a row."""
    return name.removeprefix(_RUN_CLASS)


def _fold_rows(rows: verl_rows, more: Set[str]) -> None:
    """Mark the rows to fold, and put a button below their table, which may be folded too."""
    folded = [_run_id(name) in more for name in rows["names"]]
    count = sum(folded)
    if not count:
        return
    rows["names"] = [
        f"{name} {MORE_CLASS}" if fold else name for name, fold in zip(rows["names"], folded, strict=True)
    ]
    region = next(node for node in ancestors(rows) if isinstance(node, verl_scroll))
    if all(folded) and not list(region.findall(nodes.title)):
        region["classes"].append(MORE_CLASS)
    if all(folded):
        text = plural("{count} run, reported or claimed", "{count} runs, reported or claimed", count)
    else:
        text = plural("{count} more run", "{count} more runs", count)
    html = f'<p class="verl-unfold">{_button("verl-unfold-rows", text.format(count=count))}</p>\n'
    region.parent.insert(region.parent.index(region) + 1, verl_controls("", html=html))


def _outermost(rows: verl_rows) -> nodes.Node:
    """Return the region of a table, or the first size-class section if the table is inside one."""
    around = list(ancestors(rows))
    section = next((node for node in around if _is_of_size(node)), None)
    beside = section.parent.children if section else around
    return next(node for node in beside if isinstance(node, verl_scroll) or _is_of_size(node))


def _is_of_size(node: nodes.Node) -> bool:
    return isinstance(node, nodes.section) and any(map(SIZE_ID.fullmatch, node["ids"]))


def _bar(data: dict[str, Any], folded: int) -> str:
    """Return the markup of the bar and the data of the script."""
    script = f'<script type="application/json" id="{ELEMENT_ID}">{as_script(data)}</script>\n'
    facets = [facet for facet in data["facets"] if len(facet["values"]) > 1]
    if not facets and not folded:
        return script
    words, total, title = data["words"], len(data["runs"]), _("Filter the runs")
    status = words["folded" if folded else "all"].format(shown=total - folded, total=total)
    return "".join([
        f'<fieldset class="verl-filter{" verl-folding" if folded else ""}">',
        f"<legend>{escape(title)}</legend>",
        f'<div class="verl-fields">{"".join(map(_field, facets))}</div>',
        '<div class="verl-filter-answer">',
        f'<p class="verl-status" role="status"><span>{escape(status)}</span></p>',
        _button("verl-unfold-all", words["unfold"].format(total=total), hidden=not folded),
        _button("verl-clear", _("Clear the filters"), hidden=True),
        f"</div></fieldset>\n{script}",
    ])  # fmt: skip


def _field(facet: Mapping[str, Any]) -> str:
    """Return a control; the script adds its options, each with the number of matching runs."""
    name = f"verl-filter--{facet['name']}"
    every = escape(_("All"))
    # A browser that restores the choices of the last visit would contradict the address.
    return (
        f'<div class="verl-field"><label for="{name}">{escape(facet["heading"])}</label>'
        f'<select id="{name}" autocomplete="off"><option value="-1">{every}</option></select></div>'
    )


def _button(name: str, text: str, *, hidden: bool = False) -> str:
    return f'<button type="button" class="{name}"{" hidden" if hidden else ""}>{escape(text)}</button>'


def write_controls(self: HTML5Translator, node: verl_controls) -> None:
    """Write controls into a page for browsers."""
    if is_for_browsers(self.builder):
        self.body.append(node["html"])
    raise nodes.SkipNode


def load_filter(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Load the script on a page with runs."""
    if doctree is not None and is_for_browsers(app.builder) and next(doctree.findall(verl_controls), None):
        app.add_js_file(FILTER_SCRIPT, loading_method="defer")
