"""A real browser, and pages served on loopback."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from playwright.sync_api import Browser

#: The environment variable with the browser, if it has another name or path than those below.
VARIABLE = "VERL_TEST_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: No sandbox, because containers run as root; no background requests of the browser.
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


class NoBrowserError(RuntimeError):
    """There is no browser; the text contains a remedy."""


def find_chromium() -> str:
    """Return the browser: the one in the variable, Debian's, or the one installed by Playwright.

    Raises:
        NoBrowserError: there is none.
    """
    from playwright.sync_api import sync_playwright

    named = os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, NAMES)), None)
    if named:
        return named
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    if Path(own).exists():
        return own
    raise NoBrowserError(
        f"no Chromium was found: install it (on Debian: apt-get install chromium) or name it in {VARIABLE}"
    )


@contextmanager
def launched() -> Iterator[Browser]:
    """Start a headless browser.

    Raises:
        NoBrowserError: there is none.
    """
    from playwright.sync_api import sync_playwright

    program = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


class Handler(http.server.SimpleHTTPRequestHandler):
    """A handler that serves files with headers of the test's choice, without logging."""

    headers_to_send: Mapping[str, str] = {}

    def do_GET(self) -> None:
        """Answer requests; there is no icon, which browsers request automatically."""
        if self.path == "/favicon.ico":
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def end_headers(self) -> None:
        """Add the headers."""
        for name, value in self.headers_to_send.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Log nothing."""


@contextmanager
def served(folder: Path, headers: Mapping[str, str]) -> Iterator[str]:
    """Serve a folder on loopback; yield its address."""
    handler = type("OwnHandler", (Handler,), {"headers_to_send": dict(headers)})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(folder))
    )
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
