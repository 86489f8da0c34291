"""Directives that are imported when a page uses them, so that a page pays for what it shows and no more."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from sphinx.util.docutils import SphinxDirective

from .base import VerlDirective
from .options import AnyOption

if TYPE_CHECKING:
    from docutils.parsers.rst import Directive
    from sphinx.util.typing import OptionSpec


def real_directive(module: str, name: str) -> type[Directive]:
    """The class called ``name`` in a module of this package."""
    found: type[Directive] = getattr(import_module(f".{module}", __package__), name)
    return found


def later(module: str, name: str) -> type[Directive]:
    """What stands for such a class until a page uses it."""

    class Later(SphinxDirective):
        """Takes whatever is written, as all directives of ours do, and hands it on."""

        has_content = VerlDirective.has_content
        optional_arguments = VerlDirective.optional_arguments
        final_argument_whitespace = VerlDirective.final_argument_whitespace
        option_spec: ClassVar[OptionSpec] = AnyOption()

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return real_directive(module, name)(*args, **kwargs)

    return Later
