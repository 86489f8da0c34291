"""Measure the processor's time of one estimate: ``make benchmark``.

Each line is the mean over all recorded runs with settings, which is repeated; the machine's speed may vary.
"""

from __future__ import annotations

import sys
from time import process_time
from typing import TYPE_CHECKING, Any

from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.memory.estimate import Estimate, estimate
from sphinx_verl_resources.memory.recorded import request_of_run
from sphinx_verl_resources.memory.registries import EstimatorContext

if TYPE_CHECKING:
    from collections.abc import Callable

#: What is asked of an estimate, by description.
QUESTIONS: dict[str, Callable[[Estimate], Any]] = {
    "only whether it fits, as the form asks": lambda own: own.fits,
    "peak and range": lambda own: (own.peak, own.low, own.high),
    "everything": lambda own: (own.verdict, own.low, own.host, own.warnings, own.torch_peak_range),
}
ROUNDS = 5


def main() -> None:
    """Print the milliseconds for each question."""
    data = EstimatorContext()
    requests = []
    for run in data.runs.values():
        try:
            request = request_of_run(run, data)
            estimate(request, data)
        except NoAnswerError:
            continue
        requests.append(request)
    for question, ask in QUESTIONS.items():
        start = process_time()
        for _ in range(ROUNDS):
            for request in requests:
                ask(estimate(request, data))
        each = (process_time() - start) / (ROUNDS * len(requests))
        sys.stdout.write(f"{each * 1e3:.2f} ms  {question}\n")


if __name__ == "__main__":
    main()
