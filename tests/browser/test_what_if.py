"""The form of ``.. verl-what-if::``: its answers, its address, its files and no JavaScript; test_hardware_page.py has the keyboard."""

from __future__ import annotations

import re
import shlex
from itertools import product

import pytest
from form_pages import FIRST, LABEL, OTHERS, STRICT, answered, check, choose, query, settle, shown

SAMPLE = [
    dict(zip(FIRST, values, strict=True))
    for values in product(
        ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-72B-Instruct"),
        ("2", "8", "32"), ("RTX-4090", "H100", "H800", "B200"), ("0", "32"), ("512", "1024", "8192"),
    )
][4::17]  # fmt: skip


def test_what_is_shown_is_the_answer(open_page):
    page = open_page()
    for chosen in SAMPLE:
        choose(page, **chosen)
        check(shown(page), chosen)
    assert {answered(chosen).verdict for chosen in SAMPLE} >= {"fits", "does-not-fit"}


#: The complete answer as readers and screen readers perceive it.
WHOLE = """(form) => [...form.querySelectorAll(".verl-if-answer, .verl-if-answer *")].map((element) => [
  element.tagName, element.className, element.hidden, element.textContent, element.getAttribute("href"), element.role,
])"""


def test_the_script_says_what_the_server_has_written(open_page):
    """All texts are equal, after another answer was shown in between."""
    page = open_page()
    check(shown(page), FIRST)
    assert "?" not in page.url, "nothing was chosen"
    told = [told_again(page, page.locator("form.verl-what-if"))]
    page = open_page("firsts.html")
    told += [told_again(page, form) for form in page.locator("form.verl-what-if").all()]
    assert [verdict.partition(".")[0] for verdict in told] == ["Fits", "Fits", "Does not fit", "No estimate"]


def told_again(page, form):
    """Return the verdict of a form's first answer, which is the same after another answer was shown."""
    model = form.locator("select[name=model]")
    first, other = model.input_value(), model.locator("option:not([selected])").last
    written = form.evaluate(WHOLE)
    model.select_option(other.get_attribute("value"))
    settle(page)
    assert form.evaluate(WHOLE) != written
    model.select_option(first)
    settle(page)

    def plain(elements):
        """Return the text without Sphinx's spans around words, and without its classes of links."""
        kept = [each for each in elements if each[1] != "pre" and each[:2] != ["SPAN", ""]]
        return [
            [kind, "" if kind == "A" and "verl" not in name else name, *rest] for kind, name, *rest in kept
        ]

    assert plain(form.evaluate(WHOLE)) == plain(written)
    return form.locator("[role=status]").text_content()


@pytest.mark.parametrize(
    ("chosen", "ways"),
    [
        ({"gpu": "B200", "lora": "0", "response": "1024"}, "LoRA (rank 32) or 8 GPUs"),
        ({}, "32 GPUs"),
        ({"lora": "0"}, "Changing only the response length, LoRA or the number of GPUs is not enough."),
    ],
)
def test_what_makes_it_fit_is_looked_up(open_page, chosen, ways):
    chosen = {**OTHERS, "count": "2", **chosen}
    page = open_page(f"index.html?{query(chosen)}")
    lines = shown(page)["lines"]
    assert lines["change"] == f"To make it fit: {ways}"
    gpus = f"--gpus 2x{chosen['gpu']} --response {chosen['response']}"
    plan = f"To find settings: verl-resources plan {chosen['model']} {gpus}"
    assert lines["plan"] == plan + (" --lora 32" if chosen["lora"] == "32" else "")
    assert answered(chosen).verdict != "fits"


def test_each_field_changes_the_answer_and_the_address(open_page):
    page, chosen = open_page("index.html?theirs=1#what"), dict(FIRST)
    for name, label in LABEL.items():
        page.get_by_role("combobox", name=label, exact=True).select_option(OTHERS[name])
        settle(page)
        chosen[name] = OTHERS[name]
        check(shown(page), chosen)
        before, _, fragment = page.url.partition("#")
        assert fragment == "what"
        assert before.partition("?")[2].replace("%2F", "/") == f"theirs=1&{query(chosen)}"
    assert page.evaluate("history.length") == 2, "no entry of its own"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("if-gpu=H9000", "if-gpu=H9000"),
        ("if-count=9&if-response=", "if-count=9, if-response="),
        ("if-model=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "if-model=<img src=x onerror=alert(1)>"),
        (f"if-gpu={'x' * 5000}", f"if-gpu={'x' * 80}"),
        ("if-lora=constructor&if-response=__proto__", "if-lora=constructor, if-response=__proto__"),
    ],
)
def test_what_the_address_asks_in_vain_is_said(open_page, asked, said):
    page = open_page(f"index.html?{asked}&if-lora=32")
    problem = f"The form does not offer {said}"
    found = shown(page)
    assert found["lines"]["verdict"].startswith(problem)
    assert page.locator(".verl-what-if img").count() == 0
    choose(page, count="32", lora="0")
    check(shown(page), {**FIRST, "count": "32"})


def test_two_forms_on_a_page_are_apart(open_page):
    page = open_page(f"two.html?{query(OTHERS)}")
    check(shown(page), OTHERS)
    second = page.locator("form.verl-what-if").nth(1)
    assert shown(page, "form.verl-what-if >> nth=1")["chosen"]["model"] == "Qwen/Qwen2.5-7B"
    second.locator("select[name=model]").select_option("Qwen/Qwen2.5-0.5B")
    settle(page)
    assert shown(page, "form.verl-what-if >> nth=1")["lines"]["verdict"].startswith("No estimate.")
    check(shown(page), OTHERS)
    assert page.url.endswith(query(OTHERS)), "the address is that of the first"


def test_words_are_quoted_as_a_shell_reads_them(browser, root):
    source = (root / "sphinx_verl_resources/static/verl-what-if.js").read_text("utf-8")
    (function,) = re.findall(r"  function quoted\(word\) \{.*?\n  \}\n", source, re.DOTALL)
    words = ["Qwen/Qwen2.5-7B", "a b", "x'y''", "$(id)", "`id`", '"', "", "\u00fc", "a\\b", "a;b", "a\nb"]
    page = browser.new_page()
    assert page.evaluate(f"(words) => {{ {function} return words.map(quoted); }}", words) == list(
        map(shlex.quote, words)
    )
    page.close()


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


def test_without_javascript_are_question_answer_and_what_to_do(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator(".verl-what-if :is(select, button)").locator("visible=true").count() == 0
    text = page.locator("form.verl-what-if").inner_text()
    assert "run verl-resources plan Qwen/Qwen2.5-7B --gpus 8xH100" in text
    assert "Qwen2.5-7B on 8 × H100, all parameters, responses of up to 1,024 tokens" in text
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
