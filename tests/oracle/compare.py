"""The closed form beside the traced training steps of ``traces.json``. Needs neither PyTorch nor transformers.

A trace is of one GPU that holds the whole model. Compared are the states, and the most that activations take
while gradients are computed, or in a pass without gradients.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from sphinx_verl_resources.cli.data import read_data
from sphinx_verl_resources.estimator.lora import lora_parameters
from sphinx_verl_resources.estimator.shape import shape_of

if TYPE_CHECKING:
    from sphinx_verl_resources.catalog.models.architecture import Architecture
    from sphinx_verl_resources.estimator.lora import Targets
    from sphinx_verl_resources.estimator.shape import Shape

TRACES = Path(__file__).parent / "traces.json"


@dataclass(frozen=True)
class Compared:
    """One traced step. Sizes are bytes.

    Attributes:
        name: the trace's.
        what: ``states`` or ``activations``.
        traced, computed: the same thing, counted and by formula.
    """

    name: str
    what: str
    traced: float
    computed: float

    @property
    def deviation(self) -> float:
        """Computed over traced, less one."""
        return self.computed / self.traced - 1


def load_traces() -> dict[str, Any]:
    """The recorded traces."""
    found: dict[str, Any] = json.loads(TRACES.read_text("utf-8"))
    return found


def compare_all() -> list[Compared]:
    """Every trace, its states and its activations."""
    architectures = {entry.name: entry for entry in read_data([]).catalog.architectures}
    return [
        item for case in load_traces()["cases"] for item in compare(case, architectures[case["architecture"]])
    ]


def compare(case: dict[str, Any], architecture: Architecture) -> list[Compared]:
    """States and activations of one trace."""
    shape = shape_of(architecture.model_copy(update={"num_hidden_layers": case["layers"]}), imbalance=1)
    tokens = case["tokens"]
    if not case["gradients"]:
        traced = case["phases_bytes"]["forward"]["activations_largest"]
        return [Compared(case["id"], "activations", traced, shape.forward * tokens)]
    traced = case["phases_bytes"]["backward"]["activations_largest"]
    working, saved = shape.backward()
    if case["lora_rank"]:
        working, saved = shape.backward(targets_of(case))
    if case["recompute"] == "full":
        computed = (2 * shape.hidden * shape.layers + working) * tokens
    else:
        computed = (saved * shape.layers + max(0.0, working - saved)) * tokens
    states = sum(case["states_bytes"].values())
    return [
        Compared(case["id"], "states", states, states_of(case, shape)),
        Compared(case["id"], "activations", traced, computed),
    ]


def states_of(case: dict[str, Any], shape: Shape) -> float:
    """Parameters, gradients and both moments: in 16 bits, those of adapters in fp32."""
    if not case["lora_rank"]:
        return 8.0 * shape.parameters
    return 2.0 * shape.parameters + 16.0 * lora_parameters(
        shape.architecture, case["lora_rank"], targets_of(case)
    )


def targets_of(case: dict[str, Any]) -> Targets:
    """The adapted matrices as PEFT names them; the traces have them as ``q,k,v,o``."""
    found: str = case["lora_targets"]
    return "all-linear" if found == "all-linear" else tuple(f"{name}_proj" for name in found.split(","))


def main() -> int:
    """Print the table; 1 if a figure is off by more than 3 %."""
    found = compare_all()
    rows = [
        (
            item.name,
            item.what,
            f"{item.traced / 2**30:.3f}",
            f"{item.computed / 2**30:.3f}",
            f"{item.deviation:+.2%}",
        )
        for item in found
    ]
    print(tabulate(rows, ("step", "what", "traced GiB", "computed GiB", "difference")))
    return int(any(abs(item.deviation) > 0.03 for item in found))


if __name__ == "__main__":
    sys.exit(main())
