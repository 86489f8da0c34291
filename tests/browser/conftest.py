"""A real browser on pages that are served on loopback, and nothing else that it could reach."""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# Helpers of tests lie beside them, and are no package.
sys.path.insert(0, str(Path(__file__).parent))
from themes import build_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from playwright.sync_api import Browser, Page

#: Where the browser is, if it has another name or place than those below.
CHROMIUM = "VERL_TEST_CHROMIUM"
#: Set where these tests must not be skipped, as in continuous integration.
REQUIRED = "VERL_TEST_BROWSER_REQUIRED"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: No sandbox, since containers run as root; and no talk of the browser's own with other hosts.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: What scripts of themes say about themselves.
OTHERS = ("Got invalid theme mode",)
MISSING = (
    f"no Chromium was found: install it (on Debian: apt-get install chromium) or name it in {CHROMIUM}; "
    "THE TESTS IN A BROWSER ARE SKIPPED"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder; the one browser is shared by the tests that one process runs."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("browser")


def find_chromium() -> str | None:
    """The program: the one that is named, Debian's, or the one that Playwright has installed."""
    from playwright.sync_api import sync_playwright

    named = os.environ.get(CHROMIUM) or next(filter(None, map(shutil.which, NAMES)), None)
    if named:
        return named
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


@contextmanager
def launched() -> Iterator[Browser]:
    """A headless browser; the test is skipped without one, or fails where it is required."""
    from playwright.sync_api import sync_playwright

    found = find_chromium()
    if found is None:
        if os.environ.get(REQUIRED):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def browser(needs: Callable[..., None]) -> Iterator[Browser]:
    """One for all tests of a process."""
    needs("playwright")
    with launched() as found:
        yield found


@dataclass
class Site:
    """A folder that is served, and what the pages of it did in the browser.

    Attributes:
        address: of the folder, without a slash at its end.
        problems: errors of scripts and of the console, and requests that left the folder's host.
    """

    browser: Browser
    address: str
    problems: list[str] = field(default_factory=list)

    def open(self, path: str = "index.html", **context: Any) -> Page:
        """A page in a window of its own.

        Args:
            path: within the folder, with query and fragment if wanted.
            context: for Playwright's ``new_context``: ``java_script_enabled``, ``viewport``, ``color_scheme``.
        """
        page = self.browser.new_context(**context).new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("console", self._note_message)
        page.on("request", self._note_request)
        page.goto(f"{self.address}/{path}")
        return page

    def _note_message(self, message: Any) -> None:
        if message.type in {"error", "warning"} and not message.text.startswith(OTHERS):
            self.problems.append(f"{message.type}: {message.text}")

    def _note_request(self, request: Any) -> None:
        if not re.match(rf"{re.escape(self.address)}/|data:|blob:", request.url):
            self.problems.append(f"request to {request.url}")


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files without a word, with headers of the test's choice."""

    headers_to_send: Mapping[str, str] = {}

    def do_GET(self) -> None:  # noqa: N802 - the name of the base class
        """Have no icon, which browsers ask for by themselves."""
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
        """Say nothing."""


@contextmanager
def served(folder: Path, headers: Mapping[str, str]) -> Iterator[str]:
    """Serve a folder on loopback; gives its address."""
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


@pytest.fixture
def site(browser: Browser) -> Iterator[Callable[..., Site]]:
    """A function: serves a folder, with headers if wanted, and gives its ``Site``.

    After the test no page may have had an error or have asked another host. A test that provokes one takes it
    out of ``problems``.
    """
    from contextlib import ExitStack

    sites: list[Site] = []
    with ExitStack() as stack:

        def serve(folder: Path, headers: Mapping[str, str] | None = None) -> Site:
            sites.append(Site(browser, stack.enter_context(served(folder, headers or {}))))
            return sites[-1]

        yield serve
        for context in browser.contexts:
            context.close()
    assert [problem for one in sites for problem in one.problems] == []


@pytest.fixture(scope="session")
def themed(tmp_path_factory: pytest.TempPathFactory, needs: Callable[..., None]) -> Callable[[str], Path]:
    """A function: the documentation built in a theme, once for all processes that run tests."""
    # Processes of pytest-xdist have a folder each, side by side.
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "popen-gw" in base.name else base) / "themes"

    def in_theme(theme: str) -> Path:
        needs(theme)
        return build_once(theme, folder)

    return in_theme
