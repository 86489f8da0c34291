"""What people see of a command while it runs and when it has found something."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..diagnostics import Diagnostic


def report(problems: Iterable[Diagnostic]) -> None:
    """Print problems on standard error, one a line."""
    for problem in problems:
        print(problem, file=sys.stderr)
