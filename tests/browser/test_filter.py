"""Filtered runs, and runs that are folded until a reader unfolds them."""

from __future__ import annotations

import re

import pytest
from runs_pages import CHINESE, SHOW_ALL, TESTED, choose, every_row, query, rows, status

# -- filter


def test_a_filter_hides_rows_and_the_sections_that_it_leaves_empty(opened):
    page = opened()
    assert (status(page), every_row(page)) == (TESTED, ["d", "e", "f", "a", "b"])
    assert page.locator("#size-405b").is_visible()
    choose(page, "GPU", "H20 (1)")
    assert (status(page), every_row(page), query(page)) == ("Showing 1 of 6 runs", ["d"], "?gpu=H20")
    for section, is_shown in {"3b": True, "7b": False, "405b": False}.items():
        assert page.locator(f"#size-{section}").is_visible() == is_shown
    assert not page.locator("#run-a-details").is_visible(), "the details of a run are hidden with its row"
    page.get_by_role("button", name="Clear the filters").click()
    assert (status(page), query(page), len(every_row(page))) == (TESTED, "", 5)
    assert page.locator("#size-405b").is_visible()
    assert page.evaluate("document.activeElement.id") == "verl-filter--gpu", "the button is hidden"


@pytest.mark.parametrize(
    ("label", "option", "shown", "address"),
    [
        ("GPU", "H100 (3)", ["e", "f", "a"], "?gpu=H100"),
        ("GPU", "not stated (1)", ["c"], "?gpu=GPU"),
        ("Size", "7B (3)", ["a", "b", "c"], "?size=7B"),
        ("Task", f"{CHINESE} (1)", ["f"], "?task=%E6%A8%A1%E5%9E%8B"),
        ("Backend", "megatron (1)", ["d"], "?train=megatron"),
        ("Status", "Claimed (1)", ["c"], "?kind=claimed"),
    ],
)
def test_each_control_filters_and_its_address_opens_the_same(opened, label, option, shown, address):
    page = opened()
    page.get_by_label(label, exact=True).select_option(label=option)
    assert (every_row(page), query(page)) == (shown, address)
    again = opened(f"runs.html{address}")
    assert every_row(again) == shown
    assert again.get_by_label(label, exact=True).locator("option:checked").inner_text() == option


def test_options_say_how_many_runs_they_would_leave(opened):
    page = opened("runs.html?size=7B")
    assert page.get_by_label("GPU", exact=True).locator("option").all_inner_texts() == [
        "All", "H20 (0)", "H100 (1)", "H800 (1)", "not stated (1)"]  # fmt: skip
    assert page.get_by_label("Size", exact=True).locator("option").all_inner_texts() == [
        "All",
        "3B (3)",
        "7B (3)",
    ]


def test_nothing_matches(opened):
    page = opened("runs.html?size=7B&gpu=H20")
    assert (status(page), every_row(page)) == ("Showing 0 of 6 runs No run matches.", [])
    page.get_by_role("button", name="Clear the filters").click()
    assert len(every_row(page)) == 5


def test_the_keyboard_reaches_everything(opened):
    page = opened()
    page.get_by_label("GPU", exact=True).focus()
    page.keyboard.press("ArrowDown")
    assert (every_row(page), query(page)) == (["d"], "?gpu=H20")
    for _tab in range(5):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "verl-clear"
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Resource").first.focus()
    page.keyboard.press("Space")
    assert rows(page, 1) == ["b", "a"]
    page.get_by_role("button", name="Show all 6 runs").focus()
    page.keyboard.press("Enter")
    assert rows(page, 1) == ["b", "c", "a"]
    page.locator("#run-a-details summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Copy"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Copy the link to this run"


def test_two_tables_have_one_bar_and_count_a_run_once(opened):
    page = opened("two.html")
    assert page.locator(".verl-filter").count() == 1
    assert page.evaluate(
        "document.querySelector('.verl-filter').compareDocumentPosition(document.querySelector('table')) & 4"
    )
    assert status(page) == TESTED
    choose(page, "Size", "3B (3)")
    assert (rows(page, 0), rows(page, 1), status(page)) == ([], ["d", "e", "f"], "Showing 3 of 6 runs")
    notes = page.get_by_text("None of these runs matches.")
    assert [note.is_visible() for note in notes.all()] == [True, False]
    assert page.get_by_text("Seven").is_visible(), "the caption stays"


# -- fold


def test_what_did_not_run_is_folded_until_asked_for(opened):
    page = opened()
    assert (status(page), every_row(page)) == (TESTED, ["d", "e", "f", "a", "b"])
    page.get_by_role("button", name=SHOW_ALL).click()
    assert (status(page), every_row(page)) == ("6 runs", ["d", "e", "f", "a", "b", "c"])
    assert not page.locator(".verl-unfold:visible").count()
    page.get_by_role("button", name="Show only those that ran").click()
    assert (status(page), len(every_row(page))) == (TESTED, 5)
    page.get_by_role("button", name="1 more run", exact=True).click()
    assert (status(page), len(every_row(page))) == ("6 runs", 6)
    assert page.evaluate("document.activeElement.className").startswith("verl-run-c")


@pytest.mark.parametrize("path", ["runs.html?kind=claimed", "runs.html#run-c"])
def test_an_address_that_asks_for_what_is_folded_shows_it(opened, path):
    page = opened(path)
    assert "c" in every_row(page)
    link = page.evaluate("document.body.insertAdjacentHTML('beforeend', '<a href=\"#run-c\">Go</a>')")
    page.get_by_role("button", name=re.compile("Clear|Show only those that ran")).click()
    assert "c" not in every_row(page), link
    page.get_by_text("Go", exact=True).click()
    page.wait_for_function("document.getElementById('run-c').checkVisibility()")
