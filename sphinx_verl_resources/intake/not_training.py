"""Reject launch scripts that do not train with reinforcement learning.

For supervised fine-tuning the remedy is a call of ``estimate_training``, with its result if the script
contains all arguments.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..diagnostics import Code, Diagnostic, Location
from ..estimator.request import DATA_TYPES
from ..estimator.training import Training, estimate_training
from ..settings.programs import Program
from ..units import gib
from .recorded_names import model_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..estimator.registries import Registries
    from ..settings.programs import Kind
    from ..settings.result import SettingsText

_TRAINING = "give the script that trains"
#: For each kind of program, what it does and what to do instead.
_OTHERS: Mapping[Kind, tuple[str, str]] = {
    "sft": ("{name} is supervised fine-tuning, not reinforcement learning", ""),
    "generation": ("{name} generates responses and does not train", _TRAINING),
    "evaluation": ("{name} scores responses and does not train", _TRAINING),
    "conversion": ("{name} converts checkpoints and does not train", _TRAINING),
    "data": ("{name} prepares data and does not train", _TRAINING),
    "cluster": ("{name} starts or stops a Ray cluster; the script does not train", _TRAINING),
    "script": (
        "the script starts another script, {name}, and lacks some of its settings",
        "give that script",
    ),
    "other": ("{name} is not one of verl's trainers", _TRAINING),
}

#: The keys of the model's path; the trainer before v0.7.0 uses the second.
_MODEL, _OLD_MODEL = "model.path", "model.partial_pretrain"
_OLD = "fsdp_sft_trainer"
#: Settings that change memory, with verl's defaults (sft_trainer_engine.yaml and engine/fsdp.yaml in
#: verl/trainer/config at 1dda039b9).
_DEFAULTS: Mapping[str, Any] = {
    "data.use_dynamic_bsz": True,
    "data.max_token_len_per_gpu": 8192,
    "data.micro_batch_size_per_gpu": 4,
    "data.max_length": 1024,
    "engine.model_dtype": "fp32",
    "model.enable_gradient_checkpointing": True,
    "model.lora_rank": 0,
    "model.target_modules": "all-linear",
    "model.use_liger": False,
}
#: Keys that ``estimate_training`` does not support, with the values that have no effect.
_ONLY: Mapping[str, tuple[Any, ...]] = {
    "engine": ("fsdp",),
    "engine.strategy": ("fsdp", "fsdp2"),
    "engine.fsdp_size": (-1,),
    "engine.ulysses_sequence_parallel_size": (1,),
    "engine.param_offload": (False,),
    "engine.optimizer_offload": (False,),
    "engine.offload_policy": (False,),
    "model.fsdp_config.cpu_offload": (False,),
    "model.fsdp_config.offload_params": (False,),
    "ulysses_sequence_parallel_size": (1,),
}
#: Parts of engine keys that only Megatron uses.
_OF_MEGATRON = ("model_parallel_size", "transformer_config")
_MODULE = "sphinx_verl_resources.estimator.training"


def refusal(script: SettingsText, registries: Registries) -> Diagnostic | None:
    """Return why a script is rejected; None if it trains with reinforcement learning."""
    program = script.program or Program("", "rl", next(iter(script.places.values()), Location("")))
    kind, name = program.kind, program.name
    if not name and _is_fine_tuning(script):
        kind, name = "sft", "this"
    if kind not in _OTHERS:
        return None
    message, remedy = _OTHERS[kind]
    remedy = remedy or _fine_tuning_remedy(script, registries)
    return Diagnostic(program.place, Code.not_training, message.format(name=name), remedy)


def _is_fine_tuning(script: SettingsText) -> bool:
    """Return whether the settings are for supervised fine-tuning."""
    keys = {*script.values, *script.unresolved}
    return bool(keys & {_MODEL, _OLD_MODEL}) and not any(key.startswith("actor_rollout_ref.") for key in keys)


def _fine_tuning_remedy(script: SettingsText, registries: Registries) -> str:
    """Return the call that estimates a fine-tuning run, with its result if the script has all arguments."""
    open_path = script.unresolved.get(_MODEL) or script.unresolved.get(_OLD_MODEL)
    paths = script.values.get(_MODEL), script.values.get(_OLD_MODEL)
    model = model_of(registries.architectures, *paths, left_open=open_path).model
    training = _training(script, model or "", _gpus(script) or 0)
    if training is None:
        return (
            f"estimate_training of {_MODULE} estimates its memory in Python, but only for FSDP without "
            "offloading or sequence parallelism"
        )
    shown = {
        "lora_rank": training.lora_rank,
        "targets": training.targets,
        "parameter_bytes": training.parameter_bytes,
        "autocast": training.autocast,
        "optimizer": training.optimizer,
        "shard": training.shard or ...,
        "tokens": training.tokens,
        "recompute": training.recompute,
        "loss": training.loss,
    }
    fields = ", ".join(f"{name}={'…' if value is ... else repr(value)}" for name, value in shown.items())
    call = f"estimate_training(Training({training.model or '…'!r}, {fields}), registries) of {_MODULE}"
    if not (training.model and training.shard):
        return f"to estimate its memory, call {call}"
    found = estimate_training(training, registries)
    return f"its peak is {gib(found.peak)} per GPU ({gib(found.low)} to {gib(found.high)}), from {call}"


def _training(script: SettingsText, model: str, gpus: int) -> Training | None:
    """Return the run; None if a setting is unknown or unsupported."""
    values = {**_DEFAULTS, **script.values}
    if script.program and _OLD in script.program.name:
        data_type = script.values.get("model.fsdp_config.model_dtype", "fp32")
        values |= {"data.use_dynamic_bsz": False, "engine.model_dtype": data_type}
    others = any(values.get(key, allowed[0]) not in allowed for key, allowed in _ONLY.items())
    others |= any(word in key for key in values if key.startswith("engine.") for word in _OF_MEGATRON)
    size = DATA_TYPES.get(str(values["engine.model_dtype"]))
    rank, budget = values["model.lora_rank"], values["data.max_token_len_per_gpu"]
    micro, length = values["data.micro_batch_size_per_gpu"], values["data.max_length"]
    numbers = all(type(number) is int for number in (rank, budget, micro, length))
    if others or size is None or not numbers or script.unresolved.keys() & {*_DEFAULTS, *_ONLY}:
        return None
    return Training(
        model=model,
        lora_rank=rank,
        targets="all-linear" if rank else (),
        parameter_bytes=size,
        autocast=size == 4,
        optimizer="adamw-foreach",
        shard=gpus,
        tokens=float(budget if values["data.use_dynamic_bsz"] is True else micro * length),
        recompute=values["model.enable_gradient_checkpointing"] is True,
        loss="liger" if values["model.use_liger"] is True else "torch",
        gpus=gpus,
    )


def _gpus(script: SettingsText) -> int | None:
    """Return the number of processes that torchrun starts, one per GPU; None if unknown."""
    words = " ".join(script.program.launcher if script.program else ())
    each = _option("nproc[-_]per[-_]node", words) or script.values.get("trainer.n_gpus_per_node")
    nodes = _option("nnodes", words) or script.values.get("trainer.nnodes", 1)
    return nodes * each if type(nodes) is int and type(each) is int else None


def _option(name: str, words: str) -> int | str | None:
    """Return the number of a torchrun option, ``"?"`` if it is not a number, or None without the option."""
    found = re.search(rf"--{name}(?:=| )(\S*)", words)
    return (int(found[1]) if re.fullmatch(r"[0-9]{1,6}", found[1]) else "?") if found else None
