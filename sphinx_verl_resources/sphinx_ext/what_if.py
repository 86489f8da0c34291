"""The what-if form in HTML, and its fallback in other formats."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any

from docutils import nodes

from ..i18n import _
from ..views.fewest import TABLE_CLASS
from ..views.file_names import FORM_SCRIPT
from ..views.what_if import FEWEST_CLASS, LINE_CLASS, verl_if_actions, verl_if_line, verl_what_if
from .assets import is_for_browsers, may_need_files
from .domain import VerlDomain
from .page_data import as_script

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

#: After the scripts of the theme.
_AFTER_THE_THEME = 600


def settle_forms(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Remove the parts of forms that a builder or a page does not use."""
    if not VerlDomain.of(app.env).may_need_files(docname):
        return
    has_table = any(TABLE_CLASS in table["classes"] for table in doctree.findall(nodes.table))
    for form in list(doctree.findall(verl_what_if)):
        links = form.children[-1]
        form["rows"] = _rows(form["runs"], links)
        form.remove(links)
        if not has_table:
            _remove(node for node in form.findall(nodes.inline) if FEWEST_CLASS in node["classes"])
        if is_for_browsers(app.builder):
            continue
        _remove(form.findall(verl_if_actions))
        _remove(line for line in form.findall(verl_if_line) if not line["is_used"])
        for line in list(form.findall(verl_if_line)):
            line.parent.replace(line, nodes.paragraph("", "", *line.children, classes=line["classes"]))
        form.parent.replace(form, nodes.container("", *form.children, classes=form["classes"]))


def _remove(found: Any) -> None:
    for node in list(found):
        node.parent.remove(node)


def _rows(runs: list[str], links: nodes.Node) -> dict[str, Any]:
    """Return the most common start of row addresses, before the run id, and the addresses without it.

    Args:
        runs: the run ids.
        links: a resolved link for each run.
    """
    addresses = {}
    for run, link in zip(runs, links.children, strict=True):
        found = next(link.findall(nodes.reference), None)
        own = found is not None and (found.get("refuri") or f"#{found['refid']}")
        addresses[run] = own or ""
    starts = Counter(address.removesuffix(run) for run, address in addresses.items() if address.endswith(run))
    start = starts.most_common(1)[0][0] if starts else ""
    others = {run: address for run, address in addresses.items() if address != start + run}
    return {"start": start, "others": others}


def load_script(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Load the script on a page that has a form."""
    if doctree is None or not may_need_files(app, pagename):
        return
    if next(doctree.findall(verl_what_if), None) is not None:
        app.add_js_file(FORM_SCRIPT, priority=_AFTER_THE_THEME, loading_method="defer")


def _visit_form(self: HTML5Translator, node: verl_what_if) -> None:
    title = escape(_("Will it fit?"))
    self.body.append(self.starttag(node, "form", autocomplete="off"))
    self.body.append(f'<fieldset><legend class="verl-unseen">{title}</legend>\n')
    self.body += map(_field, node["fields"])
    self.body.append("</fieldset>\n")


def _field(field: Mapping[str, Any]) -> str:
    options = [
        f'<option value="{escape(value)}">{escape(label)}</option>'
        for value, label in zip(field["values"], field["labels"], strict=True)
    ]
    options[field["first"]] = options[field["first"]].replace("<option", "<option selected", 1)
    select = f'<select name="{field["name"]}">{"".join(options)}</select>'
    return f'<label class="verl-if-field">{escape(field["label"])} {select}</label>\n'


def _depart_form(self: HTML5Translator, node: verl_what_if) -> None:
    data = as_script({**node["data"], "rows": node["rows"]})
    self.body.append(f'<script type="application/json">{data}</script>\n</form>\n')


def _visit_line(self: HTML5Translator, node: verl_if_line) -> None:
    attributes: dict[str, Any] = {} if node["is_used"] else {"hidden": "hidden"}
    if LINE_CLASS + "verdict" in node["classes"]:
        attributes["role"] = "status"
    self.body.append(self.starttag(node, "p", "", **attributes))


def _depart_line(self: HTML5Translator, node: verl_if_line) -> None:
    self.body.append("</p>\n")


def _unless(text: str) -> str:
    """Return the attribute that hides an element without content."""
    return "" if text else " hidden"


def _visit_actions(self: HTML5Translator, node: verl_if_actions) -> None:
    copy, script = escape(_("Copy the command")), escape(_("Script that ran"))
    address, run = map(escape, node["script"])
    self.body.append(self.starttag(node, "div"))
    self.body.append(f'<button type="button"{_unless(node["command"])}>{copy}</button>\n')
    self.body.append(
        f'<a class="verl-if-script" href="{address}" title="{run}"{_unless(address)}>{script}</a>\n'
    )


def _depart_actions(self: HTML5Translator, node: verl_if_actions) -> None:
    title = escape(_("Command"))
    self.body.append(f'<details class="verl-if-command"{_unless(node["command"])}><summary>{title}</summary>')
    self.body.append(f"<pre>{escape(node['command'])}</pre></details></div>\n")


def add_form_nodes(app: Sphinx) -> None:
    """Register the nodes of the form with their visitors; other builders use those of their base classes."""
    app.add_node(verl_what_if, html=(_visit_form, _depart_form))
    app.add_node(verl_if_line, html=(_visit_line, _depart_line))
    app.add_node(verl_if_actions, html=(_visit_actions, _depart_actions))
