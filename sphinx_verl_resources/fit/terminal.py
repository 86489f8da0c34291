"""Answers, estimates and tables as text for terminals; ``width``: characters per line, 0 for no limit."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from ..memory.phases import LABELS, Phase
from ..memory.recorded import credible
from ..units import GIB, crossed, gib_number, short_number
from .answer import Answer
from .bars import phase_bars_text
from .fewest import Fewest
from .question import Question, task_text
from .results import figures_of_fewest
from .words import MOST, about, as_title, change_text, heading, label, lines, short, whole

#: The headings of ``_figures``.
_FIGURES = "Layout | GiB per GPU | Offloads | Host GiB/node>"
#: What follows the table of the fewest GPUs.
_LEGEND = (
    "The figures are estimates, in each line for its first GPU, which has the least memory.",
    "** No uncontested run of this model on known GPUs is recorded; * none had so little GPU memory.",
    "? It might fit on this number (borderline).",
)


def plain_table(headings: str, rows: Iterable[Sequence[str]], width: int = 0) -> str:
    """Return the text of a table; cells wrap, and if that is not enough the last columns are left out.

    Args:
        headings: the headings of the columns, with bars between; a ``>`` after a heading aligns it right.
        rows: the cells.
        width: see above.

    >>> print(plain_table("a | b>", [("long text", "1")], 10))
    a        b
    -------  -
    long     1
    text
    """
    names = headings.split(" | ")
    table = [[name.rstrip(">") for name in names], *rows]
    columns, room = list(zip(*table, strict=True)), (width or 10**6) + 2
    words = [textwrap.wrap(" ".join(cells), 1, break_long_words=False) for cells in columns]
    least = [max(map(len, each)) for each in words]
    while len(least) > 1 and sum(least) + 2 * len(least) > room:
        least.pop()
    widths = [max(map(len, cells)) for cells in columns[: len(least)]]
    while widths != least and sum(widths) + 2 * len(widths) > room:
        wide = (index for index, size in enumerate(widths) if size > least[index])
        widths[max(wide, key=widths.__getitem__)] -= 1
    table.insert(1, ["-" * size for size in widths])
    sides = ["right" if name.endswith(">") else "left" for name in names[: len(widths)]]
    cells = [list(map(textwrap.fill, row, widths)) for row in table]
    return tabulate(cells, tablefmt="plain", colalign=sides, disable_numparse=True)


def wrap_lines(texts: Iterable[str], width: int, indent: str = "") -> str:
    """Return texts, each on its own lines, of at most ``width`` characters; keys and names are not broken."""
    wrap = textwrap.TextWrapper(width or 10**6, subsequent_indent=indent, break_long_words=False)
    wrap.break_on_hyphens = False
    return "\n".join(map(wrap.fill, texts))


# -- answers


def answer_text(answer: Answer, width: int = 100, *, verbose: bool = False, command: bool = True) -> str:
    """Return an answer as text: its lines, the phases as bars, changes, and the command.

    Args:
        answer: the answer.
        width: see above.
        verbose: whether to add the components of the peak.
        command: whether to add the command.
    """
    estimate, verdict, gpus = answer.best.estimate, answer.verdict, answer.all_gpus
    settings, gpu, rank = estimate.settings, answer.request.gpu or "GPU", estimate.settings.actor.lora_rank
    task = f"{answer.task} of rank {rank}" if rank else answer.task
    on = f"{gpus}×{gpu}" if gpus else f"an unknown number of {gpu}s. Set it with --gpus, as in 8xH100"
    training = f" ({settings.gpus} for training)" if gpus and settings.other_gpus else ""
    texts = [f"{as_title(label(verdict))}: {answer.request.model}, {task}, on {on}{training}."]
    texts += [f"{line.title}: {line.plain}" if line.title else line.plain for line in lines(answer)]
    texts += [f"Ignored: {text}" for text in estimate.unsupported if text not in estimate.undecided]
    parts, figures = [wrap_lines(texts, width)], credible(estimate)
    if figures and answer.reason not in ("unknown", "no-bfloat16"):
        parts.append(phase_bars_text(figures, width))
    if verdict not in ("fits", "unknown"):
        changes = [f"{place}. {change_text(change)}" for place, change in enumerate(answer.changes[:MOST], 1)]
        first = f"{heading(answer)}:" if changes else "No other setting makes it fit."
        parts.append(wrap_lines([first, *changes], width, "   "))
    if verdict == "fits" and (budget := answer.largest_token_budget):
        text = f"With this layout, micro-batches of up to {budget:,} tokens per GPU fit"
        text += f", or responses of up to {longest:,} tokens" if (longest := answer.longest_response) else ""
        parts.append(wrap_lines([f"{text}."], width))
    if command and (words := answer.command):
        parts.append(f"Command:\n{words}")
    if verbose and figures and verdict != "unknown":
        parts.append(f"{figures.peak_phase.label}:\n{components_text(figures.peak_phase, width)}")
    return "\n\n".join(parts)


def fewest_text(question: Question, sizes: Sequence[Fewest], defaults: Sequence[str], width: int) -> str:
    """Return the fewest GPUs of each memory size, with the assumptions."""
    head = [f"Fewest GPUs for {question.model}, {task_text(question)}, by the memory of a GPU:"]
    head.append(f"Assumed: {', '.join(defaults)}.")
    rows = []
    for item in sizes:
        mark = {"undercuts": "*", "unrecorded": "**"}.get(item.support, "")
        fewest = f"{item.count}{mark}" if item.count else f"none: {item.why}"
        fewest += f", {item.near}?" if item.near else ""
        ran = f"{crossed(item.ran['gpus'])} {item.ran['task']}".strip() if item.ran else "no run"
        gpus, without = ", ".join(item.types), str(item.without or "none")
        figures = _figures(item.answer) if item.answer else [""] * 4
        rows.append((short_number(item.memory_gb), gpus, fewest, without, ran, *figures))
    table = plain_table(f"GB> | GPU | Fewest | Without offloading | Recorded on | {_FIGURES}", rows, width)
    return "\n\n".join([wrap_lines(head, width), table, wrap_lines(_LEGEND, width)])


def fitting_text(question: Question, answers: Sequence[Answer], defaults: Sequence[str], width: int) -> str:
    """Return the models that fit on the GPUs, one per line, with the assumptions."""
    count, on = len(answers) or "none", f"{question.gpus}×{question.gpu}, {task_text(question)}"
    head = [f"Models that fit on {on}: {count}. The figures are estimates."]
    head.append(f"Assumed: {', '.join(defaults)}.")
    rows = []
    for answer in answers:
        ran = next((crossed(run.gpus) for run in answer.proof), "no run")
        rows.append((answer.request.model, label(answer.verdict), ran, *_figures(figures_of_fewest(answer))))
    table = [plain_table(f"Model | Verdict | Recorded on | {_FIGURES}", rows, width)] if rows else []
    return "\n\n".join([wrap_lines(head, width), *table])


def _figures(answer: Mapping[str, Any]) -> list[str]:
    """Return the name of a layout, its peak with the range, whether it offloads, and host memory."""
    names = ("peak_gib", "low_gib", "high_gib", "host_ram_gib_per_node")
    peak, low, high, host = (answer[name] * GIB for name in names)
    parts = answer["offloaded"]
    offloads = "Adam on CPU" if "adam-on-cpu" in parts else "yes" if parts else "no"
    return [answer["strategy"], f"{whole(peak)} ({whole(low)}-{whole(high)})", offloads, about(host)]


# -- estimates


def estimates_text(results: Sequence[Mapping[str, Any]], width: int = 0) -> str:
    """Return a row for each result of ``estimate --format json``."""
    rows, sizes = [], ("peak_gib", "low_gib", "high_gib", "capacity_gib", "logged_max_allocated_gib")
    for item in results:
        verdict = "no estimate" if "error" in item else short(item["verdict"], item["fits_up_to_tokens"])
        peak, low, high, *others = (item[name] and gib_number(item[name] * GIB) for name in sizes)
        figures = (peak, peak and f"{low} to {high}", *others, LABELS.get(item["binding_phase"]))
        rows.append((item["id"], verdict, *(text or "" for text in figures)))
    headings = "Case | Verdict | Peak GiB> | Range> | GPU GiB> | Metric GiB> | Peak phase"
    return plain_table(headings, rows, width)


def components_text(phase: Phase, width: int = 0) -> str:
    """Return a row for each component of a phase, with its formula and evidence."""
    parts = phase.breakdown.components
    rows = [(part.label, gib_number(part.size), part.numbers, part.evidence) for part in parts]
    return plain_table("Component | GiB> | Formula, in bytes | Evidence", rows, width)
