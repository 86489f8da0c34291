"""The directives. Every class in these modules that sets ``directive`` is registered under that name."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from .base import VerlDirective

if TYPE_CHECKING:
    from collections.abc import Iterator


def every_directive() -> dict[str, type[VerlDirective]]:
    """Return the directives by name."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return {kind.directive: kind for kind in _kinds(VerlDirective) if hasattr(kind, "directive")}


def _kinds(kind: type[VerlDirective]) -> Iterator[type[VerlDirective]]:
    for inner in kind.__subclasses__():
        yield inner
        yield from _kinds(inner)
