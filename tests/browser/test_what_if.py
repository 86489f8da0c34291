"""The form of ``.. verl-what-if::`` in a browser: it shows what the estimator says, and says it to everybody."""

from __future__ import annotations

import re
from itertools import product

import pytest

from sphinx_verl_resources.answer.answer import answer
from sphinx_verl_resources.answer.command import command_of
from sphinx_verl_resources.answer.question import Question
from sphinx_verl_resources.cli.data import read_data
from sphinx_verl_resources.units import gib, gib_number
from sphinx_verl_resources.views.answer import NO_RUN, trust_text
from sphinx_verl_resources.views.runs import run_title
from sphinx_verl_resources.views.verdicts import title

FORM = """\
.. verl-what-if::
   :models: Qwen/Qwen2.5-0.5B, Qwen/Qwen2.5-7B, Qwen/Qwen2.5-72B-Instruct
   :gpus: RTX-4090, H100, H800, B200
   :counts: 2 8 32
   :responses: 512 1024 8192
"""
#: A form whose first model has no estimate.
OUTSIDE = """\
.. verl-what-if::
   :models: Qwen/Qwen2.5-7B, Qwen/Qwen2.5-0.5B
   :gpus: H100
   :counts: 8
   :responses: 1024

   actor_rollout_ref.rollout.tensor_model_parallel_size: 4
"""
FIRST = {"model": "Qwen/Qwen2.5-7B", "gpu": "H100", "count": "8", "lora": "0", "response": "1024"}
OTHERS = {
    "model": "Qwen/Qwen2.5-72B-Instruct", "gpu": "RTX-4090", "count": "32", "lora": "32", "response": "8192",
}  # fmt: skip
#: Styles inside the page are those of Sphinx's own templates; the form has none, which is looked at.
STRICT = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:"
}


@pytest.fixture(scope="module")
def folder(new_project):
    """A page with a form and the rows that it links, one with two, one with a form outside of which something lies, and one without."""
    project = new_project("what-if")
    project.page(".. verl-runs::\n", "rows.rst").page(FORM).page(f"{FORM}\n{OUTSIDE}", "two.rst").page(
        OUTSIDE, "outside.rst"
    ).page("Text.", "none.rst")
    # Other themes break the strict policy themselves.
    build = project.build(html_theme="basic", html_sidebars={"**": []})
    assert build.warnings == []
    (build.out / "favicon.ico").write_bytes(b"")  # which the browser asks for by itself
    return build.out


@pytest.fixture(scope="module")
def usual(new_project):
    """A page with a form in a theme that knows narrow windows."""
    build = new_project("usual").page(FORM).build(html_theme="alabaster")
    (build.out / "favicon.ico").write_bytes(b"")
    return build.out


@pytest.fixture
def open_page(site, folder):
    """A function: a page under a strict policy, as the browser shows it."""
    served = site(folder, STRICT)
    return served.open


def query(chosen):
    return "&".join(f"if-{name}={value}" for name, value in chosen.items())


#: Asked at once, since each question to the browser takes its time.
LOOK = """(form) => {
  const texts = (place) => [...form.querySelectorAll(place)].map((element) => element.textContent.trim());
  return {
    chosen: Object.fromEntries([...form.querySelectorAll("select")].map((field) => [field.name, field.value])),
    answer: texts("[role=status] p:not([hidden])"),
    items: texts("[role=status] li"),
    links: [...form.querySelectorAll("[role=status] li a")].map((link) => link.hash),
    command: texts("pre").join(),
  };
}"""


def shown(page, place=".verl-what-if"):
    """What is chosen, and what is said of it."""
    return page.locator(place).first.evaluate(LOOK)


#: All fields at once; one by one they are tested below.
CHOOSE = """(form, chosen) => {
  for (const [name, value] of Object.entries(chosen)) {
    form.elements[name].value = value;
  }
  form.dispatchEvent(new Event("change"));
}"""

DATA = read_data([])


def answered(chosen):
    """What the answer says by itself."""
    count, lora, response = (int(chosen[name]) for name in ("count", "lora", "response"))
    return answer(Question(chosen["model"], count, chosen["gpu"], lora=lora, response=response), DATA)


def check(found, chosen):
    """The form shows what the answer says."""
    expected = answered(chosen)
    best = expected.best.estimate
    assert found["chosen"] == chosen
    assert found["answer"] == [f"{title(expected.verdict)}."]
    runs = [item.run for item in expected.evidence if item.word != "claimed"][:2]
    if runs:
        word = expected.evidence[0].word.capitalize()
        assert found["items"][0].startswith(f"{word}: {run_title(runs[0])}")
        assert found["links"] == [f"#run-{run.id}" for run in runs]
    else:
        assert found["items"][0] == NO_RUN
    figures = f"{gib_number(best.low)} to {gib_number(best.high)} of {gib(best.capacity)} per GPU"
    estimated = (
        f"Estimated: {figures} with {expected.best.name}, most in the phase “{best.peak_phase.label}”."
    )
    items = "\n".join(found["items"])
    assert estimated in items
    assert trust_text(expected.trust) in items
    assert f"Host memory: {round(best.host.total / 2**30):,} GiB on each node." in items
    assert ("What makes it fit" in items) is (expected.verdict != "fits")
    assert found["command"] == command_of(expected.best, DATA.registries)


SAMPLE = [
    dict(zip(FIRST, values, strict=True))
    for values in product(
        ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-72B-Instruct"),
        ("RTX-4090", "H100", "H800", "B200"), ("2", "8", "32"), ("0", "32"), ("512", "1024", "8192"),
    )
][4::17]  # fmt: skip


def test_what_is_shown_is_the_answer(open_page):
    page = open_page()
    verdicts, links = set(), 0
    for chosen in SAMPLE:
        page.locator(".verl-what-if form").evaluate(CHOOSE, chosen)
        found = shown(page)
        check(found, chosen)
        verdicts.add(answered(chosen).verdict)
        links += len(found["links"])
    assert len(SAMPLE) > 10
    assert verdicts >= {"fits", "does-not-fit"}
    assert links


@pytest.mark.parametrize(
    ("chosen", "ways"),
    [
        ({"model": "Qwen/Qwen2.5-72B-Instruct", "count": "2"}, "LoRA, rank 32 or 8 GPUs. "),
        ({**OTHERS, "count": "2"}, "32 GPUs. "),
    ],
)
def test_what_makes_it_fit_is_looked_up(open_page, chosen, ways):
    chosen = {**FIRST, "gpu": "B200", **chosen}
    page = open_page(f"index.html?{query(chosen)}")
    (item,) = (text for text in shown(page)["items"] if text.startswith("What makes it fit"))
    assert item.startswith(
        f"What makes it fit: {ways}To see the settings that do, run verl-resources plan {chosen['model']}"
    )
    assert answered(chosen).verdict != "fits"


def test_it_opens_with_a_usual_choice(open_page):
    page = open_page()
    check(shown(page), FIRST)
    assert "?" not in page.url, "nobody has chosen anything"


@pytest.mark.parametrize("name", FIRST)
def test_each_field_changes_the_answer_and_the_address(open_page, name):
    page = open_page("index.html?theirs=1#what")
    page.get_by_label(re.compile("^" + LABEL[name])).select_option(OTHERS[name])
    chosen = {**FIRST, name: OTHERS[name]}
    check(shown(page), chosen)
    before, _, fragment = page.url.partition("#")
    assert fragment == "what"
    assert before.partition("?")[2].replace("%2F", "/") == f"theirs=1&{query({**chosen})}"
    assert page.evaluate("history.length") == 2, "no entry of its own"


LABEL = {
    "model": "Model", "gpu": "GPU$", "count": "Number of GPUs", "lora": "Trained", "response": "Longest response",
}  # fmt: skip


def test_an_address_opens_the_form_as_it_was_left(open_page):
    check(shown(open_page(f"index.html?{query(OTHERS)}")), OTHERS)


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
def test_nonsense_in_the_address_is_said_and_ignored(open_page, asked, said):
    page = open_page(f"index.html?{asked}")
    found = shown(page)
    problem = found["answer"].pop(0)
    assert f"what the form does not have: {said}. The form shows its own choice" in problem
    check(found, FIRST)
    assert page.locator(".verl-what-if img").count() == 0
    page.locator("select[name=count]").select_option("32")
    check(shown(page), {**FIRST, "count": "32"})


def test_case_does_not_matter_in_the_address(open_page):
    check(shown(open_page("index.html?if-gpu=b200&if-lora=32")), {**FIRST, "gpu": "B200", "lora": "32"})


def test_a_combination_outside_the_grid_says_so_and_why(open_page):
    page = open_page("outside.html")
    found = shown(page)
    (answer,) = found["answer"]
    assert answer.startswith("Outside the grid. There is no estimate for this combination: ")
    assert "does not divide the model's 14 attention heads" in answer
    assert found["command"] == ""
    page.locator("select[name=model]").select_option("Qwen/Qwen2.5-7B")
    assert "model.path=Qwen/Qwen2.5-7B" in shown(page)["command"]


def test_the_keyboard_reaches_every_field_in_order(open_page):
    page = open_page()
    page.locator("select[name=model]").focus()
    order = []
    for _number in FIRST:
        order.append(page.evaluate("document.activeElement.name"))
        page.keyboard.press("Tab")
    assert order == list(FIRST)
    page.locator("select[name=response]").focus()
    page.keyboard.press("ArrowUp")
    check(shown(page), {**FIRST, "response": "512"})
    page.locator(".verl-what-if summary").focus()
    page.keyboard.press("Enter")
    assert page.locator(".verl-what-if pre").is_visible()
    page.locator("select[name=count]").select_option("32")
    assert page.locator(".verl-what-if pre").is_visible(), "it stays open"


def test_it_has_names_for_those_who_do_not_see_it(open_page):
    page = open_page()
    assert page.get_by_role("group", name="What if").count() == 1
    for label in ("Model", "GPU", "Number of GPUs", "Trained", "Longest response"):
        assert page.get_by_role("combobox", name=label, exact=True).count() == 1
    assert page.get_by_role("status").inner_text().startswith("Fits.")
    assert page.locator(".verl-what-if [style]").count() == 0


def test_two_forms_on_a_page_are_apart(open_page):
    page = open_page(f"two.html?{query(OTHERS)}")
    check(shown(page), OTHERS)
    second = shown(page, ".verl-what-if >> nth=1")
    assert second["chosen"]["model"] == "Qwen/Qwen2.5-0.5B"
    assert second["answer"][0].startswith("Outside the grid.")
    page.locator(".verl-what-if").nth(1).locator("select[name=model]").select_option("Qwen/Qwen2.5-7B")
    check(shown(page), OTHERS)
    assert page.url.endswith(query(OTHERS)), "the address is that of the first"
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((element) => element.id)")
    assert len(ids) == len(set(ids))


def test_without_a_script_stands_the_sentence(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator(".verl-what-if > p").is_visible()
    assert page.locator(".verl-what-if form, .verl-what-if select").count() == 0


def test_without_its_grid_stands_the_sentence(open_page):
    page = open_page("none.html")
    page.add_script_tag(url="_static/verl-what-if.js")
    assert page.locator("form.verl-what-if-form").count() == 0
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<div class=\"verl-what-if verl-grid-0\"><p>So.</p></div>')"
    )
    page.add_script_tag(url="_static/verl-what-if.js")
    assert page.locator(".verl-what-if > p").is_visible()
    assert page.locator("form.verl-what-if-form").count() == 0


def test_with_a_script_the_sentence_is_for_print(open_page):
    page = open_page()
    sentence, form = page.locator(".verl-what-if > p"), page.locator(".verl-what-if form")
    assert (sentence.is_visible(), form.is_visible()) == (False, True)
    page.emulate_media(media="print")
    assert (sentence.is_visible(), form.is_visible()) == (True, False)


def test_a_page_without_a_form_loads_nothing_of_it(open_page):
    page = open_page("none.html")
    assert page.evaluate("typeof globalThis.verlWhatIf") == "undefined"
    assert page.locator("script[src*=verl-what-if]").count() == 0


def test_it_works_from_a_folder(browser, folder):
    page = browser.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto((folder / "index.html").as_uri())
    page.locator("select[name=count]").select_option("32")
    check(shown(page), {**FIRST, "count": "32"})
    assert problems == []


@pytest.mark.parametrize("width", [360, 800, 1440])
def test_it_is_no_wider_than_its_place(site, usual, width):
    page = site(usual).open(viewport={"width": width, "height": 800})
    wide = """(form) => {
      const edge = form.parentElement.getBoundingClientRect().right + 1;
      const inside = [...form.querySelectorAll("*:not(option, svg *)")];
      return inside.filter((one) => one.getBoundingClientRect().right > edge).map((one) => one.tagName);
    }"""
    assert page.locator(".verl-what-if").evaluate(wide) == []
    page.locator("select[name=gpu]").select_option("RTX-4090")
    page.locator("select[name=model]").select_option("Qwen/Qwen2.5-72B-Instruct")
    page.locator(".verl-what-if summary").click()
    assert page.locator(".verl-what-if").evaluate(wide) == []
