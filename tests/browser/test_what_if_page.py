"""The form on its page: files, keyboard, no JavaScript."""

from __future__ import annotations

import re

from form_pages import FIRST, OTHERS, STRICT, check, choose, query, settle, shown


def test_files_are_loaded_when_they_are_needed(open_page):
    page = open_page()
    loaded = []
    page.on("request", lambda request: loaded.append(request.url.rpartition("/")[2]))
    assert page.locator("script[src*=verl-what-if-]").count() == 0
    choose(page, count="32")
    assert len(loaded) == 1
    assert re.fullmatch(r"verl-what-if-[0-9a-f]{12}\.js", loaded[0])
    choose(page, count="2", lora="32")
    assert len(loaded) == 1
    choose(page, model=OTHERS["model"])
    assert len(set(loaded)) == 2


def test_a_file_that_is_missing_is_said_and_asked_for_again(site, form_folder):
    served = site(form_folder, STRICT)
    page = served.open()
    page.route("**/verl-what-if-*.js", lambda route: route.abort())
    choose(page, count="32")
    (text,) = page.locator("[role=status]").all_inner_texts()
    assert text.strip() == (
        "The answers for Qwen2.5-7B could not be loaded. "
        "Run verl-resources plan Qwen/Qwen2.5-7B --gpus 32xH100 --response 1024 instead."
    )
    assert page.locator(".verl-if-answer > :visible").count() == 1, "no answer to another question"
    page.unroute("**/verl-what-if-*.js")
    choose(page, lora="32")
    check(shown(page), {**FIRST, "count": "32", "lora": "32"})
    assert [problem for problem in served.problems if "ERR_FAILED" not in problem] == []
    served.problems.clear()


def test_the_keyboard_is_enough(open_page):
    page = open_page()
    page.locator("select[name=model]").focus()
    order = []
    for _number in FIRST:
        order.append(page.evaluate("document.activeElement.name"))
        page.keyboard.press("Tab")
    assert order == ["model", "count", "gpu", "lora", "response"]
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowUp")
    settle(page)
    check(shown(page), {**FIRST, "response": "512"})
    for name in ("a", "button", "a", "summary", "summary"):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.localName") == name
    page.keyboard.press("Enter")
    assert page.locator(".verl-what-if pre").is_visible()
    choose(page, count="32")
    assert page.locator(".verl-what-if pre").is_visible(), "it stays open"


def test_the_command_is_copied(open_page):
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    button = page.get_by_role("button", name="Copy the command")
    button.click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == shown(page)["command"]
    assert shown(page)["command"].startswith("python3 -m verl.trainer.main_ppo \\\n")
    button.wait_for()


QUESTION = "Qwen2.5-7B on 8 × H100, all parameters, responses of up to 1,024 tokens"


def test_without_javascript_are_question_answer_and_what_to_do(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator(".verl-what-if :is(select, button)").locator("visible=true").count() == 0
    text = page.locator("form.verl-what-if").inner_text()
    assert "run verl-resources plan Qwen/Qwen2.5-7B --gpus 8xH100" in text
    assert QUESTION in text
    assert "Fits" in text
    page.locator("summary", has_text="Command").click()
    assert page.locator(".verl-what-if pre").is_visible()


def test_it_works_from_a_folder(browser, form_folder):
    page = browser.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto((form_folder / "index.html").as_uri())
    choose(page, count="32")
    check(shown(page), {**FIRST, "count": "32"})
    assert problems == []


#: The sum of layout shifts.
SHIFTS = """() => new Promise((resolve) => {
  let sum = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) sum += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => resolve(sum), 300);
})"""
#: Answers with few lines and with many.
ASKED = ("", query(OTHERS), query({**FIRST, "model": OTHERS["model"], "count": "2"}), "if-gpu=H9000")
