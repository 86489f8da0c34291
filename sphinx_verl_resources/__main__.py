"""The ``verl-resources`` command, also run by ``python -m sphinx_verl_resources``."""

from __future__ import annotations

import io
import sys


def run() -> int:
    """Run the command line and return its exit code; Ctrl-C ends it without a traceback, even in imports."""
    sys.stderr = sys.stderr or io.StringIO()  # print() would write to standard output instead
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # its encoding may lack a character
    try:
        from .commands import main

        return main()
    except KeyboardInterrupt:
        print("\nverl-resources: interrupted", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(run())
