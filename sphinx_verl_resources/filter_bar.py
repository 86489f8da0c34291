"""The bar above the tables of runs that filters them, and the buttons below that unfold more runs.

They are part of the HTML, so that nothing moves when the script starts. The style sheet shows them only if
scripts run. The page contains the data of the script as JSON, which a browser never runs, so that every
content security policy allows it.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from docutils import nodes

from .domain import VerlDomain
from .fields import natural
from .i18n import _, plural
from .nodes import ancestors, verl_details, verl_rows, verl_table
from .records import SIZES, WORDS, family, run_class
from .run_cells import WORD_TEXTS
from .run_tables import OnOurPages, WriteRows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from .dataset import Dataset

ELEMENT_ID = "verl-resources--page"
#: Class of rows and blocks that are folded until a reader unfolds them.
MORE_CLASS = "verl-more"
#: The GPU of a run whose source does not state it, as the table shows it.
UNNAMED_GPU = "GPU"
#: Characters that JSON may contain, but not the text of an element or a script.
_UNSAFE = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def as_script(data: dict[str, Any]) -> str:
    """Return JSON that is safe inside an HTML element."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).translate(_UNSAFE)


class AddFilterBar(OnOurPages):
    """A transform that puts a bar before the tables of runs, and a button below each that folds rows."""

    default_priority = WriteRows.default_priority + 10
    builders = ("html", "dirhtml", "singlehtml")

    def run(self, **kwargs: Any) -> None:
        """Add the controls to a page with runs."""
        rows = list(self.document.findall(verl_rows))
        ids = list(dict.fromkeys(name for one in rows for name in map(_run_id, one["names"])))
        if not ids:
            return
        data = VerlDomain.of(self.env).records
        more = {run_id for run_id in ids if data.runs[run_id].word != "ran"}
        if len(more) == len(ids):
            more = set()  # None of them ran: show all.
        for one in rows if more else ():
            _fold_rows(one, more)
        for block in self.document.findall(verl_details):
            if more.intersection(map(_run_id, block["classes"])):
                block["classes"].append(MORE_CLASS)
        around = list(ancestors(rows[0]))
        section = next((node for node in around if _is_of_size(node)), None)
        beside = section.parent.children if section else around
        place = next(node for node in beside if isinstance(node, verl_table) or _is_of_size(node))
        place.parent.insert(
            place.parent.index(place), nodes.raw("", _bar(data, ids, len(more)), format="html")
        )


def _is_of_size(node: nodes.Node) -> bool:
    return isinstance(node, nodes.section) and node.children[0].astext() in SIZES


def _run_id(name: str) -> str:
    """Return the run id in the class of a row."""
    return name.removeprefix(run_class(""))


def _fold_rows(rows: verl_rows, more: Collection[str]) -> None:
    """Mark the rows to fold, and put a button below their table, which may be folded too."""
    folded = [_run_id(name) in more for name in rows["names"]]
    count = sum(folded)
    if not count:
        return
    rows["names"] = [
        f"{name} {MORE_CLASS}" if fold else name for name, fold in zip(rows["names"], folded, strict=True)
    ]
    table = next(node for node in ancestors(rows) if isinstance(node, verl_table))
    if all(folded) and not list(table.findall(nodes.title)):
        table["around"] = [MORE_CLASS]
    if all(folded):
        text = plural("{count} run, reported or claimed", "{count} runs, reported or claimed", count)
    else:
        text = plural("{count} more run", "{count} more runs", count)
    html = f'<p class="verl-unfold">{_button("verl-unfold-rows", text.format(count=count))}</p>\n'
    table.parent.insert(table.parent.index(table) + 1, nodes.raw("", html, format="html"))


def _bar(data: Dataset, ids: Sequence[str], folded: int) -> str:
    """Return the markup of the bar and the data of the script."""
    facets, words, total = _facets(data, ids), _words(len(ids)), len(ids)
    numbers = {
        run_id: [facet["values_of_runs"][place] for facet in facets] for place, run_id in enumerate(ids)
    }
    shown = [{key: facet[key] for key in ("name", "heading", "values")} for facet in facets]
    content = as_script({"facets": shown, "runs": numbers, "words": words})
    script = f'<script type="application/json" id="{ELEMENT_ID}">{content}</script>\n'
    chosen = [facet for facet in shown if len(facet["values"]) > 1]
    if not chosen and not folded:
        return script
    title = _("Filter the runs")
    status = words["folded" if folded else "all"].format(shown=total - folded, total=total)
    return "".join([
        f'<fieldset class="verl-filter{" verl-folding" if folded else ""}">',
        f"<legend>{escape(title)}</legend>",
        f'<div class="verl-fields">{"".join(map(_field, chosen))}</div>',
        '<div class="verl-filter-answer">',
        f'<p class="verl-status" role="status"><span>{escape(status)}</span></p>',
        _button("verl-unfold-all", words["unfold"].format(total=total), hidden=not folded),
        _button("verl-clear", _("Clear the filters"), hidden=True),
        f"</div></fieldset>\n{script}",
    ])  # fmt: skip


def _field(facet: dict[str, Any]) -> str:
    """Return a control; the script adds its options, each with the number of matching runs."""
    name = f"verl-filter--{facet['name']}"
    # A browser that restores the choices of the last visit would contradict the address.
    every = escape(_("All"))
    return (
        f'<div class="verl-field"><label for="{name}">{escape(facet["heading"])}</label>'
        f'<select id="{name}" autocomplete="off"><option value="-1">{every}</option></select></div>'
    )


def _button(name: str, text: str, *, hidden: bool = False) -> str:
    return f'<button type="button" class="{name}"{" hidden" if hidden else ""}>{escape(text)}</button>'


def _facets(data: Dataset, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the properties to filter by, in the order of the controls.

    Each has its name in the address of the page, its heading, its values (as addresses contain them, the
    text for readers, and other names on the page), and the index of the value of each run.
    """
    runs = [data.runs[run_id] for run_id in ids]
    registered = [data.gpu_name(run) or UNNAMED_GPU for run in runs]
    shown: dict[str, str] = {}  # as in the tables; if there are several names, the first on the page
    for name, run in zip(registered, runs, strict=True):
        shown.setdefault(name, run.gpus.type or name)
    gpus = [shown[name] for name in registered]
    gpu_names = [(name, run.gpus.type or name) for name, run in zip(registered, runs, strict=True)]
    named = {name: name for name in _in_order({*gpus} - {UNNAMED_GPU})}
    words: dict[str, str] = {word: _(WORD_TEXTS[word]) for word in WORDS}
    kinds = {word: text[:1].upper() + text[1:] for word, text in words.items()}
    tasks, backends = [family(run.task) for run in runs], [run.train for run in runs]
    trained = ["lora" if run.trains_adapters else "all" for run in runs]
    return [
        _facet("gpu", _("GPU"), gpus, {**named, UNNAMED_GPU: _("not stated")}, gpu_names),
        _facet("size", _("Size"), [run.size for run in runs], {size: size for size in SIZES}),
        _facet("task", _("Task"), tasks, dict.fromkeys(_in_order(tasks)), [(run.task,) for run in runs]),
        _facet("trained", _("Trained"), trained, {"all": _("all parameters"), "lora": "LoRA"}),
        _facet("train", _("Backend"), backends, dict.fromkeys(_in_order(backends))),
        _facet("kind", _("Status"), [run.word for run in runs], kinds),
    ]


def _facet(
    name: str,
    heading: str,
    of_runs: Sequence[str],
    shown: dict[str, Any],
    other_names: Iterable[Sequence[str]] = (),
) -> dict[str, Any]:
    """Return a facet with the values that occur in runs; ``shown`` has the texts that differ from values."""
    used = [value for value in shown if value in of_runs]
    names: dict[str, set[str]] = {value: set() for value in used}
    for value, others in zip(of_runs, other_names, strict=False):
        names[value] |= {*others} - {value}
    values = [[value, shown[value] or value, *sorted(names[value])] for value in used]
    places = {value: place for place, value in enumerate(used)}
    of_each = [places[value] for value in of_runs]
    return {"name": name, "heading": heading, "values": values, "values_of_runs": of_each}


def _in_order(values: Iterable[str]) -> list[str]:
    return sorted({*values}, key=lambda value: (natural(value), value))


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
        "noneHere": _("None of these runs matches."),
        "unknown": _("Unknown filters in the address: {asked}."),
        "between": _(", "),
        "copyLink": _("Copy the link to this run"),
        "copy": _("Copy"),
        "copied": _("Copied"),
        "notCopied": _("The browser did not allow copying."),
    }
