"""The memory of a role trained with FSDP or FSDP2, on one GPU. Sizes are bytes.

Traced with PyTorch's own FSDP, wrapped as verl wraps it (``make oracle``). FSDP's root contains embedding,
head and last norm, and stays gathered from the first forward to the end of the backward pass. FSDP2 gathers
the embedding and an untied head separately, and keeps nothing gathered at the loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .allocations import Kind, Update, allocate, size_of
from .settings import micro_batches, update_tokens
from .shape import adapter_parameters
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..units import Evidence
    from .allocations import Allocations
    from .roles import Role, Sharding
    from .settings import Settings
    from .shape import Shape

#: Bytes per parameter of the gathered layer that computes, with FSDP and FSDP2. Forward: the layer, in two
#: buffers with FSDP2. Backward: also the next layer, and with FSDP2 the last layer's gradient in 32 bits.
_FORWARD, _BACKWARD = (2, 4), (4, 8)
#: The same while nothing computes. Forward: FSDP2 still has the buffer of the last layer. Backward: a layer's
#: gradient in 16 and in 32 bits; with FSDP2 only in 16 bits if it is not sharded yet.
_GATHERING, _DIVIDING, _NOT_DIVIDING = (2, 6), (8, 10), 6


class FsdpRole:
    """The actor or the critic, trained with FSDP or FSDP2; ``phases.TrainedRole`` describes the methods.

    Attributes:
        parameters: the model's parameters; a critic has a value head instead of the output head.
        weights: the sharded parameters, adapters included.
        gradients: the sharded gradients, which exist during an update only.
        optimizer: the states of Adam.
    """

    has_head = True

    def __init__(self, shape: Shape, settings: Settings, role: Role, *, critic: bool = False) -> None:
        self.shape, self.settings, self.role, self.critic = shape, settings, role, critic
        fsdp, traits = role.fsdp, behaviour(settings.version)
        self._fsdp2, self._frozen = role.backend == "fsdp2", bool(role.lora_rank)
        self.parameters = shape.critic_parameters if critic else shape.parameters
        self._trained, own = {"parameters": self.parameters}, {"parameters": self.parameters}
        if self._frozen:
            adapters = adapter_parameters(shape, role.lora_rank, role.targets)
            self._trained = {"trained parameters": adapters}
            own = {"parameters with adapters": self.parameters + adapters}
        self._states = (
            self._sharded(Kind.WEIGHTS, own, fsdp.parameter_bytes),
            self._sharded(Kind.GRADIENTS, self._trained, fsdp.parameter_bytes),
            self._sharded(Kind.OPTIMIZER, self._trained, role.moments),
        )
        # FSDP2's offload policy: the states never come to the GPU as a whole.
        self._on_host = fsdp.offload_policy and self._fsdp2
        self.weights, self.gradients, self.optimizer = ((), (), ()) if self._on_host else self._states
        self._kept_optimizer = () if fsdp.optimizer_offload else self.optimizer
        self.idle = (() if fsdp.param_offload else self.weights) + self._kept_optimizer
        self._gathers = fsdp.shard > 1 or self._on_host  # otherwise one GPU already has everything
        self._defers = fsdp.defers_sync and fsdp.shard > 1
        self._head_is_unit = bool(self._fsdp2 and traits.wraps_head and shape.counts.lm_head)
        self._root_size = shape.counts.root - (shape.parameters - self.parameters)
        # The activations of all layers but two go to the host.
        self._offloads_activations = role.activation_offload and shape.layers >= 3

    def inference(self, tokens: float) -> tuple[Allocations, Allocations]:
        """Return the moments of the widest layer and of the head."""
        states = self.weights + self._kept_optimizer
        at_work = (
            self._root() + self._layers(_FORWARD[self._fsdp2]) + self._working(tokens, self.shape.forward)
        )
        return states + max(at_work, self._between(), key=size_of), states + self._at_loss()

    def update(self, tokens: float) -> Update:
        """Return the moments of an update; offloaded states are loaded for all of them."""
        role, shape = self.role, self.shape
        states = self.weights + self.optimizer
        further = micro_batches(self.settings, role) > 1
        earlier = self._earlier_gradients() if further else ()
        working, kept = shape.backward(role.targets if self._frozen else None)
        layers = 2 if self._offloads_activations else shape.layers
        saved = self._saved(tokens, kept, layers)
        # Saved activations are freed while gradients appear.
        remaining = saved if role.checkpointing else self._saved(tokens, kept, layers - 1)
        divided = self.gradients if self._frozen or not self._gathers else self._divided(0)
        halfway = earlier + remaining if earlier else max(remaining, divided, key=size_of)
        of_layers = states + halfway + self._backward(further) + self._working(tokens, max(working, kept))
        at_the_end = states + (self._dividing(further) or self.gradients)
        return Update(
            loss=states + earlier + self._at_loss() + saved,
            at_head=states + earlier + saved + self._head(further),
            backward=max(of_layers, at_the_end, key=size_of),
            step=self._step(),
        )

    def _step(self) -> Allocations:
        """Return the optimizer step."""
        role, step = self.role, self.weights + self.optimizer + self.gradients
        if role.step_copies:  # torch's multi-tensor Adam
            step += self._sharded(Kind.STEP_BUFFER, self._trained, role.fsdp.parameter_bytes)
        elif self._fsdp2 and not self._frozen and not self._on_host:  # tensor by tensor
            largest = {"vocabulary × hidden": self.shape.vocabulary * self.shape.hidden}
            step += self._sharded(Kind.STEP_BUFFER, largest, 2 * role.fsdp.parameter_bytes)
        return step

    @property
    def waiting(self) -> Allocations:
        """The idle allocations, and the root if the pass without gradients leaves it gathered."""
        left = not self.role.fsdp.reshard or self._keeps_root(self.role.fsdp)
        return self.idle + (self._at_loss() if left else ())

    def resident_reference(self) -> Allocations:
        """Return the reference policy if its version never offloads it, or the root that stays gathered."""
        fsdp = self.settings.reference_fsdp
        if behaviour(self.settings.version).reference_resident:
            return self._one(Kind.REFERENCE, {"parameters": self.parameters}, 2, fsdp.shard)
        if fsdp.shard > 1 and self._keeps_root(fsdp):
            return self._one(Kind.REFERENCE_ROOT, {"parameters outside layers": self.shape.counts.root}, 2)
        return ()

    def reference_pass(self, tokens: float, resident: Allocations) -> tuple[Allocations, Allocations]:
        """Return the moments of the widest layer and of the head."""
        # A reference policy on the host moves to the GPU layer by layer.
        root, waiting = () if resident else self._root_itself(), self.waiting
        working = self._working(tokens, self.shape.forward)
        at_layer = waiting + root + self._layer(_FORWARD[self._fsdp2]) + working
        return at_layer, waiting + (() if self._fsdp2 else root)

    def weight_sync(self, bucket: Allocations) -> Allocations:
        """Return the weights, their copies for the rollout engine, and the optimizer.

        Source: ``get_per_tensor_param`` in verl/workers/engine/fsdp/transformer_impl.py:976 at 1dda039b9.
        """
        shape, role, rollout = self.shape, self.role, self.settings.rollout
        size, traits = role.fsdp.parameter_bytes, behaviour(self.settings.version)

        def copies(symbol: str, count: float, shard: int = 1) -> Allocations:
            return self._one(Kind.WEIGHT_COPIES, {symbol: count}, size, shard)

        weights, largest = self.weights, copies("vocabulary × hidden", shape.vocabulary * shape.hidden)
        if self._frozen and rollout.layered_summon and not rollout.merge_lora:
            largest = copies("parameters of a layer", shape.counts.largest_layer)
        elif self._fsdp2:
            if traits.fsdp2_streams and not self._frozen and role.fsdp.param_offload:
                weights = ()
        elif self._frozen:
            largest = copies("parameters", shape.parameters)
        else:  # the larger of gathering and sending the copy
            copy = copies("parameters", self.parameters, role.fsdp.shard)
            sending = (() if role.fsdp.param_offload else weights) + copy + largest + bucket
            gathering = weights + copy + largest + copies("parameters outside layers", self._root_size)
            gathers = role.fsdp.shard > 1 and not traits.gathers_before_sync
            return (max(gathering, sending, key=size_of) if gathers else sending) + self._kept_optimizer
        return weights + largest + bucket + self._kept_optimizer

    def offloaded(self) -> Allocations:
        """Return the states and layer inputs in host memory; with FSDP2's offload policy all states."""
        fsdp, shape = self.role.fsdp, self.shape
        weights, gradients, optimizer = self._states
        if not self._on_host:
            weights, gradients = weights if fsdp.param_offload else (), ()
            optimizer = optimizer if fsdp.optimizer_offload else ()
        inputs: Allocations = ()
        if self._offloads_activations:
            tokens = update_tokens(self.settings, self.role)
            factors = {"tokens": tokens, "hidden size": shape.hidden, "layers": shape.layers}
            inputs = self._one(Kind.LAYER_INPUTS, factors, 2)
        return weights + gradients + optimizer + inputs

    def offloaded_reference(self) -> Allocations:
        """Return the reference policy, which recent versions always offload."""
        settings = self.settings
        if behaviour(settings.version).reference_resident:
            return ()
        count = {"parameters": self.shape.parameters}
        return self._one(Kind.REFERENCE, count, 4, settings.reference_fsdp.shard)

    # -- pieces

    def _one(
        self,
        kind: Kind,
        variables: Mapping[str, float],
        each: float | None,
        shard: int = 1,
        evidence: Evidence = "exact",
    ) -> Allocations:
        return (allocate(kind, variables, each, shard, "GPUs", self.critic, evidence),)

    def _sharded(self, kind: Kind, count: Mapping[str, float], each: float) -> Allocations:
        return self._one(kind, count, each, self.role.fsdp.shard)

    def _earlier_gradients(self) -> Allocations:
        """Return the gradients of earlier micro-batches, sharded or not.

        FSDP keeps them in the data type of the computation, FSDP2 in that of the reduction.
        """
        if not self._defers:
            return self.gradients
        return self._one(Kind.UNSHARDED, self._trained, 4 if self._fsdp2 else 2)

    def _keeps_root(self, fsdp: Sharding) -> bool:
        """Return whether FSDP leaves the root gathered after a pass without gradients.

        Source: ``EngineEvalModeCtx`` in verl/workers/engine/fsdp/transformer_impl.py:1092 at 1dda039b9.
        """
        leaves_root = behaviour(self.settings.version).leaves_root and not self._fsdp2
        return leaves_root and not fsdp.reshards_root

    def _saved(self, tokens: float, kept: float, layers: int) -> Allocations:
        """Return the activations that the forward pass of some layers saves for the backward pass."""
        symbol = "layers on the GPU" if self._offloads_activations else "layers"
        if self.role.checkpointing:
            return self._one(
                Kind.LAYER_INPUTS, {"tokens": tokens, "hidden size": self.shape.hidden, symbol: layers}, 2
            )
        saved = {"tokens": tokens, "bytes a layer keeps": kept, symbol: layers}
        return self._one(Kind.ACTIVATIONS, saved, None, evidence=self.shape.evidence)

    def _working(self, tokens: float, width: float) -> Allocations:
        variables = {"tokens": tokens, "bytes of a layer": width}
        return self._one(Kind.WORKING_SET, variables, None, evidence=self.shape.evidence)

    # -- gathered parameters and unsharded gradients, without states and activations

    def _whole(self) -> Allocations:
        """Return all layers, if they stay gathered after the forward pass."""
        if not self._gathers or self.role.fsdp.reshard:
            return ()
        return self._one(Kind.GATHERED_LAYERS, {"parameters": self.parameters}, 2)

    def _root(self) -> Allocations:
        """Return the parameters gathered outside layers, unless they are among gathered layers."""
        return self._root_itself() if self._gathers and self.role.fsdp.reshard else ()

    def _root_itself(self) -> Allocations:
        """Return the parameters gathered outside layers: FSDP's root; with FSDP2 a tied head."""
        if self._fsdp2 and (self._head_is_unit or self.critic):
            return ()
        size = self.shape.head if self._fsdp2 else self._root_size
        return self._one(Kind.GATHERED_ROOT, {"parameters outside layers": size}, 2)

    def _layer(self, each: float) -> Allocations:
        """Return a gathered layer, with ``each`` bytes per parameter."""
        count = {"parameters of a layer": self.shape.counts.largest_layer}
        return self._one(Kind.GATHERED_LAYERS, count, each, evidence="measured")

    def _layers(self, each: float) -> Allocations:
        """Return the gathered layer that computes, or all layers if they stay gathered."""
        return self._whole() or (self._layer(each) if self._gathers else ())

    def _between(self) -> Allocations:
        """Return the most that is gathered while nothing computes, in a pass without gradients."""
        fsdp = self.role.fsdp
        if not self._gathers:
            return ()
        if not self._fsdp2:
            staged = 2 / fsdp.shard if fsdp.parameter_bytes == 4 else 0
            return self._root() + self._layers(_GATHERING[False] + staged)
        # The head in two buffers, or a tied one before the first layer.
        whole = self._whole()
        of_head = self._one(
            Kind.GATHERED_ROOT, {"parameters of the head": self.shape.head}, 2 if whole else 4
        )
        of_head += whole + self._layer(2 if self._head_is_unit else 4)
        return max(self._root() + self._layers(_GATHERING[True]), of_head, key=size_of)

    def _at_loss(self) -> Allocations:
        """Return what is gathered at the loss, and after a pass without gradients that leaves the root."""
        return self._whole() or (() if self._fsdp2 else self._root())

    def _waiting_gradient(self) -> Allocations:
        """Return the gradient of a head in the root, which stays until the embedding's gradient is ready."""
        if self.critic or self._frozen or self._head_is_unit or not self._gathers:
            return ()
        return self._one(Kind.ROOT_GRADIENT, {"parameters of the head": self.shape.head}, 2)

    def _head(self, further: bool) -> Allocations:
        """Return the parameters and gradients in the backward pass of the head."""
        fsdp, whole = self.role.fsdp, self._whole()
        if self._frozen or self.critic or not self._gathers:
            return whole + self._root()  # FSDP2 gathers a tied head again
        if not self._head_is_unit:
            return (
                whole
                + self._root()
                + self._waiting_gradient()
                + (() if whole else self._layer(_BACKWARD[False]))
            )
        divided = (4 if fsdp.parameter_bytes == 4 else 6) / fsdp.shard
        each = 4 if whole or (further and self._defers) else 6
        gradient = self._one(Kind.ROOT_GRADIENT, {"parameters of the head": self.shape.head}, each + divided)
        return gradient + (whole or self._layer(2))

    def _backward(self, further: bool) -> Allocations:
        """Return the parameters and gradients in the backward pass of a layer."""
        divides = not (self._frozen or (self._fsdp2 and further and self._defers))
        copies = (_BACKWARD if divides else _FORWARD)[self._fsdp2]
        return self._root() + self._waiting_gradient() + self._layers(copies)

    def _divided(self, left: int) -> Allocations:
        """Return the sharded gradients when only the root and some layers remain."""
        counts = self.shape.counts
        done = self.shape.parameters - counts.root - left * counts.largest_layer
        done += self.shape.head if self._head_is_unit else 0
        return self._shared("parameters of layers", done)

    def _shared(self, symbol: str, count: float) -> Allocations:
        each = self.role.fsdp.parameter_bytes
        return () if self._on_host else self._sharded(Kind.GRADIENTS, {symbol: count}, each)

    def _dividing(self, further: bool) -> Allocations:
        """Return the larger of two moments: sharding the gradient of the last layers, or that of the root.

        The gradient of the root (with FSDP2, that of the embedding) exists in 16 bits and as a copy in 32
        bits. For parameters in 16 bits, its shard in 32 bits comes on top. After earlier micro-batches, the
        shard of the last one does too.
        """
        if self._frozen or not self._gathers:
            return ()
        size, shard = self.role.fsdp.parameter_bytes, self.role.fsdp.shard
        gradients = self._shared("parameters", self.parameters)
        unsharded = self._earlier_gradients() if further and self._defers else ()
        again = size / shard if further else 0.0
        of_root = 6 + (0 if size == 4 else 4 / shard) + (0 if unsharded else again)
        of_layer = _NOT_DIVIDING if unsharded and self._fsdp2 else _DIVIDING[self._fsdp2] + again
        root = self.shape.counts.embedding if self._fsdp2 else self._root_size
        last = self._one(Kind.ROOT_GRADIENT, {"parameters outside layers": root}, of_root)
        earlier = unsharded or (gradients if further else self._divided(2 if self._fsdp2 else 1))
        of_layers = earlier + self._root() + self._waiting_gradient() + self._layers(of_layer)
        return max(max(unsharded, gradients, key=size_of) + last, of_layers, key=size_of)
