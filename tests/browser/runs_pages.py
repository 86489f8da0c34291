"""The view and actions of a reader of a page with tables of runs."""

from __future__ import annotations

import re

#: The status before any choice.
TESTED = "5 of 6 runs: those that ran or are RECOMMENDED"
SHOW_ALL = "Show all 6 runs"


def rows(page, table: int = 0) -> list[str]:
    """Return the ids of the runs that a table shows, in order."""
    result = page.locator("table.verl-runs").nth(table).locator("tbody tr:visible")
    return [re.search(r"verl-run-(\w+)", row.get_attribute("class"))[1] for row in result.all()]


def every_row(page) -> list[str]:
    """Return the ids of the runs in all tables."""
    return [run for table in range(page.locator("table.verl-runs").count()) for run in rows(page, table)]


def status(page) -> str:
    return " ".join(page.locator(".verl-status").inner_text().split())


def choose(page, label: str, option: str) -> None:
    """Choose an option by its text or its number."""
    page.get_by_label(label, exact=True).select_option(option)


def query(page) -> str:
    return page.evaluate("location.search")
