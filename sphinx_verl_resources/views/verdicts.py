"""The verdicts in words: labels and reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from ..i18n import N_, _
from ..units import gib, gib_number, short_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..answer.layouts import Layout
    from ..memory.estimate import Estimate
    from ..memory.request import Verdict

MARK_CLASS = "verl-verdict"
LABELS: Mapping[str, str] = {
    "fits": N_("fits"),
    "borderline": N_("borderline"),
    "depends-on-lengths": N_("depends on the lengths"),
    "does-not-fit": N_("does not fit"),
    "unknown": N_("unknown"),
}
#: Why an estimate has its verdict.
REASONS: Mapping[Verdict, str] = {
    "fits": N_("Peak {peak} per GPU ({range}); the GPU has {capacity}."),
    "borderline": N_("Peak {peak} per GPU ({range}); the GPU's {capacity} is inside this range."),
    "depends-on-lengths": N_(
        "Peak {low} per GPU with short sequences, up to {high} with sequences at their limits; the GPU "
        "has {capacity}."
    ),
    "does-not-fit": N_("Peak {peak} per GPU ({range}); even the low end exceeds the GPU's {capacity}."),
    "unknown": N_("The memory of the GPU is unknown."),
}
UNDECIDED = N_("Settings that determine memory cannot be read: {settings}.")
#: The reasons for a run that ran, so that its peak cannot exceed the GPU's memory.
_RAN = N_("It ran, so it needed between {low} and the GPU's {capacity}; the range ends at {high}.")
_RAN_SHORT = N_(
    "It ran, so it needed between {low} and the GPU's {capacity}; the high end of the range, "
    "{high}, is for sequences at their limits."
)
_TOO_HIGH = N_(
    "It ran, although even the low end of the range, {low}, exceeds the GPU's {capacity}: the estimate is "
    "too high."
)
_NO_FIGURES = N_(
    "Even for short sequences the estimated peak exceeds the GPU's memory, so no phases are shown."
)
#: The reason why a layout that fits may not run.
NO_START = N_(
    "The rollout engine may not start: its KV cache has room for {room} tokens, but needs {needed}."
)
FITS_UP_TO = N_("It fits up to a mean of {tokens} tokens per sequence, prompt and response.")


def in_a_row(*sentences: str) -> str:
    """Join sentences as the language does."""
    return _("{sentence} {next}").format(sentence="", next="").join(sentences)


def label(verdict: Verdict) -> str:
    """Return the translated label of a verdict."""
    return _(LABELS[verdict])


def mark(verdict: Verdict, text: str = "") -> nodes.inline:
    """Return a badge of a verdict, with its label or a translated text; the style sheet adds a sign."""
    return nodes.inline("", text or label(verdict), classes=[MARK_CLASS, f"{MARK_CLASS}-{verdict}"])


def stop() -> nodes.inline:
    """Return the full stop after a badge, which the style sheet hides."""
    return nodes.inline("", _("."), classes=["verl-unseen"])


def title(verdict: Verdict) -> str:
    """Return the translated label as the beginning of a sentence."""
    return as_title(label(verdict))


def short(verdict: Verdict, tokens: float | None) -> str:
    """Return the label for a cell, with the mean length up to which a run fits if it is known."""
    if tokens is None:
        return label(verdict)
    return _("{verdict}: up to {tokens} tokens").format(verdict=label(verdict), tokens=two_digits(tokens))


def two_digits(count: float) -> str:
    """Return a count rounded down to two digits, with commas: ``1,900`` for 1,937.6.

    >>> two_digits(1937.6), two_digits(87.2), two_digits(0.4)
    ('1,900', '87', '0')
    """
    whole = int(count)
    step = 10 ** max(0, len(str(whole)) - 2)
    return f"{whole // step * step:,}"


def reason(found: Estimate) -> str:
    """Return the reason for the verdict of an estimate, and the lengths up to which the run fits."""
    # Pages of runs without estimates load this module without the estimator.
    from ..memory.recorded import credible

    if found.undecided:
        return _(UNDECIDED).format(settings="; ".join(found.undecided))
    sizes = {"peak": found.peak, "low": found.low, "high": found.high, "capacity": found.capacity or 0.0}
    texts = {name: gib(size) for name, size in sizes.items()}
    why = _(_why(found)).format(**texts, range=span(found.low, found.high))
    tokens = found.fits_up_to_tokens
    if found.ran and found.low <= (found.capacity or 0.0) and credible(found) is None:
        return in_a_row(why, _(_NO_FIGURES))
    return why if tokens is None else in_a_row(why, _(FITS_UP_TO).format(tokens=two_digits(tokens)))


def start_texts(layout: Layout) -> list[str]:
    """Return the reason why a layout that fits may not run, if there is one."""
    if layout.verdict == layout.estimate.verdict:
        return []
    room, needed = layout.cache
    return [_(NO_START).format(room=short_number(int(room)), needed=short_number(int(needed)))]


def of_mean(shown: Estimate, tokens: float | None) -> str:
    """Return a sentence with the lengths of the figures shown instead of those at the limits.

    Args:
        shown: the estimate with these figures.
        tokens: see ``AnyEstimate.fits_up_to_tokens``; None if even short sequences may not fit.
    """
    text = _("The figures below are for a mean of {tokens} tokens per sequence.")
    if tokens is None:
        text = _(
            "The figures below are for a mean of {tokens} tokens per sequence; with longer sequences the "
            "estimated peak exceeds the GPU's memory."
        )
    return text.format(tokens=two_digits(shown.settings.lengths.mean))


def _why(found: Estimate) -> str:
    if not found.ran or found.capacity is None or found.high <= found.capacity:
        return REASONS[found.verdict]
    if found.low > found.capacity:
        return _TOO_HIGH
    return _RAN if found.settings.lengths.known else _RAN_SHORT


def span(low: float, high: float) -> str:
    """Return a range in words."""
    return _("range {low} to {high}").format(low=gib_number(low), high=gib(high))


def as_title(text: str) -> str:
    """Return a translated label with an initial capital, if its script has capitals.

    >>> as_title("does not fit")
    'Does not fit'
    """
    return text[:1].upper() + text[1:]
