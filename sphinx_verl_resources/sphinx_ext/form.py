"""The what-if form in HTML, and its fallback in other formats."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any

from docutils import nodes

from ..i18n import _
from ..rows import as_script
from ..views.fewest import TABLE_CLASS
from ..views.what_if import (
    FEWEST_CLASS,
    FORM_CLASS,
    LINE_CLASS,
    verl_if_actions,
    verl_if_line,
    verl_what_if,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def settle_forms(doctree: nodes.document, *, for_browsers: bool) -> None:
    """Write forms as HTML; for other formats, and for a page without a table, remove what they do not use."""
    has_table = any(TABLE_CLASS in table["classes"] for table in doctree.findall(nodes.table))
    for form in list(doctree.findall(verl_what_if)):
        links = form.children[-1]
        rows = _rows(form["runs"], links)
        form.remove(links)
        if not has_table:
            _remove(node for node in form.findall(nodes.inline) if FEWEST_CLASS in node["classes"])
        if for_browsers:
            _write(form, rows)
            continue
        _remove(form.findall(verl_if_actions))
        _remove(line for line in form.findall(verl_if_line) if not line["is_used"])
        for line in list(form.findall(verl_if_line)):
            line.parent.replace(line, nodes.paragraph("", "", *line.children, classes=line["classes"]))
        form.parent.replace(form, nodes.container("", *form.children, classes=form["classes"]))


def _remove(found: Iterable[nodes.Node]) -> None:
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


# -- HTML


def _write(form: verl_what_if, rows: dict[str, Any]) -> None:
    """Replace a form, its lines and its actions with HTML around their content."""
    for line in list(form.findall(verl_if_line)):
        hidden = "" if line["is_used"] else " hidden"
        role = ' role="status"' if LINE_CLASS + "verdict" in line["classes"] else ""
        _wrap(line, f'<p class="{" ".join(line["classes"])}"{role}{hidden}>', "</p>\n")
    for actions in list(form.findall(verl_if_actions)):
        copy, script, title = map(escape, (_("Copy the command"), _("Script that ran"), _("Command")))
        address, run = map(escape, actions["script"])
        command = escape(actions["command"])
        begin = (
            f'<div class="{" ".join(actions["classes"])}">\n'
            f'<button type="button"{_unless(command)}>{copy}</button>\n'
            f'<a class="verl-if-script" href="{address}" title="{run}"{_unless(address)}>{script}</a>\n'
        )
        end = (
            f'<details class="verl-if-command"{_unless(command)}><summary>{title}</summary>'
            f"<pre>{command}</pre></details></div>\n"
        )
        _wrap(actions, begin, end)
    asked = escape(_("Will it fit?"))
    title = f'<fieldset><legend class="verl-unseen">{asked}</legend>\n'
    fields = "".join(map(_field, form["fields"]))
    data = as_script({**form["data"], "rows": rows})
    _wrap(
        form,
        f'<form class="{FORM_CLASS}" autocomplete="off">\n{title}{fields}</fieldset>\n',
        f'<script type="application/json">{data}</script>\n</form>\n',
    )


def _wrap(node: nodes.Element, begin: str, end: str) -> None:
    around = (nodes.raw("", html, format="html") for html in (begin, end))
    first, last = around
    node.parent.replace(node, [first, *node.children, last])


def _field(field: Mapping[str, Any]) -> str:
    options = [
        f'<option value="{escape(value)}">{escape(label)}</option>'
        for value, label in zip(field["values"], field["labels"], strict=True)
    ]
    options[field["first"]] = options[field["first"]].replace("<option", "<option selected", 1)
    select = f'<select name="{field["name"]}">{"".join(options)}</select>'
    return f'<label class="verl-if-field">{escape(field["label"])} {select}</label>\n'


def _unless(text: str) -> str:
    """Return the attribute that hides an element without content."""
    return "" if text else " hidden"
