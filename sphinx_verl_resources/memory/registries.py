"""The registries that estimates are computed from, with shapes, defaults and former names of keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError
from ..units import GIB, MIB
from .constants import DRIVER_RESERVE
from .names import no_model
from .request import dotted_leaves
from .shape import shape_of
from .versions import version_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..registries import ConfigKey, Gpu, Registry
    from .accuracy import Accuracy
    from .architectures import Architecture
    from .shape import Shape
    from .versions import Version

_ACTOR = "actor_rollout_ref.actor"
#: Sections that the actor and the critic share, with the same defaults.
_SHARED = {
    f"{_ACTOR}.fsdp_config.": "critic.fsdp.",
    f"{_ACTOR}.megatron.": "critic.megatron.",
    f"{_ACTOR}.optim.": "critic.optim.",
}
#: The least of its nominal memory that a GPU has: error correction takes a sixteenth of GDDR.
_LEAST = 0.93
#: The least that CUDA does not offer, for GPUs with both figures.
_SMALLEST_RESERVE = 0.4 * GIB


@dataclass(frozen=True, eq=False)
class Registries:
    """The registries of one catalog, with cached shapes and defaults."""

    gpus: Registry[Gpu]
    architectures: Registry[Architecture]
    config_keys: Registry[ConfigKey]
    accuracy: Registry[Accuracy]
    _shapes: dict[str, Shape] = field(default_factory=dict, repr=False, compare=False)
    _defaults: dict[Version, Mapping[str, Any]] = field(default_factory=dict, repr=False, compare=False)

    def shape(self, model: str) -> Shape | None:
        """Return the shape of a checkpoint, by its Hugging Face name or an alias; None if it is unknown."""
        if model not in self._shapes:
            architecture = self.architectures.get(model)
            if architecture is None:
                return None
            self._shapes[model] = shape_of(architecture)
        return self._shapes[model]

    def known_shape(self, model: str) -> Shape:
        """Return the shape of a checkpoint, by its Hugging Face name or an alias.

        Raises:
            NoAnswerError: the checkpoint is unknown.
        """
        shape = self.shape(model)
        if shape is None:
            raise NoAnswerError(no_model(model, self.architectures))
        return shape

    def defaults(self, version: Version) -> Mapping[str, Any]:
        """Return verl's defaults in a version, by dotted key.

        Unrecorded defaults of the critic are those of the actor.

        >>> from sphinx_verl_resources.memory.context import EstimatorContext
        >>> defaults = EstimatorContext().registries.defaults((0, 9, 0))
        >>> defaults["critic.megatron.sequence_parallel"], defaults["actor_rollout_ref.rollout.max_num_seqs"]
        (True, 256)
        """
        if version not in self._defaults:
            recorded = {key.name: _default(key, version) for key in self.config_keys}
            of_critic = {
                critic + name.removeprefix(actor): default
                for name, default in recorded.items()
                for actor, critic in _SHARED.items()
                if name.startswith(actor)
            }
            self._defaults[version] = {**of_critic, **recorded}
        return self._defaults[version]

    @cached_property
    def renamed(self) -> Mapping[str, str]:
        """Former names of verl's keys and their present names, for keys that were only renamed.

        >>> from sphinx_verl_resources.memory.context import EstimatorContext
        >>> EstimatorContext().registries.renamed["critic.model.fsdp_config.fsdp_size"]
        'critic.fsdp.fsdp_size'
        """
        before = {key.moved_from: key.name for key in self.config_keys if key.moved_from}
        moved = {key.name: key.moved_to for key in self.config_keys if key.status == "moved" and key.moved_to}
        return {**before, **moved}

    def known_key(self, key: str) -> ConfigKey | None:
        """Return the entry of a key or of its nearest parent; None if there is none.

        ``override_optimizer_config`` covers all keys below it.
        """
        while key:
            found = self.config_keys.get(key)
            if found is not None:
                return found
            key = key.rpartition(".")[0]
        return None

    def name_in(self, key: str, version: Version) -> str | None:
        """Return the name of a key in a version of verl; None if the version lacks it.

        >>> from sphinx_verl_resources.memory.context import EstimatorContext
        >>> name_in = EstimatorContext().registries.name_in
        >>> name_in("critic.fsdp.param_offload", (0, 7, 1)), name_in("critic.fsdp.param_offload", (0, 9, 0))
        ('critic.model.fsdp_config.param_offload', 'critic.fsdp.param_offload')
        """
        if self._is_in(key, version):
            return key
        shared = next((actor for actor, critic in _SHARED.items() if key.startswith(critic)), "")
        # The critic's keys moved together; some were added later, at the same time as the actor's.
        of_actor = shared + key.removeprefix(_SHARED[shared]) if shared else ""
        return self._former.get(key) if self._is_in(of_actor, version) else None

    def _is_in(self, key: str, version: Version) -> bool:
        known = self.known_key(key)
        since = version_of(known.since) if known else None
        return since is None or since <= version

    @cached_property
    def _former(self) -> Mapping[str, str]:
        """Former names of moved keys, including deprecated ones."""
        deprecated = {key.moved_to: key.name for key in self.config_keys if key.moved_to}
        return {**deprecated, **{key.name: key.moved_from for key in self.config_keys if key.moved_from}}

    def in_todays_names(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return settings with dotted keys under their present names.

        >>> from sphinx_verl_resources.memory.context import EstimatorContext
        >>> registries = EstimatorContext().registries
        >>> registries.in_todays_names({"critic.model.fsdp_config.fsdp_size": 8, "data": {"seed": 1}})
        {'critic.fsdp.fsdp_size': 8, 'data.seed': 1}
        """
        renamed = self.renamed
        if renamed.keys().isdisjoint(config) and not any(type(value) is dict for value in config.values()):
            return config
        flat = dict(dotted_leaves(config))
        older = {renamed[key]: value for key, value in flat.items() if key in renamed}
        return {**older, **{key: value for key, value in flat.items() if key not in renamed}}


def _default(key: ConfigKey, version: Version) -> Any:
    """Return the default in a version; before the first recorded change, that of this change."""
    default = key.default_changes[0].default if key.default_changes else key.default
    for change in key.default_changes:
        since = version_of(change.since)
        if since and since <= version:
            default = change.default
    return default


def capacity_of(gpu: Gpu) -> float:
    """Return the bytes that CUDA offers to programs: as recorded, or the driver's figure minus a reserve.

    >>> from sphinx_verl_resources.memory.context import EstimatorContext
    >>> round(capacity_of(EstimatorContext().gpus.get("H100")) / 2**30, 2)
    79.15
    """
    if gpu.cuda_total_gib is not None:
        return gpu.cuda_total_gib * GIB
    return gpu.memory_mib * MIB - DRIVER_RESERVE.value


def capacity_range(memory_gb: float) -> tuple[float, float]:
    """Return the least and the most bytes that CUDA offers on a GPU with this nominal memory.

    The GB in the names of GPUs are GiB. Source: all GPUs in gpus.yaml.

    >>> [round(size / 2**30, 1) for size in capacity_range(144)]
    [133.4, 143.6]
    """
    nominal = memory_gb * GIB
    return _LEAST * nominal - DRIVER_RESERVE.value, nominal - _SMALLEST_RESERVE
