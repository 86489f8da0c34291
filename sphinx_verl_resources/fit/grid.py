"""The answers that the form looks up: for one model, as the numbers and short texts of its script."""

from __future__ import annotations

import gc
import json
import re
from collections import Counter, defaultdict
from html import escape
from itertools import accumulate, groupby, product
from operator import sub
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError
from ..i18n import _
from ..memory.phases import LABELS
from ..memory.registries import capacity_of
from ..memory.roles import LIMITS
from ..units import GIB
from .answer import Answers
from .command import SEPARATOR, command_of
from .evidence import figures_of
from .fewest import POWERS, size_models, verdict_on, window_of
from .question import OWN_KEYS, USUAL_RANK, Question
from .words import lines, run_name

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from ..memory.phases import Phase
    from ..memory.registries import EstimatorContext
    from ..records import Run
    from ..registries import Gpu
    from .answer import Answer

#: The choices, besides model and GPU: longest responses in tokens, and ranks of adapters (0: none).
RESPONSES, RANKS = (1024, 4096, 16384), (0, USUAL_RANK)
#: The least cells of a window: the most GPUs on which it does not fit, and powers of two from there on, at
#: least to the fewest on which it fits.
CELLS = 4
_MEMORIES_GB = (24, 32, 40, 48, 64, 80, 96, 141, 180, 192, 288)
#: Keys that the choices set, or that follow from the number of GPUs.
CHOSEN = OWN_KEYS | {LIMITS[1]}
#: The lines with numbers that differ in nearly every answer, and the placeholder of a number.
_VARYING, HOLE = ("verdict", "host", "release"), "{#}"
_NUMBER = re.compile(r"(?<![\w#.])\d[\d,.]*(?<=\d)(?!\w)", re.ASCII)


def form_models(data: EstimatorContext) -> list[str]:
    """Return a model for each size class, and every model of recorded runs, the smallest first.

    Of several models with the same figures, only the one that most runs load is returned.
    """
    named = [*size_models(data).values(), *(run.model for run in data.runs.values())]
    loaded = Counter(entry.hf_id for name in named if (entry := data.architectures.get(name)))
    models = {figures_of(data, model): model for model, _count in reversed(loaded.most_common())}
    return sorted(models.values(), key=lambda model: data.known_shape(model).parameters)


def gpu_groups(data: EstimatorContext) -> list[tuple[Gpu, ...]]:
    """Return the GPUs to choose from, by memory size and vendor; the smallest capacity comes first.

    Where some GPUs of a group have fast links, the others are left out, because layouts depend on the link.
    """
    groups: defaultdict[tuple[float, str], list[Gpu]] = defaultdict(list)
    for gpu in sorted(data.gpus, key=lambda gpu: (not gpu.fast_link, capacity_of(gpu))):
        if gpu.bfloat16 and gpu.memory_gb in _MEMORIES_GB:
            group = groups[gpu.memory_gb, gpu.vendor]
            group += [gpu] if not group or gpu.fast_link == group[0].fast_link else []
    return [tuple(groups[key]) for key in sorted(groups)]


class _Tables(defaultdict[str, dict["Hashable", int]]):
    """The tables that the cells of a model point into, each with its values and their indices.

    ``kinds``: verdict, index plus one of a run whose script ran, indices of lines: the first is the reason,
    -1 is that of the layout. ``lines``: index of a text, indices of runs, numbers in the text unless they are
    in the cell. ``texts``: HTML, with ``HOLE`` for a number. ``runs``: id, name in HTML. ``bars``: indices of
    pieces. ``pieces``: index of a phase, then GiB of each category. ``commands``: index of the line with the
    layout, indices of parts. ``parts``: the lines of one section of verl's configuration, as indices of
    words. ``words``: lines of commands.
    """

    def index(self, table: str, value: Hashable) -> int:
        """Return the index of a value in a table; add the value if it is new."""
        return self[table].setdefault(value, len(self[table]))

    def cell(self, answer: Answer) -> list[int | str]:
        """Return an answer: indices of its kind, bars and command, the ends of its range, other numbers."""
        best, of_cell, of_lines = answer.best.estimate, list[int | str](), list[tuple[str, int]]()
        sizes = {"peak": best.peak, "capacity": best.capacity or 0, "low": best.low, "high": best.high}
        named = {f"{round(size / GIB):,}": f"{{{name}}}" for name, size in sizes.items()}
        for line in lines(answer):
            is_varying = line.name in _VARYING
            text, numbers = _without_numbers(html(line.title, line.text), named if is_varying else {})
            of_cell += numbers if is_varying else []
            of_line = self.index("texts", text), tuple(map(self._run, line.runs))
            index = self.index("lines", of_line if is_varying else (*of_line, *numbers))
            of_lines.append((line.name, index))
        layout, command = (
            dict(of_lines).get("layout", 0),
            command_of(answer.best, answer.data).split(SEPARATOR),
        )
        kept = (-1 if name == "layout" else index for name, index in of_lines)
        scripts = (self._run(run) + 1 for run in answer.proof if run.word == "ran" and run.script)
        sections = [tuple(part) for _key, part in groupby(command, _section)]
        parts = [self.index("parts", tuple(self.index("words", word) for word in part)) for part in sections]
        return [
            self.index("kinds", (answer.verdict, next(scripts, 0), *kept)),
            self.index("bars", tuple(self.index("pieces", pieces_of(phase)) for phase in best.phases)),
            self.index("commands", (layout, *parts)),
            round(best.low / GIB),
            round(best.high / GIB),
            *of_cell,
        ]

    def _run(self, run: Run) -> int:
        return self.index("runs", (run.id, escape(run_name(run))))


def _without_numbers(text: str, named: Mapping[str, str]) -> tuple[str, list[int | str]]:
    """Replace the numbers of a text with names or ``HOLE``; return those without a name, too."""
    numbers = [number for number in _NUMBER.findall(text) if number not in named]
    plain = [int(number) if number.isdecimal() else number for number in numbers]
    return _NUMBER.sub(lambda found: named.get(found[0], HOLE), text), plain


def _section(word: str) -> list[str]:
    return word.partition("=")[0].split(".")[:-1][:2]


def html(title: str, text: str) -> str:
    """Return a line of an answer in HTML, with its title in bold."""
    between = _("{title}: {text}").format(title="", text="")
    start = f"<strong>{escape(title)}</strong>{between}" if title else ""
    return start + escape(text, quote=False)


def pieces_of(phase: Phase) -> tuple[int, ...]:
    """Return the index of a phase, and its categories in GiB; their sum is the rounded total."""
    ends = [0, *(round(size / GIB) for size in accumulate(phase.sizes.values()))]
    return (list(LABELS).index(phase.name), *map(sub, ends[1:], ends))


def answers_text(model: str, settings: Mapping[str, Any], data: EstimatorContext) -> str:
    """Return the answers to every combination of choices for a model, as JSON.

    ``windows`` has an entry for each GPU, rank and response length: the index in ``POWERS`` of the most GPUs
    on which the model does not fit; the index of the fewest on which it fits; and a cell, or the reason why
    there is no estimate, for each number of GPUs from the first on.

    Args:
        model: its Hugging Face name, which must be known.
        settings: further settings, none of them in ``CHOSEN``.
        data: the records.
    """
    gc.disable()  # the collector takes a fifth of the time, and nothing here has reference cycles
    tables = _Tables(dict)
    questions = [
        Answers(Question(model, gpus=1, lora=rank, response=response, overrides=settings), data)
        for rank, response in product(RANKS, RESPONSES)
    ]
    windows = [_window(answers, group[0].name, tables) for group in gpu_groups(data) for answers in questions]
    gc.enable()
    found = {name: list(table) for name, table in tables.items()}
    return json.dumps({"windows": windows, **found}, separators=(",", ":"))


def _window(answers: Answers, gpu: str, tables: _Tables) -> list[Any]:
    def cell(count: int) -> list[int | str] | str:
        try:
            return tables.cell(answers.on(count, gpu))
        except NoAnswerError as error:
            return escape(str(error))

    try:
        window = window_of(answers, gpu)
        first = max(POWERS.index(window[0].request.gpus or 0) - 1, 0) if window else len(POWERS) - 1
        verdicts = (verdict_on(answers, count, gpu) for count in POWERS[first:])
        fits = next((place for place, one in enumerate(verdicts, first) if one == "fits"), len(POWERS))
    except NoAnswerError:
        return [0, len(POWERS), cell(1)]
    last = max(first + CELLS, fits + 1) if fits < len(POWERS) else first + CELLS
    return [first, fits, *map(cell, POWERS[first:last])]
