"""The data for the script of a page: the values of runs that it filters by, and the texts that it shows.

The page contains it as JSON, which a browser never runs, so that every content security policy allows it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..fields import natural
from ..i18n import _, plural
from ..records import SIZES, WORDS, family
from ..views.runs import WORD_TEXTS
from ..views.verdicts import as_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..dataset import Dataset
    from ..records import Run

ELEMENT_ID = "verl-resources--page"
#: The GPU of a run whose source does not state it, as the table shows it.
UNNAMED_GPU = "GPU"
#: Characters that JSON may contain, but not the text of an element or a script.
_UNSAFE = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


@dataclass(frozen=True)
class Facet:
    """A property by which runs can be filtered.

    Attributes:
        name: its name in the address of the page.
        heading: its heading for readers.
        values: its values as addresses contain them, each with its text for readers, in order.
        of_runs: for each run, the index of its value.
        names: by value, its other names on the page.
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


def page_data(catalog: Dataset, ids: Sequence[str]) -> dict[str, Any]:
    """Return the facets, the indexes of each run's values, and the texts."""
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
    """Return JSON that is safe inside an HTML element."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).translate(_UNSAFE)


def _facets(catalog: Dataset, runs: Sequence[Run]) -> list[Facet]:
    """Return the facets in the order of the controls."""
    registered = [catalog.gpu_name(run) or UNNAMED_GPU for run in runs]
    shown: dict[str, str] = {}  # as in the tables; if there are several names, the first on the page
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
    """Return the other names of each value, from pairs of a value and a name."""
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
    """Return a facet with the values that occur in runs."""
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
