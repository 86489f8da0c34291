"""The models and GPUs that scripts and logs name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ..memory.registries import Model, gpu_named, model_hint, model_named

if TYPE_CHECKING:
    from ..diagnostics import Code
    from ..memory.architectures import Architecture
    from ..registries import Gpu, Registry

_HUB = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
#: A shell variable at the end of a model's name.
_VARIABLE = re.compile(r"\$\{?(?P<name>[A-Za-z_]\w*)(?::?[?=-][^}]*)?\}?[/\"']*\Z")


class NamedModel(NamedTuple):
    """The model that the texts about one run refer to.

    Attributes:
        text: the first text that means a recorded model, otherwise the first text; empty without one.
        found: the recorded model; None if there is none.
        is_open: the text contains a variable whose value is unknown.
    """

    text: str = ""
    found: Model | None = None
    is_open: bool = False

    @property
    def model(self) -> str | None:
        """The name of the recorded model; None without one."""
        return self.found.name if self.found else None

    @property
    def is_hub_name(self) -> bool:
        """True for a Hugging Face name, ``owner/name``, that is not recorded."""
        return not self.found and _HUB.fullmatch(self.text) is not None

    def why_none(self, registry: Registry[Architecture], how: str, forms: str = "") -> tuple[Code, str, str]:
        """Return why no recorded model matches: code, message and remedy.

        Args:
            registry: the recorded models.
            how: how the user gives a model, for example ``with --model``.
            forms: possible forms of the model there.
        """
        shown = self.text[-80:]
        if not self.text:
            return "missing_key", "no model given", f"give it {how}{forms}"
        if not self.is_hub_name and self.is_open and (variable := _VARIABLE.search(self.text)):
            remedy = f"set it with --env {variable['name']}=…, or give the model {how}{forms}"
            message = f"the model {shown!r} contains a variable with an unknown value"
            return "unknown_model", message, remedy
        remedy = model_hint(self.text, registry, f"give it {how}{forms}")
        if self.is_hub_name:
            return "unknown_model", f"unknown model {shown!r}", remedy
        return "unknown_model", f"no recorded model matches the end of the path {shown!r}", remedy


def model_of(registry: Registry[Architecture], *texts: object, left_open: str | None = None) -> NamedModel:
    """Return the model that texts about one run refer to: the first recorded one.

    Args:
        registry: the recorded models.
        texts: values from the user, a script or a log; only strings are used.
        left_open: a value in a script that contains an unknown variable.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> model_of(EstimatorContext().architectures, None, left_open="$HOME/models/Qwen3-8B").model
    'Qwen/Qwen3-8B'
    """
    said = [text for text in (*texts, left_open) if isinstance(text, str) and text]
    for text in said:
        if found := model_named(text, registry):
            return NamedModel(text, found)
    return NamedModel(said[0], None, said[0] == left_open) if said else NamedModel()


def recorded_gpu(printed: str, gpus: Registry[Gpu]) -> str | None:
    """Return the short name of the recorded GPU that a text begins with.

    If a GPU is sold with several memory sizes, the text must contain the size.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> recorded_gpu("H100 80GB HBM3 On", EstimatorContext().gpus)
    'H100'
    """
    words = printed.split()
    for end in range(len(words), 0, -1):
        if gpu := gpu_named(" ".join(words[:end]), gpus):
            sizes = sum(other.name.upper().startswith(f"{words[0].upper()}-") for other in gpus)
            short = gpu.name.removesuffix(f"-{gpu.memory_gb}GB")
            return None if end == 1 and sizes > 1 else short if gpus.get(short) is gpu else gpu.name
    return None
