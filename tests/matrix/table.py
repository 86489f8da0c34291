"""Print nox's report as a table to paste. Run by ``make matrix``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

if TYPE_CHECKING:
    from collections.abc import Iterable


def stack(pins: Iterable[str] = (), without: Iterable[str] = ()) -> str:
    """Return the packages that a session pins and leaves out, in words."""
    words = [pin.replace("==", " ") for pin in pins] + [f"without {name}" for name in without]
    return ", ".join(words)


def row(session: dict[str, Any]) -> list[str]:
    """Return the row of a session: name, versions, result and duration."""
    minutes, seconds = divmod(round(session["duration"]), 60)
    ended = f"{session['result']}: {session['reason']}" if session["reason"] else session["result"]
    return [session["signatures"][0], stack(**session["args"]), ended, f"{minutes}:{seconds:02}"]


if __name__ == "__main__":
    report = Path(sys.argv[1])
    if report.exists():  # nox writes no report if it only lists the sessions
        rows = [row(session) for session in json.loads(report.read_text("utf-8"))["sessions"]]
        headings = ("session", "versions", "result", "min:s")
        sys.stdout.write(tabulate(rows, headings, tablefmt="github", disable_numparse=True) + "\n")
