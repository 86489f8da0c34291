"""Answers, estimates and tables as text for terminals; ``width``: characters per line, 0 for no limit."""

from __future__ import annotations

import textwrap
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ..diagnostics import counted
from ..memory.phases import LABELS
from ..memory.recorded import credible
from ..memory.request import MODEL
from ..texts import nested_yaml
from ..units import GIB, crossed, gib_number, short_number
from .charts import phase_bars_text
from .command import command_settings
from .question import task_text
from .results import usable_command
from .words import MOST, about, change_text, heading, label, lines, short, title, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..memory.phases import Phase
    from .answer import Answer
    from .fewest import Fewest
    from .layouts import Layout
    from .question import Question

_ESTIMATES = "Case | Verdict | Peak GiB> | Range> | GPU GiB> | Metric GiB> | Peak phase"
_LAYOUTS = "Layout | Verdict | GiB per GPU | Offloads | Host GiB/node> | Token budget>"
_FEWEST = (
    "GB> | GPU | Fewest | Without offloading | Recorded on | Layout | GiB per GPU | Offloads | Host GiB/node>"
)
_FITTING = "Model | Verdict | Recorded on | Layout | GiB per GPU | Offloads | Host GiB/node>"
#: The marks of numbers of GPUs that nobody has recorded, and of those on which a run might fit.
_MARKS = {
    "**": "** No run of this model is recorded.",
    "*": "* No run of this model with so little GPU memory is recorded.",
    "?": "? It might fit on this number (borderline).",
}


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
    columns = list(zip(*table, strict=True))
    words = partial(textwrap.wrap, width=1, break_long_words=False)
    least = [max(len(word) for cell in cells for word in words(cell) or [""]) for cells in columns]
    while width and len(least) > 1 and sum(least) + 2 * len(least) - 2 > width:
        least.pop()
    widths = [max(map(len, cells)) for cells in columns[: len(least)]]
    while width and widths != least and sum(widths) + 2 * len(widths) - 2 > width:
        wide = (index for index, size in enumerate(widths) if size > least[index])
        widths[max(wide, key=widths.__getitem__)] -= 1
    text = []
    for row in table:
        cells = [textwrap.wrap(cell, size) for cell, size in zip(row, widths, strict=False)]
        for parts in zip_longest(*cells, fillvalue=""):
            sides = zip(parts, widths, names, strict=False)
            text.append(
                "  ".join(f"{part:{'><'[name[-1] != '>']}{size}}" for part, size, name in sides).rstrip()
            )
        if row is table[0]:
            text.append("  ".join("-" * size for size in widths))
    return "\n".join(text)


def wrapped(texts: Iterable[str], width: int, indent: str = "") -> str:
    """Return texts, each on its own lines, of at most ``width`` characters; keys and names are not broken."""
    wrap = textwrap.TextWrapper(width or 10**6, subsequent_indent=indent, break_long_words=False)
    wrap.break_on_hyphens = False
    return "\n".join(line for text in texts for line in wrap.wrap(text))


# -- an answer


def answer_text(answer: Answer, width: int = 100, *, verbose: bool = False, command: bool = True) -> str:
    """Return an answer as text: its lines, the phases as bars, changes, layouts, and the command.

    Args:
        answer: the answer.
        width: see above.
        verbose: whether to add the components of the peak, settings, and all layouts and runs.
        command: whether to add the command.
    """
    best, estimate = answer.best, answer.best.estimate
    rank = estimate.settings.actor.lora_rank
    task = f"{answer.task} of rank {rank}" if rank else answer.task
    said = [f"{title(answer.verdict)}: {answer.request.model}, {task}, on {_gpus(answer)}."]
    said += [f"{line.title}: {line.plain}" if line.title else line.plain for line in lines(answer)]
    said += [f"Ignored: {text}" for text in estimate.unsupported if text not in estimate.undecided]
    if answer.all_gpus is None:
        said.append("Set the number of GPUs with --gpus, as in 8xH100.")
    parts = [wrapped(said, width)]
    shown = credible(estimate)
    if shown and answer.reason not in ("unknown", "no-bfloat16"):
        parts.append(phase_bars_text(shown, width))
    if answer.verdict != "unknown":
        parts += _changes(answer, width)
        if verbose and len(answer.layouts) > 1:
            parts.append(plain_table(_LAYOUTS, map(_row, answer.layouts), width))
    if answer.verdict == "fits" and (budget := answer.largest_token_budget):
        text = f"With this layout, micro-batches of up to {short_number(budget)} tokens per GPU fit"
        response = short_number(answer.longest_response or 0)
        parts.append(wrapped([f"{text}, or responses of up to {response} tokens."], width))
    if command and (words := usable_command(answer)):
        parts.append(f"Command:\n{words}")
    if verbose and shown and answer.verdict != "unknown":
        settings = {key: value for key, value in command_settings(best).items() if key != f"{MODEL}.path"}
        parts.append(f"{shown.peak_phase.label}:\n{components_text(shown.peak_phase, width)}")
        parts.append(f"Settings:\n{nested_yaml(settings)}")
        runs = [f"  {run.word}: {run.id}" for run in answer.evidence]
        parts += ["\n".join(["Recorded runs:", *runs])] if runs else []
    return "\n\n".join(parts)


def _gpus(answer: Answer) -> str:
    """Return the GPUs of all pools, for example ``8×H100``, and how many of them train if not all do."""
    gpu, settings = answer.request.gpu or "GPU", answer.best.estimate.settings
    if answer.all_gpus is None:
        return f"an unknown number of {gpu}s"
    train = f" ({settings.gpus} for training)" if settings.other_gpus else ""
    return f"{answer.all_gpus}×{gpu}{train}"


def _changes(answer: Answer, width: int) -> list[str]:
    """Return the changes that make it fit, in order; an empty list if it fits."""
    if answer.verdict == "fits":
        return []
    if not answer.changes:
        return ["No other setting makes it fit."]
    items = [f"{place}. {change_text(change)}" for place, change in enumerate(answer.changes[:MOST], 1)]
    return [wrapped([f"{heading(answer)}:", *items], width, "   ")]


def _row(layout: Layout) -> tuple[str, ...]:
    """Return the cells of a layout."""
    name, *figures = _figures(layout)
    budget = short_number(layout.token_budget) if layout.token_budget else ""
    return (name, label(layout.verdict), *figures, budget)


def _figures(layout: Layout) -> tuple[str, str, str, str]:
    """Return the name of a layout, its peak with the range, whether it offloads, and host memory."""
    own = layout.estimate
    span = f"{whole(own.peak)} ({whole(own.low)}-{whole(own.high)})"
    offloads = "Adam on CPU" if "adam-on-cpu" in layout.offloaded else "yes" if layout.offloaded else "no"
    return (layout.name, span, offloads, about(own.host.total))


# -- several answers


def fewest_text(question: Question, sizes: Sequence[Fewest], assumed: Sequence[str], width: int = 100) -> str:
    """Return the fewest GPUs of each memory size, with the assumptions."""
    rows, seen = [], set()
    for item in sizes:
        mark = "**" if not item.recorded else "*" if item.undercuts else ""
        numbers = [f"{item.count}{mark}" if item.count else f"none: {item.why}"]
        numbers += [f"{item.near}?"] if item.near else []
        seen |= {mark if item.count else "", "?" if item.near else ""}
        ran = f"{crossed(item.ran.gpus)} {item.task}".strip() if item.ran else "no run"
        names = ", ".join(gpu.name for gpu in item.gpus)
        figures = _figures(item.found.best) if item.found else ("", "", "", "")
        without = str(item.without or "none")
        rows.append((short_number(item.memory_gb), names, ", ".join(numbers), without, ran, *figures))
    counts = [f"{item.count}×{short_number(item.memory_gb)} GB" for item in sizes if item.count]
    fewest = ", ".join(dict.fromkeys(counts)) or "none"
    head = [f"Fewest GPUs for {question.model}, {task_text(question)}: {fewest}."]
    foot = ["The figures are estimates, in each line for its first GPU, which has the least memory."]
    head.append(f"Assumed: {', '.join(assumed)}.")
    foot += [text for mark, text in _MARKS.items() if mark in seen]
    return "\n\n".join([wrapped(head, width), plain_table(_FEWEST, rows, width), wrapped(foot, width)])


def fitting_text(
    question: Question, answers: Sequence[Answer], assumed: Sequence[str], width: int = 100
) -> str:
    """Return the models that fit on the GPUs, one per line, with the assumptions."""
    on = f"{question.gpus}×{question.gpu}, {task_text(question)}"
    rows = []
    for answer in answers:
        ran = next((crossed(run.gpus) for run in answer.proof), "no run")
        rows.append((answer.request.model, label(answer.verdict), ran, *_figures(answer.best)))
    recorded = sum(row[2] != "no run" for row in rows) or "none"
    head = [
        f"Models that fit on {on}: {len(rows) or 'none'}.",
        f"Models with a recorded run on as little GPU memory: {recorded}. The figures are estimates.",
        f"Assumed: {', '.join(assumed)}.",
    ]
    table = [plain_table(_FITTING, rows, width)] if rows else []
    return "\n\n".join([wrapped(head, width), *table])


# -- estimates


def estimates_text(results: Sequence[Mapping[str, Any]], width: int = 0) -> str:
    """Return a row for each result of ``estimate --format json``."""
    rows, ignoring = [], sum(bool(result["unsupported"]) for result in results)
    for result in results:
        sizes = ("peak_gib", "low_gib", "high_gib", "capacity_gib", "logged_max_allocated_gib")
        peak, low, high, *others = (gib_number((result[name] or 0) * GIB) for name in sizes)
        figures = (peak, f"{low} to {high}", *others, LABELS.get(result["binding_phase"], ""))
        verdict = (
            "no estimate" if "error" in result else short(result["verdict"], result["fits_up_to_tokens"])
        )
        rows.append((result["id"], verdict, *(figures if result["peak_gib"] else ("",) * 5)))
    note = f"Settings that the estimate ignores: in {counted(ignoring, 'case')}; --format json lists them."
    return "\n\n".join([plain_table(_ESTIMATES, rows, width), *([note] if ignoring else [])])


def components_text(phase: Phase, width: int = 0) -> str:
    """Return a row for each component of a phase, with its formula and evidence."""
    rows = (
        (part.label, gib_number(part.size), part.numbers, part.evidence)
        for part in phase.breakdown.components
    )
    return plain_table("Component | GiB> | Formula, in bytes | Evidence", rows, width)
