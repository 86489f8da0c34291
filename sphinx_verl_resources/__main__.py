"""The ``verl-resources`` command, which ``python -m sphinx_verl_resources`` is too."""

from __future__ import annotations

import sys


def run() -> int:
    """Run the command line and return its exit code; an interrupt ends it, also while modules are loaded."""
    try:
        from .cli import main

        return main()
    except KeyboardInterrupt:
        if sys.stderr:
            print("\nverl-resources: interrupted", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(run())
