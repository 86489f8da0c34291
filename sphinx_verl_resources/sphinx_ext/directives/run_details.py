"""The block below a table of runs that says more about one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...catalog.names import row_id, run_class
from ...diagnostics import NoAnswerError
from ...estimator.questions import Capacity, RunEstimate
from ...views import run_details as render
from ...views.details import details
from ...views.estimate import TABLE_CLASS, phase_rows
from ...views.phase_chart import phase_chart
from ...views.runs import run_title
from ..domain import VerlDomain
from ..queries import ConfigValue
from .base import free_id

if TYPE_CHECKING:
    from ...catalog.models.run import Run
    from ...estimator.estimate import Estimate
    from ...views.details import verl_details
    from .base import VerlDirective


def run_details(directive: VerlDirective, run: Run) -> verl_details:
    """Peak and capacity, status and evidence; folded: the estimate, the settings, where it all comes from."""
    domain = VerlDomain.of(directive.env)
    domain.ask(ConfigValue("edit_url"))
    estimate = _estimate(domain, run)
    capacity = domain.ask(Capacity(run.gpus.type)) if run.gpus.type else None
    content = render.verdict(run, estimate)
    if estimate is not None:
        drawn = phase_chart(estimate, run_title(run), run.measured)
        content.append(directive.chart(drawn, run.id))
        # Without a caption it takes no number from the tables of the page.
        content.append(directive.table(TABLE_CLASS, phase_rows(estimate), "", with_options=False))
    edit = domain.settings.edit_address(f"runs/{run.id}.yaml")
    content += [*render.flags(run), render.facts(run, domain.settings.links, edit)]
    block = details(render.summary(run, capacity, estimate), content)
    block["classes"].append(run_class(run.id))
    block["ids"].append(free_id(f"{row_id(run.id)}-details", block, directive.state.document))
    return block


def _estimate(domain: VerlDomain, run: Run) -> Estimate | None:
    """From settings that are complete; the page depends on it from now on."""
    try:
        found = domain.ask(RunEstimate(run.id))
    except NoAnswerError:
        return None
    return found if found.is_complete else None
