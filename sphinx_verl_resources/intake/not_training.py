"""Reject launch scripts that do not train with reinforcement learning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..diagnostics import Code, Diagnostic, Location
from ..settings.programs import Program

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..settings.programs import Kind
    from ..settings.result import SettingsText

_TRAINING = "give the script that trains"
#: For each kind of program, what it does and what to do instead.
_OTHERS: Mapping[Kind, tuple[str, str]] = {
    "sft": (
        "{name} is supervised fine-tuning, not reinforcement learning",
        "give a script of reinforcement learning",
    ),
    "generation": ("{name} generates responses and does not train", _TRAINING),
    "evaluation": ("{name} scores responses and does not train", _TRAINING),
    "conversion": ("{name} converts checkpoints and does not train", _TRAINING),
    "data": ("{name} prepares data and does not train", _TRAINING),
    "cluster": ("{name} starts or stops a Ray cluster; the script does not train", _TRAINING),
    "script": (
        "the script starts another script, {name}, and lacks some of its settings",
        "give that script",
    ),
    "other": ("{name} is not one of verl's trainers", _TRAINING),
}

#: The keys of the model's path; the trainer before v0.7.0 uses the second.
_MODEL, _OLD_MODEL = "model.path", "model.partial_pretrain"


def refusal(script: SettingsText) -> Diagnostic | None:
    """Return why a script is rejected; None if it trains with reinforcement learning."""
    program = script.program or Program("", "rl", next(iter(script.places.values()), Location("")))
    kind, name = program.kind, program.name
    if not name and _is_fine_tuning(script):
        kind, name = "sft", "this"
    if kind not in _OTHERS:
        return None
    message, remedy = _OTHERS[kind]
    return Diagnostic(program.place, Code.not_training, message.format(name=name), remedy)


def _is_fine_tuning(script: SettingsText) -> bool:
    """Return whether the settings are for supervised fine-tuning."""
    keys = {*script.values, *script.unresolved}
    return bool(keys & {_MODEL, _OLD_MODEL}) and not any(key.startswith("actor_rollout_ref.") for key in keys)
