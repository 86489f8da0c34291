"""The memory of a role that is trained with FSDP, on one GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .allocations import Kind, allocate, size_of
from .settings import micro_batches, update_tokens
from .shape import adapter_parameters
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..breakdown import Evidence
    from .allocations import Allocations
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
        self.trained, count = self.parameters, {"parameters": self.parameters}
        self._trained_count = count
        if role.lora_rank:
            self.trained = adapter_parameters(shape, role.lora_rank, role.targets)
            self._trained_count = {"trained parameters": self.trained}
            count = {"parameters with adapters": self.parameters + self.trained}
        self._states = (
            self._sharded(Kind.WEIGHTS, count, fsdp.parameter_bytes),
            self._sharded(Kind.GRADIENTS, self._trained_count, fsdp.parameter_bytes),
            self._sharded(Kind.OPTIMIZER_STATES, self._trained_count, role.moments),
        )
        # FSDP2's offload policy: the states never come to the GPU as a whole.
        self._on_host = fsdp.offload_policy and role.backend == "fsdp2"
        self.weights, self.gradients, self.optimizer = ((), (), ()) if self._on_host else self._states
        self._kept_optimizer = () if fsdp.optimizer_offload else self.optimizer
        self.idle = (() if fsdp.param_offload else self.weights) + self._kept_optimizer
        self.root: Allocations = ()
        self.layer: Allocations = ()
        self.whole_layers: Allocations = ()
        if fsdp.shard > 1 or self._on_host:  # otherwise one GPU has everything
            self.root, self.layer = self._gathered()
            if not fsdp.reshard:
                layers = {"parameters of layers": shape.parameters - shape.counts.root}
                self.layer = self.whole_layers = self._allocate(Kind.GATHERED_LAYERS, "exact", layers, 2)
        # Those of all layers but two wait on the host.
        self._offloads_activations = role.activation_offload and shape.layers >= 3

    def inference(self, tokens: float) -> Allocations:
        """Return states, gathered parameters, and the layer at work."""
        at_work = self._at_work(tokens, self.shape.forward)
        return self.weights + self._kept_optimizer + self.root + self.layer + at_work

    def update(self, tokens: float) -> tuple[Allocations, Allocations, Allocations]:
        """Return loss, backward pass and optimizer step; offloaded states are loaded for all of them."""
        role, shape = self.role, self.shape
        states = self.weights + self.optimizer
        accumulated = self._accumulated_gradients() if micro_batches(self.settings, role) > 1 else ()
        working, kept = shape.backward(role.targets if role.lora_rank else None)
        layers = 2 if self._offloads_activations else shape.layers
        saved = self._saved_activations(tokens, kept, layers)
        loss = states + accumulated + self.root + self.whole_layers + saved
        # Saved activations go while the gradients come.
        remaining = saved if role.checkpointing else self._saved_activations(tokens, kept, layers - 1)
        halfway = accumulated + remaining if accumulated else max(remaining, self.gradients, key=size_of)
        head: Allocations = ()
        if not self.critic and not role.lora_rank:  # undivided in 16 bits until the embedding's is there too
            head = self._allocate(Kind.HEAD_GRADIENT, "measured", {"parameters of the head": shape.head}, 2)
        at_work = self._at_work(tokens, max(working, kept))
        backward = states + halfway + self.root + self.layer + head + at_work
        step = states + self.gradients
        if role.step_copies:  # torch's multi-tensor Adam
            step += self._sharded(Kind.STEP_BUFFER, self._trained_count, role.fsdp.parameter_bytes)
        return loss, backward, step

    def resident_reference(self) -> Allocations:
        """Return the reference policy in versions that do not offload it."""
        if not behaviour(self.settings.version).reference_resident:
            return ()
        shard = self.settings.reference_fsdp.shard
        return self._allocate(Kind.REFERENCE, "measured", {"parameters": self.parameters}, 2, shard)

    def reference_pass(self, tokens: float, resident: Allocations) -> Allocations:
        """Return the idle states, gathered parameters, and the layer at work."""
        # The layers of a reference policy on the host come to the GPU one by one.
        root, layer = (self.root, self.layer) if resident else self._gathered()
        return self.idle + root + layer + self._at_work(tokens, self.shape.forward)

    def weight_sync(self) -> Allocations:
        """Return the weights, their copies on the way to the rollout engine, and the optimizer."""
        return self._handed_over() + self._kept_optimizer

    def offloaded(self) -> Allocations:
        """Return offloaded states, all of them under FSDP2's offload policy, and layer inputs."""
        weights, gradients, optimizer = self._states
        if not self._on_host:
            weights, gradients = weights if self.role.fsdp.param_offload else (), ()
            optimizer = optimizer if self.role.fsdp.optimizer_offload else ()
        inputs: Allocations = ()
        if self._offloads_activations:
            tokens = update_tokens(self.settings, self.role)
            factors = {"tokens": tokens, "hidden size": self.shape.hidden, "layers": self.shape.layers}
            inputs = self._allocate(Kind.OFFLOADED_INPUTS, "exact", factors, 2)
        return weights + gradients + optimizer + inputs

    def offloaded_reference(self) -> Allocations:
        """Return the reference policy, which recent versions always offload."""
        settings = self.settings
        if behaviour(settings.version).reference_resident:
            return ()
        count, shard = {"parameters": self.shape.parameters}, settings.reference_fsdp.shard
        return self._allocate(Kind.REFERENCE, "exact", count, settings.reference_bytes, shard)

    def _allocate(
        self,
        kind: Kind,
        evidence: Evidence,
        variables: Mapping[str, float],
        each: float | None,
        shard: int = 1,
    ) -> Allocations:
        return (allocate(kind, evidence, variables, each, shard, critic=self.critic),)

    def _sharded(self, kind: Kind, count: Mapping[str, float], each: float) -> Allocations:
        return self._allocate(kind, "exact", count, each, self.role.fsdp.shard)

    def _accumulated_gradients(self) -> Allocations:
        """Return the gradients of earlier micro-batches, divided among the GPUs or not."""
        if not behaviour(self.settings.version).unsharded_gradients:
            return self.gradients
        each = 2 if self.role.backend == "fsdp" else 4
        return self._allocate(Kind.UNDIVIDED_GRADIENTS, "assumed", {"trained parameters": self.trained}, each)

    def _gathered(self) -> tuple[Allocations, Allocations]:
        """Return root and layer, gathered. FSDP1 was measured; FSDP2 is assumed to gather the same."""
        counts, without_head = self.shape.counts, self.shape.parameters - self.parameters
        evidence: Evidence = "measured" if self.role.backend == "fsdp" else "assumed"
        root = {"parameters outside layers": counts.root - without_head}
        layer = {"parameters of a layer": counts.largest_layer}
        return (
            self._allocate(Kind.GATHERED_ROOT, evidence, root, 2),
            self._allocate(Kind.GATHERED_LAYER, evidence, layer, 2),
        )

    def _saved_activations(self, tokens: float, kept: float, layers: int) -> Allocations:
        """Return what the forward pass saves for the backward pass of some layers."""
        symbol = "layers on the GPU" if self._offloads_activations else "layers"
        if self.role.checkpointing:
            inputs = {"tokens": tokens, "hidden size": self.shape.hidden, symbol: layers}
            return self._allocate(Kind.LAYER_INPUTS, "exact", inputs, 2)
        saved = {"tokens": tokens, "bytes a layer keeps": kept, symbol: layers}
        return self._allocate(Kind.ACTIVATIONS, self.shape.evidence, saved, None)

    def _at_work(self, tokens: float, width: float) -> Allocations:
        variables = {"tokens": tokens, "bytes of a layer": width}
        return self._allocate(Kind.WORKING_SET, self.shape.evidence, variables, None)

    def _handed_over(self) -> Allocations:
        shape, settings, role = self.shape, self.settings, self.role
        size = role.fsdp.parameter_bytes
        largest = {"vocabulary × hidden": shape.vocabulary * shape.hidden}
        tensor = self._allocate(Kind.LARGEST_TENSOR, "exact", largest, size)
        if role.lora_rank and settings.rollout.layered_summon and not settings.rollout.merge_lora:
            layer = {"parameters of a layer": shape.counts.largest_layer}
            return self.weights + self._allocate(Kind.SUMMONED_LAYER, "exact", layer, size)
        if role.backend == "fsdp2":
            streams = behaviour(settings.version).fsdp2_streams and not role.lora_rank
            return tensor if streams and role.fsdp.param_offload else self.weights + tensor
        if role.lora_rank:
            whole = {"parameters": shape.parameters}
            return self.weights + self._allocate(Kind.SUMMONED_MODEL, "exact", whole, size)
        if settings.gpus == 1:  # the state dict is assumed to refer to the parameters themselves
            return self.weights + tensor
        whole = {"parameters": self.parameters}
        copy = self._allocate(Kind.STATE_DICT, "assumed", whole, size, role.fsdp.shard)
        return self.weights + copy + tensor
