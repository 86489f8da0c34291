"""The parameters that FSDP and FSDP2 gather at each moment, and the gradients that they shard.

Traced with PyTorch's own FSDP, wrapped as verl wraps it (``make oracle``). FSDP's root contains embedding,
head and last norm, and stays gathered from the first forward to the end of the backward pass. FSDP2 gathers
the embedding and an untied head separately, and keeps nothing gathered at the loss. Sizes are bytes per GPU.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from .allocations import Kind, allocate, size_of
from .constants import EXACT, GATHERED_LAYER

if TYPE_CHECKING:
    from ..units import Evidence
    from .allocations import Allocations
    from .constants import Spread
    from .shape import Shape


class Layout(NamedTuple):
    """The settings that decide which parameters are gathered and which gradients are sharded.

    Attributes:
        fsdp2: whether it is FSDP2, not FSDP.
        critic: whether the model has a value head.
        frozen: whether only adapters are trained.
        gathers: whether parameters are gathered, because they are sharded or on the host.
        on_host: whether sharded parameters and gradients are on the host.
        shard: the number of GPUs that share the states.
        parameter_bytes: bytes per stored parameter and gradient.
        reshards: whether layers are resharded after the forward pass.
        wraps_head: whether FSDP2 gathers an untied head separately.
        defers: whether gradients are sharded only after the last micro-batch.
    """

    fsdp2: bool
    critic: bool
    frozen: bool
    gathers: bool
    on_host: bool
    shard: int
    parameter_bytes: int
    reshards: bool
    wraps_head: bool
    defers: bool


class Gathered(NamedTuple):
    """The gathered parameters and the gradients at each moment, without states and activations.

    Attributes:
        root: gathered outside layers while a layer computes.
        layer: the layer that computes, in a pass without gradients.
        between: the most in such a pass while nothing computes.
        loss: at the loss, and after a pass without gradients that leaves the root gathered.
        head: in the backward pass of the head, for the first micro-batch and for further ones.
        backward: in the backward pass of a layer, for the first micro-batch and for further ones.
        divided: gradients that are already sharded after all layers, in the first micro-batch.
        dividing: while the gradient of a layer or of the root is sharded, including all gradients, for the
            first micro-batch and for further ones.
    """

    root: Allocations
    layer: Allocations
    between: Allocations
    loss: Allocations
    head: tuple[Allocations, Allocations]
    backward: tuple[Allocations, Allocations]
    divided: Allocations
    dividing: tuple[Allocations, Allocations]


#: Bytes per parameter of the gathered layer that computes, with FSDP and FSDP2. Forward: the layer, in two
#: buffers with FSDP2. Backward: also the next layer, and with FSDP2 the last layer's gradient in 32 bits.
_FORWARD, _BACKWARD = (2, 4), (4, 8)
#: The same while nothing computes. Forward: FSDP2 still has the buffer of the last layer. Backward: a layer's
#: gradient in 16 and in 32 bits; with FSDP2 only in 16 bits if it is not sharded yet.
_GATHERING, _DIVIDING, _NOT_DIVIDING = (2, 6), (8, 10), 6


@lru_cache(maxsize=1024)
def gathered(shape: Shape, layout: Layout) -> Gathered:
    """Return the gathered parameters and the gradients at each moment."""
    return _Moments(shape, layout).all()


class _Moments:
    """The moments of one model in one layout."""

    def __init__(self, shape: Shape, layout: Layout) -> None:
        self.shape, self.layout = shape, layout
        self.head_is_unit = bool(layout.fsdp2 and layout.wraps_head and shape.counts.lm_head)
        self.parameters = shape.critic_parameters if layout.critic else shape.parameters
        self.root_size = shape.counts.root - (shape.parameters - self.parameters)
        self.whole: Allocations = ()
        if layout.gathers and not layout.reshards:
            self.whole = self.of(Kind.GATHERED_LAYERS, "parameters", self.parameters, 2)
        self.root = () if self.whole or not layout.gathers else self.gathered_root()

    def all(self) -> Gathered:
        """Return all moments."""
        fsdp2 = self.layout.fsdp2
        loss = self.whole or (() if fsdp2 else self.root)
        return Gathered(
            root=self.root,
            layer=self.layer(_FORWARD[fsdp2]),
            between=self.between(),
            loss=loss,
            head=(self.head(further=False), self.head(further=True)),
            backward=(self.backward(further=False), self.backward(further=True)),
            divided=self.divided(0),
            dividing=(self.dividing(further=False), self.dividing(further=True)),
        )

    def of(self, kind: Kind, symbol: str, count: float, each: float, spread: Spread = EXACT) -> Allocations:
        """Return unsharded parameters or gradients."""
        evidence: Evidence = "exact" if spread is EXACT else "measured"
        return (allocate(kind, evidence, {symbol: count}, each, critic=self.layout.critic, spread=spread),)

    def gathered_root(self) -> Allocations:
        """Return the parameters gathered outside layers: FSDP's root; with FSDP2 a tied head."""
        if self.head_is_unit or (self.layout.fsdp2 and self.layout.critic):
            return ()
        size = self.shape.head if self.layout.fsdp2 else self.root_size
        return self.of(Kind.GATHERED_ROOT, "parameters outside layers", size, 2)

    def gathered_layer(self, each: float) -> Allocations:
        """Return a gathered layer, with ``each`` bytes per parameter."""
        size = self.shape.counts.largest_layer
        return self.of(Kind.GATHERED_LAYER, "parameters of a layer", size, each, GATHERED_LAYER.spread)

    def layer(self, each: float) -> Allocations:
        """Return the gathered layer that computes, or all layers if they stay gathered."""
        return self.whole or (self.gathered_layer(each) if self.layout.gathers else ())

    def between(self) -> Allocations:
        """Return the largest gathered parameters while nothing computes, in a pass without gradients."""
        layout, head = self.layout, "parameters of the head"
        if not layout.gathers:
            return ()
        if not layout.fsdp2:
            staged = 2 / layout.shard if layout.parameter_bytes == 4 else 0
            return self.root + self.layer(_GATHERING[False] + staged)
        # The head in two buffers, or a tied one before the first layer.
        of_head = self.of(Kind.GATHERED_ROOT, head, self.shape.head, 2 if self.whole else 4)
        of_head += self.whole + self.gathered_layer(2 if self.head_is_unit else 4)
        return max(self.root + self.layer(_GATHERING[True]), of_head, key=size_of)

    def waiting_gradient(self) -> Allocations:
        """Return the gradient of a head in the root, which stays until the embedding's gradient is ready."""
        layout = self.layout
        if layout.critic or layout.frozen or self.head_is_unit or not layout.gathers:
            return ()
        return self.of(Kind.HEAD_GRADIENT, "parameters of the head", self.shape.head, 2)

    def head(self, *, further: bool) -> Allocations:
        """Return the parameters and gradients in the backward pass of the head."""
        layout = self.layout
        if layout.frozen or layout.critic or not layout.gathers:
            return self.whole + self.root  # FSDP2 gathers a tied head again
        if not self.head_is_unit:
            layer = () if self.whole else self.gathered_layer(_BACKWARD[False])
            return self.whole + self.root + self.waiting_gradient() + layer
        divided = (4 if layout.parameter_bytes == 4 else 6) / layout.shard
        whole = 4 if self.whole or (further and layout.defers) else 6
        gradient = self.of(Kind.HEAD_GRADIENT, "parameters of the head", self.shape.head, whole + divided)
        return gradient + (self.whole or self.gathered_layer(2))

    def backward(self, *, further: bool) -> Allocations:
        """Return the parameters and gradients in the backward pass of a layer."""
        layout = self.layout
        divides = not (layout.frozen or (layout.fsdp2 and further and layout.defers))
        copies = _BACKWARD[layout.fsdp2] if divides else _FORWARD[layout.fsdp2]
        return self.root + self.waiting_gradient() + self.layer(copies)

    def divided(self, left: int) -> Allocations:
        """Return the sharded gradients when only the root and some layers remain."""
        counts = self.shape.counts
        done = self.shape.parameters - counts.root - left * counts.largest_layer
        done += self.shape.head if self.head_is_unit else 0
        return self.shared("parameters of layers", done)

    def shared(self, symbol: str, count: float) -> Allocations:
        """Return sharded gradients."""
        layout = self.layout
        if layout.on_host:
            return ()
        each, shard = layout.parameter_bytes, layout.shard
        return (allocate(Kind.GRADIENTS, "exact", {symbol: count}, each, shard, critic=layout.critic),)

    def dividing(self, *, further: bool) -> Allocations:
        """Return the larger of two moments: sharding the gradient of the last layers, or that of the root.

        The gradient of the root (with FSDP2, that of the embedding) exists in 16 bits and as a copy in 32
        bits. For parameters in 16 bits, its shard in 32 bits comes on top. After earlier micro-batches, the
        shard of the last one does too.
        """
        layout, shape = self.layout, self.shape
        if layout.frozen or not layout.gathers:
            return ()
        gradients = self.shared("parameters", self.parameters)
        undivided: Allocations = ()
        if further and layout.defers:
            each = 4 if layout.fsdp2 else 2
            undivided = self.of(Kind.UNDIVIDED_GRADIENTS, "trained parameters", self.parameters, each)
        of_root: float = 6 if layout.parameter_bytes == 4 else 6 + 4 / layout.shard
        of_layer: float = _DIVIDING[layout.fsdp2]
        if undivided and layout.fsdp2:
            of_layer = _NOT_DIVIDING
        elif further:
            of_layer += layout.parameter_bytes / layout.shard
        if further and not undivided:
            of_root += layout.parameter_bytes / layout.shard
        root = ("parameters outside layers", self.root_size)
        if layout.fsdp2:
            root = ("parameters of the embedding", shape.counts.embedding)
        at_the_end = max(undivided, gradients, key=size_of) + self.of(Kind.ROOT_GRADIENT, *root, of_root)
        earlier = undivided or (gradients if further else self.divided(2 if layout.fsdp2 else 1))
        of_layers = earlier + self.root + self.waiting_gradient() + self.layer(of_layer)
        return max(at_the_end, of_layers, key=size_of)
