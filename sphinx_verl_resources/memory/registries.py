"""The registries that estimates are computed from, with shapes, defaults and former names of keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import copy, deepcopy
from difflib import SequenceMatcher
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from pydantic import Field

from ..dataset import CASES, Dataset
from ..diagnostics import Diagnostic, Location, NoAnswerError, did_you_mean, one_line
from ..records import NamedRecord, Record, Text, fold
from ..registries import ConfigKey, Gpu, Registry
from ..units import GIB, MIB
from .allocations import DRIVER_RESERVE
from .architectures import Architecture, ArchitectureFile
from .cases import Cases, load_cases
from .request import dotted_leaves
from .shape import Shape
from .versions import Version, version_of

#: Words in the name of a GPU that say how it is mounted or sold, not which one it is.
_BESIDE = re.compile(r"(?i)\b(geforce|tesla|instinct|sxm\d*|pcie|hbm\d*e?|oam)\b|ascend[ _-]*(?=9\d)")
#: A name, and the memory after it.
_MEMORY = re.compile(r"(?is)(.*?)(?:[ _-]+(\d+) ?gi?b?)?[ _-]*")
#: The variant of a chip, after a number and a letter: Ascend 910B1 to 910B4, 910_9391.
_VARIANT = re.compile(r"(?i)((?<=\d[a-z])|(?<=910_93))\d\w{0,3}\Z")
#: Folders that programs make in the folder of a checkpoint.
_INSIDE = re.compile(r"(/+(snapshots(/\w+)?|huggingface|hf|actor|global_step_\d+|checkpoint-\d+))*/*\Z")
_WORD = re.compile(r"\d+(?:\.\d+)*[a-z]*|[a-z]+")
_SIZE = re.compile(r"\b[\d.]+b\b")
_NUMBER = re.compile(r"\d[\d.]*")
#: The least similarity of a misspelt word.
_ALIKE = 0.7
_CONFIG = "give the path of its config.json, or add it to architectures.yaml in a data directory"


class Model(NamedTuple):
    """A model of the registry that somebody means.

    Attributes:
        name: its name there, with its owner.
        note: how the text was taken, for the user; empty if the text is one of the model's names.
    """

    name: str
    note: str = ""


def gpu_named(text: str, gpus: Registry[Gpu]) -> Gpu | None:
    """Return the GPU that a text means; None if it is unknown, or known with another memory only.

    >>> names = ("Ascend 910B2", "NVIDIA A100-SXM4-40GB", "L40S-48G", "A800 40GB")
    >>> [gpu and gpu.name for gpu in (gpu_named(name, EstimatorContext().gpus) for name in names)]
    ['Ascend-A2', 'A100-40GB', 'L40S', None]
    """
    plain = _BESIDE.sub("", text)
    name, memory = _MEMORY.fullmatch(plain).groups()  # type: ignore[union-attr]  # it matches any line
    exact = gpus.get(text) or gpus.get(plain)
    gpu = exact or gpus.get(name) or gpus.get(_VARIANT.sub("", name))
    return gpu if gpu and (exact or memory in (None, str(gpu.memory_gb))) else None


def gpu_name(text: str, gpus: Registry[Gpu]) -> str:
    """Return a name of the GPU that a text means, the text itself if it is one.

    Raises:
        NoAnswerError: the GPU is unknown.
    """
    if gpu := gpu_named(text, gpus):
        return text if text in gpus else gpu.name
    raise NoAnswerError(no_gpu(text, gpus))


def no_gpu(text: str, gpus: Registry[Gpu], remedy: str = "add it to gpus.yaml") -> Diagnostic:
    """Return the problem of an unknown GPU; only GPUs with the memory in its name are suggested."""
    memory = _MEMORY.fullmatch(text)[2]  # type: ignore[index]
    names = [name for gpu in gpus if memory in (None, str(gpu.memory_gb)) for name in gpu.lookup_names]
    message = f"unknown GPU {text[:200]!r}"
    return Diagnostic(Location(""), "unknown_gpu", message, did_you_mean(text, names, remedy))


def model_named(text: str, architectures: Registry[Architecture]) -> Model | None:
    """Return the model that a name or a path means; None if it is unknown.

    A fine-tune has the name of its base in its own, and the same sizes; without sizes, it begins with it. The
    longest such name counts.

    >>> models = EstimatorContext().architectures
    >>> model_named("/models/qwen3-4b", models), model_named("acme/Qwen3-40B-SFT", models)
    (Model(name='Qwen/Qwen3-4B', note=''), None)
    >>> model_named("acme/Qwen3-4B-SFT", models).name
    'Qwen/Qwen3-4B'
    """
    target, names = _words(text), list(_names(architectures))
    if same := [name for words, name in names if words == target]:
        return Model(next((name for name in same if fold(text).endswith(fold(name))), same[-1]))
    bases = [(len(words), name) for words, name in names if _is_base(words, target)]
    _, name = max(bases, default=(0, ""))
    note = f"{one_line(text)[-80:]} taken as {name} (if its shape differs, give its config.json)"
    return Model(name, note) if bases else None


def known_model(text: str, architectures: Registry[Architecture]) -> Model:
    """Return the model that a name or a path means.

    Raises:
        NoAnswerError: the model is unknown.
    """
    if model := model_named(text, architectures):
        return model
    raise NoAnswerError(no_model(text, architectures))


def no_model(text: str, architectures: Registry[Architecture]) -> Diagnostic:
    """Return the problem of an unknown model."""
    hint, message = model_hint(text, architectures), f"unknown model {text[:200]!r}"
    return Diagnostic(Location("", key="model"), "unknown_model", message, hint)


def model_hint(text: str, architectures: Registry[Architecture], remedy: str = _CONFIG) -> str:
    """Return a known name in which words are spelled differently, if there is one, and another remedy.

    Other numbers are other sizes and releases, other words other families: they are not suggested.
    """
    target, names = _words(text), list(_names(architectures))
    matches = (name for fits in (_is_near, _is_base) for words, name in names if fits(words, target))
    name = next(matches, None)
    return f"did you mean {name!r}? If not, {remedy}" if name else remedy


def _words(text: str) -> str:
    """Return the words of a model's name, or of the last folder of a path, with blanks between them.

    >>> _words("/cache/models--Qwen--Qwen2.5-7B/snapshots/abc"), _words("qwen-2.5_7b/global_step_9/actor")
    ('qwen 2.5 7b', 'qwen 2.5 7b')
    """
    # The Hugging Face cache joins owner and name by two hyphens.
    return " ".join(_WORD.findall(re.split("/|--", _INSIDE.sub("", text.casefold()))[-1]))


def _names(architectures: Registry[Architecture]) -> Iterator[tuple[str, str]]:
    """Yield the words of each name that a model has, and its name with the owner."""
    for entry in architectures:
        yield from ((_words(name), name) for name in entry.lookup_names)
        yield _words(entry.name), entry.hf_id


def _is_base(words: str, target: str) -> bool:
    """Return whether a model is the base of a fine-tune, by the words of both names."""
    sizes = _SIZE.findall(words)
    is_inside = f" {words} " in f" {target} " if sizes else target.startswith(f"{words} ")
    return is_inside and sizes == _SIZE.findall(target)


def _is_near(words: str, target: str) -> bool:
    """Return whether two names have the same numbers, and words that are spelled alike."""
    own, other = re.findall(r"\b[a-z]+", words), re.findall(r"\b[a-z]+", target)
    if len(own) != len(other) or _NUMBER.findall(words) != _NUMBER.findall(target):
        return False
    return all(SequenceMatcher(None, *pair).ratio() >= _ALIKE for pair in zip(own, other, strict=True))


#: The groups of cases: verl with FSDP or Megatron, EasyR1, and training without a rollout engine.
FSDP, MEGATRON, EASYR1, TRAINING = "fsdp", "megatron", "easyr1", "training"
#: Groups of cases; runs of verl v0.8.0 or later are apart.
CASE_GROUPS = (FSDP, f"{FSDP}-today", MEGATRON, f"{MEGATRON}-today", EASYR1, TRAINING)


class Accuracy(NamedRecord):
    """The errors of a kind of runs, and the range derived from them.

    Attributes:
        name: Kind of runs: the group, and the time of verl, LoRA and experts.
        compared: What was run, and which figures were compared.
        cases: Number of cases whose measured value is compared.
        setups: Number of different models, GPUs and backends among them.
        sources: Number of independent sources.
        mean_error: Mean absolute relative error; 0.05 is 5 %.
        worst_error: Largest absolute relative error.
        needed_more: Number of cases that needed more than computed.
        error: Relative error for the range of the GPU's peak: at least 90 % of sources stay within it.
        counter_error: The same for PyTorch's counter.
        inside: Share of measured values inside ranges from other sources.
    """

    name: Text
    compared: Text
    cases: int = Field(ge=1)
    setups: int = Field(ge=1)
    sources: int = Field(ge=1)
    mean_error: float = Field(ge=0)
    worst_error: float = Field(ge=0)
    needed_more: int = Field(ge=0)
    error: float = Field(gt=0)
    counter_error: float = Field(gt=0)
    inside: float = Field(ge=0, le=1)


class AccuracyFile(Record):
    """The file ``accuracy.yaml``.

    Attributes:
        accuracy: Kinds of runs; a later one replaces an earlier one of the same name.
    """

    accuracy: tuple[Accuracy, ...]


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


def capacity_of(gpu: Gpu) -> float:
    """Return the bytes that CUDA offers to programs: as recorded, or the driver's figure minus a reserve.

    >>> round(capacity_of(EstimatorContext().gpus.get("H100")) / 2**30, 2)
    79.15
    """
    return gpu.cuda_total_gib * GIB if gpu.cuda_total_gib else gpu.memory_mib * MIB - DRIVER_RESERVE.value


def capacity_range(memory_gb: float) -> tuple[float, float]:
    """Return the least and the most bytes that CUDA offers on a GPU with this nominal memory.

    The GB in the names of GPUs are GiB. Source: all GPUs in gpus.yaml.

    >>> [round(size / 2**30, 1) for size in capacity_range(144)]
    [133.4, 143.6]
    """
    nominal = memory_gb * GIB
    return _LEAST * nominal - DRIVER_RESERVE.value, nominal - _SMALLEST_RESERVE


class EstimatorContext(Dataset):
    """The dataset, with all that estimates are computed from."""

    kinds = (*Dataset.kinds, "accuracy", "cases")

    @cached_property
    def architectures(self) -> Registry[Architecture]:
        """The model shapes, with all fields, by the model's Hugging Face name."""
        return self.registry(ArchitectureFile)

    @cached_property
    def accuracy(self) -> Registry[Accuracy]:
        """The accuracy of the estimator, by group of cases."""
        return self.registry(AccuracyFile)

    @cached_property
    def cases(self) -> Cases:
        """The cases that the estimator is tested on."""
        cases = load_cases(self.files[CASES], recorded=True)
        self.problems["cases"] = list(cases.problems)
        return cases

    def knowing(self, architecture: Architecture) -> EstimatorContext:
        """Return the same data with an architecture added, or replaced if the name exists."""
        data = copy(self)
        data.architectures = deepcopy(self.architectures)
        data.architectures.add(architecture)
        return data

    @lru_cache(maxsize=256)  # noqa: B019  # 0.2 ms for a model
    def shape(self, model: str) -> Shape | None:
        """Return the shape of a checkpoint, by its Hugging Face name or an alias; None if it is unknown."""
        architecture = self.architectures.get(model)
        return Shape(architecture) if architecture else None

    def known_shape(self, model: str) -> Shape:
        """Return the shape of a checkpoint, by its Hugging Face name or an alias.

        Raises:
            NoAnswerError: the checkpoint is unknown.
        """
        if shape := self.shape(model):
            return shape
        raise NoAnswerError(no_model(model, self.architectures))

    @lru_cache(maxsize=64)  # noqa: B019  # 0.4 ms for a version
    def defaults(self, version: Version) -> Mapping[str, Any]:
        """Return verl's defaults in a version, by dotted key.

        Unrecorded defaults of the critic are those of the actor.

        >>> defaults = EstimatorContext().defaults((0, 9, 0))
        >>> defaults["critic.megatron.sequence_parallel"], defaults["actor_rollout_ref.rollout.max_num_seqs"]
        (True, 256)
        """
        defaults: dict[str, Any] = {}
        for key in self.config_keys:
            reached = [each for each in key.default_changes if (version_of(each.since) or version) <= version]
            changes = reached or [*key.default_changes[:1]]  # the first default also holds before it
            defaults[key.name] = changes[-1].default if changes else key.default
        for actor, own in _SHARED.items():
            defaults = {name.replace(actor, own): default for name, default in defaults.items()} | defaults
        return defaults

    @cached_property
    def renamed(self) -> Mapping[str, str]:
        """Former names of verl's keys and their present names, for keys that were only renamed.

        >>> EstimatorContext().renamed["critic.model.fsdp_config.fsdp_size"]
        'critic.fsdp.fsdp_size'
        """
        before = {key.moved_from: key.name for key in self.config_keys if key.moved_from}
        moved = {key.name: key.moved_to for key in self.config_keys if key.status == "moved" and key.moved_to}
        return {**before, **moved}

    def known_key(self, key: str) -> ConfigKey | None:
        """Return the entry of a key or of its nearest parent; None if there is none.

        ``override_optimizer_config`` covers all keys below it.
        """
        parent = key.rpartition(".")[0]
        return self.config_keys.get(key) or (self.known_key(parent) if parent else None)

    def name_in(self, key: str, version: Version) -> str | None:
        """Return the name of a key in a version of verl; None if the version lacks it.

        >>> name_in = EstimatorContext().name_in
        >>> name_in("critic.fsdp.param_offload", (0, 7, 1)), name_in("critic.fsdp.param_offload", (0, 9, 0))
        ('critic.model.fsdp_config.param_offload', 'critic.fsdp.param_offload')
        """

        def lacks(name: str) -> bool:
            entry = self.known_key(name)
            return entry is not None and (version_of(entry.since) or version) > version

        if not lacks(key):
            return key
        # The critic's keys moved together; some were added later, at the same time as the actor's.
        twins = [actor + key.removeprefix(own) for actor, own in _SHARED.items() if key.startswith(own)]
        entries = [entry for entry in self.config_keys if key in (entry.name, entry.moved_to)]
        former = (entry.moved_from if entry.name == key else entry.name for entry in entries)
        return None if any(map(lacks, twins)) else next(filter(None, former), None)

    def in_todays_names(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return settings with dotted keys under their present names.

        >>> EstimatorContext().in_todays_names({"critic.model.fsdp_config.fsdp_size": 8, "data": {"seed": 1}})
        {'critic.fsdp.fsdp_size': 8, 'data.seed': 1}
        """
        present_last = sorted(dotted_leaves(config), key=lambda item: item[0] not in self.renamed)
        return {self.renamed.get(key, key): value for key, value in present_last}
