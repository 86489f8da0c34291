"""An answer in sentences: the recorded runs that bear on it, and what stands behind its estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..i18n import N_, _, plural
from .blocks import in_a_row
from .runs import run_title

if TYPE_CHECKING:
    from ..answer.trust import Trust

NO_RUN = N_("No recorded run bears on this question.")


def trust_text(trust: Trust) -> str:
    """Say how many measured runs of this kind stand behind an estimate, and what it undercuts."""
    if trust.mean_error is None:
        text = _("No measured run of this kind stands behind it.")
    else:
        text = plural(
            "One measured run of this kind stands behind it; the estimate was {share} % off.",
            "{count} measured runs of this kind stand behind it; estimates were {share} % off on average.",
            trust.measured_runs,
        ).format(count=trust.measured_runs, share=round(100 * trust.mean_error))
    if trust.undercuts and trust.smallest:
        below = _("It undercuts every recorded run of this model; the smallest is {run}.")
        text = in_a_row(text, below.format(run=run_title(trust.smallest)))
    return text
