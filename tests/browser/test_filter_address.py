"""The address of a page of runs: its parameters, the "Back" button, and links to hidden rows."""

from __future__ import annotations

import pytest
from runs_pages import TESTED, choose, every_row, query, status


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        ("size=99B&task=xyz", "size=99B, task=xyz"),
        ("gpu=%00%ff<b>", "gpu=\0\ufffd<b>"),
        ("sort=-nope", "sort=-nope"),
        ("size=7B&size=3B", "size=3B"),
        ("kind=ran&train=__proto__", "train=__proto__"),
        (f"size={'9' * 500}", f"size={'9' * 80}"),
    ],
)
def test_what_the_address_asks_in_vain_is_named_and_left_out(opened, address, asked):
    page = opened(f"runs.html?{address}#%E0%A4%A")
    note = f"Unknown filters in the address: {asked}."
    assert page.locator(".verl-status span").last.text_content() == note
    assert page.locator("b").count() == 0
    choose(page, "Task", "1")
    assert note not in status(page)


def test_back_undoes_a_filter(opened):
    page = opened()
    choose(page, "GPU", "H20 (1)")
    choose(page, "GPU", "H100 (3)")  # A change of the same control adds no step.
    choose(page, "Size", "7B (1)")
    assert (every_row(page), query(page)) == (["a"], "?gpu=H100&size=7B")
    page.get_by_role("button", name="Clear the filters").click()
    for shown, address in (["a"], "?gpu=H100&size=7B"), (["e", "f", "a"], "?gpu=H100"), ([], ""):
        page.go_back()
        assert (every_row(page), query(page)) == (shown or ["d", "e", "f", "a", "b"], address)
    assert page.url.endswith("runs.html")


@pytest.mark.parametrize("target", ["run-a", "size-7b", "size-405b", "run-a-details"])
def test_a_link_to_what_is_hidden_shows_it(opened, target):
    page = opened(f"runs.html?gpu=H20&sort=gpus#{target}", viewport={"width": 800, "height": 300})
    assert page.locator(f"tr:has(#{target})" if target == "run-a" else f"#{target}").is_visible()
    assert query(page) == "?sort=gpus"
    assert page.evaluate("scrollY") > 0
    if target == "run-a":
        assert page.locator("tr:has(#run-a)").bounding_box()["y"] > 0, "the whole row is in view"
    choose(page, "GPU", "0")
    page.evaluate(f"location.hash = ''; location.hash = '{target}'")
    page.wait_for_function(f"!document.getElementById('{target}').closest('[hidden]')")
    choose(page, "GPU", "0")
    page.evaluate(f"document.body.insertAdjacentHTML('beforeend', '<a href=\"#{target}\">Go again</a>')")
    page.get_by_text("Go again").click()
    page.wait_for_function("location.search === '?sort=gpus'")
    assert status(page) == TESTED
    details = page.locator("#run-a-details").get_attribute("open") is not None
    assert details == (target == "run-a-details")
