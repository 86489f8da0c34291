"""The whole hardware page: its form, tabs, filter and tables in sequence."""

from __future__ import annotations

import pytest

#: Checks that the focused element is in the window and visibly focused.
SEEN = """
() => {
  const element = document.activeElement;
  const box = element.getBoundingClientRect();
  return element.matches(':focus-visible') && box.bottom > 0 && box.top < innerHeight;
}
"""


@pytest.fixture(scope="module")
def folder(new_project, hardware_page):
    """Only this page, with a form of few choices."""
    build = new_project("hardware").page(hardware_page).build(html_theme="sphinx_rtd_theme")
    assert build.warnings == []
    return build.out


def tab_to(page, selector: str, most: int = 40) -> None:
    """Press Tab until an element that matches has the focus."""
    for _stop in range(most):
        page.keyboard.press("Tab")
        assert page.evaluate(SEEN), page.evaluate("document.activeElement.outerHTML")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    pytest.fail(f"{most} stops do not reach {selector}")


def test_the_keyboard_alone_goes_through_the_page(site, folder):
    page = site(folder).open(viewport={"width": 1400, "height": 900})
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab_to(page, ".verl-what-if select[name=count]")
    answer = page.locator(".verl-if-answer").inner_text()
    page.keyboard.press("ArrowUp")
    page.wait_for_function("location.search.includes('if-count=4')")
    page.wait_for_load_state("networkidle")
    assert page.locator(".verl-if-answer").inner_text() != answer
    tab_to(page, ".verl-what-if button")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Copied").wait_for()
    assert "model.path=Qwen/Qwen2.5-7B" in page.evaluate("navigator.clipboard.readText()")
    tab_to(page, ".verl-what-if summary")
    page.keyboard.press("Enter")
    assert page.locator(".verl-what-if details[open]").count() == 1
    tab_to(page, ".verl-tabs a:nth-child(2)")
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.getAttribute('aria-current') === 'true'")
    assert page.locator(".verl-panel table:visible").count() == 1
    tab_to(page, ".verl-panel:target a")
    tab_to(page, "#verl-filter--size")
    for _letter in range(2):
        page.keyboard.press("ArrowDown")
    assert page.evaluate("new URLSearchParams(location.search).get('size')") == "1.5B"
    assert page.locator("section[id^=size-]:visible").count() == 1
    tab_to(page, ".verl-clear")
    page.keyboard.press("Enter")
    tab_to(page, "#size-0-5b .verl-sort")
    page.keyboard.press("Space")
    assert page.locator("#size-0-5b [aria-sort]").count() == 1
    tab_to(page, "#size-0-5b .verl-unfold button")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.matches('#size-0-5b tr')")
    tab_to(page, "#size-0-5b .verl-details > summary")
    page.keyboard.press("Enter")
    tab_to(page, "#size-0-5b details[open] .verl-copy")
