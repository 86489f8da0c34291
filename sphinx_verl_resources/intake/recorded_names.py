"""Look up recorded models and GPUs by path or printed name."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..diagnostics import Code
    from ..estimator.architectures import Architecture
    from ..registries import Gpu, Registry

_CACHE = re.compile(r"models--(?P<owner>[\w.-]+?)--(?P<name>[\w.-]+)")
_HUB = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
#: Folders that programs append to a model's name.
_INSIDE = re.compile(r"(?:/(?:snapshots(?:/\w+)?|huggingface|hf|actor|global_step_\d+))+\Z")

#: Billions of parameters in a lower-case name, and the minimum similarity of a misspelling.
_SIZES = re.compile(r"(?<![a-z])\d+(?:\.\d+)?(?=b\b)")
_ALIKE = 0.8
#: A shell variable at the end of a model's name.
_VARIABLE = re.compile(r"\$\{?(?P<name>[A-Za-z_]\w*)(?::?[?=-][^}]*)?\}?[/\"']*\Z")

_MAKERS = ("NVIDIA", "AMD", "Instinct", "Tesla")


class NamedModel(NamedTuple):
    """The model that the texts about one run refer to.

    Attributes:
        text: the first text that matches a recorded model, otherwise the first text; empty without one.
        models: the recorded models that it may mean; one if it is unambiguous.
        is_open: the text contains a variable whose value is unknown.
    """

    text: str = ""
    models: Sequence[str] = ()
    is_open: bool = False

    @property
    def model(self) -> str | None:
        """The recorded model; None if none or several match."""
        return self.models[0] if len(self.models) == 1 else None

    @property
    def is_hub_name(self) -> bool:
        """True for a Hugging Face name, ``owner/name``, that is not recorded."""
        return not self.models and _HUB.fullmatch(self.text) is not None

    def why_none(self, names: Iterable[str], how: str, forms: str = "") -> tuple[Code, str, str]:
        """Return why no recorded model matches: code, message and remedy.

        Args:
            names: the recorded models.
            how: how the user gives a model, for example ``with --model``.
            forms: possible forms of the model there.
        """
        shown = self.text[-80:]
        if self.models:
            message = f"the model {shown!r} may be any of {', '.join(self.models[:10])}"
            return "unknown_model", message, f"give its full name {how}"
        near = nearest_model(self.text, names)
        remedy = f"did you mean {near}? Give it {how}{forms}" if near else f"give it {how}{forms}"
        if self.is_hub_name:
            return "unknown_model", f"unknown model {shown!r}", remedy
        if not self.text:
            return "missing_key", "no model given", remedy
        variable = _VARIABLE.search(self.text)
        if self.is_open and variable:
            remedy = f"set it with --env {variable['name']}=…, or give the model {how}{forms}"
            message = f"the model {shown!r} contains a variable with an unknown value"
            return "unknown_model", message, remedy
        return "unknown_model", f"no recorded model matches the end of the path {shown!r}", remedy


def model_of(registry: Registry[Architecture], *texts: object, left_open: str | None = None) -> NamedModel:
    """Return the model that texts about one run refer to: the first recorded one.

    Args:
        registry: the recorded models.
        texts: values from the user, a script or a log; only strings are used.
        left_open: a value in a script that contains an unknown variable.

    >>> from sphinx_verl_resources.estimator.context import EstimatorContext
    >>> model_of(EstimatorContext().architectures, None, left_open="$HOME/models/Qwen3-8B").model
    'Qwen/Qwen3-8B'
    """
    said = [text for text in (*texts, left_open) if isinstance(text, str) and text]
    for text in said:
        if models := [text] if registry.get(text) else recorded_models(text, registry.names):
            return NamedModel(text, models)
    return NamedModel(said[0], (), said[0] == left_open) if said else NamedModel()


def recorded_models(path: str, names: Iterable[str]) -> list[str]:
    """Return the recorded models that a path may mean: one with that name, or those with the same ending.

    >>> recorded_models("$HOME/models/qwen2.5-7b/", ["Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct"])
    ['Qwen/Qwen2.5-7B']
    """
    known = list(dict.fromkeys(names))
    if path in known:
        return [path]
    last = _last_part(path).casefold()
    same = [name for name in known if last and _last_part(name).casefold() == last]
    owned = [name for name in same if path.rstrip("/").casefold().endswith(name.casefold())]
    return owned or [name for name in same if _last_part(name) == _last_part(path)] or same


def nearest_model(path: str, names: Iterable[str]) -> str | None:
    """Return the recorded model of the same size whose name is most similar to the end of a path.

    >>> nearest_model("/models/Qwen3-8", ["Qwen/Qwen3-8B"]), nearest_model("Qwen3.5-2B", ["Qwen/Qwen3.5-27B"])
    ('Qwen/Qwen3-8B', None)
    """
    last = _last_part(path).casefold()
    sizes = _SIZES.findall(last)
    alike = {
        _last_part(name).casefold(): name
        for name in names
        if not sizes or sizes == _SIZES.findall(name.casefold())
    }
    return next((alike[near] for near in get_close_matches(last, alike, n=1, cutoff=_ALIKE)), None)


def _last_part(path: str) -> str:
    """Return the model's name at the end of a path.

    >>> _last_part("/cache/models--Qwen--Qwen2.5-7B/snapshots/abc"), _last_part("${ROOT}/Qwen3-8B/")
    ('Qwen2.5-7B', 'Qwen3-8B')
    """
    cached = _CACHE.search(path)
    if cached:
        return cached["name"]
    return _INSIDE.sub("", path.rstrip("/")).rsplit("/", 1)[-1].strip("\"'}")


def recorded_gpu(printed: str, gpus: Registry[Gpu]) -> str | None:
    """Return the short name of the recorded GPU that a text begins with.

    If a GPU is sold with several memory sizes, the text must contain the size.

    >>> from sphinx_verl_resources.estimator.context import EstimatorContext
    >>> recorded_gpu("H100 80GB HBM3 On", EstimatorContext().gpus)
    'H100'
    """
    words = [word for word in printed.split() if word not in _MAKERS]
    for end in range(len(words), 0, -1):
        for maker in ("", *_MAKERS):
            gpu = gpus.get(" ".join([maker, *words[:end]]).strip())
            if gpu:
                sizes = sum(other.name.upper().startswith(f"{words[0].upper()}-") for other in gpus)
                return None if end == 1 and sizes > 1 else _short_name(gpu)
    return None


def _short_name(gpu: Gpu) -> str:
    """Return the name that rows use for a GPU: its shortest name with a letter."""
    return min((name for name in gpu.lookup_names if re.search(r"[A-Za-z]", name)), key=len)
