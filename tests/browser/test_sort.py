"""Runs sorted by a column."""

from __future__ import annotations

import pytest
from runs_pages import CONF, SHOW_ALL, query, rows


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


def test_numbers_are_numbers(site, data, own):
    values = [
        "10",
        "9",
        "1,024",
        "-3",
        "\u22123.5",
        "0.25",
        "1,023.5",
        "v0.11.0",
        "v0.8.3",
        "16*H100",
        "2*H800",
    ]
    for number, value in enumerate(values):
        data.run(f"n{number:02}", size="14B", settings={"data.y": value})
    text = ".. verl-runs:: 14B\n   :columns: settings.data.y id\n   :caption: c\n"
    out = own.page(text).build(**CONF).out
    (out / "favicon.ico").write_bytes(b"")
    page = site(out).open("index.html?sort=settings-data-y")
    shown = page.locator("td:first-child").all_inner_texts()
    assert shown == ["\u22123.5", "-3", "0.25", "2*H800", "9", "10", "16*H100", "1,023.5", "1,024", "v0.8.3", "v0.11.0"]  # fmt: skip


def test_a_column_that_one_table_lacks_leaves_it_alone(opened):
    page = opened("two.html?sort=-settings-data-x")
    assert (rows(page, 0), rows(page, 1)) == (["a", "b"], ["d", "e", "f", "a", "b"])
    page = opened("two.html?sort=-model")
    assert rows(page, 1)[0] in "df"
    assert rows(page, 0) == ["a", "b"]
