"""Tables of runs in a window: copy, scroll, print, other languages, no scripts."""

from __future__ import annotations

import re
import shutil

import pytest
from runs_pages import CHINESE, choose, every_row, rows

# -- copy, scroll, print


def test_a_link_is_copied_from_the_details(opened):
    page = opened("runs.html?gpu=H800")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#run-b-details summary").click()
    page.locator("#run-b-details").get_by_role("button", name="Copy the link to this run").click()
    page.get_by_text("Copied").wait_for(state="attached")
    assert page.evaluate("navigator.clipboard.readText()").endswith("/runs.html#run-b")
    assert not page.locator("table.verl-runs tbody button").count(), "rows have none"


def test_only_what_scrolls_is_a_stop_and_shows_its_edges(opened):
    page = opened()
    page.wait_for_function("!document.getElementById('narrow').hasAttribute('tabindex')")
    wide = page.locator("#wide")
    assert wide.get_attribute("tabindex") == "0"
    edges = "(box) => ['before', 'after'].filter((side) => box.classList.contains(`verl-more-${side}`))"
    for left, expected in (0, ["after"]), (100, ["before", "after"]), (9999, ["before"]):
        wide.evaluate("(box, left) => { box.scrollLeft = left; }", left)
        page.wait_for_timeout(100)
        assert wide.evaluate(edges) == expected


def test_print_has_every_row_and_the_details_of_what_ran(opened):
    page = opened()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    opened_now = (
        "Object.fromEntries([...document.querySelectorAll('details')].map((each) => [each.id, each.open]))"
    )
    assert page.evaluate(opened_now) == {
        "run-a-details": True, "run-b-details": True, "run-c-details": False,
    }  # fmt: skip
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
    page.emulate_media(media="print")
    assert len(every_row(page)) == 6
    assert not page.locator("#run-c-details").is_visible()
    assert (
        not page.locator(".verl-filter, .verl-unfold, main button, body > button")
        .locator("visible=true")
        .count()
    )


# -- everywhere


def test_a_page_of_another_language_and_direction(site, runs_folder, tmp_path):
    shutil.copytree(runs_folder, tmp_path / "out")
    path = tmp_path / "out/runs.html"
    text = path.read_text("utf-8")
    path.write_text(re.sub(r"<html[^>]*>", '<html lang="not_a!language" dir="rtl">', text), "utf-8")
    page = site(tmp_path / "out").open("runs.html?sort=model", viewport={"width": 360, "height": 800})
    assert (rows(page, 0), rows(page, 1)) == (["e", "d", "f"], ["a", "b"])
    box = page.locator("#size-7b .verl-scroll")
    box.evaluate("(box) => { box.scrollLeft = -200; }")
    edges = [one.bounding_box() for one in (box, box.locator("tbody tr td:nth-child(2)").first)]
    assert edges[0]["x"] + edges[0]["width"] == pytest.approx(edges[1]["x"] + edges[1]["width"], abs=1)
    assert box.evaluate("(box) => box.classList.contains('verl-more-before')")
    choose(page, "Task", f"{CHINESE} (1)")
    assert every_row(page) == ["f"]


def test_without_scripts_every_row_is_there_and_no_control(opened):
    page = opened("runs.html?gpu=H20", java_script_enabled=False)
    assert not page.locator("button:visible, select:visible, fieldset:visible").count()
    assert page.locator("table.verl-runs tbody tr:visible").count() == 6


def test_a_strict_policy_is_kept(site, runs_folder):
    """The policy refuses column widths from the server; the style sheet sets them in any case."""
    served = site(runs_folder, {"Content-Security-Policy": "script-src 'self'; style-src 'self'"})
    page = served.open("two.html?sort=-gpus")
    before = list(served.problems)
    choose(page, "Size", "0")
    page.get_by_role("button", name="Resource").first.click()
    assert rows(page, 1) == ["d", "e", "f"]
    assert served.problems == before
    assert [problem for problem in before if "inline style" not in problem] == []
    served.problems.clear()


def test_pages_from_a_disk_filter_too(browser, runs_folder):
    page = browser.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(error))
    page.goto((runs_folder / "runs.html").as_uri())
    choose(page, "GPU", "0")
    assert every_row(page) == ["d"]
    page.evaluate("() => { history.replaceState = () => { throw new Error('not from a disk'); }; }")
    choose(page, "GPU", "1")
    assert (every_row(page), errors) == (["e", "f", "a"], [])
    page.close()
