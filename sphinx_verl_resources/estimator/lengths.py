"""What longer responses take: the same run with one limit after another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..diagnostics import NoAnswerError
from .engine import cache_tokens
from .estimate import Estimate, estimate
from .planner import fitted

if TYPE_CHECKING:
    from ..diagnostics import Diagnostic
    from .registries import Registries
    from .request import Request

RESPONSE = "data.max_response_length"


@dataclass(frozen=True)
class Longer:
    """One limit.

    Attributes:
        response: tokens of the longest response.
        estimate: of the run with it; None where the settings leave none.
        sequences: of full length that the KV cache of one rollout engine holds at a time.
        diagnostics: what is wrong with it.
    """

    response: int
    estimate: Estimate | None
    sequences: float = 0.0
    diagnostics: tuple[Diagnostic, ...] = ()


def longer(request: Request, registries: Registries, responses: tuple[int, ...]) -> tuple[Longer, ...]:
    """The run with each limit, in their order.

    Token budgets that the request leaves open are the smallest that hold one sequence, so that they grow with
    the limit.

    >>> from sphinx_verl_resources.cli.data import load_registries
    >>> from sphinx_verl_resources.estimator.planner import task_settings
    >>> from sphinx_verl_resources.estimator.request import Request
    >>> asked = Request("Qwen/Qwen2.5-7B", task_settings("GRPO"), gpus=8, gpu="H100")
    >>> short, long = longer(asked, load_registries([]), (1024, 32768))
    >>> short.estimate.peak < long.estimate.peak, short.sequences > long.sequences
    (True, True)
    """
    return tuple(_with(request, registries, response) for response in responses)


def _with(request: Request, registries: Registries, response: int) -> Longer:
    asked = fitted(replace(request, config={**request.config, RESPONSE: response}), registries)
    try:
        found = estimate(asked, registries)
    except NoAnswerError as error:
        return Longer(response, None, diagnostics=error.diagnostics)
    limit = found.settings.lengths.limit
    held = cache_tokens(found.shape, found.settings) / limit if limit else 0.0
    return Longer(response, found, held, found.warnings)
