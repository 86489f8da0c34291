"""Import programs and Sphinx extensions outside the package as modules."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


def module_at(path: Path) -> ModuleType:
    """Import a file that is not in a package."""
    spec = spec_from_file_location(f"{path.parent.name}.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look up names there
    spec.loader.exec_module(module)
    return module
