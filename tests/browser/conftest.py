"""Tests on pages in a real browser, without access to anything else."""

from __future__ import annotations

import os
import re
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

# As tests/conftest.py does with its own folder.
sys.path.insert(0, str(Path(__file__).parent))
from chromium import NoBrowserError, launched, served
from page_cases import group_builder  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from playwright.sync_api import Browser, Page

# So that a failing ``check`` shows the difference.
pytest.register_assert_rewrite("form_pages")

#: The pages, see tests/page_cases.py.
GROUPS = yaml.safe_load(Path(__file__).with_name("pages.yaml").read_text("utf-8"))
#: Set if these tests must not be skipped, as in continuous integration.
REQUIRED = "VERL_TEST_BROWSER_REQUIRED"
#: Console messages of the themes' scripts.
OTHERS = ("Got invalid theme mode",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test in this folder."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("browser")
            item.add_marker("slow")


@pytest.fixture(scope="session")
def browser(needs: Callable[..., None]) -> Iterator[Browser]:
    """One browser for all tests of a process; without one they are skipped, or fail if they are required."""
    needs("playwright")
    with ExitStack() as stack:
        try:
            instance = stack.enter_context(launched())
        except NoBrowserError as error:
            message = f"{error}; THE TESTS IN A BROWSER ARE SKIPPED"
            if os.environ.get(REQUIRED):
                pytest.fail(message)
            pytest.skip(message)
        yield instance


@dataclass
class Site:
    """A served folder, and problems of its pages in the browser.

    Attributes:
        address: the address of the folder, without a slash at its end.
        problems: errors of scripts and of the console, and requests to other hosts.
    """

    browser: Browser
    address: str
    problems: list[str] = field(default_factory=list)

    def open(self, path: str = "index.html", **context: Any) -> Page:
        """Open a page in a new window.

        Args:
            path: the path within the folder, with query and fragment if needed.
            context: arguments of Playwright's ``new_context``: ``java_script_enabled``, ``viewport``, ``color_scheme``.
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


@pytest.fixture
def site(browser: Browser) -> Iterator[Callable[..., Site]]:
    """A function that serves a folder, optionally with headers or without a server, and returns its ``Site``.

    After the test there must be no errors and no requests to other hosts. A test that provokes one removes it
    from ``problems``.
    """
    sites: list[Site] = []
    with ExitStack() as stack:

        def serve(folder: Path, headers: Mapping[str, str] | None = None, *, from_disk: bool = False) -> Site:
            address = folder.as_uri() if from_disk else stack.enter_context(served(folder, headers or {}))
            sites.append(Site(browser, address))
            return sites[-1]

        yield serve
        for context in browser.contexts:
            context.close()
    assert [problem for one in sites for problem in one.problems] == []


@pytest.fixture(scope="session")
def built_pages(build_group: Callable[..., Any]) -> Callable[[str], Path]:
    """A function that returns the output of a group of ``pages.yaml``, built once for all tests of a process."""

    def built(name: str) -> Path:
        pages = build_group(next(group for group in GROUPS if group["name"] == name), "rst")
        assert pages.build.warnings == []
        return pages.build.out

    return built


@pytest.fixture
def runs_folder(built_pages: Callable[[str], Path]) -> Path:
    """Pages with tables of runs."""
    return built_pages("runs")


@pytest.fixture
def opened(site: Callable[..., Site], runs_folder: Path) -> Callable[..., Page]:
    """A function that opens a page with tables of runs."""
    served = site(runs_folder)
    return lambda path="runs.html", **context: served.open(path, **context)


@pytest.fixture
def form_folder(built_pages: Callable[[str], Path]) -> Path:
    """Pages with forms, and one with rows of runs."""
    return built_pages("forms")


@pytest.fixture
def open_page(site: Callable[..., Site], form_folder: Path) -> Callable[..., Page]:
    """A function that opens a page of ``form_folder`` under a strict policy, and waits until everything is loaded."""
    from form_pages import STRICT, settle

    served = site(form_folder, STRICT)

    def opened(path: str = "index.html", **context: Any) -> Page:
        page = served.open(path, **context)
        settle(page)
        return page

    return opened
