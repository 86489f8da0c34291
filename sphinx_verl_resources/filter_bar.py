"""The rows of runs, written with a bar that filters them and buttons that unfold more.

Bar and buttons are part of the HTML, so that nothing moves when the script starts. The style sheet shows
them only if scripts run. The page contains the data of the script as JSON, which a browser never
runs, so that every content security policy allows it.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

from .domain import VerlDomain
from .i18n import _, plural
from .nodes import MORE_CLASS, ROWS, row_html, row_nodes, verl_summary
from .records import SIZES, WORDS, family, run_class
from .selection import natural
from .texts import WORD_TEXTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .dataset import Dataset
    from .records import Run

ELEMENT_ID = "verl-resources--page"
#: The value of a run whose source does not state its GPU.
UNNAMED_GPU = "GPU"
#: Characters that JSON may contain, but not the text of an element or a script.
_UNSAFE = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def as_script(data: dict[str, Any]) -> str:
    """Return JSON that is safe inside an HTML element."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).translate(_UNSAFE)


class ForBrowsers(SphinxPostTransform):
    """A transform used only to ask whether pages are for browsers; EPUB looks for links among the nodes."""

    builders = ("html", "dirhtml", "singlehtml")


class WriteRows(SphinxPostTransform):
    """A transform that writes the rows of runs, for browsers with the filter bar.

    It runs before links are collected for linkcheck (800) and for LaTeX's footnotes (400).
    """

    default_priority = 300

    def apply(self, **kwargs: Any) -> None:
        """Transform the page if it can contain a node of ours."""
        if VerlDomain.of(self.env).may_show(self.env.docname):
            super().apply(**kwargs)

    def run(self, **kwargs: Any) -> None:
        """Fill each table."""
        bodies = [body for body in self.document.findall(nodes.tbody) if ROWS in body]
        for_browsers = ForBrowsers(self.document).is_supported()
        if for_browsers and bodies:
            _add_controls(bodies, VerlDomain.of(self.env).records)
        for body in bodies:
            rows, names = body.attributes.pop(ROWS)
            body += row_html(rows, names) if for_browsers else row_nodes(rows, names)
        for summary in () if for_browsers else self.document.findall(verl_summary):
            # Every format can link to a target.
            summary.insert(0, nodes.target("", "", ids=summary.parent["ids"]))
            summary.parent["ids"] = []


def _add_controls(bodies: Sequence[nodes.tbody], data: Dataset) -> None:
    """Put a bar before the tables, and below each a button that unfolds the runs that did not run."""
    names = dict.fromkeys(name for body in bodies for name in body[ROWS][1])
    runs = [data.runs[name.split()[0].removeprefix(run_class(""))] for name in names]
    # If none of them ran, all are shown.
    folded = sum(run.word != "ran" for run in runs) % len(runs)
    table: Any = bodies[0].parent.parent
    is_in_section = table.parent.children[0].astext() in SIZES
    _insert(_bar(runs, data, folded), table.parent if is_in_section else table)
    for body in bodies if folded else ():
        if count := sum(MORE_CLASS in name for name in body[ROWS][1]):
            text = plural("{count} more run", "{count} more runs", count).format(count=count)
            html = f'<p class="verl-unfold">{_button("verl-unfold-rows", text)}</p>\n'
            _insert(html, body.parent.parent, after=1)


def _insert(html: str, place: Any, after: int = 0) -> None:
    place.parent.insert(place.parent.index(place) + after, nodes.raw("", html, format="html"))


def _bar(runs: Sequence[Run], data: Dataset, folded: int) -> str:
    """Return the markup of the bar and the data of the script."""
    facets, total, words = _facets(data), len(runs), _words(len(runs))
    values = {name: sorted({*map(value, runs)}, key=_order) for name, _heading, value in facets}
    of_runs = {run.id: {name: value(run)[0] for name, _heading, value in facets} for run in runs}
    content = as_script({"facets": values, "runs": of_runs, "words": words})
    script = f'<script type="application/json" id="{ELEMENT_ID}">{content}</script>\n'
    fields = [_field(name, heading) for name, heading, _value in facets if len(values[name]) > 1]
    if not fields and not folded:
        return script
    status = words["folded" if folded else "all"].format(shown=total - folded, total=total)
    title = _("Filter the runs")
    return "".join([
        f'<fieldset class="verl-filter{" verl-folding" if folded else ""}">',
        f"<legend>{escape(title)}</legend>",
        f'<div class="verl-fields">{"".join(fields)}</div>',
        '<div class="verl-filter-answer">',
        f'<p class="verl-status" role="status"><span>{escape(status)}</span></p>',
        _button("verl-unfold-all", words["unfold"].format(total=total), "" if folded else " hidden"),
        _button("verl-clear", _("Clear the filters"), " hidden"),
        f"</div></fieldset>\n{script}",
    ])  # fmt: skip


def _field(name: str, heading: str) -> str:
    """Return a control; the script adds its options, each with the number of matching runs."""
    # A browser that restores the choices of the last visit would contradict the address.
    every = escape(_("All"))
    return (
        f'<div class="verl-field"><label for="verl-filter--{name}">{escape(heading)}</label>'
        f'<select id="verl-filter--{name}" autocomplete="off">'
        f'<option value="-1">{every}</option></select></div>'
    )


def _button(name: str, text: str, hidden: str = "") -> str:
    return f'<button type="button" class="{name}"{hidden}>{escape(text)}</button>'


def _order(pair: tuple[str, str]) -> Any:
    """Return the sort key of a value: evidence words by strength, the unnamed GPU last."""
    value = pair[0]
    return value == UNNAMED_GPU, WORDS.index(value) if value in WORDS else 0, natural(value), pair


def _facets(data: Dataset) -> list[tuple[str, str, Callable[[Run], tuple[str, str]]]]:
    """Return the properties to filter by, in the order of the controls.

    Each has its name in the address of the page, its heading, and a function that returns the value of a run:
    as in the address, and as text for readers.
    """
    everything = ("all", _("all parameters"))
    gpus: dict[str, str] = {}  # If a GPU has several names on the page, its value is the first.

    def gpu(run: Run) -> tuple[str, str]:
        name = data.gpu_name(run)
        if name is None or run.gpus.type is None:
            return UNNAMED_GPU, _("not stated")
        return (gpus.setdefault(name, run.gpus.type),) * 2

    return [
        ("gpu", _("GPU"), gpu),
        ("size", _("Size"), lambda run: (run.size, run.size)),
        ("task", _("Task"), lambda run: (family(run.task), family(run.task))),
        ("trained", _("Trained"), lambda run: ("lora", "LoRA") if run.trains_adapters else everything),
        ("train", _("Backend"), lambda run: (run.train, run.train)),
        ("kind", _("Status"), lambda run: (run.word, _(WORD_TEXTS[run.word]).capitalize())),
    ]


def _words(runs: int) -> dict[str, str]:
    """Return the texts of the script, which fills in the braces."""
    return {
        "option": _("{value} ({count})"),
        "all": plural("{total} run", "{total} runs", runs),
        "some": plural("Showing {shown} of {total} run", "Showing {shown} of {total} runs", runs),
        "folded": _("{shown} of {total} runs: only those that ran"),
        "unfold": _("Show all {total} runs"),
        "fold": _("Show only those that ran"),
        "none": _("No run matches."),
        "unknown": _("Unknown filters in the address: {asked}."),
        "copyLink": _("Copy the link to this run"),
        "copy": _("Copy"),
        "copied": _("Copied"),
        "notCopied": _("The browser did not allow copying."),
    }
