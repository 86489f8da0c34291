"""What people mean by the name of a GPU or a model: one rule for each, before any list."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

from ..diagnostics import Diagnostic, Location, NoAnswerError, did_you_mean, one_line
from ..records import fold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..registries import Architecture, Gpu, Registry

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

    >>> from sphinx_verl_resources.memory.context import EstimatorContext
    >>> names = ("Ascend 910B2", "NVIDIA A100-SXM4-40GB", "L40S-48G", "A800 40GB")
    >>> [gpu and gpu.name for gpu in (gpu_named(name, EstimatorContext().gpus) for name in names)]
    ['Ascend-A2', 'A100-40GB', 'L40S', None]
    """
    plain = _BESIDE.sub("", text)
    name, memory = _MEMORY.fullmatch(plain).groups()  # type: ignore[union-attr]  # it matches any line
    exact = gpus.get(text) or gpus.get(plain)
    gpu = exact or gpus.get(name) or gpus.get(_VARIANT.sub("", name))
    return gpu if gpu and (exact or memory in (None, str(gpu.memory_gb))) else None


def known_gpu(text: str, gpus: Registry[Gpu]) -> Gpu:
    """Return the GPU that a text means.

    Raises:
        NoAnswerError: the GPU is unknown.
    """
    gpu = gpu_named(text, gpus)
    if gpu is None:
        raise NoAnswerError(no_gpu(text, gpus))
    return gpu


def gpu_name(text: str, gpus: Registry[Gpu]) -> str:
    """Return a name of the GPU that a text means, the text itself if it is one.

    Raises:
        NoAnswerError: the GPU is unknown.
    """
    return text if text in gpus else known_gpu(text, gpus).name


def no_gpu(text: str, gpus: Registry[Gpu], remedy: str = "add it to gpus.yaml") -> Diagnostic:
    """Return the problem of an unknown GPU; only GPUs with the memory in its name are suggested."""
    memory = _MEMORY.fullmatch(text)[2]  # type: ignore[index]
    known = [name for gpu in gpus if memory in (None, str(gpu.memory_gb)) for name in gpu.lookup_names]
    hint = did_you_mean(text, known, remedy)
    return Diagnostic(Location(""), "unknown_gpu", f"unknown GPU {text[:200]!r}", hint)


def model_named(text: str, architectures: Registry[Architecture]) -> Model | None:
    """Return the model that a name or a path means; None if it is unknown.

    A fine-tune has the name of its base in its own, and the same sizes; without sizes, it begins with it. The
    longest such name counts.

    >>> from sphinx_verl_resources.memory.context import EstimatorContext
    >>> models = EstimatorContext().architectures
    >>> model_named("/models/qwen3-4b", models), model_named("acme/Qwen3-40B-SFT", models)
    (Model(name='Qwen/Qwen3-4B', note=''), None)
    >>> model_named("acme/Qwen3-4B-SFT", models).name
    'Qwen/Qwen3-4B'
    """
    asked, known = _words(text), list(_known(architectures))
    if same := [name for words, name in known if words == asked]:
        return Model(next((name for name in same if fold(text).endswith(fold(name))), same[-1]))
    bases = [(len(words), name) for words, name in known if _is_base(words, asked)]
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
    asked, known = _words(text), list(_known(architectures))
    meant = (name for is_meant in (_is_near, _is_base) for words, name in known if is_meant(words, asked))
    name = next(meant, None)
    return f"did you mean {name!r}? If not, {remedy}" if name else remedy


def _words(text: str) -> str:
    """Return the words of a model's name, or of the last folder of a path, with blanks between them.

    >>> _words("/cache/models--Qwen--Qwen2.5-7B/snapshots/abc"), _words("qwen-2.5_7b/global_step_9/actor")
    ('qwen 2.5 7b', 'qwen 2.5 7b')
    """
    # The Hugging Face cache joins owner and name by two hyphens.
    return " ".join(_WORD.findall(re.split("/|--", _INSIDE.sub("", text.casefold()))[-1]))


def _known(architectures: Registry[Architecture]) -> Iterator[tuple[str, str]]:
    """Yield the words of each name that a model has, and its name with the owner."""
    for entry in architectures:
        yield from ((_words(name), name) for name in entry.lookup_names)
        yield _words(entry.name), entry.hf_id


def _is_base(words: str, asked: str) -> bool:
    """Return whether a model is the base of a fine-tune, by the words of both names."""
    sizes = _SIZE.findall(words)
    is_inside = f" {words} " in f" {asked} " if sizes else asked.startswith(f"{words} ")
    return is_inside and sizes == _SIZE.findall(asked)


def _is_near(words: str, asked: str) -> bool:
    """Return whether two names have the same numbers, and words that are spelled alike."""
    known, typed = re.findall(r"\b[a-z]+", words), re.findall(r"\b[a-z]+", asked)
    if len(known) != len(typed) or _NUMBER.findall(words) != _NUMBER.findall(asked):
        return False
    return all(SequenceMatcher(None, *pair).ratio() >= _ALIKE for pair in zip(known, typed, strict=True))
