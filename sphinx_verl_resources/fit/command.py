"""The command that runs verl with the settings of a layout, ready to copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..memory.registries import EstimatorContext
from ..memory.request import ACTOR, MODEL, REFERENCE, ROLLOUT
from ..memory.settings import TRAINER_GPUS
from ..memory.versions import Version
from ..texts import LAUNCHER, overrides
from .levers import passes_of
from .search import Layout

#: The separator between the settings of a command.
SEPARATOR = " \\\n    "
#: The first version in which ``model_engine=megatron`` selects Megatron, where older ones use another config
#: file, and in which the trainers with separate rollout engines are part of verl, where they were recipes.
_TODAY: Version = (0, 8, 0)
_BEFORE = "--config-name=ppo_megatron_trainer.yaml"
#: The trainers whose rollout engines have separate GPUs, each with its module, by a section that only its
#: settings have.
_TRAINERS = {"async_training": ("fully_async", "fully_async_main"), "rollout": ("one_step_off", "main_ppo")}
#: The data files of verl's GRPO and PPO scripts for text models (examples/grpo_trainer/run_qwen3_8b_fsdp.sh
#: and examples/ppo_trainer/run_qwen3_8b_fsdp.sh at 1dda039b9).
_HOME = "$HOME/data/gsm8k"
_GSM8K = {"data.train_files": f"{_HOME}/train.parquet", "data.val_files": f"{_HOME}/test.parquet"}
_TODO = "# Replace TODO with the paths of your data files."
#: verl's script for DeepSeek-V3 asks for the same (examples/grpo_trainer/run_deepseek_v3_671b_megatron.sh at
#: 1dda039b9).
_FP8 = "# The published checkpoint is FP8: convert it to bfloat16 and remove quantization_config first."
#: The sections in the order of a command; other settings come last.
_ORDER = ("algorithm.", "data.", f"{MODEL}.", f"{ACTOR}.", f"{REFERENCE}.", f"{ROLLOUT}.", "critic.")
#: Settings that select the backend, besides the configuration.
_STRATEGIES = ("model_engine", f"{ACTOR}.strategy", f"{REFERENCE}.strategy", "critic.strategy")
#: Sections with the same keys as another section.
_TWINS = {"critic.fsdp.": f"{ACTOR}.fsdp_config.", "critic.": f"{ACTOR}.", f"{REFERENCE}.": f"{ACTOR}."}


def command_of(layout: Layout, data: EstimatorContext) -> str:
    """Return the command, one setting per line, below comments about what it needs.

    Model, GPUs and settings are those of the layout. Data files are GSM8K where verl's script for the task
    uses it, and otherwise TODO.

    >>> from sphinx_verl_resources.fit.answer import answer
    >>> from sphinx_verl_resources.fit.question import Question
    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> data = EstimatorContext()
    >>> best = answer(Question("Qwen/Qwen2.5-0.5B", 8, "H100"), data).best
    >>> command_of(best, data).splitlines()[-1].strip()
    'trainer.logger=console'
    """
    settings, version, task = command_settings(layout), layout.request.version, layout.request.task
    architecture = layout.estimate.shape.architecture
    is_gsm8k = not architecture.vision and task in (None, "GRPO", "PPO")
    files = {key: path if is_gsm8k else "TODO" for key, path in _GSM8K.items() if key not in settings}
    comments = [_TODO] if "TODO" in files.values() else []
    comments += [_FP8] if any("is FP8" in note for note in architecture.notes) else []
    words = launcher(version, settings, is_megatron=layout.is_megatron)
    words += [f"{key}={path}" for key, path in files.items()]  # not quoted: the shell replaces $HOME
    words += as_arguments(settings, version, data)
    words += [] if "trainer.logger" in settings else ["trainer.logger=console"]
    return "\n".join([*comments, SEPARATOR.join(words)])


def command_settings(layout: Layout) -> dict[str, Any]:
    """Return the settings in a layout's command, in order, without the data files.

    Settings for a critic are left out if there is none. Unset micro-batch sizes are added, since verl does
    not start without them.
    """
    request, values = layout.request, layout.estimate.settings
    # verl/utils/config.py:141, verl/workers/config/actor.py:208 and critic.py:108 at 1dda039b9.
    passes = {} if values.actor.micro_batch.dynamic else passes_of(values)
    sizes = {f"{start}micro_batch_size": micro.sequences or 1 for start, micro in passes.items()}
    settings = {
        f"{MODEL}.path": request.model,
        f"{ROLLOUT}.name": request.engine or "vllm",
        "critic.model.path": request.model,
        **dict(zip(TRAINER_GPUS, (values.nodes, -(-values.gpus // values.nodes)), strict=True)),
        **{f"{key}_per_gpu": size for key, size in sizes.items() if request.config.get(key) is None},
        **request.config,
    }
    left_out = (*_STRATEGIES * layout.is_megatron, *(() if values.critic else ("critic.",)))
    order = sorted(settings, key=lambda key: [not key.startswith(section) for section in _ORDER])
    return {key: settings[key] for key in order if not key.startswith(left_out)}


def launcher(version: Version, settings: Mapping[str, Any], *, is_megatron: bool) -> list[str]:
    """Return the command that launches a version of verl, and the arguments for trainer and backend.

    >>> launcher((0, 9, 0), {}, is_megatron=True)
    ['python3 -m verl.trainer.main_ppo', 'model_engine=megatron']
    >>> launcher((0, 9, 0), {"rollout.nnodes": 1}, is_megatron=False)
    ['python3 -m verl.experimental.one_step_off_policy.main_ppo']
    """
    sections = {key.partition(".")[0] for key in settings}
    for section, (name, main) in _TRAINERS.items():
        if section in sections:
            package = "verl.experimental" if version >= _TODAY else "recipe"
            options = f" --config-path=config --config-name={name}_ppo_megatron_trainer.yaml"
            return [f"python3 -m {package}.{name}_policy.{main}" + (options if is_megatron else "")]
    if not is_megatron:
        return [LAUNCHER]
    return [f"{LAUNCHER} {_BEFORE}"] if version < _TODAY else [LAUNCHER, "model_engine=megatron"]


def as_arguments(settings: Mapping[str, Any], version: Version, data: EstimatorContext) -> tuple[str, ...]:
    """Return settings as arguments of verl's launcher, under their names in a version of verl."""
    return tuple(overrides({_spelling(key, version, data): value for key, value in settings.items()}))


def _spelling(key: str, version: Version, data: EstimatorContext) -> str:
    """Return a key under its name in a version of verl, with Hydra's prefix if verl's YAML files lack it.

    An unrecorded key may exist or not: two plus signs work in both cases.
    """
    twin = next((other + key.removeprefix(own) for own, other in _TWINS.items() if key.startswith(own)), key)
    entry = data.config_keys.get(key) or data.config_keys.get(twin)
    plus = "" if entry and entry.in_yaml else "+" if data.known_key(key) or data.known_key(twin) else "++"
    return plus + (data.name_in(key, version) or key)
