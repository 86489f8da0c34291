"""Run requested builds in one process, whose caller chooses the hash seed.

Each line of standard input is JSON: source, output, jobs, and whether the build is a fresh one. Each line of standard
output is the list of the pages that were read, or of the errors.
"""

from __future__ import annotations

import io
import json
import sys
import traceback
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils


def build(source: str, out: str, jobs: int, fresh: bool) -> list[str]:
    """Build, and return the pages that were read."""
    read: list[str] = []
    doctrees = Path(out).parent / f"{Path(out).name}-doctrees"
    with patch_docutils(source), docutils_namespace():
        app = Sphinx(
            source,
            source,
            out,
            doctrees,
            "html",
            status=None,
            warning=io.StringIO(),
            freshenv=fresh,
            parallel=jobs,
        )
        app.connect("env-before-read-docs", lambda app, env, names: read.extend(names), priority=900)
        app.build()
    return sorted(read)


for line in sys.stdin:
    try:
        answer = build(**json.loads(line))
    except Exception:
        answer = [traceback.format_exc()]
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
