"""The memory of a role that is trained with FSDP, on one GPU."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from . import kinds
from .allocations import allocate, per_token, sharded, size_of
from .parameters import lora_parameters
from .versions import behaviour

if TYPE_CHECKING:
    from ..breakdown import Evidence
    from .allocations import Allocation, Allocations
    from .kinds import RoleKinds
    from .parameters import Targets
    from .settings import Role, Settings
    from .shape import Shape


class FsdpRole:
    """The actor or the critic, trained with FSDP or FSDP2.

    The methods that fulfil ``phases.TrainedRole`` are described there. Sizes are bytes per GPU.

    Attributes:
        parameters: of the model; a critic has a value head instead of the output head.
        trained: parameters that are trained: all, or those of the adapters.
        weights: the sharded parameters, adapters included.
        gradients: the sharded gradients, which exist during an update only.
        optimizer: the states of Adam.
        root: embedding, head and last norm, whole from the first forward to the end of the backward pass.
        whole_layers: all layers where they stay gathered after the forward pass, otherwise none.
        layer: the gathered layer at work, or all layers where they stay gathered.
    """

    stage_index = 0
    has_head = True

    def __init__(self, shape: Shape, settings: Settings, role: Role, *, critic: bool = False) -> None:
        self.shape, self.settings, self.role, self.critic = shape, settings, role, critic
        fsdp = role.fsdp
        self.parameters = shape.critic_parameters if critic else shape.parameters
        self.trained = (
            adapter_count(shape, role.lora_rank, role.targets) if role.lora_rank else self.parameters
        )
        # FSDP2's offload policy: the states never come to the GPU as a whole.
        self.on_host = fsdp.offload_policy and role.backend == "fsdp2"
        count = self.parameters + (self.trained if role.lora_rank else 0)
        self.weights = self._states(kinds.WEIGHTS, count, fsdp.parameter_bytes)
        self.gradients = self._states(kinds.GRADIENTS, self.trained, fsdp.parameter_bytes)
        self.optimizer = self._states(kinds.OPTIMIZER_STATES, self.trained, role.moments)
        self.idle = (() if fsdp.param_offload else self.weights) + self._kept_optimizer
        self.root: Allocations = ()
        self.layer: Allocations = ()
        self.whole_layers: Allocations = ()
        if fsdp.shard > 1 or self.on_host:  # otherwise one GPU has everything
            self.root = self._gathered_root()
            if not fsdp.reshard:
                layers = (("parameters of layers", shape.parameters - shape.root),)
                self.whole_layers = (allocate(kinds.GATHERED_LAYERS[critic], "exact", layers, 2),)
            self.layer = self.whole_layers or self._gathered_layer()

    def inference(self, tokens: float) -> Allocations:
        """Return states, gathered parameters, and the layer at work."""
        return self.weights + self._kept_optimizer + self.root + self.layer + self._forward(tokens)

    def update(self, tokens: float, micro_batches: int) -> tuple[Allocations, Allocations, Allocations]:
        """Return loss, backward pass and optimizer step; offloaded states are loaded for all of them."""
        states = self.weights + self.optimizer
        accumulated = self._accumulated_gradients() if micro_batches > 1 else ()
        saved = self._saved_activations(tokens)
        loss = states + accumulated + self.root + self.whole_layers + saved
        remaining = saved if self.role.checkpointing else self._saved_activations(tokens, without=1)
        # Saved activations go while the gradients come.
        halfway = accumulated + remaining if accumulated else max(remaining, self.gradients, key=size_of)
        backward = states + halfway + self.root + self.layer + self._head_gradient() + self._working(tokens)
        return loss, backward, states + self.gradients + self._step_buffer()

    def resident_reference(self) -> Allocations:
        """Return the reference policy in versions that do not offload it."""
        if not behaviour(self.settings.version).reference_resident:
            return ()
        count = (("parameters", float(self.parameters)),)
        shard = self.settings.reference_fsdp.shard
        return (allocate(kinds.REFERENCE, "measured", count, 2, "bytes", shard, "GPUs"),)

    def reference_pass(self, tokens: float, resident: Allocations) -> Allocations:
        """Return the idle states, gathered parameters, and the layer at work."""
        # The layers of a reference policy on the host come to the GPU one by one.
        gathered = self.root + self.layer if resident else self._gathered_root() + self._gathered_layer()
        return self.idle + gathered + self._forward(tokens)

    def weight_sync(self) -> Allocations:
        """Return the weights, the copies made of them, and the optimizer."""
        return self._handed_over() + self._kept_optimizer

    def offloaded(self) -> Allocations:
        """Return the states that FSDP offloads, or all of them under FSDP2's offload policy."""
        fsdp = self.role.fsdp
        if self.on_host:
            role = replace(self.role, fsdp=replace(fsdp, offload_policy=False))
            bare = FsdpRole(self.shape, self.settings, role, critic=self.critic)
            return bare.weights + bare.gradients + bare.optimizer
        return (self.weights if fsdp.param_offload else ()) + (
            self.optimizer if fsdp.optimizer_offload else ()
        )

    def offloaded_reference(self) -> Allocations:
        """Return the reference policy, which recent versions always offload."""
        settings = self.settings
        if behaviour(settings.version).reference_resident:
            return ()
        shard = settings.reference_fsdp.shard
        return (sharded(kinds.REFERENCE, float(self.shape.parameters), settings.reference_bytes, shard),)

    @property
    def _kept_optimizer(self) -> Allocations:
        return () if self.role.fsdp.optimizer_offload else self.optimizer

    def _states(self, kind: RoleKinds, count: float, size: float) -> Allocations:
        if self.on_host:
            return ()
        symbol = (
            "parameters"
            if count == self.parameters
            else "trained parameters"
            if count == self.trained
            else "parameters with adapters"
        )
        return (sharded(kind[self.critic], count, size, self.role.fsdp.shard, symbol),)

    def _step_buffer(self) -> Allocations:
        """Return the one more copy that torch's multi-tensor Adam needs."""
        if not self.role.step_copies:
            return ()
        return self._states(kinds.STEP_BUFFER, self.trained, self.role.fsdp.parameter_bytes)

    def _accumulated_gradients(self) -> Allocations:
        """Return the gradients of earlier micro-batches, divided among the GPUs or not."""
        if not behaviour(self.settings.version).unsharded_gradients:
            return self.gradients
        trained = (("trained parameters", self.trained),)
        element_bytes = 2 if self.role.backend == "fsdp" else 4
        return (allocate(kinds.UNDIVIDED_GRADIENTS[self.critic], "assumed", trained, element_bytes),)

    def _gathered_root(self) -> Allocations:
        count = self.shape.root - (self.shape.parameters - self.parameters)
        return self._gathered(kinds.GATHERED_ROOT, "parameters outside layers", count)

    def _gathered_layer(self) -> Allocations:
        return self._gathered(kinds.GATHERED_LAYER, "parameters of a layer", self.shape.unit)

    def _gathered(self, kind: RoleKinds, symbol: str, count: float) -> Allocations:
        """Return gathered parameters. FSDP1 was measured; FSDP2 is assumed to gather the same."""
        evidence: Evidence = "measured" if self.role.backend == "fsdp" else "assumed"
        return (allocate(kind[self.critic], evidence, ((symbol, count),), 2),)

    def _head_gradient(self) -> Allocations:
        """Return the head's gradient, undivided in 16 bits until the embedding's is there too."""
        if self.critic or self.trained != self.parameters:
            return ()
        head = (("parameters of the head", self.shape.head),)
        return (allocate(kinds.HEAD_GRADIENT[False], "measured", head, 2),)

    def _saved_activations(self, tokens: float, without: int = 0) -> Allocations:
        """Return what the forward pass saves for the backward pass of all layers but some."""
        shape, role = self.shape, self.role
        if offloads_activations(shape, role):
            layers = ("layers on the GPU", 2.0 - without)
        else:
            layers = ("layers", float(shape.layers) - without)
        if role.checkpointing:
            inputs = (("tokens", tokens), ("hidden size", float(shape.hidden)), layers)
            return (allocate(kinds.LAYER_INPUTS[self.critic], "exact", inputs, 2),)
        saved = (("tokens", tokens), ("bytes a layer keeps", self._widths[1]), layers)
        return (allocate(kinds.ACTIVATIONS[self.critic], shape.evidence, saved, unit=""),)

    def _working(self, tokens: float) -> Allocations:
        """Return the activations of the layer at work in the backward pass."""
        return (self._at_work(tokens, max(self._widths)),)

    def _forward(self, tokens: float) -> Allocations:
        """Return the activations of the layer at work in a pass without gradients."""
        return (self._at_work(tokens, self.shape.forward),)

    @property
    def _widths(self) -> tuple[float, float]:
        """Bytes a token of the layer at work, and bytes a token that a layer saves."""
        if self.role.lora_rank:
            return self.shape.adapted(self.role.targets)
        return self.shape.working, self.shape.saved

    def _at_work(self, tokens: float, width: float) -> Allocation:
        kind = kinds.WORKING_SET[self.critic]
        return per_token(kind, self.shape.evidence, tokens, width, "bytes of a layer")

    def _handed_over(self) -> Allocations:
        """Return the weights, and the copies that are made of them on their way to the rollout engine."""
        shape, settings, role = self.shape, self.settings, self.role
        size = role.fsdp.parameter_bytes
        largest = (("vocabulary × hidden", float(shape.vocabulary * shape.hidden)),)
        tensor = (allocate(kinds.LARGEST_TENSOR, "exact", largest, size),)
        if role.lora_rank and settings.rollout.layered_summon and not settings.rollout.merge_lora:
            layer = (("parameters of a layer", float(shape.unit)),)
            return (*self.weights, allocate(kinds.SUMMONED_LAYER, "exact", layer, size))
        if role.backend == "fsdp2":
            streams = behaviour(settings.version).fsdp2_streams and not role.lora_rank
            return tensor if streams and role.fsdp.param_offload else self.weights + tensor
        if role.lora_rank:
            whole = (("parameters", float(shape.parameters)),)
            return (*self.weights, allocate(kinds.SUMMONED_MODEL, "exact", whole, size))
        if settings.gpus == 1:  # the state dict is assumed to refer to the parameters themselves
            return self.weights + tensor
        copies = tuple(item._replace(kind=kinds.STATE_DICT, evidence="assumed") for item in self.weights)
        return self.weights + copies + tensor


def offloads_activations(shape: Shape, role: Role) -> bool:
    """Tell whether activations wait on the host; those of two layers stay on the GPU."""
    return role.activation_offload and shape.layers >= 3


@lru_cache(maxsize=1024)
def adapter_count(shape: Shape, rank: int, targets: Targets) -> int:
    """Count the parameters of the adapters. Counting takes longer than the rest of an estimate."""
    return lora_parameters(shape.architecture, rank, targets)
