"""Print nox's report as a table to paste. Run by ``make matrix``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tabulate import tabulate


def row(session: dict[str, Any]) -> list[str]:
    """Return the row of a session: name, result and duration."""
    minutes, seconds = divmod(round(session["duration"]), 60)
    ended = f"{session['result']}: {session['reason']}" if session["reason"] else session["result"]
    return [session["signatures"][0], ended, f"{minutes}:{seconds:02}"]


if __name__ == "__main__":
    report = Path(sys.argv[1])
    if report.exists():  # nox writes no report if it only lists the sessions
        rows = [row(session) for session in json.loads(report.read_text("utf-8"))["sessions"]]
        headings = ("session", "result", "min:s")
        sys.stdout.write(tabulate(rows, headings, tablefmt="github", disable_numparse=True) + "\n")
