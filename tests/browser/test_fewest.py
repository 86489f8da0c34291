"""The tabs of ``.. verl-fewest::``: links that work without a script, and do not move with it; folded rows in every theme."""

from __future__ import annotations

import pytest

#: The widest and the narrowest column of text; furo wraps tables.
THEMES = ("sphinx_rtd_theme", "furo")
PAGE = f"""\
{"Text. " * 900}

.. toctree::

   rows

.. verl-fewest::
   :sizes: 7B 70B

{"Text. " * 3000}
"""
SHOWN = """() => [...document.querySelectorAll(".verl-panel")].filter(
  panel => panel.getClientRects().length).map(panel => panel.id)"""
TOP = "document.querySelector('.verl-tabs').getBoundingClientRect().top"
CURRENT = """() => [...document.querySelectorAll(".verl-tabs [aria-current=true]")].map(
  link => link.textContent)"""


@pytest.fixture(scope="module", params=THEMES)
def folder(request, new_project, needs):
    """The page in a theme."""
    needs(request.param)
    project = new_project(f"fewest-{request.param}").page(PAGE)
    project.page(".. verl-runs::\n", "rows.rst")
    project.conf["project"] = "verl"
    return project.build(html_theme=request.param).out


def test_another_table_is_shown_in_the_same_place(site, folder):
    opened = site(folder)
    page = opened.open()
    assert (page.evaluate(SHOWN), page.evaluate(CURRENT)) == (["fewest-80-gb"], ["80 GB"])
    page.evaluate(
        "document.querySelector('.verl-tabs').scrollIntoView({block: 'center', behavior: 'instant'})"
    )
    for memory in (24, 141):
        before = page.evaluate(TOP)
        page.get_by_role("link", name=f"{memory} GB", exact=True).click()
        page.wait_for_function(
            f"() => document.querySelector('[aria-current]')?.textContent === '{memory} GB'"
        )
        page.wait_for_timeout(600)  # a theme may scroll smoothly
        assert page.evaluate(SHOWN) == [f"fewest-{memory}-gb"]
        assert page.evaluate(TOP) == pytest.approx(before, abs=2)
    page.go_back()
    page.wait_for_function("() => document.querySelector('[aria-current]')?.textContent === '24 GB'")
    assert page.evaluate(SHOWN) == ["fewest-24-gb"]
    for fragment, memory in {"#fewest-96-gb": "96", "#other": "80"}.items():
        page = opened.open(f"index.html{fragment}")
        page.wait_for_load_state("load")
        assert (page.evaluate(SHOWN), page.evaluate(CURRENT)) == ([f"fewest-{memory}-gb"], [f"{memory} GB"])


def test_on_a_phone_marks_are_shown_and_tables_hardly_scroll(site, folder):
    page = site(folder).open(viewport={"width": 390, "height": 844})
    cells = page.locator(".verl-fewest td:visible", has_text="‡").or_(
        page.locator(".verl-fewest td:visible", has_text="†")
    )
    assert cells.count() > 3
    for table in page.locator(".verl-scroll:has(.verl-fewest):visible").all():
        assert table.evaluate("(scrolls) => scrolls.scrollWidth - scrolls.clientWidth") < 30


def test_without_a_script_the_tabs_work_and_stay_in_view(site, folder):
    opened = site(folder)
    page = opened.open(java_script_enabled=False)
    assert page.locator(".verl-panel:visible").get_attribute("id") == "fewest-80-gb"
    page.get_by_role("link", name="40 GB", exact=True).click()
    assert page.locator(".verl-panel:visible").get_attribute("id") == "fewest-40-gb"
    page.wait_for_timeout(1000)  # a theme may scroll smoothly
    assert 0 <= page.locator(".verl-tabs").bounding_box()["y"] < 300


def test_the_button_below_a_table_unfolds_its_rows(site, folder):
    """Furo puts a box around each table, so that the button does not follow the table itself."""
    page = site(folder).open("rows.html")
    button = page.locator("#size-0-5b .verl-unfold button")
    rows = page.locator("#size-0-5b table.verl-runs tbody tr:visible")
    before = rows.count()
    gap = "(button) => button.getBoundingClientRect().top - button.closest('section').querySelector('table').getBoundingClientRect().bottom"
    assert button.evaluate(gap) < 20
    button.click()
    assert rows.count() > before > 0
    assert not button.is_visible()
