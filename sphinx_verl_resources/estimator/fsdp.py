"""The memory of a role trained with FSDP, on one GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .allocations import Kind, Update, allocate, size_of
from .constants import EXACT
from .settings import micro_batches, update_tokens
from .shape import adapter_parameters
from .sharding import Layout, gathered
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..units import Evidence
    from .allocations import Allocations
    from .constants import Spread
    from .settings import Role, Settings, Sharding
    from .shape import Shape


class FsdpRole:
    """The actor or the critic, trained with FSDP or FSDP2.

    ``phases.TrainedRole`` describes the methods. Sizes are bytes per GPU.

    Attributes:
        parameters: the model's parameters; a critic has a value head instead of the output head.
        trained: the trained parameters: all, or those of the adapters.
        weights: the sharded parameters, adapters included.
        gradients: the sharded gradients, which exist during an update only.
        optimizer: the states of Adam.
        gathered: gathered parameters and gradients at each moment.
    """

    stage_index = 0
    has_head = True

    def __init__(self, shape: Shape, settings: Settings, role: Role, *, critic: bool = False) -> None:
        self.shape, self.settings, self.role, self.critic = shape, settings, role, critic
        fsdp, self._fsdp2 = role.fsdp, role.backend == "fsdp2"
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
        self._on_host = fsdp.offload_policy and self._fsdp2
        self.weights, self.gradients, self.optimizer = ((), (), ()) if self._on_host else self._states
        self._kept_optimizer = () if fsdp.optimizer_offload else self.optimizer
        self.idle = (() if fsdp.param_offload else self.weights) + self._kept_optimizer
        self._layout = Layout(
            fsdp2=self._fsdp2,
            critic=critic,
            frozen=bool(role.lora_rank),
            gathers=fsdp.shard > 1 or self._on_host,  # otherwise one GPU already has everything
            on_host=self._on_host,
            shard=fsdp.shard,
            parameter_bytes=fsdp.parameter_bytes,
            reshards=fsdp.reshard,
            wraps_head=behaviour(settings.version).wraps_head,
            defers=fsdp.defers_sync and fsdp.shard > 1,
        )
        self.gathered = gathered(shape, self._layout)
        # The activations of all layers but two go to the host.
        self._offloads_activations = role.activation_offload and shape.layers >= 3

    def inference(self, tokens: float) -> tuple[Allocations, Allocations]:
        """Return the moments of the widest layer and of the head."""
        states, moments = self.weights + self._kept_optimizer, self.gathered
        at_work = moments.root + moments.layer + self._at_work(tokens, self.shape.forward)
        return states + max(at_work, moments.between, key=size_of), states + moments.loss

    def update(self, tokens: float) -> Update:
        """Return the moments of an update; offloaded states are loaded for all of them."""
        role, shape, moments = self.role, self.shape, self.gathered
        states = self.weights + self.optimizer
        count = micro_batches(self.settings, role)
        further = count > 1
        accumulated = self._accumulated_gradients() if further else ()
        working, kept = shape.backward(role.targets if role.lora_rank else None)
        layers = 2 if self._offloads_activations else shape.layers
        saved = self._saved_activations(tokens, kept, layers)
        if further and role.lora_rank and behaviour(self.settings.version).keeps_embeddings:
            earlier = {"tokens": tokens, "hidden size": shape.hidden, "earlier micro-batches": count - 1}
            accumulated += self._allocate(Kind.KEPT_EMBEDDINGS, "exact", earlier, 4)
        loss = states + accumulated + moments.loss + saved
        # Saved activations are freed while gradients appear.
        remaining = saved if role.checkpointing else self._saved_activations(tokens, kept, layers - 1)
        divided = moments.divided if self._layout.gathers and not role.lora_rank else self.gradients
        halfway = accumulated + remaining if accumulated else max(remaining, divided, key=size_of)
        at_work = self._at_work(tokens, max(working, kept))
        of_layers = states + halfway + moments.backward[further] + at_work
        at_the_end = states + (moments.dividing[further] or self.gradients)
        at_head = states + accumulated + saved + moments.head[further]
        return Update(loss, at_head, max(of_layers, at_the_end, key=size_of), self._step())

    def _step(self) -> Allocations:
        """Return the optimizer step."""
        role, step = self.role, self.weights + self.optimizer + self.gradients
        if role.step_copies:  # torch's multi-tensor Adam
            step += self._sharded(Kind.STEP_BUFFER, self._trained_count, role.fsdp.parameter_bytes)
        elif self._fsdp2 and not role.lora_rank and not self._on_host:  # tensor by tensor
            largest = {"vocabulary × hidden": self.shape.vocabulary * self.shape.hidden}
            step += self._sharded(Kind.STEP_BUFFER, largest, 2 * role.fsdp.parameter_bytes)
        return step

    @property
    def waiting(self) -> Allocations:
        """The idle allocations, and the root if the pass without gradients leaves it gathered."""
        left = not self._layout.reshards or self._keeps_root(self.role.fsdp)
        return self.idle + (self.gathered.loss if left else ())

    def resident_reference(self) -> Allocations:
        """Return the reference policy if its version never offloads it, or the root that stays gathered."""
        fsdp = self.settings.reference_fsdp
        if behaviour(self.settings.version).reference_resident:
            return self._allocate(Kind.REFERENCE, "measured", {"parameters": self.parameters}, 2, fsdp.shard)
        if fsdp.shard > 1 and self._keeps_root(fsdp):
            root = {"parameters outside layers": self.shape.counts.root}
            return self._allocate(Kind.REFERENCE_ROOT, "exact", root, 2)
        return ()

    def reference_pass(self, tokens: float, resident: Allocations) -> tuple[Allocations, Allocations]:
        """Return the moments of the widest layer and of the head."""
        # A reference policy on the host moves to the GPU layer by layer.
        moments = self.gathered
        if not self._layout.gathers or not self._layout.reshards:
            moments = gathered(self.shape, self._layout._replace(gathers=True, reshards=True))
        root, waiting = () if resident else moments.root, self.waiting
        at_work = self._at_work(tokens, self.shape.forward)
        return waiting + root + moments.layer + at_work, waiting + (() if self._fsdp2 else root)

    def weight_sync(self, bucket: Allocations) -> Allocations:
        """Return the weights, the copies that go to the rollout engine, and the optimizer."""
        return self._handed_over(bucket) + self._kept_optimizer

    def offloaded(self) -> Allocations:
        """Return offloaded states (all of them with FSDP2's offload policy) and layer inputs."""
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
        spread: Spread = EXACT,
    ) -> Allocations:
        return (allocate(kind, evidence, variables, each, shard, "GPUs", self.critic, spread),)

    def _sharded(self, kind: Kind, count: Mapping[str, float], each: float) -> Allocations:
        return self._allocate(kind, "exact", count, each, self.role.fsdp.shard)

    def _accumulated_gradients(self) -> Allocations:
        """Return the gradients of earlier micro-batches, sharded or not.

        FSDP keeps them in the data type of the computation, FSDP2 in that of the reduction.
        """
        if not self._layout.defers:
            return self.gradients
        each = 4 if self._fsdp2 else 2
        return self._allocate(Kind.UNDIVIDED_GRADIENTS, "exact", {"trained parameters": self.trained}, each)

    def _keeps_root(self, fsdp: Sharding) -> bool:
        """Return whether FSDP leaves the root gathered after a pass without gradients.

        Source: ``EngineEvalModeCtx`` in verl/workers/engine/fsdp/transformer_impl.py:1092 at 1dda039b9.
        """
        leaves_root = behaviour(self.settings.version).leaves_root and self.role.backend == "fsdp"
        return leaves_root and not fsdp.reshards_root

    @property
    def _root_size(self) -> int:
        return self.shape.counts.root - (self.shape.parameters - self.parameters)

    def _saved_activations(self, tokens: float, kept: float, layers: int) -> Allocations:
        """Return the activations that the forward pass of some layers saves for the backward pass."""
        symbol = "layers on the GPU" if self._offloads_activations else "layers"
        if self.role.checkpointing:
            inputs = {"tokens": tokens, "hidden size": self.shape.hidden, symbol: layers}
            return self._allocate(Kind.LAYER_INPUTS, "exact", inputs, 2)
        saved = {"tokens": tokens, "bytes a layer keeps": kept, symbol: layers}
        return self._allocate(Kind.ACTIVATIONS, self.shape.evidence, saved, None, spread=self.shape.spread)

    def _at_work(self, tokens: float, width: float) -> Allocations:
        variables = {"tokens": tokens, "bytes of a layer": width}
        return self._allocate(
            Kind.WORKING_SET, self.shape.evidence, variables, None, spread=self.shape.spread
        )

    def _handed_over(self, bucket: Allocations) -> Allocations:
        """Return the weights and their copies during the transfer: the larger of gathering and sending them.

        Source: ``get_per_tensor_param`` in verl/workers/engine/fsdp/transformer_impl.py:976 at 1dda039b9.
        """
        shape, settings, role = self.shape, self.settings, self.role
        size = role.fsdp.parameter_bytes
        largest = {"vocabulary × hidden": shape.vocabulary * shape.hidden}
        tensor = self._allocate(Kind.LARGEST_TENSOR, "exact", largest, size)
        if role.lora_rank and settings.rollout.layered_summon and not settings.rollout.merge_lora:
            layer = {"parameters of a layer": shape.counts.largest_layer}
            return self.weights + self._allocate(Kind.SUMMONED_LAYER, "exact", layer, size) + bucket
        if role.backend == "fsdp2":
            streams = behaviour(settings.version).fsdp2_streams and not role.lora_rank
            return (() if streams and role.fsdp.param_offload else self.weights) + tensor + bucket
        if role.lora_rank:
            whole = {"parameters": shape.parameters}
            return self.weights + self._allocate(Kind.SUMMONED_MODEL, "exact", whole, size) + bucket
        whole = {"parameters": self.parameters}
        copy = self._allocate(Kind.STATE_DICT, "exact", whole, size, role.fsdp.shard)
        sending = copy + tensor + bucket + (() if role.fsdp.param_offload else self.weights)
        if role.fsdp.shard == 1 or behaviour(settings.version).gathers_before_sync:
            return sending
        root = {"parameters outside layers": self._root_size}
        gathering = self.weights + copy + tensor + self._allocate(Kind.GATHERED_ROOT, "exact", root, size)
        return max(gathering, sending, key=size_of)
