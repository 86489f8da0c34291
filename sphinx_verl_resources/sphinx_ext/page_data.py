"""The data for the script of a page: the values of the runs that it filters, and the words that it shows.

It stands in the page as JSON, which is data to a browser and never run, whatever the page's policy.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..catalog.fields import NOT_RECORDED, natural
from ..catalog.names import SIZES, WORDS, run_class
from ..catalog.selection import gpu_name
from ..i18n import _, plural
from ..views.runs import NOT_COMPUTED, WORD_TEXTS, run_title
from ..views.table import verl_rows
from ..views.verdicts import as_title
from .assets import is_for_browsers
from .domain import VerlDomain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from docutils import nodes
    from sphinx.application import Sphinx

    from ..catalog.catalog import Catalog
    from ..catalog.models.run import Run

#: Filters and sorts the rows.
FILTER_SCRIPT = "verl-resources.js"
ELEMENT_ID = "verl-resources-page"
#: Stands for the GPU of a run whose source does not name it, as it does in the table.
UNNAMED_GPU = "GPU"
_RUN_CLASS = run_class("")
#: What JSON may hold, and the text of an element or a script may not.
_UNSAFE = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def add_page_data(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Load the script on a page with runs, and put its data behind the text."""
    if ids := shown_runs(app, pagename, doctree):
        app.add_js_file(FILTER_SCRIPT, loading_method="defer")
        data = as_script(page_data(VerlDomain.of(app.env).catalog, ids))
        context["body"] += f'<script type="application/json" id="{ELEMENT_ID}">{data}</script>\n'


def shown_runs(app: Sphinx, pagename: str, doctree: nodes.document | None) -> list[str]:
    """Return the ids of the runs in the tables of a page for browsers, each once."""
    if not is_for_browsers(app.builder):
        return []
    if doctree is None or not VerlDomain.of(app.env).may_show(pagename):
        return []
    names = (name for rows in doctree.findall(verl_rows) for name in rows["names"])
    return list(dict.fromkeys(name.removeprefix(_RUN_CLASS) for name in names))


@dataclass(frozen=True)
class Facet:
    """A property by which runs can be filtered.

    Attributes:
        name: in the address of the page.
        heading: for readers.
        values: in the order in which they are offered, as addresses have them, with what readers see.
        of_runs: for each run, which of the values it has.
        names: by value, how else the page calls it.
    """

    name: str
    heading: str
    values: dict[str, str]
    of_runs: list[int]
    names: dict[str, list[str]] = field(default_factory=dict)

    @property
    def offered(self) -> list[list[str]]:
        """Each value, its text for readers, and its other names."""
        return [[value, text, *self.names.get(value, ())] for value, text in self.values.items()]


def page_data(catalog: Catalog, ids: Sequence[str]) -> dict[str, Any]:
    """Return the facets, of each run its title and the numbers of its values, and the words."""
    runs = [catalog.runs[run_id] for run_id in ids]
    facets = _facets(catalog, runs)
    return {
        "facets": [
            {"name": facet.name, "heading": facet.heading, "values": facet.offered} for facet in facets
        ],
        "runs": {
            run.id: {
                "title": run_title(run),
                "values": [facet.of_runs[index] for facet in facets],
            }
            for index, run in enumerate(runs)
        },
        "words": _words(len(runs)),
    }


def as_script(data: dict[str, Any]) -> str:
    """Return JSON that an element of HTML can hold."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).translate(_UNSAFE)


def _facets(catalog: Catalog, runs: Sequence[Run]) -> list[Facet]:
    """Return what a reader can choose from, in the order of the controls."""
    gpus = [gpu_name(catalog, run) or UNNAMED_GPU for run in runs]
    tasks = [run.task for run in runs]
    backends = [run.train for run in runs]
    named_gpus = _as_written(_in_order(set(gpus) - {UNNAMED_GPU}))
    gpu = _facet("gpu", _("GPU"), gpus, {**named_gpus, UNNAMED_GPU: _("not stated")})
    return [
        replace(gpu, names=_other_names(gpus, runs)),
        _facet("size", _("Size"), [run.size for run in runs], _as_written(SIZES)),
        _facet("task", _("Task"), tasks, _as_written(_in_order(tasks))),
        _facet("train", _("Backend"), backends, _as_written(_in_order(backends))),
        _facet(
            "kind",
            _("Status"),
            [run.word for run in runs],
            {word: as_title(_(WORD_TEXTS[word])) for word in WORDS},
        ),
    ]


def _other_names(gpus: Sequence[str], runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return the names in rows of GPUs that the registry calls otherwise."""
    pairs = {(gpu, run.gpus.type) for gpu, run in zip(gpus, runs, strict=True) if run.gpus.type}
    names: dict[str, list[str]] = {}
    for gpu, name in sorted(pairs):
        if name != gpu:
            names.setdefault(gpu, []).append(name)
    return names


def _in_order(values: Iterable[str]) -> list[str]:
    return sorted(set(values), key=lambda value: (natural(value), value))


def _as_written(values: Iterable[str]) -> dict[str, str]:
    return {value: value for value in values}


def _facet(name: str, heading: str, of_runs: Sequence[str], shown: dict[str, str]) -> Facet:
    """Return a facet with those of the values that some run has."""
    in_use = set(of_runs)
    used = {value: text for value, text in shown.items() if value in in_use}
    numbers = {value: number for number, value in enumerate(used)}
    return Facet(name, heading, used, [numbers[value] for value in of_runs])


def _words(runs: int) -> dict[str, Any]:
    """Return the texts of the script, which fills in the braces."""
    return {
        "filter": _("Filter the runs"),
        "any": _("All"),
        "option": _("{value} ({count})"),
        "all": plural("{total} run", "{total} runs", runs),
        "some": plural("{shown} of {total} run", "{shown} of {total} runs", runs),
        "none": _("No run matches."),
        "noneHere": _("None of these runs matches."),
        "unknown": _("A part of this link is not known here and was left out."),
        "clear": _("Clear the filters"),
        "copyLink": _("Copy link to {title}"),
        "copy": _("Copy"),
        "copied": _("Copied"),
        "notCopied": _("This browser does not let the page copy."),
        "absent": [_(NOT_RECORDED), _(NOT_COMPUTED)],
    }
