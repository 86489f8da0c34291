"""Read the settings of a request: value by value, and into fields that declare their keys."""

from __future__ import annotations

from dataclasses import field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..diagnostics import Code, did_you_mean
from .request import ACTOR, DATA_TYPES, MODEL, REFERENCE, ROLLOUT, ROOT, error_at, warning_at
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ..diagnostics import Diagnostic
    from .registries import Registries
    from .request import Backend, Request

#: Differing defaults of the trainers whose rollout engines have separate GPUs.
_OF_POOLS = {"algorithm.rollout_correction.bypass_mode": True, f"{MODEL}.use_remove_padding": True}
#: Options of the rollout engines by their own names, which override verl's keys; an engine reads only its own
#: (engine_kwargs of verl/workers/rollout/vllm_rollout/vllm_async_server.py and
#: sglang_rollout/async_sglang_server.py).
_ENGINE_OPTIONS = {
    f"{ROLLOUT}.engine_kwargs.{engine}.{option}": f"{ROLLOUT}.{key}"
    for engine, options in {
        "vllm": {
            "gpu_memory_utilization": "gpu_memory_utilization",
            "max_model_len": "max_model_len",
            "max_num_seqs": "max_num_seqs",
            "max_num_batched_tokens": "max_num_batched_tokens",
            "enforce_eager": "enforce_eager",
            "dtype": "dtype",
            "quantization": "quantization",
            "tensor_parallel_size": "tensor_model_parallel_size",
        },
        "sglang": {
            "mem_fraction_static": "gpu_memory_utilization",
            "context_length": "max_model_len",
            "max_running_requests": "max_num_seqs",
            "disable_cuda_graph": "enforce_eager",
            "dtype": "dtype",
            "quantization": "quantization",
            "tp_size": "tensor_model_parallel_size",
        },
    }.items()
    for option, key in options.items()
}
#: Larger numbers are rejected.
_MOST = 10**12


class Reader:
    """The settings of a request, with verl's defaults for unset keys; the defaults are not checked.

    Attributes:
        request: the request.
        config: its settings under today's names.
        defaults, traits: the defaults and the behaviour of its version of verl.
        gpus: the number of training GPUs, once read; ``backend`` is that of the actor.
        rollout_gpus: the number of GPUs with rollout engines, once read.
        fully_async: whether the run uses the fully asynchronous trainer.
        has_rollout_pool: whether its trainer has a separate pool of GPUs for rollout engines.
        diagnostics: the problems, in the order of reading.
    """

    def __init__(self, request: Request, registries: Registries) -> None:
        self.request = request
        self.config = _as_verl(registries.in_todays_names(request.config), request.engine)
        sections = {key.partition(".")[0] for key in self.config}
        self.fully_async = self.config.get("data.train_batch_size") == 0 or "async_training" in sections
        apart = self.config.get(f"{ROOT}.hybrid_engine") is False or "rollout" in sections
        self.has_rollout_pool = self.fully_async or apart
        self.defaults = registries.defaults(request.version)
        if self.has_rollout_pool:
            self.defaults = {**self.defaults, **_OF_POOLS}
        self.traits = behaviour(request.version)
        self.gpus = self.rollout_gpus = 1
        self.backend: Backend = "fsdp"
        self.diagnostics: list[Diagnostic] = []

    def error(self, key: str, message: str, remedy: str = "", code: Code = "wrong_value") -> None:
        """Record a problem that prevents an estimate."""
        self.diagnostics.append(error_at(key, message, remedy, code))

    def warning(self, key: str, message: str, remedy: str = "", code: Code = "wrong_value") -> None:
        """Record a problem that does not prevent an estimate."""
        self.diagnostics.append(warning_at(key, message, remedy, code))

    def is_set(self, key: str) -> bool:
        """Return whether the user set a key to anything but null."""
        return self.config.get(key) is not None

    def first_set(self, *keys: str) -> str:
        """Return the first key that the user set; the last key if none is set."""
        return next((key for key in keys if self.config.get(key) is not None), keys[-1])

    def any(self, key: str) -> Any:
        """Return a value of any type; verl's default if it is unset or refers to another setting."""
        if key not in self.config:
            return self.defaults.get(key)
        value = self.config[key]
        if isinstance(value, str) and "${" in value:
            message = f"{value[:80]!r} refers to another setting: verl's default is used"
            self.warning(key, message, "write the value itself", "unresolved")
            return self.defaults.get(key)
        return value

    def flag(self, key: str) -> bool:
        """Return a boolean; null counts as False."""
        value = self.any(key)
        if value is not None and type(value) is not bool:
            value = self._default_for(key, value, "true or false")
        return bool(value)

    def whole(self, key: str, least: int = 1) -> int:
        """Return a whole number: the value, otherwise verl's default, otherwise ``least``."""
        value = self.optional(key, least)
        if value is None:
            value = self.defaults.get(key)
        return value if type(value) is int else least

    def optional(self, key: str, least: int = 1) -> int | None:
        """Return a whole number or None."""
        value = self.any(key)
        if type(value) is float and value.is_integer():
            value = int(value)
        if value is None or (type(value) is int and least <= value <= _MOST):
            return value
        if type(value) in (int, float):
            bound = "at most 10^12" if value > _MOST else f"at least {least}"
            self.error(key, f"expected a whole number of {bound}, got {_shown(value)}")
        else:
            self._default_for(key, value, "a whole number")
        default = self.defaults.get(key)
        return default if type(default) is int else None

    def number(self, key: str, low: float, high: float) -> float:
        """Return a number above ``low`` and up to ``high``."""
        value = self.any(key)
        if type(value) not in (int, float):
            value = self._default_for(key, value, "a number")
        elif not low < value <= high:
            self.error(key, f"expected a number above {low:g} and up to {high:g}, got {_shown(value)}")
            value = self.defaults.get(key)
        return float(value) if type(value) in (int, float) else high

    def choice(self, key: str, choices: tuple[str, ...]) -> str | None:
        """Return one of the choices, or None."""
        value = self.any(key)
        if value is not None and value not in choices:
            hint = did_you_mean(str(value), choices)
            self.error(key, f"unknown value {str(value)[:80]!r}", hint, "unknown_value")
            value = self.defaults.get(key)
        return value  # type: ignore[no-any-return]

    def data_type(self, key: str, otherwise: int = 4) -> int:
        """Return the bytes of one number of the data type."""
        return DATA_TYPES.get(self.choice(key, tuple(DATA_TYPES)) or "", otherwise)

    def divisor(self, key: str, size: int, product: str = "", gpus: int | None = None) -> int:
        """Return a size if it divides the number of GPUs; otherwise record an error, and return 1."""
        gpus = gpus or self.gpus
        if not gpus % size:
            return size
        subject = f"{product} is {size}, which" if product else f"{size}"
        self.error(key, f"{subject} does not divide the {gpus} GPUs", "choose a divisor")
        return 1

    def _default_for(self, key: str, value: Any, expected: str) -> Any:
        if value is not None:
            self.error(key, f"expected {expected}, got {_shown(value)}", code="wrong_type")
        return self.defaults.get(key)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _as_verl(config: Mapping[str, Any], engine: str | None) -> Mapping[str, Any]:
    """Translate options of the rollout engine, and a setting of EasyR1, into verl's keys."""
    own = f"{ROLLOUT}.engine_kwargs.{config.get(f'{ROLLOUT}.name') or engine or 'vllm'}."
    options = {
        key: config[name] for name, key in _ENGINE_OPTIONS.items() if name in config and name.startswith(own)
    }
    mode = str(config.get("easyr1.dtype", ""))
    if mode.startswith("bf16"):
        options[f"{ACTOR}.fsdp_config.model_dtype"] = "bf16"
        if "adamw_bf16" in mode:
            options[f"{ACTOR}.optim.optimizer"] = "adamw_bf16"
    return {**config, **options} if options else config


# -- fields that declare their keys


class Sections(NamedTuple):
    """The sections of verl's configuration with the keys of a role."""

    role: str
    model: str
    fsdp: str


OF_ACTOR = Sections(ACTOR, MODEL, f"{ACTOR}.fsdp_config")
OF_CRITIC = Sections("critic", "critic.model", "critic.fsdp")
OF_REFERENCE = Sections(REFERENCE, MODEL, f"{REFERENCE}.fsdp_config")

_Fields = TypeVar("_Fields")


def setting(read: Callable[..., Any], *keys: str, **limits: Any) -> Any:
    """Declare a field of settings.

    Args:
        read: the function that returns the value, given a reader, the keys and the limits.
        keys: verl's keys, each after its section, as in ``{rollout}.name``; the sections ``{role}``,
            ``{model}``, ``{fsdp}`` and ``{megatron}`` are those of the actor or the critic.
        limits: further arguments of ``read``, such as the least value, in their order.
    """
    return field(metadata={"setting": (read, keys, tuple(limits.values()))})


def read_fields(cls: type[_Fields], reader: Reader, of: Sections = OF_ACTOR, **others: Any) -> _Fields:
    """Return settings: read the fields declared with ``setting``, and take the others as they are."""
    own = {name: read(reader, *keys, *limits) for name, read, keys, limits in _declared(cls, of)}  # type: ignore[arg-type]
    return cls(**own, **others)


def keys_of(*classes: type, roles: Iterable[Sections]) -> Iterator[str]:
    """Yield verl's keys that the fields of some classes declare, for each of some roles."""
    for cls in classes:
        for of in roles:
            for _name, _read, keys, _limits in _declared(cls, of):
                yield from keys
    yield from _ENGINE_OPTIONS


@lru_cache(maxsize=64)  # the declarations are constant
def _declared(
    cls: Any, of: Sections
) -> list[tuple[str, Callable[..., Any], tuple[str, ...], tuple[Any, ...]]]:
    """Return the declared fields, each with its function, its keys and the further arguments."""
    sections = {"actor": ACTOR, "reference": REFERENCE, "rollout": ROLLOUT, **of._asdict()}
    sections["megatron"] = f"{of.role}.megatron"
    declared = [(item.name, *item.metadata["setting"]) for item in fields(cls) if "setting" in item.metadata]
    return [
        (name, read, tuple(key.format_map(sections) for key in keys), limits)
        for name, read, keys, limits in declared
    ]
