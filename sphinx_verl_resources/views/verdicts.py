"""The verdicts in words for people: labels and reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..i18n import N_, _

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..catalog.names import Verdict

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
    "borderline": N_("Peak {peak} per GPU ({range}); the {capacity} of the GPU lie inside this range."),
    "depends-on-lengths": N_(
        "Peak {low} per GPU with short sequences, up to {high} with sequences at their limits; the GPU "
        "has {capacity}."
    ),
    "does-not-fit": N_(
        "Peak {peak} per GPU ({range}); even the lower end is more than the {capacity} of the GPU."
    ),
    "unknown": N_("Peak {peak} per GPU ({range}); how much memory the GPU has is not recorded."),
}


def label(verdict: Verdict) -> str:
    """Return the translated label of a verdict."""
    return _(LABELS[verdict])


def title(verdict: Verdict) -> str:
    """Return the translated label as the beginning of a sentence."""
    return as_title(label(verdict))


def as_title(text: str) -> str:
    """Return a translated label with a capital letter at its beginning, where the script has such.

    >>> as_title("does not fit")
    'Does not fit'
    """
    return text[:1].upper() + text[1:]
