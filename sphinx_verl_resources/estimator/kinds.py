"""The kinds of allocations: everything that the estimator counts, with its names and its category."""

from __future__ import annotations

from typing import NamedTuple

from ..breakdown import Category
from ..i18n import N_
from .constants import HOST_BASE


class Kind(NamedTuple):
    """A kind of allocation: its name for programs, its name for people, its category."""

    key: str
    label: str
    category: Category


class RoleKinds(NamedTuple):
    """The kinds of the actor and of the critic; indexed with "is a critic"."""

    actor: Kind
    critic: Kind


def _of_roles(key: str, category: Category, actors: str, critics: str) -> RoleKinds:
    """Make the kinds of both roles.

    Each label is one translatable text: in many languages "Critic:" does not simply go before a name.
    """
    return RoleKinds(Kind(key, actors, category), Kind(f"critic-{key}", critics, category))


WEIGHTS = _of_roles("weights", Category.WEIGHTS, N_("Weights"), N_("Critic: weights"))
ADAPTERS = Kind("adapters", "Adapters", Category.WEIGHTS)
REFERENCE = Kind("reference", N_("Reference policy"), Category.WEIGHTS)
GRADIENTS = _of_roles("gradients", Category.GRADIENTS, N_("Gradients"), N_("Critic: gradients"))
UNDIVIDED_GRADIENTS = _of_roles(
    "undivided-gradients",
    Category.GRADIENTS,
    N_("Undivided gradients"),
    N_("Critic: undivided gradients"),
)
HEAD_GRADIENT = _of_roles(
    "head-gradient", Category.GRADIENTS, N_("Gradient of the head"), N_("Critic: gradient of the head")
)
FUSED_HEAD_GRADIENT = Kind(
    "fused-head-gradient", N_("Gradient of the head, in the kernel"), Category.GRADIENTS
)
OPTIMIZER_STATES = _of_roles(
    "optimizer-states", Category.OPTIMIZER, N_("Optimizer states"), N_("Critic: optimizer states")
)
EXPERT_OPTIMIZER_STATES = _of_roles(
    "optimizer-states-experts",
    Category.OPTIMIZER,
    N_("Optimizer states of experts"),
    N_("Critic: optimizer states of experts"),
)
STEP_BUFFER = _of_roles(
    "step-buffer", Category.OPTIMIZER, N_("Buffer of the step"), N_("Critic: buffer of the step")
)
HOST_OPTIMIZER = _of_roles(
    "host-optimizer", Category.OPTIMIZER, N_("Optimizer on the host"), N_("Optimizer on the host")
)
GATHERED_ROOT = _of_roles(
    "gathered-root",
    Category.GATHERED,
    N_("Embedding and head, gathered"),
    N_("Critic: embedding and head, gathered"),
)
GATHERED_LAYERS = _of_roles(
    "gathered-layers", Category.GATHERED, N_("Layers, gathered"), N_("Critic: layers, gathered")
)
GATHERED_LAYER = _of_roles(
    "gathered-layer",
    Category.GATHERED,
    N_("Layer at work, gathered"),
    N_("Critic: layer at work, gathered"),
)
SUMMONED_LAYER = Kind("summoned-layer", N_("One layer, whole"), Category.GATHERED)
SUMMONED_MODEL = Kind("summoned-model", N_("The whole model"), Category.GATHERED)
STATE_DICT = Kind("state-dict", N_("Copy of the weights in the state dict"), Category.GATHERED)
LARGEST_TENSOR = Kind("largest-tensor", N_("Largest tensor, whole"), Category.GATHERED)
LAYER_INPUTS = _of_roles("layer-inputs", Category.ACTIVATIONS, N_("Layer inputs"), N_("Critic: layer inputs"))
OFFLOADED_INPUTS = _of_roles(
    "layer-inputs", Category.ACTIVATIONS, N_("Offloaded layer inputs"), N_("Offloaded layer inputs")
)
ACTIVATIONS = _of_roles("activations", Category.ACTIVATIONS, N_("Activations"), N_("Critic: activations"))
WORKING_SET = _of_roles(
    "working-set",
    Category.ACTIVATIONS,
    N_("Layer at work, activations"),
    N_("Critic: layer at work, activations"),
)
LAST_HIDDEN = Kind("last-norm", N_("Last hidden states"), Category.ACTIVATIONS)
LOGITS = Kind("logits", N_("Logits and loss"), Category.LOGITS)
LOGITS_CHUNK = Kind("logits", N_("Logits of a chunk"), Category.LOGITS)
ENTROPY_CHUNK = Kind("entropy-chunk", N_("Entropy of a chunk"), Category.LOGITS)
ROLLOUT_WEIGHTS = Kind("rollout-weights", N_("Rollout engine: weights"), Category.ROLLOUT_ENGINE)
ROLLOUT_POOL = Kind("rollout-pool", N_("Rollout engine: weights and KV cache"), Category.ROLLOUT_ENGINE)
ROLLOUT_CACHE = Kind("rollout-pool", N_("Rollout engine: KV cache"), Category.ROLLOUT_ENGINE)
CUDA_GRAPHS = Kind("cuda-graphs", N_("CUDA graphs"), Category.ROLLOUT_ENGINE)
BUCKET = Kind("bucket", N_("Bucket for weights"), Category.ROLLOUT_ENGINE)
SLEEPING_WEIGHTS = Kind(
    "sleeping-weights", N_("Weights of the sleeping rollout engine"), Category.ROLLOUT_ENGINE
)
CUDA_CONTEXT = Kind("context", N_("CUDA context"), Category.RUNTIME_OVERHEAD)
COMMUNICATORS = Kind("communicators", N_("Communicators"), Category.RUNTIME_OVERHEAD)
ENGINE_CONTEXT = Kind("engine-context", N_("CUDA context of the engine"), Category.RUNTIME_OVERHEAD)
FRAGMENTATION = Kind("fragmentation", N_("Fragmentation"), Category.RUNTIME_OVERHEAD)
HOST_PROCESSES = Kind("base", HOST_BASE.name, Category.RUNTIME_OVERHEAD)
