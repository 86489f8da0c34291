"""Directives that are imported when a page uses them, so that a page pays for what it shows and no more."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from sphinx.util.docutils import SphinxDirective

from .base import VerlDirective
from .options import AnyOption

if TYPE_CHECKING:
    from docutils.parsers.rst import Directive

#: By name, the module of this package and the class.
PLACES = {
    "verl-runs": ("runs", "VerlRuns"),
    "verl-memory": ("memory", "VerlMemory"),
    "verl-memory-summary": ("memory", "VerlMemorySummary"),
    "verl-published": ("printed", "VerlPublished"),
    "verl-requirements": ("printed", "VerlRequirements"),
    "verl-config": ("advice", "VerlConfigAdvice"),
    "verl-analysis": ("advice", "VerlAnalysis"),
    "verl-fit": ("fit", "VerlFit"),
    "verl-lengths": ("lengths", "VerlLengths"),
    "verl-what-if": ("what_if", "VerlWhatIf"),
    "verl-accuracy": ("accuracy", "VerlAccuracy"),
    "verl-downloads": ("downloads", "VerlDownloads"),
    "verl-gpus": ("registries", "VerlGpus"),
    "verl-models": ("registries", "VerlModels"),
}


def imported(name: str) -> type[Directive]:
    """The directive itself."""
    module, class_name = PLACES[name]
    found: type[Directive] = getattr(import_module(f".{module}", __package__), class_name)
    return found


def later(name: str) -> type[Directive]:
    """What stands for a directive until a page uses it."""

    class Later(SphinxDirective):
        """Takes whatever is written, as all directives of ours do, and hands it on."""

        has_content = VerlDirective.has_content
        optional_arguments = VerlDirective.optional_arguments
        final_argument_whitespace = VerlDirective.final_argument_whitespace
        option_spec: ClassVar[AnyOption] = AnyOption()

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return imported(name)(*args, **kwargs)

    return Later
