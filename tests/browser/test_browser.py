"""Checks that the tests in a browser detect errors."""

from __future__ import annotations

import pytest

SCRIPTS = {
    "error: no such thing": "throw new Error('no such thing')",
    "error: told": "console.error('told')",
    "request to http://127.0.0.1:9/picture.png": "new Image().src = 'http://127.0.0.1:9/picture.png'",
}


@pytest.mark.parametrize("seen", SCRIPTS)
def test_errors_and_foreign_requests_are_seen(site, tmp_path, seen):
    """Errors of a script are recorded."""
    (tmp_path / "index.html").write_text(f"<title>t</title><script>{SCRIPTS[seen]}</script>", "utf-8")
    opened = site(tmp_path)
    opened.open().wait_for_load_state("networkidle")
    assert seen in " | ".join(opened.problems)
    opened.problems.clear()
