"""Tables of runs in a window: copy, scroll, print, other languages, no scripts."""

from __future__ import annotations

import re
import shutil

import pytest
from many_runs import write_project
from runs_pages import CHINESE, choose, every_row, rows, status
from sphinx.cmd.build import build_main


def test_long_names_may_break_where_they_are_divided(opened):
    link = opened().locator("#size-7b td.verl-path a").first
    assert link.inner_html() == "qwen2_<wbr>7b_<wbr>grpo.sh"
    assert link.inner_text() == "qwen2_7b_grpo.sh"


def test_numbers_stay_before_their_gpus_where_text_runs_from_right_to_left(opened):
    page = opened()
    page.evaluate("document.documentElement.dir = 'rtl'")
    places = page.get_by_text("16*H100", exact=True).first.evaluate(
        """(cell) => [0, 3].map((index) => {
          const letter = document.createRange();
          const text = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT).nextNode();
          letter.setStart(text, index);
          letter.setEnd(text, index + 1);
          return letter.getBoundingClientRect().left;
        })"""
    )
    assert places[0] < places[1]


def test_settings_break_between_words(opened):
    settings = opened().locator("#run-c-details pre")
    assert settings.inner_html() == "data.<wbr>max_<wbr>length=<wbr>3"
    assert settings.text_content() == "data.max_length=3"


# -- copy, scroll, print


def test_a_link_is_copied_from_the_details(opened):
    page = opened("runs.html?gpu=H800")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#run-b-details summary").click()
    page.locator("#run-b-details").get_by_role("button", name="Copy the link to this run").click()
    page.get_by_text("Copied").wait_for(state="attached")
    assert page.evaluate("navigator.clipboard.readText()").endswith("/runs.html#run-b")
    assert not page.locator("table.verl-runs tbody button").count(), "rows have none"


def test_without_the_clipboard_a_selection_is_copied(opened):
    page = opened()
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error()); }")
    page.evaluate(
        "() => { document.execCommand = () => { window.taken = document.activeElement.value; return true; }; }"
    )
    page.locator("#run-b-details").evaluate("(details) => { details.open = true; }")
    page.locator("#run-b-details").get_by_role("button", name="Copy", exact=True).click()
    page.get_by_text("Copied").wait_for(state="attached")
    assert page.evaluate("window.taken") == "x=2"
    page.evaluate("() => { document.execCommand = () => false; }")
    page.locator("#run-b-details").get_by_role("button", name="Copy", exact=True).click()
    page.get_by_text("The browser did not allow copying.").wait_for(state="attached")


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


def test_the_model_stays_in_view_where_a_table_scrolls(opened):
    page = opened(viewport={"width": 360, "height": 800})
    table = page.locator("#size-7b table")
    box = table.locator("xpath=ancestor::*[contains(@class, 'verl-scroll')]")
    box.evaluate("(box) => { box.scrollLeft = 200; }")
    left = box.bounding_box()["x"]
    cells = table.locator("tbody tr:visible").first.locator("td")
    assert cells.nth(1).bounding_box()["x"] == pytest.approx(left, abs=1)
    assert cells.nth(0).bounding_box()["x"] < left


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


def test_print_says_that_it_is_filtered(opened):
    page = opened("runs.html?gpu=H800")
    page.emulate_media(media="print")
    assert every_row(page) == ["b"]
    assert not page.get_by_label("GPU", exact=True).is_visible()
    assert page.get_by_text("Showing 1 of 6 runs").is_visible()


# -- everywhere


def test_long_names_and_a_narrow_window(opened):
    page = opened("runs.html", viewport={"width": 360, "height": 800})
    edges = page.locator(".verl-filter, .verl-filter select").evaluate_all(
        "(all) => all.map((each) => each.getBoundingClientRect()).map((box) => [box.left, box.right])"
    )
    assert edges[0][1] - edges[0][0] <= 360
    assert all(edges[0][0] < left < right < edges[0][1] for left, right in edges[1:])
    sizes = page.locator(".verl-filter select, .verl-sort, .verl-unfold button").evaluate_all(
        "(all) => all.map((each) => { const box = each.getBoundingClientRect(); return [box.width, box.height]; })"
    )
    assert min(min(size) for size in sizes) >= 24


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


def test_five_hundred_runs_are_folded_filtered_and_shown(site, tmp_path):
    source, out = write_project(tmp_path, 500, "basic"), tmp_path / "out"
    assert build_main(["-q", "-b", "html", str(source), str(out)]) == 0
    (out / "favicon.ico").write_bytes(b"")
    page = site(out).open()
    visible = "[...document.querySelectorAll('table.verl-runs tbody tr')].filter((row) => row.checkVisibility()).length"
    assert (status(page), page.evaluate(visible)) == ("250 of 500 runs: only those that ran", 250)
    page.get_by_label("Size", exact=True).select_option(label="7B (100)")
    assert (status(page), page.evaluate(visible)) == ("Showing 100 of 500 runs", 100)
    page.get_by_role("button", name="Clear the filters").click()
    page.get_by_role("button", name="Show all 500 runs").click()
    assert (status(page), page.evaluate(visible)) == ("500 runs", 500)


def test_a_page_without_a_table_loads_nothing(opened):
    page = opened("plain.html")
    names = page.evaluate("performance.getEntriesByType('resource').map((each) => each.name)")
    assert names
    assert not [name for name in names if "verl-resources" in name]


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
