"""Read the settings of a request: value by value, and into fields that declare their keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from ..diagnostics import Code, Diagnostic
from .registries import EstimatorContext
from .request import ACTOR, MODEL, REFERENCE, ROLLOUT, ROOT, Backend, Request, error_at, warning_at
from .versions import behaviour

BYPASS = "algorithm.rollout_correction.bypass_mode"
#: Differing defaults of the trainers whose rollout engines have separate GPUs.
_OF_POOLS = {BYPASS: True, f"{MODEL}.use_remove_padding": True}
#: Options of the rollout engines by their own names, which override verl's keys; an engine reads only its own
#: (engine_kwargs of verl/workers/rollout/vllm_rollout/vllm_async_server.py and
#: sglang_rollout/async_sglang_server.py).
ENGINE_OPTIONS = {
    f"{ROLLOUT}.engine_kwargs.{engine}.{option}": f"{ROLLOUT}.{key}"
    for key, options in {
        "gpu_memory_utilization": {"vllm": "gpu_memory_utilization", "sglang": "mem_fraction_static"},
        "max_model_len": {"vllm": "max_model_len", "sglang": "context_length"},
        "max_num_seqs": {"vllm": "max_num_seqs", "sglang": "max_running_requests"},
        "max_num_batched_tokens": {"vllm": "max_num_batched_tokens"},
        "enforce_eager": {"vllm": "enforce_eager", "sglang": "disable_cuda_graph"},
        "dtype": {"vllm": "dtype", "sglang": "dtype"},
        "quantization": {"vllm": "quantization", "sglang": "quantization"},
        "tensor_model_parallel_size": {"vllm": "tensor_parallel_size", "sglang": "tp_size"},
    }.items()
    for engine, option in options.items()
}
#: Bytes of a number, by the data types that verl accepts.
DATA_TYPES = {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2, "half": 2}
#: Larger numbers are rejected.
_MOST = 10**12


class Reader:
    """The settings of a request, with verl's defaults for unset keys; the defaults are not checked.

    Attributes:
        request: the request.
        config: its settings under today's names, always with the rollout engine.
        defaults, traits: the defaults and the behaviour of its version of verl.
        gpus: the number of training GPUs, once read.
        backend: the training backend of the role that is read; after the roles, that of the actor.
        engine: the rollout engine; another one than vLLM and SGLang, with which no figure is valid, counts as
            vLLM.
        is_easyr1: whether the framework is EasyR1.
        fully_async: whether the run uses the fully asynchronous trainer.
        has_rollout_pool: whether its trainer has a separate pool of GPUs for rollout engines.
        diagnostics: the problems, in the order of reading.
    """

    def __init__(self, request: Request, registries: EstimatorContext) -> None:
        self.request = request
        self.config = _as_verl(registries.in_todays_names(request.config), request.engine)
        sections = {key.partition(".")[0] for key in self.config}
        self.fully_async = self.config.get("data.train_batch_size") == 0 or "async_training" in sections
        apart = self.config.get(f"{ROOT}.hybrid_engine") is False or "rollout" in sections
        self.has_rollout_pool = self.fully_async or apart
        defaults = registries.defaults(request.version)
        self.defaults = {**defaults, **_OF_POOLS} if self.has_rollout_pool else defaults
        self.traits = behaviour(request.version)
        self.engine = "sglang" if self.config[f"{ROLLOUT}.name"] == "sglang" else "vllm"
        self.is_easyr1 = request.framework.lower().startswith("easyr1")
        self.gpus = 1
        self.backend: Backend = "fsdp"
        self.diagnostics: list[Diagnostic] = []

    def error(self, key: str, message: str, remedy: str = "") -> None:
        """Record a problem that prevents an estimate."""
        self.diagnostics.append(error_at(key, message, remedy))

    def warning(self, key: str, message: str, remedy: str = "", code: Code = "wrong_value") -> None:
        """Record a problem that does not prevent an estimate."""
        self.diagnostics.append(warning_at(key, message, remedy, code))

    def is_set(self, key: str) -> bool:
        """Return whether the user set a key to anything but null."""
        return self.config.get(key) is not None

    def first_set(self, *keys: str) -> str:
        """Return the first key that the user set; the last key if none is set."""
        return next(filter(self.is_set, keys), keys[-1])

    # With several keys, the first that is set counts; if none is, the last key's default.

    def any(self, key: str, *others: str) -> Any:
        """Return a value of any type; verl's default if it refers to another setting."""
        key = self.first_set(key, *others) if others else key
        value = self.config.get(key, self.defaults.get(key))
        if isinstance(value, str) and "${" in value:
            message = f"{value!r} refers to another setting: verl's default is used"
            self.warning(key, message, "write the value itself", "unresolved")
            return self.defaults.get(key)
        return value

    def instead_of(self, value: Any, expected: str, *keys: str) -> Any:
        """Return verl's default instead of a wrong value, and record an error."""
        key = self.first_set(*keys)
        self.error(key, f"expected {expected}, got {value!r}")
        return self.defaults.get(key)

    def flag(self, *keys: str) -> bool:
        """Return a boolean; null counts as False."""
        value = self.any(*keys)
        if value is not None and type(value) is not bool:
            value = self.instead_of(value, "true or false", *keys)
        return bool(value)

    def is_not_off(self, *keys: str) -> bool:
        """Return whether none of the keys is False."""
        return all(self.any(key) is not False for key in keys)

    def optional(self, *keys: str, least: int = 1) -> int | None:
        """Return a whole number or None."""
        value = self.any(*keys)
        if type(value) is float and value.is_integer():
            value = int(value)
        if value is not None and not (type(value) is int and least <= value <= _MOST):
            value = self.instead_of(value, f"a whole number from {least} to 10^12", *keys)
        return value  # type: ignore[no-any-return]

    def whole(self, *keys: str, least: int = 1) -> int:
        """Return a whole number; for null verl's default, otherwise ``least``."""
        value = self.optional(*keys, least=least)
        return self.defaults.get(keys[-1]) or least if value is None else value

    def share(self, key: str) -> float:
        """Return a number from 0 to 1; for null verl's default, otherwise 0."""
        value = self.any(key)
        if value is not None and not (type(value) in (int, float) and 0 <= value <= 1):
            value = self.instead_of(value, "a number from 0 to 1", key)
        return float(self.defaults.get(key) or 0 if value is None else value)

    def data_type(self, key: str) -> int:
        """Return the bytes of one number of the data type; 4 for null."""
        value = self.any(key)
        if value not in (None, *DATA_TYPES):
            value = self.instead_of(value, f"one of {', '.join(DATA_TYPES)}", key)
        return DATA_TYPES.get(value, 4)

    def element_bytes(self, data_type: str, quantization: str) -> float:
        """Return the bytes per weight of a rollout engine; 1 is assumed for quantized weights."""
        if self.any(quantization) is not None:
            return 1.0
        return float(DATA_TYPES.get(str(self.any(data_type)), 2))

    def divisor(self, key: str, size: int, product: str = "", gpus: int | None = None) -> int:
        """Return a size if it divides the number of GPUs; otherwise record an error, and return 1."""
        gpus = gpus or self.gpus
        if not gpus % size:
            return size
        self.error(key, f"{product}{size} does not divide the {gpus} GPUs", "choose a divisor")
        return 1


def _as_verl(config: Mapping[str, Any], engine: str | None) -> Mapping[str, Any]:
    """Set the rollout engine, and translate its own options and a setting of EasyR1 into verl's keys."""
    engine = config.get(f"{ROLLOUT}.name") or engine or "vllm"
    own = f"{ROLLOUT}.engine_kwargs.{engine}."
    options = {key: config.get(name) for name, key in ENGINE_OPTIONS.items() if own in name}
    options = {key: value for key, value in options.items() if value is not None}
    if (mode := str(config.get("easyr1.dtype"))).startswith("bf16"):
        options[f"{ACTOR}.fsdp_config.model_dtype"] = "bf16"
        options |= {f"{ACTOR}.optim.optimizer": "adamw_bf16"} if "adamw_bf16" in mode else {}
    return {**config, **options, f"{ROLLOUT}.name": engine}


# -- fields that declare their keys


class Sections(NamedTuple):
    """The sections of verl's configuration with the keys of a role."""

    role: str
    model: str
    fsdp: str
    megatron: str


OF_ACTOR = Sections(ACTOR, MODEL, f"{ACTOR}.fsdp_config", f"{ACTOR}.megatron")
OF_CRITIC = Sections("critic", "critic.model", "critic.fsdp", "critic.megatron")
OF_REFERENCE = Sections(REFERENCE, MODEL, f"{REFERENCE}.fsdp_config", f"{REFERENCE}.megatron")

_Fields = TypeVar("_Fields")


def setting(read: Callable[..., Any], *keys: str, default: Any = None) -> Any:
    """Declare a field of settings.

    Args:
        read: the function that returns the value, given a reader and the keys.
        keys: verl's keys; ``{role}``, ``{model}``, ``{fsdp}`` and ``{megatron}`` are sections of a role.
        default: the value of a field that is not read.
    """
    return field(default=default, metadata={"setting": (read, keys)})


def read_fields(cls: type[_Fields], reader: Reader, of: Sections = OF_ACTOR, **others: Any) -> _Fields:
    """Return settings: read the fields declared with ``setting``, and take the others as they are."""
    own = {name: read(reader, *keys) for name, read, keys in _declared(cls, of)}  # type: ignore[arg-type]
    return cls(**own, **others)


def keys_of(of: Sections, *classes: type) -> list[str]:
    """Return verl's keys that the fields of some classes declare for a role."""
    return [key for cls in classes for _name, _read, keys in _declared(cls, of) for key in keys]


@lru_cache(maxsize=64)  # saves 0.1 of the 0.5 ms of an estimate
def _declared(cls: Any, of: Sections) -> list[tuple[str, Callable[..., Any], tuple[str, ...]]]:
    """Return the declared fields, each with its function and its keys."""
    declared = [(item.name, *item.metadata["setting"]) for item in fields(cls) if item.metadata]
    sections = of._asdict()
    return [(name, read, tuple(key.format_map(sections) for key in keys)) for name, read, keys in declared]
