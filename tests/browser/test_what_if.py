"""The form of ``.. verl-what-if::``: its answers, its address, its files and no JavaScript; test_hardware_page.py has the keyboard."""

from __future__ import annotations

import re
from itertools import product

import pytest
from form_pages import FIRST, LABEL, OTHERS, STRICT, check, choose, query, read_form, settle

SAMPLE = [
    dict(zip(FIRST, values, strict=True))
    for values in product(
        ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B"), ("1", "4", "128"),
        ("L4", "RTX-5090", "Ascend-A2", "H100-80GB", "MI300X"), ("0", "32"), ("1024", "16384"),
    )
][3::13]  # fmt: skip
LARGE = "Qwen/Qwen3-235B-A22B"
SHIFT = """() => new Promise((resolve) => {
  let sum = 0;
  new PerformanceObserver((list) => list.getEntries().forEach((entry) => { sum += entry.value; }))
    .observe({ type: "layout-shift", buffered: true });
  setTimeout(() => resolve(sum), 300);
})"""


def test_what_is_shown_is_the_answer(open_page):
    """Texts, links, bars and command are those of ``answer``, also of the first one without a script."""
    page = open_page()
    assert page.locator(".verl-what-if [style]").count() == 0, "a strict policy forbids styles"
    check(read_form(page), FIRST)
    assert "?" not in page.url, "nothing was chosen"
    verdicts = set()
    for choices in SAMPLE:
        choose(page, **choices)
        verdicts.add(check(read_form(page), choices).verdict)
    assert verdicts >= {"fits", "does-not-fit"}
    choose(page, **FIRST)
    check(read_form(page), FIRST)


def test_fewer_and_more_gpus_than_in_the_window(open_page):
    few = {**FIRST, "gpu": "Ascend-A2", "count": "1"}
    page = open_page(f"index.html?{query(few)}")
    check(read_form(page), few)
    choose(page, count="1024")
    assert "It fits on more, too" in read_form(page)["why"]
    page = open_page(f"large.html?{query({**FIRST, 'model': LARGE, 'count': '1'})}")
    result = read_form(page)
    assert result["title"] == "Does not fit"
    assert "fewer do not fit either" in result["why"]
    assert re.fullmatch(r"To make it fit: .*\b\d+ GPUs\.", result["lines"][0])
    check(result, {**FIRST, "model": LARGE, "count": "1"})


def test_each_field_changes_the_answer_and_the_address(open_page):
    page, choices = open_page("index.html?theirs=1#what"), dict(FIRST)
    for name, label in LABEL.items():
        page.get_by_role("combobox", name=label, exact=True).select_option(OTHERS[name])
        settle(page)
        choices[name] = OTHERS[name]
        check(read_form(page), choices)
        before, _, fragment = page.url.partition("#")
        assert fragment == "what"
        assert before.partition("?")[2].replace("%2F", "/") == f"theirs=1&{query(choices)}"
    assert page.evaluate("history.length") == 2, "no entry of its own"


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("if-gpu=H9000&if-count=9&if-response=", "if-count=9, if-gpu=H9000, if-response="),
        ("if-model=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "if-model=<img src=x onerror=alert(1)>"),
        (f"if-gpu={'x' * 5000}", f"if-gpu={'x' * 80}"),
    ],
)
def test_what_the_address_asks_in_vain_is_said(open_page, question, message):
    page = open_page(f"index.html?{question}&if-lora=32")
    assert page.locator("[role=status]").inner_text().startswith(f"The form does not offer {message}.")
    assert page.locator(".verl-what-if img").count() == 0
    choose(page, count="32", lora="0")
    check(read_form(page), {**FIRST, "count": "32"})


def test_two_forms_on_a_page_are_apart(open_page):
    page = open_page(f"two.html?{query(OTHERS)}")
    check(read_form(page), OTHERS)
    second = "form.verl-what-if >> nth=1"
    assert read_form(page, second)["title"] == "Fits"
    page.locator(f"{second} >> select[name=lora]").select_option("32")
    settle(page)
    page.evaluate("Object.values(verlWhatIf).at(-1).windows.forEach((window) => window.fill('why', 2))")
    page.locator(f"{second} >> select[name=count]").select_option("1")
    settle(page)
    result = read_form(page, second)
    assert (result["title"], result["bars"], result["command"]) == ("Unknown", [], "")
    assert result["why"] == "There is no estimate: why."
    check(read_form(page), OTHERS)
    assert page.url.endswith(query(OTHERS).replace("/", "%2F")) or page.url.endswith(query(OTHERS))


def test_files_are_loaded_when_they_are_needed_and_asked_for_again(site, form_folder):
    served = site(form_folder, STRICT)
    page, requests = served.open(), []
    page.on("request", lambda request: requests.append(request.url.rpartition("/")[2]))
    page.route("**/verl-what-if-*.js", lambda route: route.abort())
    choose(page, count="32")
    status = page.locator("[role=status]").inner_text()
    assert status.startswith("The answers for Qwen2.5-7B could not be loaded.")
    assert page.locator(".verl-if-answer > :visible").count() == 2, "no answer to another question"
    page.unroute("**/verl-what-if-*.js")
    choose(page, lora="32")
    check(read_form(page), {**FIRST, "count": "32", "lora": "32"})
    assert len(requests) == 2
    assert re.fullmatch(r"verl-what-if-[0-9a-f]{16}\.js", requests[0])
    choose(page, count="2", model=OTHERS["model"])
    assert len(set(requests)) == 2
    assert [problem for problem in served.problems if "ERR_FAILED" not in problem] == []
    served.problems.clear()


def test_without_javascript_are_question_answer_and_picture(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator(".verl-what-if :is(select, button)").locator("visible=true").count() == 0
    text = page.locator("form.verl-what-if").inner_text()
    assert "verl-resources plan Qwen/Qwen2.5-7B --gpus 8xH100-80GB --response 1024" in text
    assert "Qwen2.5-7B on 8 GPUs of 80 GB (H100" in text
    assert "Fits" in text
    assert page.locator("[role=figure] > svg").first.bounding_box()["width"] > 100
    page.locator("summary", has_text="Command").click()
    assert page.locator(".verl-what-if pre").is_visible()


@pytest.mark.parametrize("width", [1400, 390])
def test_nothing_moves(open_page, width):
    page = open_page(
        f"index.html?{query({**FIRST, 'gpu': 'L4', 'count': '1'})}", viewport={"width": width, "height": 900}
    )
    assert page.evaluate(SHIFT) < 0.05
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_it_works_from_a_folder(site, form_folder):
    page = site(form_folder, from_disk=True).open()
    choose(page, count="32")
    check(read_form(page), {**FIRST, "count": "32"})
