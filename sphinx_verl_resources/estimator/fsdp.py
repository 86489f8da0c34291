"""What a role that is trained with FSDP holds on one GPU, moment by moment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ..lazy import lazy
from . import kinds
from .allocations import allocate, per_token, sharded
from .lora import lora_parameters

if TYPE_CHECKING:
    from ..breakdown import Evidence
    from .allocations import Allocation, Allocations
    from .kinds import Kind
    from .lora import Targets
    from .settings import Role
    from .shape import Shape


@dataclass(frozen=True)
class FsdpRole:
    """One role, ready for formulas.

    Attributes:
        shape: of the model.
        role: its settings.
        parameters: of the model, with a value head for a critic.
        trained: parameters that are trained: all, or those of the adapters.
        prefix: before the keys of components, empty for the actor.
    """

    shape: Shape
    role: Role
    parameters: int
    trained: int
    prefix: str = ""

    @property
    def critic(self) -> bool:
        """True for a critic."""
        return bool(self.prefix)

    @property
    def shard(self) -> int:
        """GPUs that one copy of the states is divided among."""
        return self.role.fsdp.shard

    @property
    def stage_index(self) -> int:
        """There are no stages."""
        return 0

    @property
    def has_head(self) -> bool:
        """Whether the vocabulary-wide outputs come out here."""
        return True

    @property
    def on_host(self) -> bool:
        """FSDP2's offload policy: the states never come to the GPU as a whole."""
        return self.role.fsdp.offload_policy and self.role.backend == "fsdp2"

    @lazy
    def idle(self) -> Allocations:
        """What stays on the GPU while the role does nothing, from the first update on."""
        fsdp = self.role.fsdp
        weights = () if fsdp.param_offload else self.weights
        return weights + (() if fsdp.optimizer_offload else self.optimizer)

    def evaluating(self) -> Allocations:
        """The states during a pass without gradients."""
        return self.weights + (() if self.role.fsdp.optimizer_offload else self.optimizer)

    def updating(self) -> Allocations:
        """The states during an update; those that were offloaded are loaded for the whole of it."""
        return self.weights + self.optimizer

    @lazy
    def weights(self) -> Allocations:
        """The sharded parameters, adapters among them."""
        if self.on_host:
            return ()
        count = self.parameters + (self.trained if self.role.lora_rank else 0)
        return (self._states(kinds.WEIGHTS, count, self.role.fsdp.parameter_bytes),)

    @lazy
    def gradients(self) -> Allocations:
        """The sharded gradients, which exist in an update only."""
        if self.on_host:
            return ()
        return (self._states(kinds.GRADIENTS, self.trained, self.role.fsdp.parameter_bytes),)

    @lazy
    def optimizer(self) -> Allocations:
        """The states of Adam."""
        if self.on_host:
            return ()
        return (self._states(kinds.OPTIMIZER_STATES, self.trained, self.role.moments),)

    def step_buffer(self) -> Allocations:
        """What the optimizer step allocates for a moment: torch's multi-tensor Adam needs one more copy."""
        if self.on_host or not self.role.step_copies:
            return ()
        return (self._states(kinds.STEP_BUFFER, self.trained, self.role.fsdp.parameter_bytes),)

    def accumulated_gradients(self, *, whole: bool) -> Allocations:
        """Gradients that earlier micro-batches leave behind, divided among the GPUs or not."""
        if not whole:
            return self.gradients
        element_bytes = 2 if self.role.backend == "fsdp" else 4
        symbol = "trained parameters"
        return (
            allocate(
                kinds.UNDIVIDED_GRADIENTS[self.critic],
                "assumed",
                ((symbol, self.trained),),
                element_bytes,
            ),
        )

    @lazy
    def root(self) -> Allocations:
        """Embedding, head and last norm, whole from the first forward to the end of the backward pass."""
        return self._root() if self._gathers else ()

    def _root(self) -> Allocations:
        count = self.shape.root - (self.shape.parameters - self.parameters)
        return (
            allocate(
                kinds.GATHERED_ROOT[self.critic],
                self._gathering,
                (("parameters outside layers", count),),
                2,
            ),
        )

    @lazy
    def layer(self) -> Allocations:
        """The layer at work, or without resharding after the forward pass all of them."""
        if not self._gathers:
            return ()
        return self._layer() if self.role.fsdp.reshard else self.whole_layers

    @lazy
    def whole_layers(self) -> Allocations:
        """The layers that stay whole from the forward pass on, where nothing is resharded after it."""
        if self.role.fsdp.reshard or not self._gathers:
            return ()
        count = self.shape.parameters - self.shape.root
        return (allocate(kinds.GATHERED_LAYERS[self.critic], "exact", (("parameters of layers", count),), 2),)

    def streamed(self) -> Allocations:
        """What a frozen copy of the model that lies on the host has on the GPU at any time."""
        return self._root() + self._layer()

    @property
    def _gathers(self) -> bool:
        """With one GPU everything is there already, unless the states lie on the host."""
        return self.shard > 1 or self.on_host

    def _layer(self) -> Allocations:
        return (
            allocate(
                kinds.GATHERED_LAYER[self.critic],
                self._gathering,
                (("parameters of a layer", self.shape.unit),),
                2,
            ),
        )

    def head_gradient(self) -> Allocations:
        """Of the output head, in 16 bits and undivided until the embedding's is there too."""
        if self.trained != self.parameters or self.prefix:
            return ()
        return (
            allocate(
                kinds.HEAD_GRADIENT[self.critic],
                "measured",
                (("parameters of the head", self.shape.head),),
                2,
            ),
        )

    def kept(self, tokens: float) -> Allocations:
        """What the forward pass keeps for the backward pass."""
        return self._kept(tokens, 0)

    def remaining_activations(self, tokens: float, kept: Allocations) -> Allocations:
        """What is left of it while the last layer is at work, whose own tensors ``working`` counts."""
        return kept if self.role.checkpointing else self._kept(tokens, 1)

    def _kept(self, tokens: float, without: int) -> Allocations:
        shape = self.shape
        offloads = self.role.activation_offload and shape.layers >= 3
        layers = (
            "layers on the GPU" if offloads else "layers",
            (2.0 if offloads else shape.layers) - without,
        )
        if self.role.checkpointing:
            variables = (("tokens", tokens), ("hidden size", float(shape.hidden)), layers)
            return (
                allocate(
                    kinds.LAYER_INPUTS[self.critic],
                    "exact",
                    variables,
                    2,
                ),
            )
        variables = (("tokens", tokens), ("bytes a layer keeps", self._widths()[1]), layers)
        evidence = self.shape.evidence
        return (
            allocate(
                kinds.ACTIVATIONS[self.critic],
                evidence,
                variables,
                unit="",
            ),
        )

    def working(self, tokens: float) -> Allocations:
        """What the layer at work in the backward pass has alive."""
        working, saved = self._widths()
        working = max(working, saved)
        return (self._at_work(tokens, working),)

    def _widths(self) -> tuple[float, float]:
        """Bytes a token that the layer at work has alive, and that a layer keeps."""
        if self.role.lora_rank:
            return self.shape.adapted(self.role.targets)
        return self.shape.working, self.shape.saved

    def forward(self, tokens: float) -> Allocations:
        """What the layer at work has alive without gradients."""
        return (self._at_work(tokens, self.shape.forward),)

    def _at_work(self, tokens: float, width: float) -> Allocation:
        evidence = self.shape.evidence
        return per_token(kinds.WORKING_SET[self.critic], evidence, tokens, width, "bytes of a layer")

    @property
    def _gathering(self) -> Evidence:
        """FSDP1 was measured; FSDP2 is taken to gather the same."""
        return "measured" if self.role.backend == "fsdp" else "assumed"

    def _states(self, kind: tuple[Kind, Kind], count: float, size: float) -> Allocation:
        what = (
            "parameters"
            if count == self.parameters
            else "trained parameters"
            if count == self.trained
            else "parameters with adapters"
        )
        return sharded(kind[self.critic], count, size, self.shard, what)


def actor_of(shape: Shape, role: Role) -> FsdpRole:
    """The actor."""
    return FsdpRole(shape, role, shape.parameters, _trained(shape, role, shape.parameters))


def critic_of(shape: Shape, role: Role) -> FsdpRole:
    """The critic: the same layers, and a head that gives one number."""
    count = shape.critic_parameters
    return FsdpRole(shape, role, count, _trained(shape, role, count), "critic-")


def _trained(shape: Shape, role: Role, parameters: int) -> int:
    return adapter_count(shape, role.lora_rank, role.targets) if role.lora_rank else parameters


@lru_cache(maxsize=1024)
def adapter_count(shape: Shape, rank: int, targets: Targets) -> int:
    """Parameters of the adapters; kept, since counting takes longer than the rest of an estimate."""
    return lora_parameters(shape.architecture, rank, targets)
