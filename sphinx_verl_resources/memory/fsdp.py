"""The memory of a role trained with FSDP or FSDP2, on one GPU. Sizes are bytes.

Traced with PyTorch's own FSDP, wrapped as verl wraps it (``make oracle``). FSDP's root contains embedding,
head and last norm, and stays gathered from the first forward to the end of the backward pass. FSDP2 gathers
the embedding and an untied head separately, and keeps nothing gathered at the loss.
"""

from __future__ import annotations

from collections.abc import Mapping

from .allocations import Allocations, Kind, Update, allocate, size_of
from .roles import Role, Sharding
from .settings import Settings, micro_batches
from .shape import Shape, adapter_parameters
from .versions import behaviour

#: Bytes per parameter of the gathered layer that computes, with FSDP and FSDP2. Forward: the layer, in two
#: buffers with FSDP2. Backward: also the next layer, and with FSDP2 the last layer's gradient in 32 bits.
_FORWARD, _BACKWARD = (2, 4), (4, 8)
#: The same while nothing computes. Forward: FSDP2 still has the buffer of the last layer. Backward: a layer's
#: gradient in 16 and in 32 bits; with FSDP2 only in 16 bits if it is not sharded yet.
_GATHERING, _DIVIDING, _NOT_DIVIDING = (2, 6), (8, 10), 6


class FsdpRole:
    """The actor or the critic, trained with FSDP or FSDP2; ``MegatronRole`` has the same methods.

    Attributes:
        has_head: whether this GPU computes the vocabulary-wide outputs.
        weights: the sharded parameters, adapters included.
        gradients: the sharded gradients, which exist during an update only.
        optimizer: the states of Adam.
        idle: the allocations that stay on the GPU while other roles work, from the first update on.
    """

    has_head = True

    def __init__(self, shape: Shape, settings: Settings, role: Role, *, critic: bool = False) -> None:
        self.shape, self.settings, self.role, self.critic = shape, settings, role, critic
        fsdp, counts, self._traits = role.fsdp, shape.counts, behaviour(settings.version)
        self._fsdp2, self._frozen = role.backend == "fsdp2", bool(role.lora_rank)
        self._parameters = shape.critic_parameters if critic else shape.parameters
        own = self._trained = {"parameters": self._parameters}
        if self._frozen:
            adapters = adapter_parameters(shape, role.lora_rank, role.targets)
            own = {"parameters with adapters": self._parameters + adapters}
            self._trained = {"trained parameters": adapters}
        self._states = (
            self._sharded(Kind.WEIGHTS, own),
            self._sharded(Kind.GRADIENTS, self._trained),
            self._sharded(Kind.OPTIMIZER, self._trained, role.moments),
        )
        # FSDP2's offload policy: the states never come to the GPU as a whole.
        self._on_host = fsdp.offload_policy and self._fsdp2
        self.weights, self.gradients, self.optimizer = ((), (), ()) if self._on_host else self._states
        self._kept_optimizer = () if fsdp.optimizer_offload else self.optimizer
        # FSDP on one GPU does not shard: modules keep views of the parameters, so offloading frees nothing (a
        # public log of Agent-R1 with verl v0.7.0 on an RTX 4090).
        self._offloads = fsdp.param_offload and (self._fsdp2 or settings.gpus > 1)
        self.idle = (() if self._offloads else self.weights) + self._kept_optimizer
        self._gathers = fsdp.shard > 1 or self._on_host  # otherwise one GPU already has everything
        self._divides = self._gathers and not self._frozen
        self._head = {"parameters of the head": shape.head}
        outside = counts.embedding if self._fsdp2 else counts.root - shape.parameters + self._parameters
        self._outside = {"parameters outside layers": outside}
        self._head_is_unit = self._fsdp2 and self._traits.wraps_head and counts.lm_head > 0 and not critic
        # Outside layers, FSDP2 gathers only a head that is no unit; a critic's is small.
        self._root: Allocations = ()
        if not (self._fsdp2 and (critic or self._head_is_unit)):
            self._root = self._one(Kind.GATHERED_ROOT, self._head if self._fsdp2 else self._outside, 2)

    @property
    def waiting(self) -> Allocations:
        """The allocations that stay on the GPU between a pass without gradients and the update."""
        is_gathered = not self.role.fsdp.reshard or self._keeps_root(self.role.fsdp)
        return self.idle + (self._at_loss() if is_gathered else ())

    def inference(self, tokens: float) -> tuple[Allocations, Allocations]:
        """Return the allocations in a pass without gradients: at its widest layer, and at the head."""
        fsdp, states = self.role.fsdp, self.weights + self._kept_optimizer
        cast = 2 / fsdp.shard if fsdp.parameter_bytes == 4 and not self._fsdp2 else 0  # the layer's shard
        moments = [
            self._gathered(_FORWARD[self._fsdp2]) + self._working(tokens, self.shape.forward),
            self._gathered(_GATHERING[self._fsdp2] + cast),
        ]
        if self._fsdp2 and self._gathers:  # the head in two buffers, or a tied one before the first layer
            head = self._one(Kind.GATHERED_ROOT, self._head, 4 if fsdp.reshard else 2)
            moments.append(head + self._layer(4 if self._root else 2) + self._at_loss())
        return states + max(moments, key=size_of), states + self._at_loss()

    def update(self, tokens: float) -> Update:
        """Return the allocations of an update; offloaded states are loaded for all of it."""
        role, shape, states = self.role, self.shape, self.weights + self.optimizer
        further = micro_batches(self.settings, role) - 1
        defers = further > 0 and role.fsdp.defers_sync and role.fsdp.shard > 1
        # FSDP keeps unsharded gradients in the data type of the computation, FSDP2 in that of the reduction.
        unsharded = self._one(Kind.UNSHARDED, self._trained, 4 if self._fsdp2 else 2) if defers else ()
        earlier = unsharded or (self.gradients if further else ())
        if self._frozen and further and self._traits.keeps_embeddings:
            embedded = {"tokens": tokens, "hidden size": shape.hidden, "earlier micro-batches": further}
            earlier += self._one(Kind.LAYER_INPUTS, embedded, 4)
        working, layer_bytes = shape.backward(role.targets if self._frozen else None)
        saved = self._saved(tokens, layer_bytes, shape.layers)
        # Saved activations are freed while gradients appear.
        remaining = saved if role.checkpointing else self._saved(tokens, layer_bytes, shape.layers - 1)
        ready = self._ready(0) if self._divides else self.gradients
        halfway = earlier + remaining if earlier else max(remaining, ready, key=size_of)
        frozen = self._frozen or (self._fsdp2 and unsharded)
        copies = (_FORWARD if frozen else _BACKWARD)[self._fsdp2]
        at_layer = halfway + self._gathered(copies) + self._root_gradient() + self._working(tokens, working)
        at_end = self._dividing(earlier, unsharded, further > 0) if self._divides else self.gradients
        # Traced: the output of the last layer, its copy in 32 bits and the normalised states.
        hidden = self._one(Kind.ACTIVATIONS, {"tokens": tokens, "hidden size": shape.hidden}, 8)
        step = states + self.gradients
        if role.step_copies:  # torch's multi-tensor Adam
            step += self._sharded(Kind.STEP_BUFFER, self._trained)
        elif self._fsdp2 and not self._frozen and not self._on_host:  # tensor by tensor
            largest = {"vocabulary × hidden": shape.vocabulary * shape.hidden}
            step += self._sharded(Kind.STEP_BUFFER, largest, 2 * role.fsdp.parameter_bytes)
        return Update(
            loss=states + earlier + self._at_loss() + saved + hidden,
            at_head=states + earlier + saved + self._at_head(unsharded),
            backward=states + max(at_layer, at_end, key=size_of),
            step=step,
        )

    def _at_head(self, unsharded: Allocations) -> Allocations:
        """Return the parameters and gradients in the backward pass of the head."""
        if not self._head_is_unit or not self._divides:
            in_root = self._root_gradient()
            return in_root + self._gathered(_BACKWARD[False] if in_root else 0)  # a tied head again
        fsdp = self.role.fsdp
        copies = 6 if fsdp.reshard and not unsharded else 4
        each = copies + (4 if fsdp.parameter_bytes == 4 else 6) / fsdp.shard
        return self._one(Kind.ROOT_GRADIENT, self._head, each) + self._gathered(2)

    def _dividing(self, earlier: Allocations, unsharded: Allocations, further: bool) -> Allocations:
        """Return the larger of two moments: sharding the gradient of the last layers, or that of the root.

        The gradient of the root (with FSDP2, that of the embedding) exists in 16 bits and as a copy in 32
        bits. For parameters in 16 bits, its shard in 32 bits comes on top. After earlier micro-batches, the
        shard of the last one does too.
        """
        size, shard = self.role.fsdp.parameter_bytes, self.role.fsdp.shard
        again = size / shard if further else 0.0
        of_root = 6 + (0 if size == 4 else 4 / shard) + (0 if unsharded else again)
        of_layer = _NOT_DIVIDING if unsharded and self._fsdp2 else _DIVIDING[self._fsdp2] + again
        last = self._one(Kind.ROOT_GRADIENT, self._outside, of_root)
        ready = earlier or self._ready(1 + self._fsdp2)
        of_layers = ready + self._gathered(of_layer) + self._root_gradient()
        return max(max(unsharded, self.gradients, key=size_of) + last, of_layers, key=size_of)

    def resident_reference(self) -> Allocations:
        """Return the reference policy if its version never offloads it, or the root that stays gathered."""
        fsdp = self.settings.reference_fsdp
        if self._traits.reference_resident:
            return self._one(Kind.REFERENCE, {"parameters": self._parameters}, 2, fsdp.shard)
        if fsdp.shard > 1 and self._keeps_root(fsdp):
            return self._one(Kind.REFERENCE_ROOT, self._outside, 2)
        return ()

    def reference_pass(self, tokens: float, resident: Allocations) -> tuple[Allocations, Allocations]:
        """Return the same as ``inference`` for the reference policy, without its ``resident`` allocations."""
        # A reference policy on the host moves to the GPU layer by layer.
        root, waiting = () if resident else self._root, self.waiting
        at_layer = self._layer(_FORWARD[self._fsdp2]) + self._working(tokens, self.shape.forward)
        return waiting + root + at_layer, waiting + (() if self._fsdp2 else root)

    def weight_sync(self, bucket: Allocations) -> Allocations:
        """Return the allocations during weight sync: weights, their copies for the engine, the optimizer.

        Source: ``get_per_tensor_param`` in verl/workers/engine/fsdp/transformer_impl.py:976 at 1dda039b9.
        """
        shape, fsdp, rollout = self.shape, self.role.fsdp, self.settings.rollout
        size, largest = fsdp.parameter_bytes, {"vocabulary × hidden": shape.vocabulary * shape.hidden}
        if self._frozen and rollout.layered_summon and not rollout.merge_lora:
            largest = {"parameters of a layer": shape.counts.largest_layer}
        elif self._frozen and not self._fsdp2:
            largest = {"parameters": shape.parameters}
        copies = self._one(Kind.WEIGHT_COPIES, largest, size)
        gathering: Allocations = ()
        if not (self._frozen or self._fsdp2):  # a copy of the shard
            copies += self._sharded(Kind.WEIGHT_COPIES, {"parameters": self._parameters})
            if fsdp.shard > 1 and not self._traits.gathers_before_sync:
                gathering = self.weights + copies + self._one(Kind.WEIGHT_COPIES, self._outside, size)
        stay = self._frozen or (self._fsdp2 and not self._traits.fsdp2_streams)
        sending = (() if self._offloads and not stay else self.weights) + copies + bucket
        return max(sending, gathering, key=size_of) + self._kept_optimizer

    def offloaded(self) -> Allocations:
        """Return this GPU's states that are in host memory at any time."""
        fsdp, (weights, gradients, optimizer) = self.role.fsdp, self._states
        if self._on_host:
            return weights + gradients + optimizer
        return (weights if self._offloads else ()) + (optimizer if fsdp.optimizer_offload else ())

    def offloaded_reference(self) -> Allocations:
        """Return this GPU's share of the reference policy, which recent versions always offload.

        Its data type was bf16 without ``model_dtype``, whose default is fp32 since v0.6.0:
        verl/workers/fsdp_workers.py:248 at v0.5.0, verl/trainer/config/engine/fsdp.yaml:32 at v0.6.0.
        """
        if self._traits.reference_resident:
            return ()
        size = 2 if self.settings.version < (0, 6, 0) else 4
        count = {"parameters": self._parameters}
        return self._one(Kind.REFERENCE, count, size, self.settings.reference_fsdp.shard)

    # -- pieces

    def _one(self, kind: Kind, variables: Mapping[str, float], each: float, shard: int = 1) -> Allocations:
        return (allocate(kind, variables, each, shard, critic=self.critic),)

    def _sharded(self, kind: Kind, count: Mapping[str, float], each: float | None = None) -> Allocations:
        fsdp = self.role.fsdp
        return self._one(kind, count, each or fsdp.parameter_bytes, fsdp.shard)

    def _keeps_root(self, fsdp: Sharding) -> bool:
        """Return whether FSDP leaves the root gathered after a pass without gradients.

        Source: ``EngineEvalModeCtx`` in verl/workers/engine/fsdp/transformer_impl.py:1092 at 1dda039b9.
        """
        return self._traits.leaves_root and not self._fsdp2 and not fsdp.reshards_root

    def _saved(self, tokens: float, layer_bytes: float, layers: int) -> Allocations:
        """Return the activations that the forward pass of some layers saves for the backward pass."""
        if self.role.checkpointing:
            inputs = {"tokens": tokens, "hidden size": self.shape.hidden, "layers": layers}
            return self._one(Kind.LAYER_INPUTS, inputs, 2)
        saved = {"tokens": tokens, "bytes a layer keeps": layer_bytes, "layers": layers}
        return (allocate(Kind.ACTIVATIONS, saved, critic=self.critic, evidence=self.shape.evidence),)

    def _working(self, tokens: float, width: float) -> Allocations:
        variables = {"tokens": tokens, "bytes of a layer": width}
        return (allocate(Kind.WORKING_SET, variables, critic=self.critic, evidence=self.shape.evidence),)

    def _gathered(self, of_layer: float) -> Allocations:
        """Return gathered parameters: the root and a layer, or all layers if they stay gathered.

        ``of_layer`` is the bytes per parameter of the layer, with its unsharded gradient.
        """
        if not self._gathers:
            return ()
        if not self.role.fsdp.reshard:
            return self._one(Kind.GATHERED_LAYERS, {"parameters": self._parameters}, 2)
        return self._root + (self._layer(of_layer) if of_layer else ())

    def _layer(self, each: float) -> Allocations:
        count = {"parameters of a layer": self.shape.counts.largest_layer}
        return (allocate(Kind.GATHERED_LAYERS, count, each, critic=self.critic, evidence="measured"),)

    def _at_loss(self) -> Allocations:
        """Return what is gathered at the loss, and after a pass without gradients that leaves the root."""
        return () if self._fsdp2 and self.role.fsdp.reshard else self._gathered(0)

    def _root_gradient(self) -> Allocations:
        """Return the gradient of a head in the root, which stays until the embedding's gradient is ready."""
        if self.critic or self._head_is_unit or not self._divides:
            return ()
        return self._one(Kind.ROOT_GRADIENT, self._head, 2)

    def _ready(self, rest: int) -> Allocations:
        """Return the sharded gradients when only the root and some layers remain."""
        shape, counts = self.shape, self.shape.counts
        ready = shape.parameters - counts.root - rest * counts.largest_layer + shape.head * self._head_is_unit
        return () if self._on_host else self._sharded(Kind.GRADIENTS, {"parameters of layers": ready})
