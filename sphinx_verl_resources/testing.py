"""Check data in the tests of other repositories, like ``verl-resources check``."""

from __future__ import annotations

import os


def assert_data(path: str | os.PathLike[str], *, warnings: bool = False) -> None:
    """Fail if the data have problems.

    Args:
        path: the data directory, which contains ``runs``.
        warnings: whether to fail on warnings, too.

    Raises:
        AssertionError: the data have problems; the text is what ``verl-resources check`` prints.
        OSError: ``path`` is not a data directory.
    """
    from .commands import load_check

    problems = [problem for problem in load_check([str(path)]).problems() if warnings or problem.is_error]
    if problems:
        raise AssertionError("\n".join(map(str, ["the data have problems:", *problems])))
