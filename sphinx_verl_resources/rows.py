"""The rows of runs, written with a bar that filters them and buttons that unfold more.

Bar and buttons are part of the HTML, so that nothing moves when the script starts. The style sheet shows
them only if scripts run. The page contains the data of the script as JSON, which a browser never
runs, so that every content security policy allows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from docutils import nodes
from sphinx.transforms import SphinxTransform

from .domain import VerlDomain, is_for_browsers
from .i18n import N_, _, plural
from .nodes import ROWS, SIZE_CLASS, row_html, row_nodes, verl_summary
from .records import WORDS, Run, family
from .selection import natural
from .texts import row_classes

ELEMENT_ID = "verl-resources--page"
#: The value of a run whose source does not state its GPU.
UNNAMED_GPU = "GPU"
#: The properties to filter by: the name in the address of the page, the heading, and the value of a run.
FACETS: tuple[tuple[str, str, Callable[[Run], str]], ...] = (
    ("gpu", N_("GPU"), lambda run: run.gpus.type or UNNAMED_GPU),
    ("size", N_("Size"), lambda run: run.size),
    ("task", N_("Task"), lambda run: family(run.task)),
    ("trained", N_("Trained"), lambda run: "lora" if run.trains_adapters else "all"),
    ("train", N_("Backend"), lambda run: run.train),
    ("kind", N_("Status"), lambda run: run.word),
)
#: The texts of values that are not texts themselves.
_TEXTS = {UNNAMED_GPU: N_("not stated"), "lora": "LoRA", "all": N_("all parameters")}


def as_script(data: dict[str, Any]) -> str:
    """Return JSON that is safe inside a script element, which only ``<`` could end."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", r"\u003c")


class WriteRows(SphinxTransform):
    """A transform of written pages that writes the rows of runs, for browsers with the filter bar.

    It runs before links are collected for linkcheck (800) and for LaTeX's footnotes (400).
    """

    default_priority = 300

    def apply(self, **kwargs: Any) -> None:
        """Fill each table."""
        domain = VerlDomain.of(self.env)
        for_browsers = is_for_browsers(domain.app.builder)
        bodies = [body for body in self.document.findall(nodes.tbody) if ROWS in body]
        if bodies and for_browsers:
            _add_controls(bodies, domain.records.runs)
        for body in bodies:
            cells = body.attributes.pop(ROWS)
            rows = [(row_classes(domain.records.runs[run]), cells[run]) for run in cells]
            body += row_html(rows) if for_browsers else row_nodes(rows)
        for summary in () if for_browsers else self.document.findall(verl_summary):
            # Every format can link to a target.
            summary.insert(0, nodes.target("", "", ids=summary.parent["ids"]))
            summary.parent["ids"] = []


def _add_controls(bodies: Sequence[nodes.tbody], by_id: Mapping[str, Run]) -> None:
    """Put a bar before the tables, and below each a button that unfolds the other runs."""
    runs = {run: by_id[run] for body in bodies for run in body[ROWS]}
    others = [run for run in runs if runs[run].is_folded]
    # If all are to fold, all are shown.
    to_fold = len(others) if len(others) < len(runs) else 0
    table = bodies[0].parent.parent
    place = table.parent if SIZE_CLASS in table.parent["classes"] else table
    _insert(_bar([*runs.values()], to_fold), place)
    for body in bodies if to_fold else ():
        if count := len(body[ROWS].keys() & others):
            text = plural("{count} more run", "{count} more runs", count).format(count=count)
            html = f'<p class="verl-unfold">{_button("verl-unfold-rows", text)}</p>\n'
            _insert(html, body.parent.parent, after=1)


def _insert(html: str, place: nodes.Element, after: int = 0) -> None:
    place.parent.insert(place.parent.index(place) + after, nodes.raw("", html, format="html"))


def _bar(runs: Sequence[Run], to_fold: int) -> str:
    """Return the markup of the bar and the data of the script."""
    of_runs = {run.id: {name: value(run) for name, _heading, value in FACETS} for run in runs}
    facets, fields, total, words = {}, "", len(runs), _words(len(runs))
    every, legend = escape(_("All")), escape(_("Filter the runs"))
    for name, heading, _value in FACETS:
        # Evidence words in their order; a GPU that is not stated comes last.
        values = sorted({of_run[name] for of_run in of_runs.values()}, key=natural)
        values.sort(key=lambda value: WORDS.index(value) if value in WORDS else value == UNNAMED_GPU)
        facets[name] = [(value, _(_TEXTS.get(value, value))) for value in values]
        # The script adds the options, each with the number of matching runs. A browser that restores the
        # choices of the last visit would contradict the address.
        if len(values) > 1:
            fields += (
                f'<div class="verl-field"><label for="verl-filter--{name}">{escape(_(heading))}</label>'
                f'<select id="verl-filter--{name}" autocomplete="off">'
                f'<option value="-1">{every}</option></select></div>'
            )
    content = as_script({"facets": facets, "runs": of_runs, "words": words})
    script = f'<script type="application/json" id="{ELEMENT_ID}">{content}</script>\n'
    if not fields and not to_fold:
        return script
    status = words["folded" if to_fold else "all"].format(shown=total - to_fold, total=total)
    unfold = _button("verl-unfold-all", words["unfold"].format(total=total), "" if to_fold else " hidden")
    clear = _button("verl-clear", _("Clear the filters"), " hidden")
    return (
        f'<fieldset class="verl-filter{" verl-folding" if to_fold else ""}">'
        f'<legend>{legend}</legend><div class="verl-fields">{fields}</div>'
        '<div class="verl-filter-answer"><p class="verl-status" role="status">'
        f"<span>{escape(status)}</span></p>{unfold}{clear}</div></fieldset>\n{script}"
    )


def _button(name: str, text: str, hidden: str = "") -> str:
    return f'<button type="button" class="{name}"{hidden}>{escape(text)}</button>'


def _words(runs: int) -> dict[str, str]:
    """Return the texts of the script, which fills in the braces."""
    return {
        "option": _("{value} ({count})"),
        "all": plural("{total} run", "{total} runs", runs),
        "some": plural("Showing {shown} of {total} run", "Showing {shown} of {total} runs", runs),
        "folded": _("{shown} of {total} runs: those that ran or are RECOMMENDED"),
        "unfold": _("Show all {total} runs"),
        "fold": _("Show only those that ran or are RECOMMENDED"),
        "none": _("No run matches."),
        "unknown": _("Unknown filters in the address: {filters}."),
        "copyLink": _("Copy the link to this run"),
        "copy": _("Copy"),
        "copied": _("Copied"),
        "notCopied": _("The browser did not allow copying."),
    }
