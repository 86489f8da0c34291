"""What people call the parts that every trained role has, whole, so that each can be translated.

In many languages ``Critic:`` and a name put together are not what one would say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..i18n import N_

if TYPE_CHECKING:
    from collections.abc import Mapping

#: By the key of a component: of the actor, and of the critic.
_LABELS: Mapping[str, tuple[str, str]] = {
    "weights": (N_("Weights"), N_("Critic: weights")),
    "gradients": (N_("Gradients"), N_("Critic: gradients")),
    "undivided-gradients": (N_("Undivided gradients"), N_("Critic: undivided gradients")),
    "head-gradient": (N_("Gradient of the head"), N_("Critic: gradient of the head")),
    "optimizer-states": (N_("Optimizer states"), N_("Critic: optimizer states")),
    "optimizer-states-experts": (
        N_("Optimizer states of experts"),
        N_("Critic: optimizer states of experts"),
    ),
    "step-buffer": (N_("Buffer of the step"), N_("Critic: buffer of the step")),
    "gathered-root": (N_("Embedding and head, gathered"), N_("Critic: embedding and head, gathered")),
    "gathered-layers": (N_("Layers, gathered"), N_("Critic: layers, gathered")),
    "gathered-layer": (N_("Layer at work, gathered"), N_("Critic: layer at work, gathered")),
    "layer-inputs": (N_("Layer inputs"), N_("Critic: layer inputs")),
    "activations": (N_("Activations"), N_("Critic: activations")),
    "working-set": (N_("Layer at work, activations"), N_("Critic: layer at work, activations")),
}


def named(prefix: str, key: str) -> tuple[str, str]:
    """The key and the label of a part; a critic has a prefix before its keys, the actor none."""
    actor, critic = _LABELS[key]
    return prefix + key, critic if prefix else actor
