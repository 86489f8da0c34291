"""Refusals of launch scripts that start something else than a training with reinforcement learning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..diagnostics import Code, Diagnostic, Location
from ..settings.programs import Program
from .fine_tuning import fine_tuning_remedy, is_fine_tuning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..estimator.registries import Registries
    from ..settings.programs import Kind
    from ..settings.result import SettingsText

_TRAINING = "give the script that trains"
#: For each kind of program: what it does, and what to do instead.
_OTHERS: Mapping[Kind, tuple[str, str]] = {
    "sft": ("{name} is supervised fine-tuning, not reinforcement learning", ""),
    "generation": ("{name} generates responses and trains nothing", _TRAINING),
    "evaluation": ("{name} scores responses and trains nothing", _TRAINING),
    "conversion": ("{name} converts checkpoints and trains nothing", _TRAINING),
    "data": ("{name} prepares data and trains nothing", _TRAINING),
    "cluster": ("{name} starts or stops a Ray cluster, and nothing here trains", _TRAINING),
    "script": ("the script starts another one, {name}, and has not all of its settings", "give that script"),
    "other": ("{name} is none of verl's trainers", _TRAINING),
}


def refusal(script: SettingsText, registries: Registries) -> Diagnostic | None:
    """Return why settings are those of no training with reinforcement learning; None where they are."""
    program = script.program or Program("", "rl", next(iter(script.places.values()), Location("")))
    kind, name = program.kind, program.name
    if not name and is_fine_tuning(script):
        kind, name = "sft", "this"
    if kind not in _OTHERS:
        return None
    message, remedy = _OTHERS[kind]
    remedy = remedy or fine_tuning_remedy(script, registries)
    return Diagnostic(program.place, Code.not_training, message.format(name=name), remedy)
