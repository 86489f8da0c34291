"""Tables of runs: filters and sort orders with their address, folded rows, copying, printing, and pages without scripts."""

from __future__ import annotations

import re
import shutil

import pytest
from runs_pages import SHOW_ALL, TESTED, choose, every_row, query, rows, status

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
    ("label", "option", "visible", "address"),
    [
        ("GPU", "H100 (3)", ["e", "f", "a"], "?gpu=H100"), ("GPU", "not stated (1)", ["c"], "?gpu=GPU"),
        ("Size", "7B (3)", ["a", "b", "c"], "?size=7B"), ("Backend", "megatron (1)", ["d"], "?train=megatron"),
        ("Task", "REINFORCE++ (1)", ["f"], "?task=REINFORCE%2B%2B"), ("Status", "claimed (1)", ["c"], "?kind=claimed"),
    ],
)  # fmt: skip
def test_each_control_filters_and_its_address_opens_the_same(opened, label, option, visible, address):
    page = opened()
    page.get_by_label(label, exact=True).select_option(label=option)
    assert (every_row(page), query(page)) == (visible, address)
    again = opened(f"runs.html{address}")
    assert every_row(again) == visible
    assert again.get_by_label(label, exact=True).locator("option:checked").inner_text() == option


def test_options_say_how_many_runs_they_would_leave(opened):
    page = opened("runs.html?size=7B&gpu=H20")
    assert (status(page), every_row(page)) == ("Showing 0 of 6 runs No run matches.", [])
    choose(page, "GPU", "-1")
    options = page.get_by_label("GPU", exact=True).locator("option").all_inner_texts()
    assert options == ["All", "H20 (0)", "H100 (1)", "H800 (1)", "not stated (1)"]


def test_two_tables_have_one_bar_and_count_a_run_once(opened):
    page = opened("two.html")
    assert page.locator(".verl-filter").count() == 1
    assert status(page) == TESTED
    choose(page, "Size", "3B (3)")
    assert (rows(page, 0), rows(page, 1), status(page)) == ([], ["d", "e", "f"], "Showing 3 of 6 runs")
    assert page.get_by_text("Seven").is_visible(), "the caption stays"


# -- sort


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_a_heading_sorts_up_and_down_and_returns_to_the_order_of_the_page(opened, key):
    page = opened()
    heading = page.locator("#size-7b th.verl-col-gpus")
    button = heading.get_by_role("button", name="Resource", exact=True)
    states = []
    for _press in range(4):
        states.append((query(page), heading.get_attribute("aria-sort"), "".join(rows(page, 1))))
        button.press(key)
        assert button.evaluate("(button) => button === document.activeElement"), "the focus stays"
    assert states == [
        ("", None, "ab"),
        ("?sort=gpus", "ascending", "ba"),
        ("?sort=-gpus", "descending", "ab"),
        ("", None, "ab"),
    ]
    for address, _direction, order in (states[0], states[2]):
        page.go_back()
        assert (query(page), "".join(rows(page, 1))) == (address, order)


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("gpus", "bca"), ("-gpus", "acb"), ("max-batch", "bac"), ("-max-batch", "abc"), ("infer", "bac"),
        ("-INFER", "abc"), ("-task", "bac"), ("train", "abc"), ("model", "abc"),
    ],
)  # fmt: skip
def test_an_order_is_natural_with_empty_cells_last_and_equal_ones_as_before(opened, sort, order):
    """A remark is no part of a value: all runs of this table have the same backend."""
    page = opened(f"runs.html?sort={sort}")
    assert "".join(rows(page, 1)) == order.replace("c", ""), "what did not run stays folded"
    page.get_by_role("button", name=SHOW_ALL).click()
    assert "".join(rows(page, 1)) == order


def test_an_address_with_a_filter_and_an_order_opens_both_in_all_tables(opened):
    page = opened("runs.html?size=7B&sort=-gpus")
    assert (status(page), every_row(page)) == ("Showing 3 of 6 runs", ["a", "c", "b"])
    page.get_by_role("button", name="Clear the filters").click()
    assert (every_row(page), query(page)) == (["d", "e", "f", "a", "b"], "?sort=-gpus")
    assert page.locator("[aria-sort=descending]").count() == 2
    choose(page, "Size", "7B (3)")
    assert query(page) == "?size=7B&sort=-gpus"


def test_numbers_are_no_versions_and_a_table_without_the_column_stays(opened):
    page = opened("two.html?sort=-settings-data-x")
    page.get_by_role("button", name=SHOW_ALL).click()
    assert (rows(page, 0), page.locator("[aria-sort]").count()) == (["b", "a", "c"], 1)
    before = rows(page, 1)
    page.get_by_role("button", name="Model").click()
    assert rows(page, 0) == ["a", "b", "c"]
    assert sorted(rows(page, 1)) == sorted(before) != rows(page, 1)


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


# -- the address


@pytest.mark.parametrize(
    ("address", "question"),
    [
        ("size=99B&task=xyz", "size=99B, task=xyz"), ("gpu=%00%ff<b>", "gpu=\0\ufffd<b>"),
         ("kind=ran&train=__proto__", "train=__proto__"),
        ("sort=-nope", "sort=-nope"), ("size=7B&sort=--gpus", "sort=--gpus"),
        (f"size={'9' * 500}", f"size={'9' * 80}"),
    ],
)  # fmt: skip
def test_what_the_address_asks_in_vain_is_named_and_left_out(opened, address, question):
    page = opened(f"runs.html?{address}#%E0%A4%A")
    note = f"Unknown filters in the address: {question}."
    assert page.locator(".verl-status span").last.text_content() == note
    assert page.locator("b").count() == 0
    choose(page, "Task", "1")
    assert note not in status(page)


def test_back_undoes_a_filter(opened):
    page = opened()
    choose(page, "GPU", "H20 (1)")
    choose(page, "GPU", "H100 (3)")
    choose(page, "Size", "7B (1)")
    assert (every_row(page), query(page)) == (["a"], "?gpu=H100&size=7B")
    page.get_by_role("button", name="Clear the filters").click()
    for visible, address in (
        ("a", "?gpu=H100&size=7B"),
        ("efa", "?gpu=H100"),
        ("d", "?gpu=H20"),
        ("defab", ""),
    ):
        page.go_back()
        assert ("".join(every_row(page)), query(page)) == (visible, address)
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
    for scroll_left, expected in (0, ["after"]), (100, ["before", "after"]), (9999, ["before"]):
        wide.evaluate("(box, left) => { box.scrollLeft = left; }", scroll_left)
        page.wait_for_timeout(100)
        assert wide.evaluate(edges) == expected


def test_print_has_every_row_and_the_details_of_what_ran(opened):
    page = opened()
    page.emulate_media(media="print")
    assert len(every_row(page)) == 6
    assert not page.locator("#run-c-details").is_visible()
    controls = page.locator(".verl-filter, .verl-unfold, [role=main] button:not(.verl-sort), body > button")
    assert not controls.locator("visible=true").count()
    assert page.locator("#size-7b thead").inner_text().split()[:3] == ["Tag", "Model", "Task"]


# -- everywhere


def test_a_page_of_another_language_and_direction(site, runs_folder, tmp_path):
    shutil.copytree(runs_folder, tmp_path / "out")
    path = tmp_path / "out/runs.html"
    text = path.read_text("utf-8")
    path.write_text(re.sub(r"<html[^>]*>", '<html lang="not_a!language" dir="rtl">', text), "utf-8")
    page = site(tmp_path / "out").open("runs.html", viewport={"width": 360, "height": 800})
    assert (rows(page, 0), rows(page, 1)) == (["d", "e", "f"], ["a", "b"])
    box = page.locator("#size-7b .verl-scroll")
    box.evaluate("(box) => { box.scrollLeft = -200; }")
    edges = [one.bounding_box() for one in (box, box.locator("tbody tr td:nth-child(2)").first)]
    assert edges[0]["x"] + edges[0]["width"] == pytest.approx(edges[1]["x"] + edges[1]["width"], abs=1)
    assert box.evaluate("(box) => box.classList.contains('verl-more-before')")
    choose(page, "Task", "REINFORCE++ (1)")
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
    assert served.problems == before
    assert [problem for problem in before if "inline style" not in problem] == []
    served.problems.clear()


def test_pages_from_a_disk_filter_too(site, runs_folder):
    page = site(runs_folder, from_disk=True).open("runs.html")
    choose(page, "GPU", "0")
    assert every_row(page) == ["d"]
    page.evaluate("() => { history.replaceState = () => { throw new Error('not from a disk'); }; }")
    choose(page, "GPU", "1")
    assert every_row(page) == ["e", "f", "a"]
