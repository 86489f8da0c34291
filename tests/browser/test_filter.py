"""The controls that the script adds to the tables of runs: filter, sort, address, copy, print."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest
from many_runs import write_project
from sphinx.cmd.build import build_main

from sphinx_verl_resources.catalog.names import PAGE_SIZES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LONG = "Model-" + "x" * 194
ARABIC, CHINESE = "نموذج", "模型"
#: What other directives put on a page, and what the script does with it.
BLOCKS = """
.. raw:: html

   <details class="verl-details verl-run-a" id="run-a-details"><summary>a</summary><pre>x=1</pre></details>
   <details class="verl-details verl-run-b" id="run-b-details"><summary>b</summary><pre>x=2</pre></details>
   <details class="verl-details verl-more verl-run-c" id="run-c-details"><summary>c</summary><pre>x=3</pre></details>
   <div class="verl-scroll" id="narrow" tabindex="0" role="region" aria-label="n"><p>Text.</p></div>
   <div class="verl-scroll" id="wide" tabindex="0" role="region" aria-label="w" style="overflow-x: auto">
   <div style="width: 4000px">Text.</div></div>
"""
#: Before anybody has chosen anything.
TESTED = "5 of 6 runs: those that ran"
SHOW_ALL = "Show all 6 runs"
#: Without the sidebars, whose search has a script of its own within the page.
CONF = {"html_theme": "basic", "html_sidebars": {"**": []}}
TWO_TABLES = """
.. verl-runs:: 7B
   :caption: Seven
   :columns: id gpus settings.data.x

.. verl-runs:: 3B 7B
   :caption: Both
   :columns: model id gpus
"""


@pytest.fixture(scope="module")
def built() -> dict[str, Path]:
    """Where the project has been built, once for all tests."""
    return {}


@pytest.fixture
def folder(built, own, data) -> Path:
    """A built project: runs of two sizes, one without numbers, names that are long or of other scripts."""
    if "out" not in built:
        built["out"] = build_project(own, data)
    return built["out"]


def build_project(own, data) -> Path:
    days = {name: f"2026-01-0{number}" for number, name in enumerate("abdef", 1)}
    a7 = {"gpus": {"count": 16, "type": "H100"}, "max_batch": 1200, "settings": {"data.x": "1,024"}}
    b7 = {"gpus": {"count": 2, "type": "H800"}, "task": "PPO", "max_batch": 64, "settings": {"data.x": "-3"}}
    a7["notes"] = [
        {"code": "n", "about": "train", "text": "Of a alone."},
        {"code": "n", "about": "train", "text": "Of both."},
    ]
    b7["notes"] = [
        {"code": "n", "about": "train", "text": "Of b alone."},
        {"code": "n", "about": "train", "text": "Of both."},
    ]
    d3 = {"gpus": {"count": 4, "type": "H20"}, "label": ARABIC, "train": "megatron"}
    e3 = {"label": LONG, "settings": {"data.x": "999.5"}}
    f3 = {"label": CHINESE, "task": CHINESE}
    a7["script"] = {"ref": "abc", "path": "examples/qwen2_7b_grpo.sh"}
    for name, fields in {"a": a7, "b": b7}.items():
        data.run(name, added=days[name], **fields)
    for name, fields in {"d": d3, "e": e3, "f": f3}.items():
        data.run(name, size="3B", added=days[name], **fields)
    data.run("c", gpus={"count": 8, "type": None}, kind="stated", tag=None, infer=None)
    for name, task in {"g": "GRPO", "h": "PPO"}.items():
        data.run(name, size="14B", kind="stated", model="Qwen/Qwen2.5-14B", task=task)
    pages = {
        "runs": f".. verl-runs:: {' '.join(size for size in PAGE_SIZES if size != '14B')}\n{BLOCKS}",
        "two": TWO_TABLES,
        "folded": ".. verl-runs:: 3B 14B",
        "claimed": ".. verl-runs:: 14B",
        "long": "Text.\n\n" * 20 + ".. verl-runs:: 7B 3B\n",
        "plain": "Text.",
    }
    own.page(".. toctree::\n\n" + "".join(f"   {name}\n" for name in pages))
    for name, text in pages.items():
        own.page(text, f"{name}.rst")
    build = own.build(**CONF)
    assert build.warnings == []
    (build.out / "favicon.ico").write_bytes(b"")
    return build.out


@pytest.fixture
def opened(site, folder) -> Callable:
    """A function: opens a page of the project."""
    served = site(folder)
    return lambda path="runs.html", **context: served.open(path, **context)


def rows(page, table: int = 0) -> list[str]:
    """The ids of the runs that a table shows, in its order."""
    found = page.locator("table.verl-runs").nth(table).locator("tbody tr:visible")
    return [re.search(r"verl-run-(\w+)", row.get_attribute("class"))[1] for row in found.all()]


def every_row(page) -> list[str]:
    """The same, of all tables."""
    return [run for table in range(page.locator("table.verl-runs").count()) for run in rows(page, table)]


def status(page) -> str:
    return " ".join(page.locator(".verl-status").inner_text().split())


def choose(page, label: str, option: str) -> None:
    """Choose by what is shown, or by number."""
    page.get_by_label(label, exact=True).select_option(option)


def query(page) -> str:
    return page.evaluate("location.search")


def test_long_names_may_break_where_they_are_divided(opened):
    link = opened().locator("#size-7b td.verl-path a").first
    assert link.inner_html() == "qwen2_<wbr>7b_<wbr>grpo.<wbr>sh"
    assert link.inner_text() == "qwen2_7b_grpo.sh"


# -- filter


def test_remarks_go_with_their_runs_and_keep_their_numbers(opened):
    page = opened()
    shown = "() => [...document.querySelectorAll('.verl-notes li')].filter(li => li.offsetParent).map(li => [li.value, li.innerText])"
    numbers = {text.split(": ")[1]: number for number, text in page.evaluate(shown)}
    assert sorted(numbers) == ["Of a alone.", "Of b alone.", "Of both."]
    assert sorted(numbers.values()) == [1, 2, 3]
    choose(page, "Task", "PPO (1)")
    found = {text.split(": ")[1]: number for number, text in page.evaluate(shown)}
    assert found == {name: numbers[name] for name in ("Of b alone.", "Of both.")}


def test_a_filter_hides_rows_and_the_sections_that_it_leaves_empty(opened):
    page = opened()
    assert (status(page), every_row(page)) == (TESTED, ["d", "e", "f", "a", "b"])
    assert page.locator("#size-405b").is_visible()
    choose(page, "GPU", "H20 (1)")
    assert (status(page), every_row(page), query(page)) == ("Showing 1 of 6 runs", ["d"], "?gpu=H20")
    for section, is_shown in {"3b": True, "7b": False, "405b": False}.items():
        assert page.locator(f"#size-{section}").is_visible() == is_shown
    assert not page.locator("#run-a-details").is_visible(), "what else is about a run goes with its row"
    page.get_by_role("button", name="Clear the filters").click()
    assert (status(page), query(page), len(every_row(page))) == (TESTED, "", 5)
    assert page.locator("#size-405b").is_visible()
    assert page.evaluate("document.activeElement.id") == "verl-filter-gpu", "the button has gone"


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
    page.get_by_role("button", name="Show those that ran").click()
    assert (status(page), len(every_row(page))) == (TESTED, 5)
    page.get_by_role("button", name="1 more run", exact=True).click()
    assert (status(page), len(every_row(page))) == ("6 runs", 6)
    assert page.evaluate("document.activeElement.className").startswith("verl-run-c")


def test_a_table_without_any_run_that_ran_is_a_button(opened):
    page = opened("folded.html")
    region, button = page.locator("#size-14b .verl-scroll"), page.locator("#size-14b .verl-unfold button")
    assert page.locator("#size-14b h2").is_visible()
    assert (region.is_visible(), button.inner_text(), status(page)) == (
        False, "2 more runs", "3 of 5 runs: those that ran",
    )  # fmt: skip
    button.click()
    assert (region.is_visible(), rows(page, 1), status(page)) == (True, ["g", "h"], "5 runs")


def test_where_no_run_ran_none_is_folded(opened):
    page = opened("claimed.html")
    assert (rows(page), status(page)) == (["g", "h"], "2 runs")
    assert not page.locator(".verl-unfold, .verl-unfold-all:visible").count()


@pytest.mark.parametrize("path", ["runs.html?kind=claimed", "runs.html#run-c"])
def test_an_address_that_asks_for_what_is_folded_shows_it(opened, path):
    page = opened(path)
    assert "c" in every_row(page)
    link = page.evaluate("document.body.insertAdjacentHTML('beforeend', '<a href=\"#run-c\">Go</a>')")
    page.get_by_role("button", name=re.compile("Clear|Show those that ran")).click()
    assert "c" not in every_row(page), link
    page.get_by_text("Go", exact=True).click()
    page.wait_for_function("document.getElementById('run-c').checkVisibility()")


def test_nothing_moves_when_the_script_begins(site, folder):
    """Rows are folded and controls have their place from the first paint."""
    served = site(folder)
    page = served.open("plain.html", viewport={"width": 1000, "height": 2000})
    held = []
    page.route("**/verl-resources.js*", lambda route: held.append(route))
    place = "() => [...document.querySelectorAll('h2, fieldset, tr, p')].filter((one) => one.checkVisibility()).map((one) => Math.round(one.getBoundingClientRect().top))"
    page.goto(f"{served.address}/runs.html", wait_until="commit")
    page.wait_for_selector(".verl-notes, #size-671b", state="attached")
    before = page.evaluate(place)
    assert status(page) == TESTED
    held[0].continue_()
    page.wait_for_selector(".verl-sort")
    assert page.evaluate(place) == before


# -- the address


def test_nonsense_in_the_address_is_left_out_and_said(opened):
    note = "A part of this link is not known here and was left out."
    for address in ("gpu=%00%ff<b>", "sort=-nope", "size=7B&size=3B", "kind=ran&train=__proto__"):
        page = opened(f"runs.html?{address}#%E0%A4%A")
        assert status(page).endswith(note), address
        assert page.locator("b").count() == 0
        choose(page, "Task", "1")
        assert note not in status(page)
    assert not status(opened("runs.html?gpu=&highlight=x")).endswith(note)


def test_a_shared_link_leads_to_what_it_leaves(opened):
    page = opened("long.html?size=7B", viewport={"width": 800, "height": 300})
    assert status(page) == "Showing 3 of 6 runs"
    assert 0 <= page.locator(".verl-filter").bounding_box()["y"] < 150
    assert opened("long.html", viewport={"width": 800, "height": 300}).evaluate("scrollY") == 0


def test_back_undoes_a_filter(opened):
    page = opened()
    choose(page, "GPU", "H20 (1)")
    choose(page, "GPU", "H100 (3)")  # Of the same control: no step of its own.
    choose(page, "Size", "7B (1)")
    assert (every_row(page), query(page)) == (["a"], "?gpu=H100&size=7B")
    page.get_by_role("button", name="Clear the filters").click()
    for shown, address in (["a"], "?gpu=H100&size=7B"), (["e", "f", "a"], "?gpu=H100"), ([], ""):
        page.go_back()
        assert (every_row(page), query(page)) == (shown or ["d", "e", "f", "a", "b"], address)
    assert page.url.endswith("runs.html")


def test_case_separators_and_the_names_of_rows_do_as_well(opened):
    page = opened("runs.html?gpu=h100&task=grpo")
    assert every_row(page) == ["e", "a"]


def test_what_others_keep_in_the_address_stays(opened):
    page = opened("plain.html")
    page.goto(page.url.replace("plain.html", "runs.html?other=1&gpu=H20#size-3b"))
    choose(page, "Backend", "1")
    choose(page, "GPU", "-1")
    assert page.evaluate("location.search + location.hash") == "?other=1&train=megatron#size-3b"
    page.goto(page.url.replace("runs.html", "plain.html"))
    page.go_back()
    assert (every_row(page), page.get_by_label("Backend", exact=True).input_value()) == (["d"], "1")


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


# -- sort


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
    page.get_by_text("This browser does not let the page copy.").wait_for(state="attached")


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


def test_a_page_of_another_language_and_direction(site, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "out")
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
    assert (status(page), page.evaluate(visible)) == ("250 of 500 runs: those that ran", 250)
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


def test_a_strict_policy_is_kept(site, folder):
    """The server's own widths of columns are refused, and the style sheet overrules them anyway."""
    served = site(folder, {"Content-Security-Policy": "script-src 'self'; style-src 'self'"})
    page = served.open("two.html?sort=-gpus")
    before = list(served.problems)
    choose(page, "Size", "0")
    page.get_by_role("button", name="Resource").first.click()
    assert rows(page, 1) == ["d", "e", "f"]
    assert served.problems == before
    assert [problem for problem in before if "inline style" not in problem] == []
    served.problems.clear()


def test_pages_from_a_disk_filter_too(browser, folder):
    page = browser.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(error))
    page.goto((folder / "runs.html").as_uri())
    choose(page, "GPU", "0")
    assert every_row(page) == ["d"]
    page.evaluate("() => { history.replaceState = () => { throw new Error('not from a disk'); }; }")
    choose(page, "GPU", "1")
    assert (every_row(page), errors) == (["e", "f", "a"], [])
    page.close()
