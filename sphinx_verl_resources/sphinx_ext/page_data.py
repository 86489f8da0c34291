"""The data for the script of a page: the values of the runs that it filters, and the words that it shows.

The page holds it as JSON, which is data to a browser and never run, whatever the page's policy.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..catalog.fields import natural
from ..catalog.names import SIZES, WORDS, family
from ..catalog.selection import gpu_name
from ..i18n import _, plural
from ..views.runs import WORD_TEXTS
from ..views.verdicts import as_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..catalog.catalog import Catalog
    from ..catalog.models.run import Run

ELEMENT_ID = "verl-resources--page"
#: The GPU of a run whose source does not name it, as the table calls it.
UNNAMED_GPU = "GPU"
#: What JSON may hold, and the text of an element or a script may not.
_UNSAFE = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


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
    """Return the facets, of each run the numbers of its values, and the words."""
    runs = [catalog.runs[run_id] for run_id in ids]
    facets = _facets(catalog, runs)
    return {
        "facets": [
            {"name": facet.name, "heading": facet.heading, "values": facet.offered} for facet in facets
        ],
        "runs": {run.id: [facet.of_runs[index] for facet in facets] for index, run in enumerate(runs)},
        "words": _words(len(runs)),
    }


def as_script(data: dict[str, Any]) -> str:
    """Return JSON that an element of HTML can hold."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).translate(_UNSAFE)


def _facets(catalog: Catalog, runs: Sequence[Run]) -> list[Facet]:
    """Return what a reader can choose from, in the order of the controls."""
    registered = [gpu_name(catalog, run) or UNNAMED_GPU for run in runs]
    shown: dict[str, str] = {}  # as the tables call it; of several names, the first on the page
    for name, run in zip(registered, runs, strict=True):
        shown.setdefault(name, run.gpus.type or name)
    gpus = [shown[name] for name in registered]
    families = [family(run.task) for run in runs]
    trained = ["lora" if run.trains_adapters else "all" for run in runs]
    backends = [run.train for run in runs]
    named_gpus = _as_written(_in_order(set(gpus) - {UNNAMED_GPU}))
    gpu = _facet("gpu", _("GPU"), gpus, {**named_gpus, UNNAMED_GPU: _("not stated")})
    task = _facet("task", _("Task"), families, _as_written(_in_order(families)))
    kinds: dict[str, str] = {word: as_title(_(WORD_TEXTS[word])) for word in WORDS}
    of_gpus = zip(gpus, registered, (run.gpus.type for run in runs), strict=True)
    names = ((value, name) for value, *others in of_gpus for name in others if name)
    return [
        replace(gpu, names=_other_names(names)),
        _facet("size", _("Size"), [run.size for run in runs], _as_written(SIZES)),
        replace(task, names=_other_names((family(run.task), run.task) for run in runs)),
        _facet("trained", _("Trained"), trained, {"all": _("all parameters"), "lora": "LoRA"}),
        _facet("train", _("Backend"), backends, _as_written(_in_order(backends))),
        _facet("kind", _("Status"), [run.word for run in runs], kinds),
    ]


def _other_names(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return by value its other names, from pairs of a value and a name."""
    found: dict[str, list[str]] = {}
    for value, name in sorted({*pairs}):
        if name != value:
            found.setdefault(value, []).append(name)
    return found


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
        "option": _("{value} ({count})"),
        "all": plural("{total} run", "{total} runs", runs),
        "some": plural("Showing {shown} of {total} run", "Showing {shown} of {total} runs", runs),
        "folded": _("{shown} of {total} runs: those that ran"),
        "unfold": _("Show all {total} runs"),
        "fold": _("Show those that ran"),
        "none": _("No run matches."),
        "noneHere": _("None of these runs matches."),
        "unknown": _("The address asks for what these tables do not offer: {asked}."),
        "between": _(", "),
        "copyLink": _("Copy the link to this run"),
        "copy": _("Copy"),
        "copied": _("Copied"),
        "notCopied": _("This browser does not let the page copy."),
    }
