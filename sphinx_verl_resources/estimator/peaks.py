"""Peak, range and verdict of every estimate, and the one setting that lowers the peak most."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from .engine import cache_tokens
from .phases import phases_of
from .request import ACTOR, MODEL, REFERENCE, ROLLOUT
from .settings import sequence_divisor
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..breakdown import Breakdown
    from ..diagnostics import Diagnostic
    from .phases import Phase
    from .registries import Registries
    from .settings import Role, Settings
    from .shape import Shape
    from .tokens import MicroBatch
    from .versions import Version

Verdict = Literal["fits", "tight", "does not fit", "unknown"]

#: The kinds of cases that ranges rest on. Plain fine-tuning, a single counter, known token counts:
TRAINING = "training"
#: verl's own metric with FSDP, a dense text model and no critic.
LOGGED = "verl-log"
#: Everything else: Megatron, experts, vision, a critic, other engines.
OTHER = "other"


@dataclass(frozen=True)
class Range:
    """Factors from a computed value to both ends of its range.

    Attributes:
        kind: the cases that it rests on.
        low: for the lower end.
        high: for the upper end.
    """

    kind: str
    low: float
    high: float


def range_of(kind: str, registries: Registries) -> Range:
    """Return the range of a kind of runs; from nothing to twice the value where none is recorded."""
    found = registries.accuracy.get(kind)
    return Range(kind, (found and found.low) or 0.0, (found and found.high) or 2.0)


class AnyEstimate:
    """The base of estimates: of runs of verl, and of plain fine-tuning. Sizes are bytes on the fullest GPU.

    Attributes:
        shape: of the model.
        phases: in the order in which they take turns.
        range: of measured values around computed ones.
        capacity: bytes that the GPU offers to programs; None if it is not known.
        warnings: about the request.
        unsupported: settings that the estimate ignores, each with a reason.
    """

    shape: Shape
    phases: tuple[Phase, ...]
    range: Range
    capacity: float | None
    warnings: tuple[Diagnostic, ...] = ()
    unsupported: tuple[str, ...] = ()

    @property
    def version(self) -> Version | None:
        """The version of verl."""
        return None

    @property
    def host(self) -> Breakdown | None:
        """Host memory. Sizes are bytes per node."""
        return None

    @property
    def suggestion(self) -> Suggestion | None:
        """The one setting that lowers the peak most."""
        return None

    @cached_property
    def peak_phase(self) -> Phase:
        """The phase that sets the peak."""
        return max(self.phases, key=lambda phase: phase.total)

    @property
    def peak(self) -> float:
        """The most that is on the GPU at any moment: decides whether a run fits."""
        return self.peak_phase.total

    @property
    def low(self) -> float:
        """The lower end of the peak: tensors alone, without contexts, communicators and fragments."""
        return self.range.low * max(phase.allocated for phase in self.phases)

    @property
    def high(self) -> float:
        """The upper end of the peak."""
        return self.range.high * self.peak

    @property
    def torch_peak(self) -> float:
        """PyTorch's ``max_memory_allocated``."""
        return max(phase.counted for phase in self.phases)

    @property
    def torch_peak_range(self) -> tuple[float, float]:
        """Both ends of the range of ``torch_peak``."""
        return self.range.low * self.torch_peak, self.range.high * self.torch_peak

    @property
    def verdict(self) -> Verdict:
        """Compare both ends of the range with the capacity; "tight" if it is between them."""
        if self.capacity is None:
            return "unknown"
        if self.high <= self.capacity:
            return "fits"
        return "does not fit" if self.low > self.capacity else "tight"


@dataclass(frozen=True)
class Suggestion:
    """A change of one setting.

    Attributes:
        setting: as an override of verl, ``key=value``, or several that only work together.
        saves: bytes off the peak.
        peak: bytes that remain.
        peak_phase: the name of the phase that sets the peak then.
    """

    setting: str
    saves: float
    peak: float
    peak_phase: str


def suggestions(shape: Shape, settings: Settings, peak: float) -> Iterator[Suggestion]:
    """Yield every change of one setting that lowers the peak by more than a hundredth.

    >>> from sphinx_verl_resources.cli.data import load_registries
    >>> from sphinx_verl_resources.estimator.estimate import estimate
    >>> from sphinx_verl_resources.estimator.request import Request
    >>> config = {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.use_dynamic_bsz": True}
    >>> found = estimate(Request("Qwen/Qwen2.5-7B", config, gpus=8, gpu="H100"), load_registries([]))
    >>> found.suggestion in found.suggestions
    True
    """
    for setting, changed in _changes(shape, settings):
        peak_phase = max(phases_of(shape, changed), key=lambda phase: phase.total)
        saves = peak - peak_phase.total
        if saves > 0.01 * peak:
            yield Suggestion(setting, saves, peak_phase.total, peak_phase.name)


def _changes(shape: Shape, settings: Settings) -> Iterator[tuple[str, Settings]]:
    for setting, role in _role_changes(settings.actor, ACTOR, f"{ACTOR}.fsdp_config", MODEL):
        yield setting, replace(settings, actor=role)
    if settings.critic:
        for setting, role in _role_changes(settings.critic, "critic", "critic.fsdp", "critic.model"):
            yield setting, replace(settings, critic=role)
    yield from _rollout_changes(shape, settings)
    if not settings.fused_kernels:
        yield f"{MODEL}.use_fused_kernels=True", replace(settings, fused_kernels=True)
    if not settings.entropy_chunk:
        yield f"{ACTOR}.entropy_from_logits_with_chunking=True", replace(settings, entropy_chunk=2048)
    yield from _smaller_micro_batches(settings)


def _role_changes(role: Role, prefix: str, fsdp_prefix: str, model: str) -> Iterator[tuple[str, Role]]:
    """Yield changes of a role's own keys."""
    if role.backend == "megatron":
        yield from _megatron_changes(role, f"{prefix}.megatron", f"{prefix}.optim")
        return
    if not role.checkpointing:
        yield f"{model}.enable_gradient_checkpointing=True", replace(role, checkpointing=True)
    if not role.remove_padding:
        yield f"{model}.use_remove_padding=True", replace(role, remove_padding=True)
    names = ["param_offload", "optimizer_offload", *(["offload_policy"] if role.backend == "fsdp2" else [])]
    for name in names:
        if not getattr(role.fsdp, name):
            yield f"{fsdp_prefix}.{name}=True", replace(role, fsdp=replace(role.fsdp, **{name: True}))


def _megatron_changes(role: Role, prefix: str, optimizer: str) -> Iterator[tuple[str, Role]]:
    megatron = role.megatron

    def changed(**changes: float) -> Role:
        return replace(role, megatron=replace(megatron, **changes))  # type: ignore[arg-type]

    for name in ("param_offload", "optimizer_offload"):
        if not getattr(megatron, name):
            yield f"{prefix}.{name}=True", changed(**{name: True})
    if megatron.granularity != "full":
        # Megatron refuses full recomputation without a method and a number of layers.
        transformer = f"{prefix}.override_transformer_config.recompute_"
        values = ("granularity=full", "method=uniform", "num_layers=1")
        yield " ".join(transformer + value for value in values), changed(recompute=True, recompute_layers=1)
    if not megatron.cpu_optimizer:
        config = f"{optimizer}.override_optimizer_config.optimizer_"
        yield f"{config}cpu_offload=True {config}offload_fraction=1", changed(cpu_optimizer=1.0)


def lower_utilization(shape: Shape, settings: Settings) -> float | None:
    """Take a tenth of the GPU from the rollout engine; None if its cache would not hold a sequence then."""
    rollout = settings.rollout
    lower = round(rollout.utilization - 0.1, 2)
    if rollout.separate or lower <= 0.1:
        return None
    smaller = replace(settings, rollout=replace(rollout, utilization=lower))
    # With less, the engine does not start.
    return lower if cache_tokens(shape, smaller) >= settings.lengths.limit else None


def _rollout_changes(shape: Shape, settings: Settings) -> Iterator[tuple[str, Settings]]:
    rollout = settings.rollout
    if rollout.separate:
        return

    def changed(**changes: object) -> Settings:
        return replace(settings, rollout=replace(rollout, **changes))  # type: ignore[arg-type]

    lower = lower_utilization(shape, settings)
    if lower:
        yield f"{ROLLOUT}.gpu_memory_utilization={lower:g}", changed(utilization=lower)
    if not rollout.eager:
        yield f"{ROLLOUT}.enforce_eager=True", changed(eager=True)
    if not rollout.frees_cache:
        yield f"{ROLLOUT}.free_cache_engine=True", changed(frees_cache=True)
    if settings.actor.lora_rank and not rollout.layered_summon:
        settings_ = f"{ROLLOUT}.layered_summon=True {ROLLOUT}.load_format=safetensors"
        yield settings_, changed(layered_summon=True)


def _smaller_micro_batches(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """Yield micro-batches of half the size, for each pass that has them."""
    actor, critic = settings.actor, settings.critic
    size, budget = "ppo_micro_batch_size_per_gpu", "ppo_max_token_len_per_gpu"
    least = settings.lengths.limit / sequence_divisor(actor)
    for setting, micro in _halved(f"{ACTOR}.", size, budget, actor.micro_batch, least):
        yield setting, replace(settings, actor=replace(actor, micro_batch=micro))
    names = "log_prob_micro_batch_size_per_gpu", "log_prob_max_token_len_per_gpu"
    for setting, micro in _halved(f"{ROLLOUT}.", *names, settings.old_micro_batch, least):
        yield setting, replace(settings, old_micro_batch=micro)
    for setting, micro in _halved(f"{REFERENCE}.", *names, settings.reference_micro_batch, least):
        yield setting, replace(settings, reference_micro_batch=micro)
    if critic:
        if behaviour(settings.version).one_critic_budget:
            budget = "ppo_infer_max_token_len_per_gpu"
        for setting, micro in _halved("critic.", size, budget, critic.micro_batch, least):
            yield setting, replace(settings, critic=replace(critic, micro_batch=micro))


def _halved(
    prefix: str, size: str, budget: str, micro: MicroBatch, least: float
) -> Iterator[tuple[str, MicroBatch]]:
    """Yield half as large a micro-batch if it holds a sequence, which takes ``least`` tokens on a GPU."""
    if micro.dynamic:
        half = micro.tokens // 2
        if half >= least:
            yield f"{prefix}{budget}={half}", replace(micro, tokens=half)
    elif half := (micro.sequences or 1) // 2:
        yield f"{prefix}{size}={half}", replace(micro, sequences=half)
