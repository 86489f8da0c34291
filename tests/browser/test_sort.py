"""Runs sorted by a column."""

from __future__ import annotations

import pytest
from runs_pages import SHOW_ALL, query, rows


def test_up_down_and_back(opened):
    page = opened()
    button, cell = page.locator("#size-7b .verl-col-gpus button"), page.locator("#size-7b th.verl-col-gpus")
    states = []
    for _press in range(4):
        states.append((query(page), cell.get_attribute("aria-sort"), "".join(rows(page, 1))))
        button.click()
    assert states == [
        ("", None, "ab"),
        ("?sort=gpus", "ascending", "ba"),
        ("?sort=-gpus", "descending", "ab"),
        ("", None, "ab"),
    ]
    page = opened("runs.html?sort=-gpus")
    page.get_by_role("button", name=SHOW_ALL).click()
    assert (rows(page, 0), rows(page, 1)) == (["d", "e", "f"], ["a", "c", "b"]), "all tables"
    assert page.locator("[aria-sort]").count() == 2


@pytest.mark.parametrize(
    ("sort", "order"),
    [("max-batch", "bac"), ("-max-batch", "abc"), ("infer", "abc"), ("-infer", "abc"), ("-task", "bac")],
)
def test_what_is_not_recorded_comes_last_and_equals_stay(opened, sort, order):
    page = opened(f"runs.html?sort={sort}")
    page.get_by_role("button", name=SHOW_ALL).click()
    assert "".join(rows(page, 1)) == order
