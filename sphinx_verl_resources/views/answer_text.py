"""Answers as text for terminals: the verdict, the reason, changes, the figures and the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..answer.command import command_of, command_settings
from ..answer.layouts import largest_token_budget, longest_response
from ..memory.recorded import credible
from ..memory.request import MODEL
from ..texts import nested_yaml
from ..units import crossed, gib_number, short_number
from .answer import trust_text
from .changes import MOST, change_text
from .plain_text import estimate_details, plain_table, wrapped
from .verdicts import in_a_row, label, of_mean, reason, start_texts, title

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..answer.answer import Answer
    from ..answer.layouts import Layout

_BEST = "Best with | Verdict | GiB per GPU | Host GiB/node> | Token budget> | Longest response>"
_TRIED = "Tried | Verdict | GiB per GPU | Offloaded | Token budget> | Host GiB/node>"
_BEARS = {
    "ran": "Ran",
    "reported": "Reported to run",
    "claimed": "Claimed to run",
}


def answer_text(found: Answer, *, verbose: bool = False, width: int = 100) -> str:
    """Return an answer: the verdict, the reason, changes, the figures, and the command.

    Args:
        found: the answer.
        verbose: whether to add phases, components, settings and all layouts that were tried.
        width: characters per line.
    """
    head = [*_verdict(found), *_ignored(found)]
    parts = ["\n".join(wrapped(head, width)), *_changes(found, width)]
    if not found.best.estimate.undecided:
        if credible(found.best.estimate) is found.best.estimate:
            parts.append(_best(found, width))
        parts.append("\n".join(wrapped([trust_text(found.trust)], width)))
        parts.append(f"Command:\n{command_of(found.best, found.data)}")
        if verbose:
            parts += _details(found, width)
    return "\n\n".join(parts)


def question_text(found: Answer) -> str:
    """Return the question in words: model, task, LoRA rank, GPUs."""
    rank = found.best.estimate.settings.actor.lora_rank
    trained = f"{found.task} of rank {rank}" if rank else found.task
    return f"{found.asked.model}, {trained}, on {gpus_text(found)}"


def gpus_text(found: Answer) -> str:
    """Return the GPUs of all pools, for example ``8×H100``, and how many of them train if not all do.

    An unknown number is written in words.
    """
    train, others = found.best.estimate.settings.gpus, found.best.estimate.settings.other_gpus
    if found.all_gpus is None:
        return f"an unknown number of {found.asked.gpu or 'GPU'}s"
    text = f"{found.all_gpus}×{found.asked.gpu or 'GPU'}"
    return f"{text} ({train} for training)" if others else text


def _verdict(found: Answer) -> Iterator[str]:
    """Yield the verdict, the reason, and the assumptions."""
    estimate, best = found.best.estimate, found.best
    yield f"{title(found.verdict)}: {question_text(found)}."
    why = in_a_row(reason(estimate), *start_texts(best))
    if estimate.undecided:
        yield why
        if found.all_gpus is None:
            yield "Set the number of GPUs with --gpus, as in 8xH100."
    else:
        yield " ".join([*_evidence(found), f"Estimated with {best.name}. {why}", *_phase(found)])
    if found.assumed:
        yield f"Assumed: {', '.join(found.assumed)}."
    used = estimate.settings.gpus + estimate.settings.other_gpus
    if found.asked.gpus and used < found.asked.gpus:
        yield f"It uses {used} of the GPUs; more would not help."


def _phase(found: Answer) -> Iterator[str]:
    """Yield the lengths that the figures of a recorded run are for, and the peak phase."""
    estimate, shown = found.best.estimate, credible(found.best.estimate)
    if shown is not None:
        if shown is not estimate:
            yield of_mean(shown, estimate.fits_up_to_tokens)
        yield f"The peak phase is “{shown.peak_phase.label}”."


def _evidence(found: Answer) -> Iterator[str]:
    """Yield the recorded run with the best evidence, and the number of others with the same evidence."""
    if not found.evidence:
        return
    run = found.evidence[0]
    others = sum(other.word == run.word for other in found.evidence) - 1
    by = f", contributed by {run.contributor.name}" if run.contributor else ""
    more = f" and {others} more" if others else ""
    word = _BEARS[run.word]
    if found.verdict == "does-not-fit":
        word = f"Other settings {word.lower()}"
    yield f"{word} on {crossed(run.gpus)} ({run.train}{by}): {run.id}{more}."


def _ignored(found: Answer) -> Iterator[str]:
    estimate = found.best.estimate
    yield from (f"Ignored: {text}" for text in estimate.unsupported if text not in estimate.undecided)


def _changes(found: Answer, width: int) -> Iterator[str]:
    """Yield the changes that make it fit, in order."""
    if found.verdict in ("fits", "unknown"):
        return
    changes = found.changes[:MOST]
    if not changes:
        yield "No other setting makes it fit."
        return
    these = "Each of these" if len(changes) > 1 else "This"
    lines = [f"{these} makes it fit:" if changes[0].verdict == "fits" else "Largest reductions of the peak:"]
    for number, change in enumerate(changes, 1):
        lines.append(f"{number}. {change_text(change)}")
    yield "\n".join(wrapped(lines, width, "   "))


def _best(found: Answer, width: int) -> str:
    """Return the best layout of each backend, one per line."""
    rows = [_row(layout, found) for layout in (found.fsdp, found.megatron) if layout]
    return plain_table(_BEST, rows, width)


def _row(layout: Layout, found: Answer) -> tuple[str, ...]:
    registries = found.data
    budget, response = largest_token_budget(layout, registries), longest_response(layout, registries)
    return (
        layout.name,
        label(layout.verdict),
        _range(layout),
        gib_number(layout.estimate.host.total),
        short_number(budget) if budget else "",
        short_number(response) if response else "",
    )


def _range(layout: Layout) -> str:
    found = layout.estimate
    return f"{gib_number(found.peak)} ({gib_number(found.low)} to {gib_number(found.high)})"


def _details(found: Answer, width: int) -> Iterator[str]:
    """Yield phases, components, settings, the layouts that were tried, and the recorded runs."""
    best = found.best
    if shown := credible(best.estimate):
        yield from estimate_details(shown, width)
    settings = {key: value for key, value in command_settings(best).items() if key != f"{MODEL}.path"}
    yield f"Settings:\n{nested_yaml(settings)}"
    if len(found.layouts.all) > 1:
        yield plain_table(_TRIED, map(_tried, found.layouts.all), width)
    if found.evidence:
        runs = [f"  {run.word}: {run.id}" for run in found.evidence]
        yield "\n".join(["Recorded runs:", *runs])


def _tried(layout: Layout) -> tuple[str, ...]:
    return (
        layout.name,
        label(layout.verdict),
        _range(layout),
        ", ".join(layout.offloaded),
        short_number(layout.token_budget) if layout.token_budget else "",
        gib_number(layout.estimate.host.total),
    )
