"""The command that runs verl with the settings of a layout, complete and ready to copy."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..memory.request import ACTOR, MODEL, REFERENCE, ROLLOUT
from ..texts import LAUNCHER, overrides

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..memory.registries import EstimatorContext
    from ..memory.settings import Settings
    from ..memory.versions import Version
    from ..registries import ConfigKey
    from .layouts import Layout

#: The separator between the settings of a command.
SEPARATOR = " \\\n    "
#: The first version in which ``model_engine=megatron`` selects Megatron; older ones use another config file.
_MODEL_ENGINE: Version = (0, 8, 0)
_BEFORE = "--config-name=ppo_megatron_trainer.yaml"
#: The trainers whose rollout engines have separate GPUs, by a section that only their settings have. They
#: were recipes before they became part of verl.
_TRAINERS = {
    "async_training": ("fully_async_policy.fully_async_main", "fully_async_ppo_megatron_trainer.yaml"),
    "rollout": ("one_step_off_policy.main_ppo", "one_step_off_ppo_megatron_trainer.yaml"),
}
_IN_VERL: Version = (0, 8, 0)
#: Placeholders for data files, with shell variables.
_PLACEHOLDERS = {
    "data.train_files": "$HOME/data/gsm8k/train.parquet",
    "data.val_files": "$HOME/data/gsm8k/test.parquet",
}
_LOGGER = "trainer.logger"
_ORDER = ("algorithm.", "data.", f"{MODEL}.", f"{ACTOR}.", f"{REFERENCE}.", f"{ROLLOUT}.", "critic.", "")
#: Settings that select the backend, besides the configuration.
_STRATEGIES = {"model_engine", f"{ACTOR}.strategy", f"{REFERENCE}.strategy", "critic.strategy"}
#: Sections with the same keys as another section.
_TWINS = (
    ("critic.fsdp.", f"{ACTOR}.fsdp_config."),
    ("critic.", f"{ACTOR}."),
    (f"{REFERENCE}.", f"{ACTOR}."),
)


def command_of(layout: Layout, registries: EstimatorContext) -> str:
    """Return the command, with one setting per line.

    The model, GPUs and all settings are those of the layout; the user must replace the data files.

    >>> from sphinx_verl_resources.answer.answer import answer
    >>> from sphinx_verl_resources.answer.question import Question
    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> data = EstimatorContext()
    >>> found = answer(Question("Qwen/Qwen2.5-0.5B", 8, "H100"), data)
    >>> command_of(found.best, data).splitlines()[-1].strip()
    'trainer.logger=console'
    """
    return SEPARATOR.join(_words(layout, registries))


def command_settings(layout: Layout) -> dict[str, Any]:
    """Return the settings in a layout's command, in order, without the data files.

    Settings for a critic are left out if there is none. Unset micro-batch sizes are added, since verl does
    not start without them.
    """
    request, found = layout.request, layout.estimate.settings
    settings = {
        f"{MODEL}.path": request.model,
        f"{ROLLOUT}.name": request.engine or "vllm",
        "critic.model.path": request.model,
        **_gpus(found),
        **dict(_micro_batches(found, request.config)),
        **request.config,
    }
    left_out = _STRATEGIES if layout.is_megatron else set()
    kept = {
        key: value
        for key, value in settings.items()
        if key not in left_out and (found.critic or not key.startswith("critic."))
    }
    return dict(sorted(kept.items(), key=lambda pair: _rank(pair[0])))


def _micro_batches(found: Settings, config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the micro-batch sizes that verl requires without a dynamic batch size, as in the estimate.

    verl/utils/config.py:141, verl/workers/config/actor.py:208 and critic.py:108 at 1dda039b9.
    """
    of_actor = found.actor.micro_batch
    sizes = {
        f"{ACTOR}.ppo_micro_batch_size": of_actor,
        f"{ROLLOUT}.log_prob_micro_batch_size": found.old_micro_batch,
    }
    if found.reference:
        sizes[f"{REFERENCE}.log_prob_micro_batch_size"] = found.reference_micro_batch
    if found.critic and not config.get("critic.use_dynamic_bsz"):
        sizes["critic.ppo_micro_batch_size"] = found.critic.micro_batch
    for key, micro in () if of_actor.dynamic else sizes.items():
        if config.get(key) is None and config.get(f"{key}_per_gpu") is None:
            yield f"{key}_per_gpu", micro.sequences or 1


def _gpus(found: Settings) -> dict[str, int]:
    nodes = max(1, found.nodes)
    return {"trainer.nnodes": nodes, "trainer.n_gpus_per_node": -(-found.gpus // nodes)}


def _words(layout: Layout, registries: EstimatorContext) -> Iterator[str]:
    settings, version = command_settings(layout), layout.request.version
    yield from launcher(version, settings, is_megatron=layout.is_megatron)
    data = {key: place for key, place in _PLACEHOLDERS.items() if key not in settings}
    yield from (f"{key}={place}" for key, place in data.items())
    yield from as_arguments(settings, version, registries)
    if _LOGGER not in settings:
        yield f"{_LOGGER}=console"


def launcher(version: Version, settings: Mapping[str, Any], *, is_megatron: bool) -> list[str]:
    """Return the command that launches a version of verl, and the arguments for trainer and backend.

    >>> launcher((0, 9, 0), {}, is_megatron=True)
    ['python3 -m verl.trainer.main_ppo', 'model_engine=megatron']
    >>> launcher((0, 9, 0), {"rollout.nnodes": 1}, is_megatron=False)
    ['python3 -m verl.experimental.one_step_off_policy.main_ppo']
    """
    sections = {key.partition(".")[0] for key in settings}
    for section, (module, of_megatron) in _TRAINERS.items():
        if section in sections:
            package = "verl.experimental" if version >= _IN_VERL else "recipe"
            command = f"python3 -m {package}.{module}"
            return [f"{command} --config-path=config --config-name={of_megatron}" if is_megatron else command]
    if not is_megatron:
        return [LAUNCHER]
    return [f"{LAUNCHER} {_BEFORE}"] if version < _MODEL_ENGINE else [LAUNCHER, "model_engine=megatron"]


def as_arguments(
    settings: Mapping[str, Any], version: Version, registries: EstimatorContext
) -> tuple[str, ...]:
    """Return settings as arguments of verl's launcher, under their names in a version of verl."""
    words = []
    for key, value in settings.items():
        plus, name = _spelling(key, version, registries)
        (word,) = overrides({name: value})
        words.append(plus + word)
    return tuple(words)


@lru_cache(maxsize=4096)
def _spelling(key: str, version: Version, registries: EstimatorContext) -> tuple[str, str]:
    """Return Hydra's prefix for a key, and its name in a version of verl; cached for use in many commands."""
    return _plus(key, registries), registries.name_in(key, version) or key


@lru_cache(maxsize=4096)
def _rank(key: str) -> int:
    found = (place for place, prefix in enumerate(_ORDER) if key.startswith(prefix))
    return next(found, len(_ORDER))


def _plus(key: str, registries: EstimatorContext) -> str:
    """Return Hydra's prefix for a key that is missing in verl's composed configuration.

    An unrecorded key may exist or not: two plus signs work in both cases.
    """
    entry = _entry(key, registries.config_keys)
    if entry is not None:
        return "" if entry.in_yaml else "+"
    return "+" if registries.known_key(key) or registries.known_key(_twin(key)) else "++"


def _entry(key: str, keys: Any) -> ConfigKey | None:
    found: ConfigKey | None = keys.get(key) or keys.get(_twin(key))
    return found


def _twin(key: str) -> str:
    for own, other in _TWINS:
        if key.startswith(own):
            return other + key.removeprefix(own)
    return key
