"""The ``verl-resources`` command, also run by ``python -m sphinx_verl_resources``."""

from __future__ import annotations

import signal
import sys
from typing import Any


def run() -> int:
    """Run the command line and return its exit code; Ctrl-C ends it without a traceback, even in imports."""
    is_interrupted = False

    def interrupt(*of_signal: Any) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        signal.default_int_handler(*of_signal)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # the parent process did not ignore it
        signal.signal(signal.SIGINT, interrupt)
    try:
        from .cli import main

        return main()
    except BaseException as error:
        # Before Python 3.12, an interrupt while a class is created is raised as another exception.
        if not (is_interrupted or isinstance(error, KeyboardInterrupt)):
            raise
        if sys.stderr:
            print("\nverl-resources: interrupted", file=sys.stderr)
        return 2
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the exit code is final


if __name__ == "__main__":
    sys.exit(run())
