"""The answers of the form of ``.. verl-what-if::`` in a browser, and the address with its choices."""

from __future__ import annotations

import re
import shlex
from itertools import product

import pytest
from form_pages import BELOW, FIRST, LABEL, OTHERS, answered, check, choose, query, settle, shown

SAMPLE = [
    dict(zip(FIRST, values, strict=True))
    for values in product(
        ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-72B-Instruct"),
        ("2", "8", "32"), ("RTX-4090", "H100", "H800", "B200"), ("0", "32"), ("512", "1024", "8192"),
    )
][4::17]  # fmt: skip


def test_what_is_shown_is_the_answer(open_page):
    page = open_page()
    verdicts, links, named = set(), 0, set()
    for chosen in SAMPLE:
        choose(page, **chosen)
        found = shown(page)
        check(found, chosen)
        verdicts.add(answered(chosen).verdict)
        links += len(found["links"])
        named |= found["lines"].keys()
        named |= {BELOW} if BELOW in found["lines"].get("smallest-ran", "") else set()
    assert len(SAMPLE) > 10
    assert verdicts >= {"fits", "does-not-fit"}
    assert links
    assert named >= {"ran", "smallest-ran", BELOW}


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
        """Return the text without Sphinx's spans around words."""
        return [
            [kind, name, *rest]
            for kind, name, *rest in elements
            if name != "pre" and (kind, name) != ("SPAN", "")
        ]

    again = [[kind, {"": "reference internal"}.get(name, name) if kind == "A" else name, *rest]
             for kind, name, *rest in form.evaluate(WHOLE)]  # fmt: skip
    assert plain(again) == plain(written)
    return form.locator("[role=status]").text_content()


@pytest.mark.parametrize(
    ("chosen", "ways"),
    [
        ({"model": "Qwen/Qwen2.5-72B-Instruct", "count": "2"}, "LoRA (rank 32) or 8 GPUs"),
        ({**OTHERS, "count": "2"}, "32 GPUs"),
        (
            {"model": "Qwen/Qwen2.5-72B-Instruct", "gpu": "RTX-4090", "count": "2"},
            "Changing only the response length, LoRA or the number of GPUs is not enough.",
        ),
    ],
)
def test_what_makes_it_fit_is_looked_up(open_page, chosen, ways):
    chosen = {**FIRST, "gpu": "B200", **chosen}
    page = open_page(f"index.html?{query(chosen)}")
    lines = shown(page)["lines"]
    assert lines["change"] == f"To make it fit: {ways}"
    gpus = f"--gpus 2x{chosen['gpu']} --response {chosen['response']}"
    plan = f"To find settings: verl-resources plan {chosen['model']} {gpus}"
    assert lines["plan"] == plan + (" --lora 32" if chosen["lora"] == "32" else "")
    assert answered(chosen).verdict != "fits"
    lines_of_options = "() => [...document.querySelectorAll('.verl-if-plan code .pre')].filter((word) => word.textContent.startsWith('--')).map((word) => word.getClientRects().length)"
    for width in range(320, 640, 40):
        page.set_viewport_size({"width": width, "height": 900})
        assert {*page.evaluate(lines_of_options)} == {1}, "an option breaks after its hyphens"


@pytest.mark.parametrize("name", FIRST)
def test_each_field_changes_the_answer_and_the_address(open_page, name):
    page = open_page("index.html?theirs=1#what")
    page.get_by_role("combobox", name=LABEL[name], exact=True).select_option(OTHERS[name])
    settle(page)
    chosen = {**FIRST, name: OTHERS[name]}
    check(shown(page), chosen)
    before, _, fragment = page.url.partition("#")
    assert fragment == "what"
    assert before.partition("?")[2].replace("%2F", "/") == f"theirs=1&{query({**chosen})}"
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
    ids=["unknown", "several", "markup", "long", "names of JavaScript"],
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
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((element) => element.id)")
    assert len(ids) == len(set(ids))


def test_words_are_quoted_as_a_shell_reads_them(browser, root):
    source = (root / "sphinx_verl_resources/static/verl-what-if.js").read_text("utf-8")
    (function,) = re.findall(r"  function quoted\(word\) \{.*?\n  \}\n", source, re.DOTALL)
    words = [
        "Qwen/Qwen2.5-7B",
        "8xH100",
        "a b",
        "x'y''",
        "$(id)",
        "`id`",
        '"',
        "",
        "\u00fc",
        "a\\b",
        "a;b",
        "a\nb",
    ]
    page = browser.new_page()
    assert page.evaluate(f"(words) => {{ {function} return words.map(quoted); }}", words) == list(
        map(shlex.quote, words)
    )
    page.close()
